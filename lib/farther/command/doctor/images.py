"""How many images each stage of a project has to process, and what has been processed already."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from farther.command.doctor.pipeline import DRAWN
from farther.command.project import Project


def split_images(project: Project, benchmark: str) -> dict[str, int | None]:
    """Images of each split: counted where `curate` ran, else as many as its subset has; None if unknown."""
    from farther.tables.parquet import count_rows

    checked = project.benchmark(benchmark)
    sources = checked.id_sources
    sources |= {name: (split.dataset, split.subset) for name, split in checked.splits.items()}
    counts: dict[str, int | None] = {}
    for name, (dataset, subset) in sources.items():
        table = project.artifacts / "splits" / benchmark / name / "images.parquet"
        known = subset_images(project, dataset, subset)
        most = checked.most.get(name)
        if table.is_file() and made_with(project, f"curate@{benchmark}", f"benchmarks.{benchmark}"):
            counts[name] = count_rows(table)
        else:
            counts[name] = known if most is None else min(most, most if known is None else known)
    return counts


def subset_images(project: Project, dataset: str, subset: str) -> int | None:
    """Images of a subset: counted where `ingest` ran, else its size in the demo or as published; None if unknown."""
    from farther.datasets.sizes import images_of
    from farther.tables.parquet import count_rows

    params = project.section("datasets").get(dataset) or {}
    table = project.artifacts / "tables" / dataset / subset / "images.parquet"
    if table.is_file() and made_with(project, f"ingest@{dataset}", f"datasets.{dataset}"):
        return count_rows(table)
    if not str(params.get("root", "")).startswith(DRAWN):
        return images_of(params, subset)
    sizes = project.section("demo").get(dataset)
    return sizes.get(subset) if isinstance(sizes, dict) else sizes


def are_there(project: Project, run: str, benchmark: str) -> bool:
    """Whether the regions of a run are there, and of the detector and splits that the parameters name."""
    return (
        (project.artifacts / "regions" / run).is_dir()
        and made_with(project, f"infer@{run}", f"detectors.{run}")
        and made_with(project, f"curate@{benchmark}", f"benchmarks.{benchmark}")
    )


def made_with(project: Project, stage: str, *keys: str) -> bool:
    """Whether a stage last ran with these parameters as they are now.

    Args:
        project: Its `dvc.lock` is read; without one, stages were run by hand and their outputs count as current.
        stage: As DVC calls it: `curate@voc`.
        keys: Sections of the parameters, or entries of sections (`benchmarks.voc`).
    """
    lock = project.folder / "dvc.lock"
    if not lock.is_file():
        return True
    used = _recorded(lock.resolve(), lock.stat().st_mtime_ns).get(stage) or {}
    for key in keys:
        section, _, entry = key.partition(".")
        now = project.params.get(section)
        now = (now.get(entry) if isinstance(now, dict) else None) if entry else now
        if key not in used or used[key] != now:
            return False
    return True


@cache
def _recorded(lock: Path, changed: int) -> dict[str, Any]:
    """The parameters of each stage in a dvc.lock, read once for as long as it stays as it is."""
    from farther.tables.documents import read_yaml

    held = read_yaml(lock)
    stages = (held.get("stages") if isinstance(held, dict) else None) or {}
    return {name: (stage.get("params") or {}).get("params.yaml") for name, stage in stages.items()}

"""How many images each stage of a project has to process, and what has been processed already."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from farther.command.doctor.pipeline import DRAWN
from farther.command.project import Project


def split_images(project: Project, benchmark: str) -> dict[str, int | None]:
    """Images of each split: counted where `curate` ran, else the most that it can have.

    None if unknown.

    A split can have as many images as its subset, or as its `most`, or as there are candidates for
    it.
    """
    from farther.tables.parquet import count_rows

    checked = project.benchmark(benchmark)
    sources = checked.id_sources
    sources |= {name: (split.dataset, split.subset) for name, split in checked.splits.items()}
    is_curated = made_with(project, "curate", f"benchmarks.{benchmark}")
    counts: dict[str, int | None] = {}
    for name, (dataset, subset) in sources.items():
        table = project.artifacts / "splits" / benchmark / name / "images.parquet"
        if table.is_file() and is_curated:
            counts[name] = count_rows(table)
            continue
        limits = [subset_images(project, dataset, subset), checked.most.get(name)]
        if name in checked.splits and checked.splits[name].candidates is not None:
            limits.append(_most_candidates(project, benchmark))
        counts[name] = min([limit for limit in limits if limit is not None], default=None)
    return counts


def _most_candidates(project: Project, benchmark: str) -> int | None:
    """The most candidates per distance that `enrich` lists.

    None where the project has no such entry.
    """
    from farther.curation.enrichment import enrichment

    entry = project.section("enrich").get(benchmark)
    if entry is None:
        return None
    return enrichment(benchmark, entry).most


def subset_images(project: Project, dataset: str, subset: str) -> int | None:
    """Images of a subset: counted where `ingest` ran, else its size in the demo or as published.

    None if unknown.
    """
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
        and made_with(project, "curate", f"benchmarks.{benchmark}")
    )


def made_with(project: Project, stage: str, *keys: str) -> bool:
    """Whether a stage last ran with these parameters as they are now.

    Args:
        project: Its `dvc.lock` is read; without one, stages were run by hand and their outputs
            count as current.
        stage: As DVC calls it: `ingest@voc`.
        keys: Sections of the parameters, or entries of sections (`benchmarks.voc`).
    """
    lock = project.folder / "dvc.lock"
    if not lock.is_file():
        return True
    used = _recorded(lock.resolve(), lock.stat().st_mtime_ns).get(stage) or {}
    return all(key in used and used[key] == _entry(project.params, key) for key in keys)


def _entry(params: dict[str, Any], key: str) -> Any:
    section, _, entry = key.partition(".")
    return (params.get(section) or {}).get(entry) if entry else params.get(section)


@cache
def _recorded(lock: Path, changed: int) -> dict[str, Any]:
    """The parameters of each stage in a dvc.lock, read once for as long as it stays as it is."""
    from farther.tables.documents import read_yaml

    held = read_yaml(lock)
    stages = (held.get("stages") if isinstance(held, dict) else None) or {}
    used = {
        name: (stage.get("params") or {}).get("params.yaml") or {} for name, stage in stages.items()
    }
    for params in used.values():  # a stage may have a section as a whole
        sections = [
            (name, entries) for name, entries in params.items() if isinstance(entries, dict)
        ]
        params |= {
            f"{name}.{key}": entry for name, entries in sections for key, entry in entries.items()
        }
    return used

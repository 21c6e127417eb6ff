"""Number of images that each stage has to process, and what has been processed already."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from farther.command.doctor.pipeline import DEMO_ROOT
from farther.command.project import Project
from farther.curation.enrichment import enrichment
from farther.datasets.sizes import images_of
from farther.tables.documents import read_yaml
from farther.tables.parquet import count_rows


def images_per_split(project: Project, benchmark: str) -> dict[str, int | None]:
    """Number of images of each split: counted where `curate` ran, else the maximum.

    A split can have as many images as its subset, or as its `most`, or as there are candidates for
    it.

    Returns:
        {split: number of images}; None where it is unknown.
    """
    checked = project.benchmark(benchmark)
    sources = dict(checked.id_sources)
    for name, split in checked.splits.items():
        sources[name] = (split.dataset, split.subset)
    is_curated = is_made_with(project, "curate", f"benchmarks.{benchmark}")
    counts: dict[str, int | None] = {}
    for name, (dataset, subset) in sources.items():
        table = project.artifacts / "splits" / benchmark / name / "images.parquet"
        if table.is_file() and is_curated:
            counts[name] = count_rows(table)
            continue
        limits = [count_subset_images(project, dataset, subset), checked.most.get(name)]
        if name in checked.splits and checked.splits[name].candidates is not None:
            limits.append(_most_candidates(project, benchmark))
        counts[name] = min([limit for limit in limits if limit is not None], default=None)
    return counts


def _most_candidates(project: Project, benchmark: str) -> int | None:
    """Maximum number of candidates per distance that `enrich` lists; None without an entry."""
    entry = project.section("enrich").get(benchmark)
    if entry is None:
        return None
    return enrichment(benchmark, entry).most


def count_subset_images(project: Project, dataset: str, subset: str) -> int | None:
    """Number of images of a subset; None if unknown.

    Counted where `ingest` ran, else the subset's size in the demo or as published.
    """
    params = project.section("datasets").get(dataset) or {}
    table = project.artifacts / "tables" / dataset / subset / "images.parquet"
    if table.is_file() and is_made_with(project, f"ingest@{dataset}", f"datasets.{dataset}"):
        return count_rows(table)
    if not str(params.get("root", "")).startswith(DEMO_ROOT):
        return images_of(params, subset)
    sizes = project.section("demo").get(dataset)
    return sizes.get(subset) if isinstance(sizes, dict) else sizes


def has_regions(project: Project, run: str, benchmark: str) -> bool:
    """Whether a run's regions exist, of the detector and splits that the parameters name."""
    return (
        (project.artifacts / "regions" / run).is_dir()
        and is_made_with(project, f"infer@{run}", f"detectors.{run}")
        and is_made_with(project, "curate", f"benchmarks.{benchmark}")
    )


def is_made_with(project: Project, stage: str, *keys: str) -> bool:
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
    """A section, or an entry of a section: `benchmarks.voc`."""
    section, _, entry = key.partition(".")
    values = params.get(section)
    if not entry:
        return values
    return (values or {}).get(entry)


@cache
def _recorded(lock: Path, changed: int) -> dict[str, Any]:
    """The parameters of each stage in a dvc.lock, read once for as long as it stays as it is.

    Args:
        lock: The file.
        changed: Time of its last change.

    Returns:
        {stage: {key: value}}: a section that a stage has as a whole also has a key per entry.
    """
    document = read_yaml(lock)
    stages: dict[str, Any] = {}
    if isinstance(document, dict):
        stages = document.get("stages") or {}
    params_by_stage = {}
    for name, stage in stages.items():
        params = (stage.get("params") or {}).get("params.yaml") or {}
        params_by_stage[name] = {**params, **_entries(params)}
    return params_by_stage


def _entries(params: dict[str, Any]) -> dict[str, Any]:
    """{section.entry: value} of all sections."""
    entries = {}
    for section, values in params.items():
        if isinstance(values, dict):
            for name, value in values.items():
                entries[f"{section}.{name}"] = value
    return entries

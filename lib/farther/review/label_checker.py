"""The run whose detections check a benchmark's labels: they suggest unlabelled objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.curation import Benchmark, benchmark, read_rules
from farther.datasets import ClassNames
from farther.errors import DataError, ParameterError
from farther.tables import RegionsFolder
from farther.tables.files import is_present
from farther.tables.folders import listed

#: Name of each class in each dataset.
CLASS_NAMES = Path("data/names/classes.yaml")


@dataclass(frozen=True)
class LabelChecker:
    """A run whose detections suggest unlabelled objects.

    Args:
        run: Its name; its regions are in `artifacts/regions/<run>`.
        splits: Dataset and subset → the splits of the run's benchmark that draw from there. The run
            did not see images in none of them.
        id_class: The run's class → the ID class of the benchmark under review; other classes do not
            count.
    """

    run: str
    splits: Mapping[tuple[str, str], Sequence[str]]
    id_class: Mapping[str, str]


def label_checker_for(
    name: str, params: Mapping[str, Any], root: str | Path = ".", run: str | None = None
) -> LabelChecker | None:
    """The run that looks for unlabelled objects in a benchmark's images.

    A run of another benchmark may know the ID classes better: its classes are matched by
    `data/names/classes.yaml`, and by their names where that file does not have them.

    Args:
        name: The benchmark.
        params: All sections of params.yaml.
        root: The project's folder.
        run: The run; by default that of section `review`, or else the benchmark's first one.

    Returns:
        The run; None where none has regions.

    Raises:
        ParameterError: the run is unknown, has no regions, or knows none of the ID classes.
    """
    detectors = params.get("detectors") or {}
    benchmarks = params["benchmarks"]
    regions = Path(root) / "artifacts" / "regions"
    runs_with_regions = [name for name in detectors if (regions / name).is_dir()]
    if run is None:
        run = _default_run(name, params, runs_with_regions)
    if run is None:
        return None
    if run not in runs_with_regions:
        known = ", ".join(runs_with_regions) or "none; run `farther repro` first"
        raise ParameterError(f"unknown run {run!r}, or it has no regions. Known: {known}")

    own_name = detectors[run]["benchmark"]
    own_benchmark = benchmark(own_name, benchmarks[own_name])
    splits: dict[tuple[str, str], list[str]] = {}
    for split, settings in own_benchmark.splits.items():
        splits.setdefault(settings.origin, []).append(split)

    reviewed = benchmark(name, benchmarks[name])
    classes = _classes_of(regions / run)
    id_class = match_id_classes(classes, own_benchmark.id, reviewed, Path(root) / CLASS_NAMES)
    if not id_class:
        raise ParameterError(f"run {run!r} knows none of the classes of benchmark {name!r}")
    return LabelChecker(run, splits, id_class)


def _default_run(
    name: str, params: Mapping[str, Any], runs_with_regions: Sequence[str]
) -> str | None:
    named_run = (params.get("review") or {}).get(name)
    if named_run in runs_with_regions:
        return str(named_run)
    for run in runs_with_regions:
        if params["detectors"][run].get("benchmark") == name:
            return run
    return None


def _classes_of(regions: Path) -> Sequence[str]:
    """Names of a run's classes, from its first split."""
    headers = listed(regions, "*/regions.json")
    if not headers:
        return ()
    return RegionsFolder(headers[0].parent).classes


def match_id_classes(
    classes: Sequence[str], dataset: str, reviewed: Benchmark, file: Path
) -> dict[str, str]:
    """ID class of a benchmark for each class of a detector that is one.

    Args:
        classes: The detector's classes.
        dataset: The dataset that they are classes of.
        reviewed: The benchmark.
        file: Names of each class in each dataset; names alone are compared where it is absent, or
            does not have a class.
    """
    id_classes = set(read_rules(reviewed).id_classes)
    names = None
    if dataset != reviewed.id and is_present(file):
        names = ClassNames(file)
    matches = {}
    for name in classes:
        candidates = [name]
        if names is not None:
            with suppress(DataError):  # the file of names does not have the class
                candidates += names.same(name, dataset, reviewed.id)
        for candidate in candidates:
            if candidate in id_classes:
                matches[name] = candidate
                break
    return matches

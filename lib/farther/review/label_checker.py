"""The run whose detections suggest unlabelled objects in a benchmark's images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
class Watcher:
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


def watcher_for(
    name: str, params: Mapping[str, Any], root: str | Path = ".", wanted: str | None = None
) -> Watcher | None:
    """The run that looks for unlabelled objects in a benchmark's images; None where none of its runs has regions.

    A run of another benchmark may know the ID classes better: its classes are matched by
    `data/names/classes.yaml`, and by their names where that file does not have them.
    """
    detectors, benchmarks = params.get("detectors") or {}, params["benchmarks"]
    regions = Path(root) / "artifacts" / "regions"
    runs = [run for run in detectors if (regions / run).is_dir()]
    named = (params.get("review") or {}).get(name)
    trained = [run for run in runs if detectors[run].get("benchmark") == name]
    run = wanted or (named if named in runs else next(iter(trained), None))
    if run is None:
        return None
    if run not in runs:
        known = ", ".join(runs) or "none; run `dvc repro infer` first"
        raise ParameterError(f"unknown run {run!r}, or it has no regions. Known: {known}")
    watched = benchmark(detectors[run]["benchmark"], benchmarks[detectors[run]["benchmark"]])
    splits: dict[tuple[str, str], list[str]] = {}
    for split, drawn in watched.splits.items():
        splits.setdefault(drawn.origin, []).append(split)
    reviewed = benchmark(name, benchmarks[name])
    folders = listed(regions / run, "*/regions.json")
    classes = RegionsFolder(folders[0].parent).classes if folders else ()
    id_class = _id_classes(classes, watched.id, reviewed, Path(root) / CLASS_NAMES)
    if not id_class:
        raise ParameterError(f"run {run!r} knows none of the classes of benchmark {name!r}")
    return Watcher(run, splits, id_class)


def _id_classes(
    classes: Sequence[str], dataset: str, reviewed: Benchmark, file: Path
) -> dict[str, str]:
    """Class of a detector of `dataset` → ID class of the benchmark."""
    ids = set(read_rules(reviewed).id_classes)
    names = None
    if dataset != reviewed.id and is_present(file):
        names = ClassNames(file)
    found = {}
    for name in classes:
        try:
            others = () if names is None else names.same(name, dataset, reviewed.id)
        except DataError:  # the file of names does not have the class
            others = ()
        same = [one for one in (name, *others) if one in ids]
        if same:
            found[name] = same[0]
    return found

"""How a figure was computed: its definition, the counts behind it, the thresholds, and what was read."""

from __future__ import annotations

import string
from typing import Any

from farther.command.definitions import DEFINITIONS, Definition
from farther.command.project import Project, choose
from farther.errors import DataError, ParameterError
from farther.tables.files import inside, read_json


def explain_number(project: Project, run: str, method: str, split: str, metric: str) -> dict[str, Any]:
    """What stands behind a figure of `artifacts/metrics`.

    Args:
        project: Its `artifacts/evaluation` is read.
        run, method, split, metric: The figure; for those of the detector alone (map, threshold, no_detection) `method`
            may be any.

    Returns:
        value, definition, formula with its counts, interval, thresholds, protocol, what was read with digests, files.

    Raises:
        ParameterError: a name is unknown, or the method does not apply to the run's detector.
        DataError: the run was not evaluated.
    """
    project.run(run)
    file = inside(project.artifacts / "evaluation", f"{run}.json")
    if not file.is_file():
        raise DataError(f"{run} was not evaluated yet: run `dvc repro`", file=file)
    report = read_json(file)
    definition = DEFINITIONS[choose("metric", metric, DEFINITIONS)]
    if definition.group == "detector":
        return _of_detector(report, definition)
    settings = report["settings"]
    split = choose("split of this run", split, set(report["splits"]) - {settings["calibration_split"]})
    if definition.group == "split":
        return _of_split(report, definition, split)
    if method in report["not_applicable"]:
        raise ParameterError(f"{method} does not apply to {run}: {report['not_applicable'][method]}")
    method = choose("method of this run", method, report["methods"])
    splits = report["methods"][method]["splits"]
    if split not in splits:
        raise ParameterError(f"{split!r} is the ID split, with which the OOD splits are compared: take one of these")
    return _of_method(project, report, definition, method, split)


def _of_method(
    project: Project, report: dict[str, Any], definition: Definition, method: str, split: str
) -> dict[str, Any]:
    run, id_split = report["run"], report["settings"]["id_split"]
    evaluated = report["methods"][method]
    figures = evaluated["splits"][split]
    values = {**figures["ood"], **figures["open_set"]}
    fitted = read_json(inside(project.artifacts / "fitted", f"{run}/{method}/threshold.json"))
    best = figures.get("against_best", {}).get(definition.name)
    return {
        **_head(report, definition, values.get(definition.name)),
        "formula": _filled(definition.formula, values),
        "interval": figures.get("intervals", {}).get(definition.name),
        "replicates": report["settings"]["replicates"],
        "against_best": best if best and best["best"] != method else None,
        "tau": {**fitted, "id_regions_kept": evaluated["id_regions_kept"], "id_regions": evaluated["id_regions"]},
        "method": {"name": evaluated["fitted"]["name"], "params": evaluated["fitted"]["params"]},
        "chosen": evaluated["fitted"].get("choice"),
        "fitted_on": (evaluated["fitted"].get("state") or {}).get("fitted_on_", {}).get("regions"),
        **_inputs(report, (id_split, split)),
        "files": [
            f"artifacts/metrics/{run}/{split}/{method}.json",
            f"artifacts/evaluation/{run}.json",
            f"artifacts/scores/{run}/{method}/{split}.parquet",
            f"artifacts/scores/{run}/{method}/{id_split}.parquet",
            f"artifacts/fitted/{run}/{method}/",
            *_shared_files(report, (id_split, split)),
        ],
        "stages": [f"evaluate@{run}", f"score@{run}-{method}", f"fit@{run}-{method}", *_shared_stages(report)],
    }


def _of_split(report: dict[str, Any], definition: Definition, split: str) -> dict[str, Any]:
    counts = report["splits"][split]
    return {
        **_head(report, definition, counts["no_detection"]),
        "formula": _filled(definition.formula, counts),
        **_inputs(report, (split,)),
        "files": [f"artifacts/metrics/{report['run']}/{split}/detector.json", *_shared_files(report, (split,))],
        "stages": [f"evaluate@{report['run']}", *_shared_stages(report)],
    }


def _of_detector(report: dict[str, Any], definition: Definition) -> dict[str, Any]:
    closed = report["closed_set"]
    names = {"map": "ap", "map50": "ap50"}
    value = report["threshold"] if definition.name == "threshold" else closed[names[definition.name]]
    interval = (closed.get("intervals") or {}).get(names.get(definition.name, ""))
    id_split = report["settings"]["id_split"]
    return {
        **_head(report, definition, value),
        "formula": _filled(definition.formula, report),
        "interval": interval,
        "replicates": report["settings"]["replicates"],
        **_inputs(report, (id_split,)),
        "files": [f"artifacts/metrics/{report['run']}/detector.json", *_shared_files(report, (id_split,))],
        "stages": [f"evaluate@{report['run']}", *_shared_stages(report)],
    }


def _head(report: dict[str, Any], definition: Definition, value: float | None) -> dict[str, Any]:
    settings = report["settings"]
    return {
        "metric": definition.name,
        "value": value,
        "says": definition.says,
        "better": definition.better,
        "source": definition.source,
        "protocol": settings["protocol"],
        "iou": settings["iou"],
        "t*": {"threshold": report["threshold"], "rule": report["threshold_rule"]},
        "detector": report["detector"],
    }


def _inputs(report: dict[str, Any], splits: tuple[str, ...]) -> dict[str, Any]:
    wanted = ("images", "failed_images", "objects", "regions", "inputs")
    return {"splits": {name: {key: report["splits"][name][key] for key in wanted} for name in splits}}


def _shared_files(report: dict[str, Any], splits: tuple[str, ...]) -> list[str]:
    regions = [f"artifacts/regions/{report['run']}/{split}/" for split in splits]
    tables = [f"artifacts/splits/{report['benchmark']}/{split}/" for split in splits]
    return [f"artifacts/thresholds/{report['run']}.json", *regions, *tables]


def _shared_stages(report: dict[str, Any]) -> list[str]:
    return [f"threshold@{report['run']}", f"infer@{report['run']}", f"curate@{report['benchmark']}"]


def _filled(formula: str, values: dict[str, Any]) -> str:
    """The formula with the counts that it names."""
    names = [name for _, name, _, _ in string.Formatter().parse(formula) if name]
    return formula.format(**{name: values.get(name, "?") for name in names})

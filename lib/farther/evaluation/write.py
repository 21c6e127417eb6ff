"""The files that the stage `evaluate` writes for people, DVC and the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from farther.evaluation import plots
from farther.evaluation.files import RunFiles
from farther.metrics.catalogue import COMPARED, METRICS
from farther.tables.documents import write_json, write_sealed
from farther.tables.files import inside
from farther.tables.writing import write_aside


def write_run(
    files: RunFiles,
    report: Mapping[str, Any],
    frames: Mapping[str, Mapping[str, pl.DataFrame]],
    map_at: Mapping[str, Mapping[str, float | None]],
) -> None:
    """Writes metrics, plots and `evaluation/<run>.json`; files of an earlier evaluation are replaced as a whole.

    Args:
        report: The content of `evaluation/<run>.json`.
        frames: {method: {kind of plot: rows}}.
        map_at: {t*: {"map50", "map"}} of the detector.
    """
    with write_aside(files.metrics) as folder:
        _write_metrics(folder, report)
    with write_aside(files.plots) as folder:
        plots.write_csv(folder, _plots(report, frames, map_at))
    write_sealed(files.evaluation, report)


def _write_metrics(folder: Path, report: Mapping[str, Any]) -> None:
    closed = report["closed_set"]
    classifier = (
        {name: report["classifier"][name] for name in ("accuracy", "nll", "ece")} if report["classifier"] else {}
    )
    of_detector = {"map50": closed["ap50"], "map": closed["ap"], **classifier, "threshold": report["threshold"]}
    write_json(folder / "detector.json", of_detector)
    write_json(folder / "methods.json", {name: _of_method(found) for name, found in report["methods"].items()})
    for name, split in report["splits"].items():
        write_json(inside(folder, f"{name}/detector.json"), {"no_detection": split["no_detection"]})
    for method, evaluated in report["methods"].items():
        for split, results in evaluated["splits"].items():
            compared = {name: METRICS[name].of(results) for name in COMPARED}
            write_json(inside(folder, f"{split}/{method}.json"), {**compared, **results["user_defined"]})


def _of_method(evaluated: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a method that belong to no single split."""
    means = {
        f"{distance}_{name}": of[name]
        for distance, of in evaluated["means"].items()
        for name in ("auroc", "fpr95", "full_spectrum_auroc", "oscr")
        if name in of
    }
    errors = {name: evaluated["misclassification"][name] for name in ("auroc", "fpr95", "aurc", "e_aurc")}
    costs = {name: evaluated["costs"][name] for name in ("false_alarms", "id_flagged")}
    return {**means, **{f"misclassification_{name}": value for name, value in errors.items()}, **costs}


def _plots(
    report: Mapping[str, Any],
    frames: Mapping[str, Mapping[str, pl.DataFrame]],
    map_at: Mapping[str, Mapping[str, float | None]],
) -> dict[str, pl.DataFrame]:
    """The rows of all methods, sorted by split, and those of the detector."""
    found = {
        kind: pl.concat([plots.frame(kind, []), *(of_method[kind] for of_method in frames.values())])
        for kind in plots.OF_METHODS
    }
    order = {split: number for number, split in enumerate(report["splits"])}
    by_split = pl.col("split").replace_strict(order, return_dtype=pl.Int64)
    found = {kind: rows.sort(by_split, maintain_order=True) for kind, rows in found.items()}
    of_detector = pl.DataFrame(
        [{"t": float(t), **values} for t, values in map_at.items()],
        schema={"t": pl.Float64, "map50": pl.Float64, "map": pl.Float64},
    )
    confidence = found["confidence"].drop("map50", "map").join(of_detector, on="t", how="left", maintain_order="left")
    found["confidence"] = confidence.sort(by_split, "t", maintain_order=True).select(*plots.SCHEMAS["confidence"])
    wild, diagram = report["wilderness"], report["self_awareness"]["reliability_before"]
    found["wilderness"] = plots.frame(
        "wilderness",
        (
            {"recall": recall, "ratio": ratio, "impact": impact}
            for recall, at in wild["at_recall"].items()
            for ratio, impact in zip(wild["ratios"], at["impact"], strict=True)
        ),
    )
    columns = list(plots.SCHEMAS["reliability"])
    rows = zip(*(diagram[name] for name in columns), strict=True)
    found["reliability"] = plots.frame("reliability", (dict(zip(columns, row, strict=True)) for row in rows))
    return found

"""The files that the stage `evaluate` writes for people, DVC and the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from farther.evaluation import plots
from farther.evaluation.files import RunFiles
from farther.evaluation.results import Evaluation, MethodResults, Number, write_results
from farther.metrics.catalogue import COMPARED, METRICS
from farther.tables.documents import json_text
from farther.tables.files import inside
from farther.tables.writing import write_aside

#: Metrics whose means over near and far splits are in `methods.json`.
MEANS = ("auroc", "fpr95", "full_spectrum_auroc", "oscr")

#: Metrics of misclassification detection in `methods.json`.
ERRORS = ("auroc", "fpr95", "aurc", "e_aurc")

#: Costs of flagging in `methods.json`.
COSTS = ("false_alarms", "id_flagged")


def write_run(
    files: RunFiles,
    evaluation: Evaluation,
    frames: Mapping[str, Mapping[str, pl.DataFrame]],
    proposals: Mapping[str, Any] | None = None,
) -> None:
    """Writes metrics, plots and `evaluation/<run>.json`.

    The files of an earlier evaluation are replaced as a whole.

    Args:
        files: The run's files.
        evaluation: The content of `evaluation/<run>.json`.
        frames: {method: {kind of plot: rows}}.
        proposals: The content of `metrics/<run>/proposals.json`; None for no such file.
    """
    with write_aside(files.metrics) as folder:
        _write_metrics(folder, evaluation)
        if proposals is not None:
            _write(folder / "proposals.json", proposals)
    for kind, rows in _plots(evaluation, frames).items():
        plots.write_csv(files.plot(kind), rows)
    write_results(files.evaluation, evaluation)


def _write_metrics(folder: Path, evaluation: Evaluation) -> None:
    _write(folder / "detector.json", _detector_metrics(evaluation))

    metrics_by_method = {}
    for method, results in evaluation.methods.items():
        metrics_by_method[method] = _method_metrics(results)
    _write(folder / "methods.json", metrics_by_method)

    for split, counts in evaluation.splits.items():
        file = inside(folder, f"{split}/detector.json")
        _write(file, {"no_detection": counts.no_detection})

    for method, results in evaluation.methods.items():
        for split, split_results in results.splits.items():
            compared = {name: split_results.value(METRICS[name]) for name in COMPARED}
            user_defined = split_results.of_group("user_defined")
            file = inside(folder, f"{split}/{method}.json")
            _write(file, {**compared, **user_defined})


def _write(file: Path, metrics: Mapping[str, Any]) -> None:
    """Writes a file below a folder that is itself written aside."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json_text(metrics), encoding="utf-8")


def _detector_metrics(evaluation: Evaluation) -> dict[str, Number]:
    closed_set = evaluation.closed_set.values
    metrics = {"map50": closed_set["ap50"], "map": closed_set["ap"]}
    if evaluation.classifier is not None:
        metrics |= evaluation.classifier.values
    metrics["threshold"] = evaluation.threshold
    return metrics


def _method_metrics(results: MethodResults) -> dict[str, Number]:
    """The metrics of a method that belong to no single split."""
    metrics: dict[str, Number] = {}
    for distance, means in results.means.items():
        for name in MEANS:
            if name in means.values:
                metrics[f"{distance}_{name}"] = means.values[name]
    for name in ERRORS:
        metrics[f"misclassification_{name}"] = results.misclassification.values[name]
    for name in COSTS:
        metrics[name] = results.costs.values[name]
    return metrics


def _plots(
    evaluation: Evaluation,
    frames: Mapping[str, Mapping[str, pl.DataFrame]],
) -> dict[str, pl.DataFrame]:
    """The rows of each kind of plot: of all methods, sorted by split, and of the detector."""
    number_by_split = {split: number for number, split in enumerate(evaluation.splits)}
    split_number = pl.col("split").replace_strict(number_by_split, return_dtype=pl.Int64)

    rows_by_plot = {}
    for kind in plots.OF_METHODS:
        method_frames = [frames_by_plot[kind] for frames_by_plot in frames.values()]
        rows = pl.concat([plots.frame(kind, []), *method_frames])
        rows_by_plot[kind] = rows.sort(split_number, maintain_order=True)

    confidence = _with_map(rows_by_plot["confidence"], evaluation)
    confidence = confidence.sort(split_number, "t", maintain_order=True)
    rows_by_plot["confidence"] = confidence.select(*plots.SCHEMAS["confidence"])
    rows_by_plot["wilderness"] = _wilderness_plot(evaluation)
    rows_by_plot["reliability"] = _reliability_plot(evaluation)
    return rows_by_plot


def _with_map(confidence: pl.DataFrame, evaluation: Evaluation) -> pl.DataFrame:
    """Rows over t*, with the detector's mAP at each t*."""
    rows = [{"t": float(t), **values} for t, values in evaluation.map_at.items()]
    schema = {"t": pl.Float64, "map50": pl.Float64, "map": pl.Float64}
    detector = pl.DataFrame(rows, schema=schema)
    without_map = confidence.drop("map50", "map")
    return without_map.join(detector, on="t", how="left", maintain_order="left")


def _wilderness_plot(evaluation: Evaluation) -> pl.DataFrame:
    """Wilderness impact over wilderness ratios, at each recall."""
    wilderness = evaluation.wilderness
    rows = []
    for recall, at_recall in wilderness.at_recall.items():
        for ratio, impact in zip(wilderness.ratios, at_recall.impact, strict=True):
            rows.append({"recall": recall, "ratio": ratio, "impact": impact})
    return plots.frame("wilderness", rows)


def _reliability_plot(evaluation: Evaluation) -> pl.DataFrame:
    """The reliability diagram before calibration."""
    diagram = evaluation.self_awareness.reliability_before
    frame = pl.DataFrame(vars(diagram), schema_overrides=plots.SCHEMAS["reliability"])
    return frame.drop("lower")

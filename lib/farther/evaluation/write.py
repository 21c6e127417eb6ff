"""The files that the stage `evaluate` writes for people, DVC and the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from farther.evaluation import plots
from farther.evaluation.files import RunFiles
from farther.evaluation.long_table import long_table, write_long_table
from farther.evaluation.metric_files import metric_files
from farther.evaluation.recovery import RecoveredRun
from farther.evaluation.results import Evaluation, RunDescription, write_results
from farther.tables.documents import json_text
from farther.tables.files import inside
from farther.tables.writing import write_aside


def write_run(
    files: RunFiles,
    evaluation: Evaluation,
    frames: Mapping[str, Mapping[str, pl.DataFrame]],
    recovered: RecoveredRun | None = None,
) -> None:
    """Writes `results/<run>.*`, metrics and plots.

    The files of an earlier evaluation are replaced as a whole.

    Args:
        files: The run's files.
        evaluation: All metrics of the run.
        frames: {method: {kind of plot: rows}}.
        recovered: Results of the run's proposals; None where it has none.
    """
    write_values(files, evaluation, recovered)
    for kind, rows in _plots(evaluation, frames).items():
        plots.write_csv(files.plot(kind), rows)


def write_values(
    files: RunFiles, evaluation: Evaluation, recovered: RecoveredRun | None = None
) -> None:
    """Writes all of a run but its plots; see `write_run`."""
    write_table(files, long_table(evaluation, recovered), evaluation.settings.id_split)
    proposals = None if recovered is None else recovered.drawings
    write_results(files.description, RunDescription.of(evaluation, proposals))


def write_table(files: RunFiles, table: pl.DataFrame, id_split: str) -> None:
    """Writes the long table of a run, and the files of metrics, which are selections of it.

    Args:
        files: The run's files.
        table: See `farther.evaluation.long_table`.
        id_split: Its ID test split.
    """
    write_long_table(files, table)
    with write_aside(files.metrics) as folder:
        for name, metrics in metric_files(table, id_split).items():
            _write(inside(folder, name), metrics)


def _write(file: Path, metrics: Mapping[str, Any]) -> None:
    """Writes a file below a folder that is itself written aside."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json_text(metrics), encoding="utf-8")


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

"""The files of metrics that DVC compares between commits: selections of the long table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from farther.metrics.catalogue import COMPARED

#: Metric → its value; None where it is not defined.
Values = Mapping[str, float | None]

#: Metrics of the detector on the ID test split, and of a classifier.
DETECTOR = ("map50", "map")
CLASSIFIER = ("accuracy", "accuracy_top5", "nll", "ece")

#: Metrics whose means over near and far splits are in `methods.json`.
MEANS = ("auroc", "fpr95", "full_spectrum_auroc", "oscr")

#: Metrics of misclassification detection, and costs of flagging, in `methods.json`.
ON_ID_IMAGES = (
    "misclassification_auroc",
    "misclassification_fpr95",
    "misclassification_aurc",
    "misclassification_e_aurc",
    "false_alarms",
    "id_flagged",
)

#: Values of proposals by distance in `proposals.json` → their metrics.
PROPOSALS = {"missed": "proposals_missed", "still_missed": "still_missed"}


def metric_files(table: pl.DataFrame, id_split: str) -> dict[str, Mapping[str, Any]]:
    """The files of a run: name below `artifacts/metrics/<run>` → content.

    Args:
        table: Its long table; see `farther.evaluation.long_table`.
        id_split: Its ID test split.
    """
    files: dict[str, Mapping[str, Any]] = {}
    files["detector.json"] = metrics_of_detector(table, id_split)
    files["methods.json"] = _methods(table)

    without_detection = table.filter(group="split", metric="no_detection")
    for split, value in without_detection.select("split", "value").iter_rows():
        files[f"{split}/detector.json"] = {"no_detection": value}

    of_methods = table.filter(pl.col("method") != "", pl.col("split") != "", part="")
    on_ood_splits = of_methods.filter(pl.col("split") != id_split)
    for split, of_split in _parts(on_ood_splits, "split"):
        for method, rows in _parts(of_split, "method"):
            files[f"{split}/{method}.json"] = _compared(rows)

    of_proposals = table.filter(group="proposals")
    if not of_proposals.is_empty():
        files["proposals.json"] = _proposals(of_proposals)
    return files


def metrics_of_detector(table: pl.DataFrame, id_split: str) -> Values:
    """The metrics of a detector or classifier itself; see `metric_files`."""
    is_of_detector = pl.col("group").is_in(("detector", "classifier"))
    rows = table.filter(is_of_detector, pl.col("split").is_in(("", id_split)), part="")
    values = _values(rows)
    metrics = _selected(values, DETECTOR)
    if "accuracy" in values:
        metrics.update(_selected(values, CLASSIFIER))
    metrics["threshold"] = values["threshold"]
    return metrics


def _methods(table: pl.DataFrame) -> dict[str, Values]:
    """Method → the metrics that belong to no single OOD split."""
    metrics_by_method: dict[str, Values] = {}
    is_mean = pl.col("part").str.starts_with("distance=")
    for method, rows in _parts(table.filter(pl.col("method") != ""), "method"):
        metrics: dict[str, float | None] = {}
        means = rows.filter(is_mean, pl.col("metric").is_in(MEANS), split="")
        for distance, of_distance in _parts(means, "part"):
            values = _values(of_distance)
            for name in MEANS:
                if name in values:
                    metrics[f"{distance.removeprefix('distance=')}_{name}"] = values[name]
        on_id_images = rows.filter(pl.col("metric").is_in(ON_ID_IMAGES), part="")
        metrics.update(_selected(_values(on_id_images), ON_ID_IMAGES))
        metrics_by_method[method] = metrics
    return metrics_by_method


def _compared(rows: pl.DataFrame) -> Values:
    """The metrics by which methods are compared, and user-defined ones, of a method on a split."""
    metrics = _selected(_values(rows), COMPARED)
    metrics.update(_values(rows.filter(group="user_defined")))
    return metrics


def _proposals(table: pl.DataFrame) -> dict[str, Any]:
    """Source of proposals → false alarms per ID image, and missed objects by distance."""
    metrics_by_source: dict[str, Any] = {}
    is_of_distance = pl.col("part").str.contains("^source=.*, distance=[^,=]*$")
    for part, rows in _parts(table.filter(is_of_distance, split=""), "part"):
        source, _, distance = part.removeprefix("source=").partition(", distance=")
        metrics = metrics_by_source.setdefault(source, {})
        values = _values(rows)
        metrics[distance] = {key: values[name] for key, name in PROPOSALS.items()}

    alarms = table.filter(metric="alarms")
    for part, value in alarms.select("part", "value").iter_rows():
        source = part.removeprefix("source=")
        metrics_by_source.setdefault(source, {})["alarms"] = value
    return metrics_by_source


def _parts(table: pl.DataFrame, column: str) -> list[tuple[str, pl.DataFrame]]:
    """The rows of each value of a column, in the order of the table."""
    tables_by_value = table.partition_by(column, as_dict=True)
    return [(str(value), rows) for (value,), rows in tables_by_value.items()]


def _values(rows: pl.DataFrame) -> dict[str, float | None]:
    """Metric → value of rows that have each metric once."""
    return dict(rows.select("metric", "value").iter_rows())


def _selected(values: Values, names: Sequence[str]) -> dict[str, float | None]:
    """The values of some metrics; None where one is absent."""
    return {name: values.get(name) for name in names}

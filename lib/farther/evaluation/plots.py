"""The plot files of a run: one CSV per kind, whose rows are dicts with named columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from farther.metrics import ood
from farther.metrics.precision_recall import PrecisionRecallCurve
from farther.tables.writing import write_aside

_CURVE = {"split": pl.String, "method": pl.String, "x": pl.Float64, "y": pl.Float64}

#: Columns of each plot file.
SCHEMAS: dict[str, dict[str, Any]] = {
    "roc": _CURVE,
    "pr": _CURVE,
    "tau": {
        "split": pl.String,
        "method": pl.String,
        "kept": pl.Float64,
        "tau": pl.Float64,
        "nose": pl.Float64,
        "p_u": pl.Float64,
        "r_u": pl.Float64,
        "fn_missed": pl.Float64,
        "ap_u": pl.Float64,
        "ap_u_11": pl.Float64,
        "aose": pl.Int64,
        "map50": pl.Float64,
    },
    "confidence": {
        "split": pl.String,
        "t": pl.Float64,
        "method": pl.String,
        "no_detection": pl.Float64,
        "auroc": pl.Float64,
        "fpr95": pl.Float64,
        "nose": pl.Float64,
        "ap_u": pl.Float64,
        "p_u": pl.Float64,
        "r_u": pl.Float64,
        "fn_missed": pl.Float64,
        "ap_u_11": pl.Float64,
        "aose": pl.Int64,
        "aupr_in": pl.Float64,
        "aupr_out": pl.Float64,
        "detection_error": pl.Float64,
        "map50": pl.Float64,
        "map": pl.Float64,
    },
    "wilderness": {"recall": pl.String, "ratio": pl.Float64, "impact": pl.Float64},
    "reliability": {"confidence": pl.Float64, "performance": pl.Float64, "detections": pl.Int64},
}

#: Kinds of plots that have one line per method.
OF_METHODS = ("roc", "pr", "tau", "confidence")

#: Points of a curve that are plotted.
CURVE_POINTS = 200


def frame(kind: str, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows of one kind of plot as a frame with its columns; a column that a row lacks is null."""
    return pl.DataFrame([dict(row) for row in rows], schema=SCHEMAS[kind])


def write_csv(file: Path, rows: pl.DataFrame) -> None:
    """Writes the rows of a kind of plot, fractions with six digits."""
    with write_aside(file) as aside:
        rows.with_columns(cs.float().round(6)).write_csv(aside)


def roc(id_scores: np.ndarray, scores: np.ndarray) -> list[dict[str, float]]:
    """Points of the ROC curve; an empty list where a side is empty."""
    if not len(id_scores) or not len(scores):
        return []
    false_positive_rate, true_positive_rate = ood.roc(id_scores, scores)
    return _points(false_positive_rate, true_positive_rate)


def precision_recall(curve: PrecisionRecallCurve | None) -> list[dict[str, float]]:
    """Points of a precision–recall curve; an empty list where there is no curve."""
    if curve is None or not len(curve.recall):
        return []
    return _points(curve.recall, curve.precision)


def thin(x: np.ndarray, y: np.ndarray, points: int = CURVE_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most `points` points of a curve, evenly spaced along its length, both ends included."""
    if len(x) <= points:
        return x, y
    length = np.cumsum(np.abs(np.diff(x, prepend=x[0])) + np.abs(np.diff(y, prepend=y[0])))
    rows = np.searchsorted(length, np.linspace(0, length[-1], points - 1))
    rows = np.unique(np.append(rows, len(x) - 1))
    return x[rows], y[rows]


def _points(x: np.ndarray, y: np.ndarray) -> list[dict[str, float]]:
    """A thinned curve as rows."""
    thin_x, thin_y = thin(x, y)
    rows = []
    for point_x, point_y in zip(thin_x.tolist(), thin_y.tolist(), strict=True):
        rows.append({"x": point_x, "y": point_y})
    return rows

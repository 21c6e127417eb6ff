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

#: Columns of each plot file.
_CURVE = {"split": pl.String, "method": pl.String, "x": pl.Float64, "y": pl.Float64}
SCHEMAS: dict[str, dict[str, Any]] = {
    "roc": _CURVE,
    "pr": _CURVE,
    "tau": {
        "split": pl.String,
        "method": pl.String,
        **dict.fromkeys(
            ("kept", "tau", "nose", "p_u", "r_u", "fn_missed", "ap_u", "ap_u_11"), pl.Float64
        ),
        "aose": pl.Int64,
        "map50": pl.Float64,
    },
    "confidence": {
        "split": pl.String,
        "t": pl.Float64,
        "method": pl.String,
        **dict.fromkeys(
            (
                "no_detection",
                "auroc",
                "fpr95",
                "nose",
                "ap_u",
                "p_u",
                "r_u",
                "fn_missed",
                "ap_u_11",
            ),
            pl.Float64,
        ),
        "aose": pl.Int64,
        **dict.fromkeys(("aupr_in", "aupr_out", "detection_error", "map50", "map"), pl.Float64),
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


def write_csv(folder: Path, frames: Mapping[str, pl.DataFrame]) -> None:
    """Writes one CSV per kind, fractions with six digits."""
    folder.mkdir()
    for kind, table in frames.items():
        table.with_columns(cs.float().round(6)).write_csv(folder / f"{kind}.csv")


def roc(id_scores: np.ndarray, scores: np.ndarray) -> list[dict[str, float]]:
    """Points of the ROC curve; none where a side is empty."""
    return _points(*ood.roc(id_scores, scores)) if len(id_scores) and len(scores) else []


def precision_recall(curve: PrecisionRecallCurve | None) -> list[dict[str, float]]:
    """Points of a precision–recall curve; none where there is no curve."""
    return [] if curve is None or not len(curve.recall) else _points(curve.recall, curve.precision)


def thin(x: np.ndarray, y: np.ndarray, points: int = CURVE_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most `points` points of a curve, evenly spaced along its length, both ends included."""
    if len(x) <= points:
        return x, y
    length = np.cumsum(np.abs(np.diff(x, prepend=x[0])) + np.abs(np.diff(y, prepend=y[0])))
    chosen = np.searchsorted(length, np.linspace(0, length[-1], points - 1))
    chosen = np.unique(np.append(chosen, len(x) - 1))
    return x[chosen], y[chosen]


def _points(x: np.ndarray, y: np.ndarray) -> list[dict[str, float]]:
    return [
        {"x": a, "y": b} for a, b in zip(*(values.tolist() for values in thin(x, y)), strict=True)
    ]

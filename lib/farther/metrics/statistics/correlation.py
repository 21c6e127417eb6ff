"""Correlations between metrics over methods, detectors and splits.

Source: FMIYC, arXiv:2506.14008, Appendix E.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from farther.metrics.statistics.ranking import average_ranks
from farther.tables.arguments import instances, number, one_of, texts


def matrix(
    rows: Sequence[Mapping[str, Any]],
    metrics: Sequence[str],
    kind: Literal["pearson", "spearman"] = "pearson",
) -> dict[str, dict[str, float | None]]:
    """Correlation of each two metrics.

    Args:
        rows: One mapping for each method, detector and split that was evaluated; values may be
            None.
        metrics: Keys to compare.
        kind: "pearson" (of the values) or "spearman" (of their ranks; equal values share the mean
            of theirs).

    Returns:
        {metric: {metric: −1 … 1}}, over the rows that have both; None where fewer than two have, or
        all are equal.

    Raises:
        ParameterError: the kind is unknown.

    >>> rows = [{"nose": 0.1, "r_u": 0.3}, {"nose": 0.2, "r_u": 0.2}, {"nose": 0.4, "r_u": 0.1}]
    >>> round(matrix(rows, ["nose", "r_u"], "spearman")["nose"]["r_u"], 6)
    -1.0
    """
    one_of(kind, ("pearson", "spearman"), "correlation")
    records = instances(rows, Mapping, "rows")
    metrics = texts(metrics, "metrics").tolist()
    values_by_metric = {metric: _values(records, metric) for metric in metrics}
    correlations: dict[str, dict[str, float | None]] = {}
    for first in metrics:
        correlations[first] = {}
        for second in metrics:
            correlations[first][second] = _correlation(
                values_by_metric[first], values_by_metric[second], kind
            )
    return correlations


def _values(rows: Sequence[Mapping[str, Any]], metric: str) -> np.ndarray:
    """One metric in each row, NaN where it has no value, ndarray of shape (N,)."""
    values = np.full(len(rows), np.nan)
    for index, row in enumerate(rows):
        value = row.get(metric)
        if value is not None and value == value:
            values[index] = number(value, f"rows[{index}][{metric!r}]")
    return values


def _correlation(first: np.ndarray, second: np.ndarray, kind: str) -> float | None:
    """Correlation of two metrics over the rows that have both; see `matrix`."""
    has_both = ~np.isnan(first) & ~np.isnan(second)
    first = first[has_both]
    second = second[has_both]
    if kind == "spearman":
        first = average_ranks(first)
        second = average_ranks(second)
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.clip(np.corrcoef(first, second)[0, 1], -1, 1))

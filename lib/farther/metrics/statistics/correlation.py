"""Correlations between metrics over methods, detectors and splits (FMIYC, arXiv:2506.14008, Appendix E.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from farther.errors import ParameterError


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
    if kind not in ("pearson", "spearman"):
        raise ParameterError(f"unknown correlation {kind!r}. Known: pearson, spearman")
    table = np.array(
        [[np.nan if row.get(m) is None else row[m] for m in metrics] for row in rows],
        dtype=np.float64,
    )
    table = table.reshape(len(rows), len(metrics))
    return {
        first: {
            second: _correlation(table[:, i], table[:, j], kind) for j, second in enumerate(metrics)
        }
        for i, first in enumerate(metrics)
    }


def _correlation(first: np.ndarray, second: np.ndarray, kind: str) -> float | None:
    both = ~np.isnan(first) & ~np.isnan(second)
    first, second = first[both], second[both]
    if kind == "spearman":
        from scipy.stats import rankdata

        first, second = rankdata(first), rankdata(second)
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.clip(np.corrcoef(first, second)[0, 1], -1, 1))

"""Checks of a column's values: texts, finite numbers, and boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.errors import DataError


def check_finite(name: str, values: np.ndarray, source: str | Path | None) -> None:
    """Refuses NaN and infinity.

    Raises:
        DataError: names the first row that holds one.
    """
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.flatnonzero(~(finite if values.ndim == 1 else finite.all(axis=1)))[0])
        raise DataError(f"not a finite number: {values[row]}", file=source, row=row, field=name)


def check_at_least_0(name: str, values: np.ndarray, source: str | Path | None) -> None:
    """Refuses rows of variances with a negative one.

    Raises:
        DataError: names the first such row.
    """
    wrong = np.flatnonzero((values < 0).any(axis=1))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(f"a variance is 0 or more, found {values[row].min():g}", file=source, row=row, field=name)


def check_boxes(name: str, boxes: np.ndarray, source: str | Path | None) -> None:
    """Refuses boxes whose second corner lies before the first.

    Raises:
        DataError: names the first such row.
    """
    for low, high, axis in ((0, 2, "x"), (1, 3, "y")):
        wrong = np.flatnonzero(boxes[:, high] < boxes[:, low])
        if len(wrong):
            row = int(wrong[0])
            problem = f"{axis}max {boxes[row, high]:g} is below {axis}min {boxes[row, low]:g}"
            raise DataError(problem, file=source, row=row, field=name)


def texts(name: str, values: Any) -> pl.Series:
    """A Series of text.

    Raises:
        DataError: a value is not text; names the row.
    """
    array = np.asarray(values, dtype=object)
    if array.ndim != 1:
        raise DataError(f"expected one value per row, found shape {array.shape}")
    try:
        found = pl.Series(name, array, dtype=pl.String)
    except TypeError:
        found = None
    if found is None or found.null_count():
        row = next(row for row, value in enumerate(array) if not isinstance(value, str))
        raise DataError(f"expected text, found {array[row]!r}", row=row)
    return found

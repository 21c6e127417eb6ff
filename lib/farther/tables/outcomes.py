"""The tables that the stage `evaluate` hands on: the outcome of each detection and of each object, for one method.

Both are written per run, method and split; `farther.evaluation.files.RunFiles` gives the paths:

    outcomes/<run>/<method>/<split>.parquet            `RegionOutcomes`
    outcomes/<run>/<method>/<split>.objects.parquet    `ObjectOutcomes`
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.tables.columns import Column
from farther.tables.table import Table

#: Outcomes of an object: found (detected and flagged unknown), misclassified (detected as a known class), missed (no
#: detection matched), not_counted (known objects, crowds and difficult objects).
OBJECT_OUTCOMES = ("found", "misclassified", "missed", "not_counted")

#: Outcomes of a detection: found (flagged unknown and matched to an unknown object), misclassified (kept as a known
#: class on an unknown object), false_unknown (flagged unknown without an unknown object), known (kept as a known class
#: elsewhere), ignored (in a crowd, or not counted by the protocol).
REGION_OUTCOMES = ("found", "misclassified", "false_unknown", "known", "ignored")


class RegionOutcomes(Table):
    """One row per detection (region at or above t*), in the order of the regions table.

    Columns:
        image_id, region_id: The detection.
        outcome: One of `REGION_OUTCOMES`.
        object_id: The unknown object that it was matched to (found), or that it overlaps most (misclassified); else −1.
        iou: Overlap with that object as the protocol computes it; 0 without an object.
    """

    image_id = Column(pl.String)
    region_id = Column(pl.Int64)
    outcome = Column(pl.String)
    object_id = Column(pl.Int64)
    iou = Column(pl.Float64)

    def _check(self, source: str | Path | None) -> None:
        _check_outcomes(self.outcome, REGION_OUTCOMES, source)


class ObjectOutcomes(Table):
    """One row per object of the split, counted or not, in the order of the objects table.

    Columns:
        image_id, object_id, category: The object.
        outcome: One of `OBJECT_OUTCOMES`.
        region_id: The detection that decided: the flagged one that was matched, or the most confident one that
            misclassifies the object; −1 where there is none.
    """

    image_id = Column(pl.String)
    object_id = Column(pl.Int64)
    category = Column(pl.String)
    outcome = Column(pl.String)
    region_id = Column(pl.Int64)

    def _check(self, source: str | Path | None) -> None:
        _check_outcomes(self.outcome, OBJECT_OUTCOMES, source)


def _check_outcomes(values: np.ndarray, known: tuple[str, ...], source: str | Path | None) -> None:
    wrong = np.flatnonzero(~np.isin(values.astype(str), known))
    if len(wrong):
        problem = f"unknown outcome {values[wrong[0]]!r}; known: {', '.join(known)}"
        raise DataError(problem, file=source, row=int(wrong[0]), field="outcome")

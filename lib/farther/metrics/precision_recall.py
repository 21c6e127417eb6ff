"""Precision–recall curves and the areas under them, for ranked detections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farther.metrics.weighting import LEVELS, RowWeights, accumulated, blocks, each_once

#: Kinds of a ranked detection.
TRUE, FALSE, IGNORED = 1, 0, -1


@dataclass(frozen=True)
class PrecisionRecallCurve:
    """Precision and recall after each detection, in the order of the ranking.

    Args:
        precision, recall: ndarray of shape (N,).
    """

    precision: np.ndarray
    recall: np.ndarray

    @classmethod
    def of(cls, is_true: np.ndarray, positives: float) -> PrecisionRecallCurve:
        """The curve of ranked detections.

        Args:
            is_true: ndarray of shape (N,): 1 for a true positive, 0 for a false one, the best
                ranked first.
            positives: Number of objects; more than 0.

        >>> PrecisionRecallCurve.of([1, 0, 1], positives=2).recall.tolist()
        [0.5, 0.5, 1.0]
        """
        true = np.cumsum(is_true, dtype=np.float64)
        return cls(true / np.arange(1, len(true) + 1), true / positives)


#: True rows from which on the recalls are looked up among them, and not they among the recalls.
MANY_ROWS = 500


def average_precision(
    kind: np.ndarray,
    positives: np.ndarray | float,
    points: int | None = None,
    weights: RowWeights | None = None,
) -> np.ndarray:
    """Area under the interpolated precision–recall curve, in each replicate and at each of T IoU thresholds.

    The interpolated precision at a recall is the largest precision at this recall or a larger one.
    With `points` None it is integrated over all recalls (FMIYC, arXiv:2506.14008, Eqs. 6–8; Pascal
    VOC since 2010); else it is averaged at that many evenly spaced recalls 0 … 1: 11 in Pascal VOC
    2007, 101 in COCO.

    Args:
        kind: TRUE, FALSE or IGNORED of each detection, the best ranked first, ndarray of shape (T,
            N) or (N,).
        positives: Number of objects, ndarray of shape (B,); a single number without weights.
        points: see above.
        weights: Of the detections; each counts once when None.

    Returns:
        ndarray of shape (T, B), without the axes that were not given; NaN where there is no object.

    >>> average_precision(np.array([1, 0, 1]), positives=2).item()  # 1 up to recall 1/2, then 2/3
    0.8333333333333333
    """
    kind, positives = np.asarray(kind), np.asarray(positives)
    of_each = each_once(kind.shape[-1]) if weights is None else weights
    result = ranked_areas(np.atleast_2d(kind), np.atleast_1d(positives), (points,), of_each)[0]
    result = result if kind.ndim == 2 else result[0]
    return result if positives.ndim else result[..., 0]


def ranked_areas(
    kind: np.ndarray, positives: np.ndarray, points: Sequence[int | None], weights: RowWeights
) -> np.ndarray:
    """`average_precision` for several choices of `points` at once, ndarray of shape (P, T, B)."""
    if weights.grouped:
        return np.stack(
            [_areas_of_groups(of_one, positives, points, weights) for of_one in kind], axis=1
        )
    result = np.full((len(points), len(kind), len(positives)), np.nan)
    true_rows = [np.flatnonzero(of_one == TRUE) for of_one in kind]
    ignored_rows = [np.flatnonzero(of_one == IGNORED) for of_one in kind]
    exact = np.int32 if weights.of_images.dtype.kind in "iu" else np.float64
    for block in blocks(len(positives), len(weights)):
        each = weights.in_block(block)
        so_far = np.cumsum(each, axis=1, dtype=exact)
        for threshold, (true, ignored) in enumerate(zip(true_rows, ignored_rows, strict=True)):
            # `take` and not [:, rows], whose rows are not contiguous: sums along them take several
            # times as long.
            ranked = np.take(so_far, true, axis=1)
            if len(ignored):
                before = accumulated(np.take(each, ignored, axis=1))
                ranked -= np.take(before, np.searchsorted(ignored, true), axis=1)
            result[:, threshold, block] = _areas(
                np.take(each, true, axis=1), ranked, positives[block], points
            )
    return result


def _areas_of_groups(
    kind: np.ndarray, positives: np.ndarray, points: Sequence[int | None], weights: RowWeights
) -> np.ndarray:
    """Areas of one kind per row, shape (P, B), from counts at levels: one per true row first, then of many each."""
    is_true = kind == TRUE
    total, before = int(is_true.sum()), np.cumsum(is_true) - is_true
    single = min(LEVELS if total <= LEVELS else LEVELS // 2, total)
    several = single + (before - single) * (LEVELS - single) // max(total - single, 1)
    levels = min(total, LEVELS)
    # Rows behind the last true one have a level of their own, which does not count.
    level = np.minimum(np.where(before < single, before, several), levels)
    found, ranked = (
        weights[rows].up_to_level(level[rows], levels + 1)[:, :-1]
        for rows in (is_true, kind != IGNORED)
    )
    return np.stack(_areas(np.diff(found, axis=1, prepend=0), ranked, positives, points, single))


def _areas(
    weights: np.ndarray,
    ranked: np.ndarray,
    positives: np.ndarray,
    points: Sequence[int | None],
    single: int | None = None,
) -> list[np.ndarray]:
    """Areas from the true rows of each replicate: their weights, and all rows up to each; shapes (b, n).

    Args:
        single: Number of true rows before those that hold several each, along which precision
            falls; None for all.
    """
    found = np.cumsum(weights, axis=1, dtype=np.float64)
    precision = np.divide(found, ranked, out=np.zeros(ranked.shape), where=ranked > 0)
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    if single is not None:
        best[:, single:] = (best[:, single:] + best[:, single - 1 : -1]) / 2
    recall = np.divide(found, positives[:, None], out=found, where=positives[:, None] > 0)
    areas = (
        _integral(recall, best) if one is None else _mean_at(recall, best, one) for one in points
    )
    return [np.where(positives > 0, area, np.nan) for area in areas]


def _integral(recall: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Integral of the best precision over the recall, ndarray of shape (b,)."""
    return np.vecdot(np.diff(recall, axis=1, prepend=0.0), best)


def _mean_at(recall: np.ndarray, best: np.ndarray, points: int) -> np.ndarray:
    """Mean of the best precision at evenly spaced recalls, ndarray of shape (b,)."""
    at = np.linspace(0.0, 1.0, points)
    if recall.shape[1] < MANY_ROWS:
        # The share of the recalls that lie in the step of each true row.
        return _integral(np.searchsorted(at, recall, side="right") / points, best)
    behind = np.append(best, np.zeros((len(best), 1)), axis=1)  # recalls that are not reached
    each = (
        row[np.searchsorted(reached, at)].sum() for reached, row in zip(recall, behind, strict=True)
    )
    return np.fromiter(each, dtype=np.float64, count=len(best)) / points

"""Precision–recall curves and the areas under them, for ranked detections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farther.metrics.weighting import BLOCK, LEVELS, RowWeights, accumulated, blocks, each_once

#: Kinds of a ranked detection.
TRUE, FALSE, IGNORED = 1, 0, -1

#: True rows from which on the recalls are looked up among them, and not they among the recalls.
MIN_ROWS_OF_LOOKUP = 500


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


def average_precision(
    kind: np.ndarray,
    positives: np.ndarray | float,
    points: int | None = None,
    weights: RowWeights | None = None,
) -> np.ndarray:
    """Area under the interpolated precision–recall curve, of shape (T, B).

    That is in each of B replicates and at each of T IoU thresholds. The interpolated precision at a
    recall is the largest precision at this recall or a larger one. With `points` None it is
    integrated over all recalls (FMIYC, arXiv:2506.14008, Eqs. 6–8; Pascal VOC since 2010); else it
    is averaged at that many evenly spaced recalls 0 … 1: 11 in Pascal VOC 2007, 101 in COCO.

    Args:
        kind: TRUE, FALSE or IGNORED of each detection, the best ranked first, ndarray of shape (T,
            N) or (N,).
        positives: Number of objects, ndarray of shape (B,); a single number without weights.
        points: see above.
        weights: Of the detections; each counts once when None.

    Returns:
        ndarray of shape (T, B), without the axes that `kind` and `positives` do not have; NaN where
        there is no object.

    >>> average_precision(np.array([1, 0, 1]), positives=2).item()  # 1 up to recall 1/2, then 2/3
    0.8333333333333333
    """
    kind = np.asarray(kind)
    positives = np.asarray(positives)
    if weights is None:
        weights = each_once(kind.shape[-1])
    area = ranked_areas(np.atleast_2d(kind), np.atleast_1d(positives), (points,), weights)[0]
    if kind.ndim == 1:
        area = area[0]
    if positives.ndim == 0:
        area = area[..., 0]
    return area


def areas_of_classes(
    kind: np.ndarray, bounds: np.ndarray, positives: np.ndarray, points: int | None = None
) -> np.ndarray:
    """`average_precision` of K classes, in which each detection counts once.

    Args:
        kind: TRUE, FALSE or IGNORED of each detection, the best ranked of a class first, ndarray of
            shape (N,).
        bounds: Class k has rows bounds[k] … bounds[k + 1], ndarray of shape (K + 1,).
        positives: Number of objects of each class, ndarray of shape (K,).
        points: See `average_precision`.

    Returns:
        ndarray of shape (K,); NaN where there is no object.
    """
    areas = np.where(positives > 0, 0.0, np.nan)
    true = np.flatnonzero(kind == TRUE)
    first_true = np.searchsorted(true, bounds)
    true_count = np.diff(first_true)
    ranked_so_far = np.append(0, np.cumsum(kind != IGNORED))
    ranked = ranked_so_far[true + 1] - np.repeat(ranked_so_far[bounds[:-1]], true_count)

    # Classes with about as many true rows each are the rows of one array. Behind the last true row
    # it is repeated with weight 0, which changes no area.
    by_count = np.argsort(-true_count, kind="stable")
    by_count = by_count[: np.count_nonzero(true_count)]
    while len(by_count):
        width = true_count[by_count[0]]
        classes, by_count = np.split(by_count, [max(1, BLOCK // width)])
        count = true_count[classes][:, None]
        column = np.arange(width)
        ranked_of_classes = ranked[first_true[classes][:, None] + np.minimum(column, count - 1)]
        weights = (column < count).astype(np.int32)
        areas[classes] = _areas(weights, ranked_of_classes, positives[classes], (points,))[0]
    return areas


def ranked_areas(
    kind: np.ndarray, positives: np.ndarray, points: Sequence[int | None], weights: RowWeights
) -> np.ndarray:
    """`average_precision` for several choices of `points` at once, ndarray of shape (P, T, B)."""
    if weights.grouped:
        areas_at_ious = [_areas_of_groups(row, positives, points, weights) for row in kind]
        return np.stack(areas_at_ious, axis=1)

    # Many a class has the same matches at several IoUs, and none at high ones.
    is_distinct = np.append(True, (kind[1:] != kind[:-1]).any(axis=1))
    distinct = kind[is_distinct]
    true_rows = [np.flatnonzero(row == TRUE) for row in distinct]
    ignored_rows = [np.flatnonzero(row == IGNORED) for row in distinct]
    exact_type = np.int32 if weights.of_images.dtype.kind in "iu" else np.float64
    area_of_none = np.where(positives > 0, 0.0, np.nan)
    areas = np.tile(area_of_none, (len(points), len(distinct), 1))
    if not any(len(true) for true in true_rows):
        return areas[:, np.cumsum(is_distinct) - 1]
    for block in blocks(len(positives), len(weights)):
        row_weight = weights.in_block(block)
        weight_so_far = np.cumsum(row_weight, axis=1, dtype=exact_type)
        for row, (true, ignored) in enumerate(zip(true_rows, ignored_rows, strict=True)):
            if not len(true):
                continue
            # `take` and not [:, rows], whose rows are not contiguous: sums along them take several
            # times as long.
            ranked = np.take(weight_so_far, true, axis=1)
            if len(ignored):
                ignored_so_far = accumulated(np.take(row_weight, ignored, axis=1))
                ignored_before = np.searchsorted(ignored, true)
                ranked -= np.take(ignored_so_far, ignored_before, axis=1)
            true_weight = np.take(row_weight, true, axis=1)
            areas[:, row, block] = _areas(true_weight, ranked, positives[block], points)
    return areas[:, np.cumsum(is_distinct) - 1]


def _areas_of_groups(
    kind: np.ndarray, positives: np.ndarray, points: Sequence[int | None], weights: RowWeights
) -> np.ndarray:
    """Areas at one IoU threshold from counts at levels, ndarray of shape (P, B).

    The first true rows have one level each, later ones share a level.

    Args:
        kind: ndarray of shape (N,).
        positives, points, weights: See `ranked_areas`.
    """
    is_true = kind == TRUE
    true_count = int(is_true.sum())
    true_before = np.cumsum(is_true) - is_true
    single = min(LEVELS if true_count <= LEVELS else LEVELS // 2, true_count)
    shared_level = single + (true_before - single) * (LEVELS - single) // max(
        true_count - single, 1
    )
    # Rows behind the last true one have a level of their own, which does not count.
    levels = min(true_count, LEVELS)
    level = np.minimum(np.where(true_before < single, true_before, shared_level), levels)

    is_ranked = kind != IGNORED
    true_so_far = weights[is_true].up_to_level(level[is_true], levels + 1)[:, :-1]
    ranked = weights[is_ranked].up_to_level(level[is_ranked], levels + 1)[:, :-1]
    true_weight = np.diff(true_so_far, axis=1, prepend=0)
    return np.stack(_areas(true_weight, ranked, positives, points, single))


def _areas(
    weights: np.ndarray,
    ranked: np.ndarray,
    positives: np.ndarray,
    points: Sequence[int | None],
    single: int | None = None,
) -> list[np.ndarray]:
    """Areas from the true rows of each replicate, one ndarray of shape (b,) per choice of points.

    Args:
        weights: Weights of the n true rows, ndarray of shape (b, n).
        ranked: Weight of all rows up to each of them, ndarray of shape (b, n).
        positives: Number of objects, ndarray of shape (b,).
        points: See `average_precision`.
        single: Number of true rows before those that hold several each, along which precision
            falls; None for all.
    """
    # Sums of integers, which are exact, take a seventh of the time of those of floats.
    true_so_far = np.cumsum(weights, axis=1).astype(np.float64)
    precision = _quotient(true_so_far, ranked)
    interpolated = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    if single is not None:
        neighbours = interpolated[:, single:] + interpolated[:, single - 1 : -1]
        interpolated[:, single:] = neighbours / 2
    has_objects = positives > 0
    divisor = np.where(has_objects, positives, 1)
    recall = np.divide(true_so_far, divisor[:, None], out=true_so_far)

    areas = []
    for count in points:
        if count is None:
            area = _integral(recall, interpolated)
        else:
            area = _mean_at(recall, interpolated, count)
        areas.append(np.where(has_objects, area, np.nan))
    return areas


def _quotient(true_so_far: np.ndarray, ranked: np.ndarray) -> np.ndarray:
    """Precision at each true row, shape (b, n); 0 where a replicate has no row so far."""
    if ranked.dtype.kind in "iu":
        return true_so_far / np.maximum(ranked, 1)
    return np.divide(true_so_far, ranked, out=np.zeros(ranked.shape), where=ranked > 0)


def _integral(recall: np.ndarray, interpolated: np.ndarray) -> np.ndarray:
    """Integral of the interpolated precision over the recall, ndarray of shape (b,)."""
    return np.vecdot(np.diff(recall, axis=1, prepend=0.0), interpolated)


def _mean_at(recall: np.ndarray, interpolated: np.ndarray, points: int) -> np.ndarray:
    """Mean of the interpolated precision at evenly spaced recalls, ndarray of shape (b,)."""
    recall_points = np.linspace(0.0, 1.0, points)
    if recall.shape[1] < MIN_ROWS_OF_LOOKUP:
        # The share of the recalls that lie in the step of each true row.
        share = np.searchsorted(recall_points, recall, side="right") / points
        return _integral(share, interpolated)
    # The last column is the precision at recalls that are not reached.
    precision = np.append(interpolated, np.zeros((len(interpolated), 1)), axis=1)
    means = np.empty(len(interpolated))
    for replicate, reached in enumerate(recall):
        at_points = precision[replicate][np.searchsorted(reached, recall_points)]
        means[replicate] = at_points.sum() / points
    return means

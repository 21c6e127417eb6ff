"""Metrics of two sides of rows that are ranked by a score.

They depend on how much weight of either side is accepted at each score.

A metric looks at the scores of one side only, of which there are often far fewer than of both:
between two of them nothing changes that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.weighting import LEVELS, RowWeights, accumulated, blocks, each_once, value
from farther.tables.arguments import floats, instance

#: Scores of a side that the levels of grouped weights are taken from.
EDGES_FROM = 100_000

#: Number of scores up to which comparing all of them takes less time than a search in each row.
SHORT = 2_000

#: Scores of a side, higher where more positive, and weights; each row counts once when None.
Side = tuple[np.ndarray, RowWeights | None]


class Reached:
    """Weight of two sides that a falling (or rising) threshold has reached.

    That is at each different score of the first side.

    Args:
        own: Of the first side, ndarray of shape (…, K).
        other: Of the second side, likewise.
        other_before: Returns that of the second side just before its rows of the same score.
        total: Of the first side in all, ndarray of shape (…).
        other_total: Of the second side in all, likewise.
    """

    def __init__(
        self,
        own: np.ndarray,
        other: np.ndarray,
        other_before: Callable[[], np.ndarray],
        total: Any,
        other_total: Any,
    ):
        self.own = own
        self.other = other
        self.total = np.asarray(total)
        self.other_total = np.asarray(other_total)
        self._compute_other_before = other_before

    @cached_property
    def other_before(self) -> np.ndarray:
        """Weight of the second side just before its rows of the same score, shape (…, K)."""
        return self._compute_other_before()

    @cached_property
    def step(self) -> np.ndarray:
        """Weight of the first side at each score, ndarray of shape (…, K)."""
        step = np.empty(self.own.shape, self.own.dtype)
        step[..., 0] = self.own[..., 0]
        np.subtract(self.own[..., 1:], self.own[..., :-1], out=step[..., 1:])
        return step

    @cached_property
    def first_at_95(self) -> np.ndarray:
        """The first score that reaches 95% of the first side, ndarray of shape (…)."""
        return _first_reaching(self.own, self.total, 0.95)


def _first_reaching(own: np.ndarray, total: np.ndarray, share: float) -> np.ndarray:
    """The first column where `own`, which never falls, is at least a share of `total`.

    Args:
        own: ndarray of shape (…, K).
        total: ndarray of shape (…), above 0.
        share: A fraction.
    """
    if own.dtype.kind == "f":
        below_share: np.ndarray = np.count_nonzero(own / total[..., None] < share, axis=-1)
        return below_share
    enough = _smallest_reaching(total, share).astype(own.dtype)
    if own.shape[-1] <= SHORT:
        below: np.ndarray = np.count_nonzero(own < enough[..., None], axis=-1)
        return below
    first = np.empty(total.shape, dtype=np.int64)
    for row in np.ndindex(total.shape):
        # Of one type, or NumPy converts the whole row.
        first[row] = np.searchsorted(own[row], enough[row])
    return first


def _smallest_reaching(total: np.ndarray, share: float) -> np.ndarray:
    """The smallest integer whose quotient by `total` is at least a share, ndarray of shape (…).

    The product with the share may be rounded to either side of it.
    """
    smallest = np.ceil(share * total)
    smallest -= (smallest - 1) / total >= share
    smallest += smallest / total < share
    return smallest


@dataclass(frozen=True)
class SeparationMetric:
    """A metric of two sides.

    Args:
        of: Computes it, ndarray of shape (…).
        at: The side whose scores it looks at: "positive", from the highest down; "negative", from
            the lowest up; or "either", where both ways give the same.
    """

    of: Callable[[Reached], np.ndarray]
    at: Literal["positive", "negative", "either"]


Metrics = Mapping[str, SeparationMetric]


def measure(
    metrics: Metrics,
    positive: Side,
    negative: Side,
    names: tuple[str, str] = ("positive", "negative"),
) -> dict[str, Any]:
    """Metrics of two sides.

    Args:
        metrics: Each metric by its name.
        positive, negative: Scores of a side, ndarray of shape (N,), higher where more positive, and
            their weights.
        names: Of the sides in messages.

    Returns:
        Numbers, None where either side is empty; with weights ndarrays of shape (B,), NaN for None.

    Raises:
        DataError: a score is not finite, or there is not one weight per score.
        ParameterError: the sides have different numbers of replicates.
    """
    positive_scores, positive_weights = positive
    negative_scores, negative_weights = negative
    positive_scores = floats(positive_scores, names[0])
    negative_scores = floats(negative_scores, names[1])
    check_weights(positive_weights, positive_scores, names[0])
    check_weights(negative_weights, negative_scores, names[1])
    is_empty = not len(positive_scores) or not len(negative_scores)
    if positive_weights is None and negative_weights is None:
        if is_empty:
            return dict.fromkeys(metrics)
        return _values(metrics, positive_scores, negative_scores)

    if positive_weights is None:
        positive_weights = each_once(len(positive_scores))
    if negative_weights is None:
        negative_weights = each_once(len(negative_scores))
    replicates = len(positive_weights.of_images)
    if len(negative_weights.of_images) != replicates:
        raise ParameterError(f"{names[0]} and {names[1]} need the same number of replicates")
    if is_empty:
        return {name: np.full(replicates, np.nan) for name in metrics}
    sides = _WeightedSides(positive_scores, negative_scores, positive_weights, negative_weights)
    if positive_weights.grouped or negative_weights.grouped:
        return _replicates_of_groups(metrics, sides)
    return _replicates_of_rows(metrics, sides)


def check_weights(weights: RowWeights | None, scores: np.ndarray, name: str) -> None:
    """Refuses weights of other rows than those of the scores.

    Args:
        weights: None counts each row once.
        scores: ndarray of shape (N,).
        name: Of the scores, in messages.

    Raises:
        DataError: there are not N weights.
    """
    if weights is None:
        return
    instance(weights, RowWeights, f"weights of {name}")
    if len(weights) != len(scores):
        raise DataError(f"{len(scores)} values, but {len(weights)} weights", field=name)


@dataclass(frozen=True)
class _WeightedSides:
    """Scores of N positive and M negative rows, and their weights in B replicates."""

    positive: np.ndarray
    negative: np.ndarray
    positive_weights: RowWeights
    negative_weights: RowWeights

    @property
    def replicates(self) -> int:
        """Number of replicates, B."""
        return len(self.positive_weights.of_images)


class _Ranks:
    """The different scores of the first side among the rows of both sides.

    Args:
        first, second: Scores of the sides, ascending in the direction in which the threshold moves.
    """

    def __init__(self, first: np.ndarray, second: np.ndarray):
        self._rows = len(first)
        self._other_rows = len(second)
        self._second = second
        is_last = np.append(first[1:] != first[:-1], True)
        last = np.flatnonzero(is_last).astype(np.int32)
        self._distinct = first[last]
        # Rows of either side up to each different score.
        self._own = last + np.int32(1)
        self._other = self._rows_of_second("right")

    def _rows_of_second(self, side: Literal["left", "right"]) -> np.ndarray:
        """Rows of the second side before ("left") or up to ("right") each different score."""
        return np.searchsorted(self._second, self._distinct, side=side).astype(np.int32)

    @cached_property
    def _other_before(self) -> np.ndarray:
        return self._rows_of_second("left")

    def counted(self) -> Reached:
        """Numbers of rows."""
        return Reached(
            self._own, self._other, lambda: self._other_before, self._rows, self._other_rows
        )

    def weighted(self, first: np.ndarray, second: np.ndarray) -> Reached:
        """Weights in b replicates.

        Args:
            first: Weight of the first 0, 1, 2, … rows of the first side, ndarray of shape (b,
                N + 1).
            second: The same of the second side, whose rows are in the opposite direction.
        """
        total = second[:, -1:]

        own = first[:, 1:]
        if len(self._own) < self._rows:
            own = np.take(first, self._own_column, axis=1)
        other = self._rest(total, second, self._other_column)

        def other_before() -> np.ndarray:
            if self._sides_share_no_score:
                return other
            return self._rest(total, second, self._other_before_column)

        return Reached(own, other, other_before, first[:, -1], total[:, 0])

    @staticmethod
    def _rest(total: np.ndarray, second: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Weight of the second side that is not among its first rows, shape (b, K)."""
        rest = np.take(second, columns, axis=1)
        return np.subtract(total, rest, out=rest)

    @cached_property
    def _sides_share_no_score(self) -> bool:
        return bool(np.array_equal(self._other, self._other_before))

    # Columns of weights, of the type that `take` would convert other integers to each time.

    @cached_property
    def _own_column(self) -> np.ndarray:
        return self._own.astype(np.intp)

    @cached_property
    def _other_column(self) -> np.ndarray:
        return (self._other_rows - self._other).astype(np.intp)

    @cached_property
    def _other_before_column(self) -> np.ndarray:
        return (self._other_rows - self._other_before).astype(np.intp)


def _split_by_side(
    metrics: Metrics, positives: int, negatives: int
) -> tuple[dict[str, SeparationMetric], dict[str, SeparationMetric]]:
    """Metrics that look at the scores of the positive side, and those of the negative side.

    Metrics of either side look at the smaller one.

    Args:
        metrics: Each metric by its name.
        positives, negatives: Numbers of rows.
    """
    smaller = "positive" if positives < negatives else "negative"
    at_positive = {}
    at_negative = {}
    for name, metric in metrics.items():
        side = smaller if metric.at == "either" else metric.at
        if side == "positive":
            at_positive[name] = metric
        else:
            at_negative[name] = metric
    return at_positive, at_negative


def _values(metrics: Metrics, positive: np.ndarray, negative: np.ndarray) -> dict[str, Any]:
    """Metrics in which each row counts once.

    Args:
        metrics: Each metric by its name.
        positive, negative: Scores of either side, neither empty.
    """
    positive = np.sort(positive)
    negative = np.sort(negative)
    at_positive, at_negative = _split_by_side(metrics, len(positive), len(negative))
    values: dict[str, Any] = {}
    # One side after the other: of some 10⁷ rows everything counts.
    if at_positive:
        reached = _Ranks(-positive[::-1], -negative[::-1]).counted()
        for name, metric in at_positive.items():
            values[name] = value(metric.of(reached))
        del reached
    if at_negative:
        reached = _Ranks(negative, positive).counted()
        for name, metric in at_negative.items():
            values[name] = value(metric.of(reached))
    return {name: values[name] for name in metrics}


def _replicates_of_rows(metrics: Metrics, sides: _WeightedSides) -> dict[str, np.ndarray]:
    """Replicates from the weight of each row, ndarrays of shape (B,)."""
    # Positive rows fall, negative rows rise: as the thresholds move.
    positive_order = np.argsort(-sides.positive, kind="stable")
    negative_order = np.argsort(sides.negative, kind="stable")
    positive = sides.positive[positive_order]
    negative = sides.negative[negative_order]
    positive_rows = sides.positive_weights[positive_order]
    negative_rows = sides.negative_weights[negative_order]

    at_positive, at_negative = _split_by_side(metrics, len(positive), len(negative))
    positive_ranks = _Ranks(-positive, -negative[::-1]) if at_positive else None
    negative_ranks = _Ranks(negative, positive[::-1]) if at_negative else None
    result = {name: np.full(sides.replicates, np.nan) for name in metrics}
    for block in blocks(sides.replicates, max(len(positive), len(negative))):
        positive_so_far = accumulated(positive_rows.in_block(block))
        negative_so_far = accumulated(negative_rows.in_block(block))
        usable = (positive_so_far[:, -1] > 0) & (negative_so_far[:, -1] > 0)
        if not usable.all():
            positive_so_far = positive_so_far[usable]
            negative_so_far = negative_so_far[usable]
        if positive_ranks is not None:
            reached = positive_ranks.weighted(positive_so_far, negative_so_far)
            for name, metric in at_positive.items():
                result[name][block][usable] = metric.of(reached)
        if negative_ranks is not None:
            reached = negative_ranks.weighted(negative_so_far, positive_so_far)
            for name, metric in at_negative.items():
                result[name][block][usable] = metric.of(reached)
    return result


def _replicates_of_groups(metrics: Metrics, sides: _WeightedSides) -> dict[str, np.ndarray]:
    """Replicates from counts at some levels, ndarrays of shape (B,).

    Those of each metric are moved by the change that the levels cause in its value.
    """
    edges = np.unique(np.concatenate([_edges(sides.positive), _edges(sides.negative)]))
    levels = len(edges) + 1
    positive_level = _levels(sides.positive, edges)
    negative_level = _levels(sides.negative, edges)
    positive_rows = np.cumsum(np.bincount(positive_level, minlength=levels))[None]
    negative_rows = np.cumsum(np.bincount(negative_level, minlength=levels))[None]
    positive_weight = sides.positive_weights.up_to_level(positive_level, levels)
    negative_weight = sides.negative_weights.up_to_level(negative_level, levels)

    exact = measure(metrics, (sides.positive, None), (sides.negative, None))
    shift_by_metric = {}
    for name, metric in metrics.items():
        at_levels = metric.of(_at_levels(metric, positive_rows, negative_rows))
        shift_by_metric[name] = exact[name] - at_levels

    result = {name: np.full(sides.replicates, np.nan) for name in metrics}
    for block in blocks(sides.replicates, len(edges)):
        positive = positive_weight[block]
        negative = negative_weight[block]
        usable = (positive[:, -1] > 0) & (negative[:, -1] > 0)
        for name, metric in metrics.items():
            replicates = metric.of(_at_levels(metric, positive[usable], negative[usable]))
            moved = replicates + shift_by_metric[name]
            result[name][block][usable] = np.clip(moved, 0, 1)
    return result


def _at_levels(metric: SeparationMetric, positive: np.ndarray, negative: np.ndarray) -> Reached:
    """Weights at levels that both sides share, in the direction of a metric.

    Args:
        metric: The metric.
        positive, negative: Weight of either side at or above each level, from the highest down,
            ndarrays of shape (b, levels).
    """
    total = positive[:, -1]
    other_total = negative[:, -1]
    negative_above = _shifted(negative)
    if metric.at == "positive":
        return Reached(positive, negative, lambda: negative_above, total, other_total)
    # From the lowest up: the weight at or below a level is what is not above it.
    own = negative[:, -1:] - negative_above
    other = positive[:, -1:] - _shifted(positive)
    before = positive[:, -1:] - positive
    return Reached(own[:, ::-1], other[:, ::-1], lambda: before[:, ::-1], other_total, total)


def _shifted(so_far: np.ndarray) -> np.ndarray:
    """Weight above each level, from the weight at or above it, ndarray of shape (b, levels)."""
    return np.concatenate([np.zeros_like(so_far[:, :1]), so_far[:, :-1]], axis=1)


def _levels(scores: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Level of each score, 0 for those from the highest edge on, ndarray of shape (N,), int32."""
    edges_below = np.searchsorted(edges, scores, side="right")
    return (len(edges) - edges_below).astype(np.int32)


def _edges(scores: np.ndarray) -> np.ndarray:
    """Quantiles of a side's scores, denser about the shares that the metrics look at."""
    sample = scores[:: max(1, len(scores) // EDGES_FROM)]
    evenly_spread = np.linspace(0, 1, LEVELS)
    about_5_percent = np.linspace(0.05 - 0.01, 0.05 + 0.01, LEVELS // 2)
    about_95_percent = np.linspace(0.95 - 0.01, 0.95 + 0.01, LEVELS // 2)
    shares = np.concatenate([evenly_spread, about_5_percent, about_95_percent])
    return np.quantile(sample, shares)

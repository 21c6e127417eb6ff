"""Two sides of rows ranked by a score: metrics of how much weight of either is accepted at each score.

A metric looks at the scores of one side only, of which there are often far fewer than of both:
between two of them nothing changes that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.weighting import LEVELS, RowWeights, accumulated, blocks, each_once, value

#: Scores of a side that the levels of grouped weights are taken from.
EDGES_FROM = 100_000

#: Scores of a side, higher where more positive, and weights; each row counts once when None.
Side = tuple[np.ndarray, RowWeights | None]
Scores = tuple[np.ndarray, np.ndarray]
Weights = tuple[RowWeights, RowWeights]


class Reached:
    """Weight of two sides that a falling (or rising) threshold has reached at each different score of the first.

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
        self.own, self.other, self._before = own, other, other_before
        self.total, self.other_total = np.asarray(total), np.asarray(other_total)

    @cached_property
    def other_before(self) -> np.ndarray:
        """Weight of the second side just before its rows of the same score, ndarray of shape (…, K)."""
        return self._before()

    @cached_property
    def step(self) -> np.ndarray:
        """Weight of the first side at each score, ndarray of shape (…, K)."""
        step = self.own.copy()
        step[..., 1:] -= self.own[..., :-1]
        return step


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
        DataError: a score is NaN.
        ParameterError: the sides have different numbers of replicates.
    """
    scores = (checked(positive[0], names[0]), checked(negative[0], names[1]))
    if positive[1] is None and negative[1] is None:
        if not min(map(len, scores)):
            return dict.fromkeys(metrics)
        found: dict[str, Any] = {}
        for _, ranks, of_side in _ranked(metrics, (np.sort(scores[0]), np.sort(scores[1]))):
            reached = ranks.counted()
            found |= {name: value(metric.of(reached)) for name, metric in of_side.items()}
            del ranks, reached  # of some 10⁷ rows everything counts
        return {name: found[name] for name in metrics}
    sides = tuple(
        each_once(len(of_side)) if weights is None else weights
        for of_side, weights in zip(scores, (positive[1], negative[1]), strict=True)
    )
    replicates = len(sides[0].of_images)
    if len(sides[1].of_images) != replicates:
        raise ParameterError(f"{names[0]} and {names[1]} need the same number of replicates")
    result = {name: np.full(replicates, np.nan) for name in metrics}
    if not min(map(len, scores)):
        return result
    replicate = _of_groups if any(weights.grouped for weights in sides) else _of_rows
    replicate(metrics, scores, (sides[0], sides[1]), result)
    return result


def checked(scores: np.ndarray, name: str) -> np.ndarray:
    """Scores as an array of shape (N,), float64.

    Raises:
        DataError: a score is NaN.
    """
    scores = np.asarray(scores, dtype=np.float64).reshape(-1)
    if np.isnan(scores).any():
        raise DataError(
            "the score is NaN", row=int(np.flatnonzero(np.isnan(scores))[0]), field=name
        )
    return scores


class _Ranks:
    """The different scores of the first side among the rows of both, in the direction in which the threshold moves.

    Args:
        first, second: Scores of the sides, ascending in that direction.
    """

    def __init__(self, first: np.ndarray, second: np.ndarray):
        self._rows, self._other_rows, self._second = len(first), len(second), second
        last = np.flatnonzero(np.append(first[1:] != first[:-1], True)).astype(np.int32)
        self._own, self._different = last + np.int32(1), first[last]
        self._other = self._places("right")

    def _places(self, side: Literal["left", "right"]) -> np.ndarray:
        return np.searchsorted(self._second, self._different, side=side).astype(np.int32)

    @cached_property
    def _other_before(self) -> np.ndarray:
        return self._places("left")

    def counted(self) -> Reached:
        """Numbers of rows."""
        return Reached(
            self._own, self._other, lambda: self._other_before, self._rows, self._other_rows
        )

    def weighted(self, first: np.ndarray, second: np.ndarray) -> Reached:
        """Weights, from those of the first 0, 1, 2, … rows of a side: of the second side in the opposite direction."""
        total = second[:, -1:]

        def of_other(place: np.ndarray) -> np.ndarray:
            return total - np.take(second, self._other_rows - place, axis=1)

        own = first[:, 1:] if len(self._own) == self._rows else np.take(first, self._own, axis=1)
        before = partial(of_other, self._other_before)
        return Reached(own, of_other(self._other), before, first[:, -1], total[:, 0])


def _ranked(metrics: Metrics, scores: Scores) -> Iterator[tuple[bool, _Ranks, Metrics]]:
    """The metrics of each side that any looks at: whether it is the positive one, its scores, and the metrics.

    Args:
        scores: Sorted scores of the positive and the negative side.
    """
    positive, negative = scores
    either = "positive" if len(positive) < len(negative) else "negative"
    for side in ("positive", "negative"):
        of_side = {
            name: metric
            for name, metric in metrics.items()
            if side == (either if metric.at == "either" else metric.at)
        }
        if of_side:
            falls = side == "positive"
            yield (
                falls,
                _Ranks(-positive[::-1], -negative[::-1]) if falls else _Ranks(negative, positive),
                of_side,
            )


def _of_rows(
    metrics: Metrics, scores: Scores, sides: Weights, result: dict[str, np.ndarray]
) -> None:
    """Replicates from the weight of each row."""
    order = (np.argsort(-scores[0], kind="stable"), np.argsort(scores[1], kind="stable"))
    ranked = list(_ranked(metrics, (scores[0][order[0]][::-1], scores[1][order[1]])))
    rows = [weights[place] for weights, place in zip(sides, order, strict=True)]
    for block in blocks(len(sides[0].of_images), max(map(len, scores))):
        positive, negative = (accumulated(weights.in_block(block)) for weights in rows)
        usable = (positive[:, -1] > 0) & (negative[:, -1] > 0)
        if not usable.all():
            positive, negative = positive[usable], negative[usable]
        for falls, ranks, of_side in ranked:
            reached = ranks.weighted(*((positive, negative) if falls else (negative, positive)))
            for name, metric in of_side.items():
                result[name][block][usable] = metric.of(reached)


def _of_groups(
    metrics: Metrics, scores: Scores, sides: Weights, result: dict[str, np.ndarray]
) -> None:
    """Replicates from counts at some levels; those of each metric are moved by what the levels change of its value."""
    edges = np.unique(np.concatenate([_edges(of_side) for of_side in scores]))
    level = [
        (len(edges) - np.searchsorted(edges, of_side, side="right")).astype(np.int32)
        for of_side in scores
    ]
    exact = measure(metrics, (scores[0], None), (scores[1], None))
    once = [np.cumsum(np.bincount(of_side, minlength=len(edges) + 1))[None] for of_side in level]
    counts = [
        rows.up_to_level(of_side, len(edges) + 1)
        for rows, of_side in zip(sides, level, strict=True)
    ]
    for block in blocks(len(counts[0]), len(edges)):
        positive, negative = (of_side[block] for of_side in counts)
        usable = (positive[:, -1] > 0) & (negative[:, -1] > 0)
        for name, metric in metrics.items():
            moved = exact[name] - metric.of(_at_levels(metric, *once))
            found = metric.of(_at_levels(metric, positive[usable], negative[usable]))
            result[name][block][usable] = np.clip(found + moved, 0, 1)


def _at_levels(metric: SeparationMetric, positive: np.ndarray, negative: np.ndarray) -> Reached:
    """Weights from those at or above each level that both sides share, from the highest down."""
    above = [
        np.concatenate([np.zeros_like(side[:, :1]), side[:, :-1]], axis=1)
        for side in (positive, negative)
    ]
    total, other_total = positive[:, -1], negative[:, -1]
    if metric.at == "positive":
        return Reached(positive, negative, lambda: above[1], total, other_total)
    own, other, before = (
        of[:, -1:] - of_above
        for of, of_above in ((negative, above[1]), (positive, above[0]), (positive, positive))
    )
    return Reached(own[:, ::-1], other[:, ::-1], lambda: before[:, ::-1], other_total, total)


def _edges(scores: np.ndarray) -> np.ndarray:
    """Quantiles of a side's scores, most of them about those shares that the metrics look at."""
    sample = scores[:: max(1, len(scores) // EDGES_FROM)]
    near = [np.linspace(share - 0.01, share + 0.01, LEVELS // 2) for share in (0.05, 0.95)]
    return np.quantile(sample, np.concatenate([np.linspace(0, 1, LEVELS), *near]))

"""Separation of in-distribution regions from others by a score, whatever the ground truth boxes are.

In-distribution (ID) is the positive class and has the higher scores: at threshold τ a region counts as ID iff its
score is at least τ. Equal scores are handled exactly: no metric depends on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import numpy as np

from farther.errors import DataError, ParameterError, shorten
from farther.metrics.boxes import image_numbers
from farther.metrics.weighting import LEVELS, RowWeights, accumulated, blocks, each_once, value

#: A metric of how many ID and OOD regions are accepted at each score; see `METRICS`.
Formula = Callable[[np.ndarray, np.ndarray], np.ndarray]

#: Scores of a side that the levels of grouped weights are taken from.
EDGES_FROM = 100_000

#: How the area under a precision–recall curve is taken; see `evaluate`.
Aupr = Literal["step", "trapezoid"]


def evaluate(
    id_scores: np.ndarray,
    ood_scores: np.ndarray,
    id_weights: RowWeights | None = None,
    ood_weights: RowWeights | None = None,
    aupr: Aupr = "step",
) -> dict[str, Any]:
    """The usual metrics of out-of-distribution detection.

    Args:
        id_scores: ndarray of shape (N,), scores of ID regions; higher means more in-distribution.
        ood_scores: ndarray of shape (M,), scores of OOD regions.
        id_weights, ood_weights: Weights of the regions in B replicates; each region counts once when None. ID and OOD
            images are drawn independently.
        aupr: "step": average precision, one step per different score, as scikit-learn's `average_precision_score`;
            "trapezoid": straight lines between the points of the curve and from (0, 1), as OpenOOD's code does.

    Returns:
        Fractions, None where either side is empty; with weights ndarrays of shape (B,), NaN for None.

        auroc: Area under the receiver operating characteristic; equal scores count one half (Hendrycks and Gimpel,
            2017, arXiv:1610.02136).
        fpr95: see `fpr_at`, at a true positive rate of 0.95 (Liang et al., 2018, arXiv:1706.02690).
        fpr95_ood_positive: The same with OOD as the positive class, as in OpenOOD's code: the smallest share of ID
            regions rejected when 95% of the OOD regions are.
        aupr_in, aupr_out: Area under the precision–recall curve with ID, or OOD, as the positive class.
        detection_error: The smallest ½·(1 − TPR) + ½·FPR that any threshold reaches.

    Raises:
        DataError: a score is NaN.
        ParameterError: the sides have different numbers of replicates, or `aupr` is not one of those.

    >>> evaluate([3, 2, 2, 2], [2, 1])["auroc"]
    0.8125
    """
    if aupr not in get_args(Aupr):
        raise ParameterError(f"unknown aupr {aupr!r}. Known: {', '.join(get_args(Aupr))}")
    formulas = METRICS if aupr == "step" else METRICS | TRAPEZOIDS
    sides = ((id_scores, id_weights), (ood_scores, ood_weights))
    return measure(formulas, *sides, names=("id_scores", "ood_scores"))


def measure(
    formulas: Mapping[str, Formula],
    positive: tuple[np.ndarray, RowWeights | None],
    negative: tuple[np.ndarray, RowWeights | None],
    names: tuple[str, str],
) -> dict[str, Any]:
    """Metrics of how many rows of two sides are accepted at each score.

    Args:
        formulas: Each metric by its name.
        positive, negative: Scores of a side, higher where more positive, and their weights; see `evaluate`.
        names: Of the sides in messages.

    Returns:
        As `evaluate`: None, or NaN, where either side is empty.

    Raises:
        DataError: a score is NaN.
        ParameterError: the sides have different numbers of replicates.
    """
    scores = (_checked(positive[0], names[0]), _checked(negative[0], names[1]))
    if positive[1] is None and negative[1] is None:
        counts = _accepted(*scores) if min(map(len, scores)) else None
        return {name: None if counts is None else value(of(*counts)) for name, of in formulas.items()}
    sides = tuple(
        each_once(len(of_side)) if weights is None else weights
        for of_side, weights in zip(scores, (positive[1], negative[1]), strict=True)
    )
    replicates = len(sides[0].of_images)
    if len(sides[1].of_images) != replicates:
        raise ParameterError(f"{names[0]} and {names[1]} need the same number of replicates")
    if any(weights.grouped for weights in sides):
        return _of_groups(formulas, scores, sides)
    result = {name: np.full(replicates, np.nan) for name in formulas}
    levels = np.unique(np.concatenate(scores))[::-1]
    if len(levels):
        ranked = []
        for of_side, weights in zip(scores, sides, strict=True):
            falling = np.argsort(-of_side, kind="stable")
            reached = len(of_side) - np.searchsorted(of_side[falling][::-1], levels, side="left")
            ranked.append((weights[falling], reached))
        for block in blocks(replicates, max(len(levels), *map(len, scores))):
            true, false = (accumulated(weights.in_block(block))[:, reached] for weights, reached in ranked)
            usable = (true[:, -1] > 0) & (false[:, -1] > 0)
            for name, values in result.items():
                values[block][usable] = formulas[name](true[usable], false[usable])
    return result


def _accepted(*scores: np.ndarray) -> list[np.ndarray]:
    """Number of rows of either side that are accepted at each score that occurs, from the highest down, shape (L,)."""
    first, second = (np.sort(of_side) for of_side in scores)
    both = np.concatenate([first, second])
    order = np.argsort(both, kind="stable")  # two runs that are sorted: a merge
    both, of_first = both[order], np.cumsum(order < len(first), dtype=np.int32)
    last = np.flatnonzero(np.append(both[1:] != both[:-1], True))[:-1]  # below all other levels
    before = np.append(np.int32(0), of_first[last]), np.append(0, last + 1 - of_first[last]).astype(np.int32)
    return [(np.int32(len(side)) - lower)[::-1] for side, lower in zip((first, second), before, strict=True)]


def _of_groups(
    formulas: Mapping[str, Formula], scores: tuple[np.ndarray, np.ndarray], sides: tuple[RowWeights, ...]
) -> dict[str, np.ndarray]:
    """Replicates from counts at some levels; those of each metric are moved by what the levels change of its value."""
    edges = np.unique(np.concatenate([_edges(of_side) for of_side in scores]))
    level = [len(edges) - np.searchsorted(edges, of_side, side="right") for of_side in scores]
    exact = measure(formulas, (scores[0], None), (scores[1], None), ("", ""))
    result = {name: np.full(len(sides[0].of_images), np.nan) for name in formulas}
    if None in exact.values():
        return result
    once = [np.cumsum(np.bincount(of_side, minlength=len(edges) + 1))[None] for of_side in level]
    counts = [rows.up_to_level(of_side, len(edges) + 1) for rows, of_side in zip(sides, level, strict=True)]
    for block in blocks(len(counts[0]), len(edges)):
        true, false = (of_side[block] for of_side in counts)
        usable = (true[:, -1] > 0) & (false[:, -1] > 0)
        for name, values in result.items():
            moved = exact[name] - formulas[name](*once)
            values[block][usable] = np.clip(formulas[name](true[usable], false[usable]) + moved, 0, 1)
    return result


def _edges(scores: np.ndarray) -> np.ndarray:
    """Quantiles of a side's scores, most of them about those shares that the metrics look at."""
    sample = scores[:: max(1, len(scores) // EDGES_FROM)]
    if not len(sample):
        return sample
    near = [np.linspace(share - 0.01, share + 0.01, LEVELS // 2) for share in (0.05, 0.95)]
    return np.quantile(sample, np.concatenate([np.linspace(0, 1, LEVELS), *near]))


def auroc(id_scores: np.ndarray, ood_scores: np.ndarray) -> float | None:
    """Area under the receiver operating characteristic alone; None where either side is empty.

    Args:
        id_scores: ndarray of shape (N,), scores of ID regions; higher means more in-distribution.
        ood_scores: ndarray of shape (M,), scores of OOD regions.

    Raises:
        DataError: a score is NaN.

    >>> auroc([3, 2], [2, 1])
    0.875
    """
    id_scores, ood_scores = _checked(id_scores, "id_scores"), np.sort(_checked(ood_scores, "ood_scores"))
    if not len(id_scores) or not len(ood_scores):
        return None
    beaten = sum(int(np.searchsorted(ood_scores, id_scores, side=side).sum()) for side in ("left", "right"))
    return beaten / (2 * len(id_scores) * len(ood_scores))


def roc(id_scores: np.ndarray, ood_scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The receiver operating characteristic, one point per different score.

    Args:
        id_scores: ndarray of shape (N,), scores of ID regions; higher means more in-distribution.
        ood_scores: ndarray of shape (M,), scores of OOD regions.

    Returns:
        FPR and TPR (FMIYC, Eqs. 1 and 2), ndarrays of shape (T,), from (0, 0) to (1, 1).

    Raises:
        DataError: a score is NaN, or a side is empty.

    >>> fpr, tpr = roc([3, 2], [2, 1])
    >>> fpr.tolist(), tpr.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    id_scores, ood_scores = _checked(id_scores, "id_scores"), _checked(ood_scores, "ood_scores")
    if not len(id_scores) or not len(ood_scores):
        raise DataError("a curve needs scores of both sides", field="id_scores" if len(ood_scores) else "ood_scores")
    levels = np.append(np.inf, np.unique(np.concatenate([id_scores, ood_scores]))[::-1])
    fpr, tpr = ((len(s) - np.searchsorted(np.sort(s), levels, side="left")) / len(s) for s in (ood_scores, id_scores))
    return fpr, tpr


def fpr_at(id_scores: np.ndarray, ood_scores: np.ndarray, tpr: float = 0.95) -> float | None:
    """The smallest share of OOD regions accepted as ID among the thresholds that keep at least `tpr` of the ID regions.

    Args:
        id_scores: ndarray of shape (N,), scores of ID regions; higher means more in-distribution.
        ood_scores: ndarray of shape (M,), scores of OOD regions.
        tpr: Share of the ID regions to keep, above 0, at most 1.

    Returns:
        A fraction; None where either side is empty.

    Raises:
        DataError: a score is NaN.
        ValueError: `tpr` is not above 0 and at most 1.

    >>> fpr_at([3, 2, 2, 2], [2, 1], tpr=0.95)
    0.5
    """
    threshold = threshold_at(id_scores, tpr)
    ood_scores = _checked(ood_scores, "ood_scores")
    return None if threshold is None or not len(ood_scores) else float(np.mean(ood_scores >= threshold))


def threshold_at(id_scores: np.ndarray, tpr: float) -> float | None:
    """The largest threshold that keeps at least `tpr` of the ID regions; None where there is none.

    Args:
        id_scores: ndarray of shape (N,), scores of ID regions.
        tpr: Share of them to keep, above 0, at most 1.

    Raises:
        DataError: a score is NaN.
        ValueError: `tpr` is not above 0 and at most 1.

    >>> threshold_at([4, 3, 2, 1], tpr=0.5)
    3.0
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr is above 0 and at most 1, found {tpr}")
    id_scores = _checked(id_scores, "id_scores")
    if not len(id_scores):
        return None
    kept = np.arange(1, len(id_scores) + 1) / len(id_scores)
    return float(np.sort(id_scores)[::-1][np.searchsorted(kept, tpr)])


def per_image(
    image_id: np.ndarray, scores: np.ndarray, reduce: Literal["min", "max"] = "min"
) -> tuple[np.ndarray, np.ndarray]:
    """One score per image: that of its least ("min") or most ("max") in-distribution region.

    Args:
        image_id: Image of each region, object array of shape (N,).
        scores: ndarray of shape (N,).
        reduce: Which region decides.

    Returns:
        The names of the images that have a region, sorted, and their scores, ndarrays of shape (I,).

    Raises:
        ValueError: `reduce` is neither.

    >>> names, scores = per_image(np.array(["a", "b", "a"], dtype=object), [3, 2, 1])
    >>> names.tolist(), scores.tolist()
    (['a', 'b'], [1.0, 2.0])
    """
    if reduce not in ("min", "max"):
        raise ValueError(f"reduce is 'min' or 'max', found {shorten(reduce)}")
    names, (number,) = image_numbers(image_id)
    least = reduce == "min"
    result = np.full(len(names), np.inf if least else -np.inf)
    (np.minimum if least else np.maximum).at(result, number, np.asarray(scores, dtype=np.float64))
    return names, result


def _checked(scores: np.ndarray, name: str) -> np.ndarray:
    scores = np.asarray(scores, dtype=np.float64).reshape(-1)
    if np.isnan(scores).any():
        raise DataError("the score is NaN", row=int(np.flatnonzero(np.isnan(scores))[0]), field=name)
    return scores


def _auroc(true: np.ndarray, false: np.ndarray) -> np.ndarray:
    # Products of small integers may be too large for their type.
    steps = np.diff(false, axis=-1, prepend=0).astype(np.float64)
    twice = np.sum(steps * (2 * true - np.diff(true, axis=-1, prepend=0)), axis=-1)
    return twice / (2.0 * true[..., -1] * false[..., -1])


def _fpr95(true: np.ndarray, false: np.ndarray) -> np.ndarray:
    first = np.argmax(true / true[..., -1:] >= 0.95, axis=-1)
    return np.take_along_axis(false, first[..., None], axis=-1)[..., 0] / false[..., -1]


def _precision(true: np.ndarray, false: np.ndarray) -> np.ndarray:
    total = true + false
    # A replicate may have no region at the highest scores.
    return np.divide(true, total, out=np.ones(total.shape), where=total > 0)


def _step_area(true: np.ndarray, false: np.ndarray) -> np.ndarray:
    return np.sum(np.diff(true, axis=-1, prepend=0) * _precision(true, false), axis=-1) / true[..., -1]


def _trapezoid_area(true: np.ndarray, false: np.ndarray) -> np.ndarray:
    precision = _precision(true, false)
    before = np.concatenate([np.ones_like(precision[..., :1]), precision[..., :-1]], axis=-1)
    return np.sum(np.diff(true, axis=-1, prepend=0) * (precision + before) / 2, axis=-1) / true[..., -1]


def _ood_positive(of: Formula) -> Formula:
    """A formula with OOD as the positive class: scores are taken from the lowest up."""

    def swapped(true: np.ndarray, false: np.ndarray) -> np.ndarray:
        one_higher = (np.concatenate([np.zeros_like(side[..., :1]), side[..., :-1]], axis=-1) for side in (false, true))
        below = (side[..., -1:] - above for side, above in zip((false, true), one_higher, strict=True))
        return of(*(side[..., ::-1] for side in below))

    return swapped


def _detection_error(true: np.ndarray, false: np.ndarray) -> np.ndarray:
    errors = (1 - true / true[..., -1:] + false / false[..., -1:]) / 2
    return np.minimum(0.5, np.min(errors, axis=-1))


#: Each metric as a function of how many ID and OOD regions are accepted at each score that occurs, from the highest
#: down: arrays of shape (…, L) of counts or of weights; the result has shape (…).
METRICS: dict[str, Formula] = {
    "auroc": _auroc,
    "fpr95": _fpr95,
    "fpr95_ood_positive": _ood_positive(_fpr95),
    "aupr_in": _step_area,
    "aupr_out": _ood_positive(_step_area),
    "detection_error": _detection_error,
}

#: Those that `aupr="trapezoid"` computes in another way.
TRAPEZOIDS: dict[str, Formula] = {"aupr_in": _trapezoid_area, "aupr_out": _ood_positive(_trapezoid_area)}

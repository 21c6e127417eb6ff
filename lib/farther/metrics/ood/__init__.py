"""Separation of in-distribution regions from others by a score.

Ground truth boxes play no part. In-distribution (ID) is the positive class and has the higher
scores: at threshold τ a region counts as ID iff its score is at least τ. Equal scores are handled
exactly: no metric depends on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from farther.errors import DataError
from farther.metrics.matching.boxes import image_numbers
from farther.metrics.ood.two_sides import Reached, SeparationMetric, measure
from farther.metrics.statistics.bootstrap import MIN_REPLICATES, ImageDraws, interval
from farther.metrics.weighting import RowWeights
from farther.tables.arguments import floats, number, one_of, texts, whole_number

#: Area under a precision–recall curve: by steps or by straight lines; see `evaluate`.
Aupr = Literal["step", "trapezoid"]

_NAMES = ("id_scores", "ood_scores")


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
        id_weights, ood_weights: Weights of the regions in B replicates; each region counts once
            when None. ID and OOD images are drawn independently.
        aupr: "step": average precision, one step per different score, as scikit-learn's
            `average_precision_score`; "trapezoid": straight lines between the points of the curve
            and from (0, 1), as OpenOOD's code does.

    Returns:
        Fractions, None where either side is empty; with weights ndarrays of shape (B,), NaN for
        None.

        auroc: Area under the receiver operating characteristic; equal scores count one half
            (Hendrycks and Gimpel, 2017, arXiv:1610.02136).
        fpr95: see `fpr_at`, at a true positive rate of 0.95 (Liang et al., 2018, arXiv:1706.02690).
        fpr95_ood_positive: The same with OOD as the positive class, as in OpenOOD's code: the
            smallest share of ID regions rejected when 95% of the OOD regions are.
        aupr_in, aupr_out: Area under the precision–recall curve with ID, or OOD, as the positive
            class.
        detection_error: The smallest ½·(1 − TPR) + ½·FPR that any threshold reaches (Lee et al.,
            2018, arXiv:1807.03888: 1 − detection accuracy).
        detection_error95: ½·(1 − TPR) + ½·FPR at the threshold of `fpr95` (Liang et al., 2018,
            arXiv:1706.02690).

    Raises:
        DataError: a score is not finite.
        ParameterError: the sides have different numbers of replicates, or `aupr` is not one of
            those.

    >>> evaluate([3, 2, 2, 2], [2, 1])["auroc"]
    0.8125
    """
    one_of(aupr, get_args(Aupr), "aupr")
    formulas = METRICS if aupr == "step" else METRICS | TRAPEZOIDS
    return measure(formulas, (id_scores, id_weights), (ood_scores, ood_weights), names=_NAMES)


class Estimate(NamedTuple):
    """A metric with its 95% interval.

    Args:
        value: The metric.
        low, high: Ends of the interval.

    >>> print(Estimate(0.8125, 0.71, 0.89))
    0.812 [0.710, 0.890]
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def with_intervals(
    id_scores: np.ndarray,
    ood_scores: np.ndarray,
    id_images: Sequence[str] | None = None,
    ood_images: Sequence[str] | None = None,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """The metrics of `evaluate`, each with its 95% interval by a bootstrap over images.

    Args:
        id_scores, ood_scores: See `evaluate`.
        id_images, ood_images: Image of each region, as regions of one image are not independent;
            each region is an image of its own when None.
        replicates: Number of replicates, at least 100.
        seed: Seed of the draws.

    Returns:
        Name → value, low, high. Metrics that are not defined are left out, and so are those that
        have no interval, as with perfect separation (see
        `farther.metrics.statistics.bootstrap.why_no_interval`).

    Raises:
        DataError: a side has a single image, or see `evaluate`.
        ParameterError: there are too few replicates, or see `evaluate`.

    >>> estimates = with_intervals([3, 2, 2, 2] * 9, [2, 1] * 9)
    >>> print(estimates["auroc"])  # doctest: +ELLIPSIS
    0.812 [0.7..., 0...]
    """
    id_scores = floats(id_scores, "id_scores")
    ood_scores = floats(ood_scores, "ood_scores")
    replicates = whole_number(replicates, "replicates", at_least=MIN_REPLICATES)
    seed = whole_number(seed, "seed", at_least=0)
    id_names = _image_names(id_images, "id_images", len(id_scores))
    ood_names = _image_names(ood_images, "ood_images", len(ood_scores))
    id_weights = ImageDraws(set(id_names), replicates, seed).rows(id_names)
    ood_weights = ImageDraws(set(ood_names), replicates, seed + 1).rows(ood_names)
    values = evaluate(id_scores, ood_scores)
    values_by_replicate = evaluate(id_scores, ood_scores, id_weights, ood_weights)
    estimates = {}
    for name, value in values.items():
        if value is None:
            continue
        bounds = interval(values_by_replicate[name], value=value)
        if bounds is not None:
            estimates[name] = Estimate(value, *bounds)
    return estimates


def _image_names(images: Sequence[str] | None, name: str, regions: int) -> np.ndarray:
    """The image of each region; see `with_intervals`."""
    if images is None:
        return np.array([str(index) for index in range(regions)], dtype=object)
    names = texts(images, name, length=regions)
    if len(set(names)) == 1:
        raise DataError(
            "an interval over images needs two or more, found one; `evaluate` has the values "
            "without intervals",
            field=name,
        )
    return names


def auroc(
    id_scores: np.ndarray,
    ood_scores: np.ndarray,
    id_weights: RowWeights | None = None,
    ood_weights: RowWeights | None = None,
) -> Any:
    """Area under the receiver operating characteristic alone.

    Arguments, errors and result are as of `evaluate`.

    Args:
        id_scores, ood_scores, id_weights, ood_weights: see `evaluate`.

    >>> auroc([3, 2], [2, 1])
    0.875
    """
    metrics = {"auroc": METRICS["auroc"]}
    values = measure(metrics, (id_scores, id_weights), (ood_scores, ood_weights), names=_NAMES)
    return values["auroc"]


def roc(id_scores: np.ndarray, ood_scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The receiver operating characteristic, one point per different score.

    Args:
        id_scores: ndarray of shape (N,), scores of ID regions; higher means more in-distribution.
        ood_scores: ndarray of shape (M,), scores of OOD regions.

    Returns:
        FPR and TPR (FMIYC, Eqs. 1 and 2), ndarrays of shape (T,), from (0, 0) to (1, 1).

    Raises:
        DataError: a score is not finite, or a side is empty.

    >>> fpr, tpr = roc([3, 2], [2, 1])
    >>> fpr.tolist(), tpr.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    id_scores = floats(id_scores, "id_scores")
    ood_scores = floats(ood_scores, "ood_scores")
    if not len(id_scores) or not len(ood_scores):
        raise DataError(
            "a curve needs scores of both sides",
            field="id_scores" if len(ood_scores) else "ood_scores",
        )
    falling_scores = np.unique(np.concatenate([id_scores, ood_scores]))[::-1]
    thresholds = np.append(np.inf, falling_scores)
    return _share_from(ood_scores, thresholds), _share_from(id_scores, thresholds)


def _share_from(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Share of the scores at or above each threshold, ndarray of the thresholds' shape."""
    below = np.searchsorted(np.sort(scores), thresholds, side="left")
    return (len(scores) - below) / len(scores)


def fpr_at(id_scores: np.ndarray, ood_scores: np.ndarray, tpr: float = 0.95) -> float | None:
    """The smallest false positive rate at a true positive rate.

    That is the smallest share of OOD regions accepted as ID among the thresholds that keep at least
    `tpr` of the ID regions.

    Args:
        id_scores: ndarray of shape (N,), scores of ID regions; higher means more in-distribution.
        ood_scores: ndarray of shape (M,), scores of OOD regions.
        tpr: Share of the ID regions to keep, above 0, at most 1.

    Returns:
        A fraction; None where either side is empty.

    Raises:
        DataError: a score is not finite.
        ParameterError: `tpr` is not above 0 and at most 1.

    >>> fpr_at([3, 2, 2, 2], [2, 1], tpr=0.95)
    0.5
    """
    threshold = threshold_at(id_scores, tpr)
    ood_scores = floats(ood_scores, "ood_scores")
    if threshold is None or not len(ood_scores):
        return None
    return float(np.mean(ood_scores >= threshold))


def threshold_at(id_scores: np.ndarray, tpr: float) -> float | None:
    """The largest threshold that keeps at least `tpr` of the ID regions; None where there is none.

    Args:
        id_scores: ndarray of shape (N,), scores of ID regions.
        tpr: Share of them to keep, above 0, at most 1.

    Raises:
        DataError: a score is not finite.
        ParameterError: `tpr` is not above 0 and at most 1.

    >>> threshold_at([4, 3, 2, 1], tpr=0.5)
    3.0
    """
    share = number(tpr, "tpr", above=0, at_most=1)
    return thresholds_at(id_scores, [share]).get(share)


def thresholds_at(id_scores: np.ndarray, tprs: Sequence[float]) -> dict[float, float]:
    """`threshold_at` of several shares, by share; empty where there is no region.

    Args:
        id_scores: ndarray of shape (N,), scores of ID regions.
        tprs: Shares of them to keep, above 0, at most 1.

    Raises:
        DataError: a score is not finite.
        ParameterError: a share is not above 0 and at most 1.

    >>> thresholds_at([4, 3, 2, 1], tprs=[0.5, 1.0])
    {0.5: 3.0, 1.0: 1.0}
    """
    shares = [number(tpr, "tprs", above=0, at_most=1) for tpr in floats(tprs, "tprs").tolist()]
    id_scores = floats(id_scores, "id_scores")
    if not len(id_scores):
        return {}
    share_of_first = np.arange(1, len(id_scores) + 1) / len(id_scores)
    falling_scores = np.sort(id_scores)[::-1]
    threshold_by_tpr = {}
    for tpr in shares:
        threshold_by_tpr[tpr] = float(falling_scores[np.searchsorted(share_of_first, tpr)])
    return threshold_by_tpr


def per_image(
    image_id: np.ndarray, scores: np.ndarray, reduce: Literal["min", "max"] = "min"
) -> tuple[np.ndarray, np.ndarray]:
    """One score per image: that of its least ("min") or most ("max") in-distribution region.

    Args:
        image_id: Image of each region, object array of shape (N,).
        scores: ndarray of shape (N,).
        reduce: Which region decides.

    Returns:
        The names of the images that have a region, sorted, and their scores, ndarrays of shape
        (I,).

    Raises:
        DataError: there is not one finite score per name.
        ParameterError: `reduce` is neither.

    >>> names, scores = per_image(np.array(["a", "b", "a"], dtype=object), [3, 2, 1])
    >>> names.tolist(), scores.tolist()
    (['a', 'b'], [1.0, 2.0])
    """
    one_of(reduce, ("min", "max"), "reduce")
    scores = floats(scores, "scores")
    names, (image,) = image_numbers(texts(image_id, "image_id", length=len(scores)))
    if reduce == "min":
        score_per_image = np.full(len(names), np.inf)
        np.minimum.at(score_per_image, image, scores)
    else:
        score_per_image = np.full(len(names), -np.inf)
        np.maximum.at(score_per_image, image, scores)
    return names, score_per_image


def _auroc(at: Reached) -> np.ndarray:
    """Area under the receiver operating characteristic."""
    # Products of small integers may be too large for their type.
    twice_beaten = 2 * at.other_total[..., None] - at.other
    twice_beaten -= at.other_before
    twice_area = np.einsum("...k,...k->...", at.step, twice_beaten, dtype=np.float64)
    return twice_area / (2.0 * at.total * at.other_total)


def _fpr95(at: Reached) -> np.ndarray:
    """Share of the other side at the first score that reaches 95% of the own side."""
    return _at_column(at.other, at.first_at_95) / at.other_total


def _detection_error95(at: Reached) -> np.ndarray:
    """Mean of both error rates at the first score that reaches 95% of the own side."""
    tpr = _at_column(at.own, at.first_at_95) / at.total
    fpr = _at_column(at.other, at.first_at_95) / at.other_total
    return (1 - tpr + fpr) / 2


def _at_column(values: np.ndarray, column: np.ndarray) -> np.ndarray:
    """One value of each row: ndarray of shape (…), from ndarrays of shape (…, K) and (…)."""
    return np.take_along_axis(values, column[..., None], axis=-1)[..., 0]


def _precision(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Share of the own side in all that is reached; 1 where nothing is."""
    both = own + other
    if np.all(both[..., 0] > 0):  # they never fall
        return own / both
    # A replicate may have no region at the highest scores.
    return np.divide(own, both, out=np.ones(both.shape), where=both > 0)


def _step_area(at: Reached) -> np.ndarray:
    """Area under the precision–recall curve by steps."""
    precision = _precision(at.own, at.other)
    area = np.einsum("...k,...k->...", at.step, precision, dtype=np.float64)
    return area / at.total


def _trapezoid_area(at: Reached) -> np.ndarray:
    """Area under the precision–recall curve by straight lines."""
    own_before = at.own - at.step
    twice_precision = _precision(at.own, at.other) + _precision(own_before, at.other_before)
    twice_area = np.einsum("...k,...k->...", at.step, twice_precision, dtype=np.float64)
    return twice_area / (2 * at.total)


def _detection_error(at: Reached) -> np.ndarray:
    """The smallest mean of both error rates."""
    tpr = at.own / at.total[..., None]
    fpr = at.other / at.other_total[..., None]
    return np.min((1 - tpr + fpr) / 2, axis=-1)


#: Each metric of ID regions, the positive side, and OOD regions.
METRICS: dict[str, SeparationMetric] = {
    "auroc": SeparationMetric(_auroc, "either"),
    "fpr95": SeparationMetric(_fpr95, "positive"),
    "fpr95_ood_positive": SeparationMetric(_fpr95, "negative"),
    "aupr_in": SeparationMetric(_step_area, "positive"),
    "aupr_out": SeparationMetric(_step_area, "negative"),
    "detection_error": SeparationMetric(_detection_error, "either"),
    "detection_error95": SeparationMetric(_detection_error95, "positive"),
}

#: Those that `aupr="trapezoid"` computes in another way.
TRAPEZOIDS: dict[str, SeparationMetric] = {
    "aupr_in": SeparationMetric(_trapezoid_area, "positive"),
    "aupr_out": SeparationMetric(_trapezoid_area, "negative"),
}

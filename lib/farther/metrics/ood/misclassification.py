"""Misclassification detection: separation of ID regions of the right class from errors by a score.

Both sides are regions of ID images. A score that separates unknown objects may fail here, and the
other way round (Recalcati et al., "Toward a Realistic Benchmark for Out-of-Distribution Detection",
2023, arXiv:2404.10474, Table VII).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from farther.metrics import ood
from farther.metrics.matching import true_classes
from farther.metrics.ood.two_sides import Reached, SeparationMetric, Side, check_weights, measure
from farther.metrics.weighting import RowWeights, ratio
from farther.tables import Objects, Regions
from farther.tables.arguments import booleans, floats, instance, number

#: Harmonic numbers of smaller integers are taken from a table.
LARGE = 2**17


def is_correct(objects: Objects, regions: Regions, iou: float = 0.5) -> np.ndarray:
    """Regions of the class of the object that they overlap most, ndarray of shape (N,), bool.

    Args:
        objects: Ground truth of ID images.
        regions: Regions in them; for a classifier one per image.
        iou: Smallest overlap that counts.
    """
    instance(objects, Objects, "objects")
    instance(regions, Regions, "regions")
    iou = number(iou, "iou", above=0, at_most=1)
    if not len(regions):
        return np.zeros(0, dtype=bool)
    true_class = true_classes(objects, regions, iou).category.astype(str)
    detected_class = np.array(regions.classes, dtype=str)[regions.label]
    return true_class == detected_class


def evaluate(
    scores: np.ndarray, correct: np.ndarray, weights: RowWeights | None = None
) -> dict[str, Any]:
    """Metrics of misclassification detection; correct regions are the positive class.

    Args:
        scores: ndarray of shape (N,), higher where the region counts as more certain.
        correct: ndarray of shape (N,), bool: see `is_correct`.
        weights: Weights of the regions in B replicates; each region counts once when None.

    Returns:
        Fractions, None where no region is correct or none is wrong; with weights ndarrays of shape
        (B,), NaN for None.

        auroc, fpr95, detection_error, detection_error95: see `farther.metrics.ood.evaluate`; FPR95
            is the share of errors that pass when 95% of the correct regions do.
        aurc: Area under the risk–coverage curve: the mean, over k = 1 … N, of the share of errors
            among the k regions with the highest scores (Geifman and El-Yaniv, 2017,
            arXiv:1705.08500). Of equal scores, the mean over all orders.
        e_aurc: `aurc` less that of a score that ranks all correct regions above all errors (Geifman
            et al., 2019, arXiv:1805.08206, Eq. 2, with the finite sum in place of its approximation
            r + (1 − r) ln(1 − r)).

    Raises:
        DataError: a score is not finite, or `correct` is not one bool per score.

    >>> metrics = evaluate(np.array([4.0, 3.0, 2.0, 1.0]), np.array([True, False, True, True]))
    >>> round(metrics["aurc"], 4)  # (0 + 1/2 + 1/3 + 1/4) / 4
    0.2708
    >>> round(metrics["e_aurc"], 4)  # less (1/4) / 4
    0.2083
    """
    scores = floats(scores, "scores")
    correct = booleans(correct, "correct", shape=scores.shape)
    check_weights(weights, scores, "scores")

    def side(rows: np.ndarray) -> Side:
        return scores[rows], None if weights is None else weights[rows]

    names = ("scores of correct regions", "scores of errors")
    return measure(METRICS, side(correct), side(~correct), names=names)


def _harmonic(numbers: np.ndarray) -> np.ndarray:
    """1 + 1/2 + … + 1/n of each n ≥ 0, which is an integer where weights are."""
    largest = int(np.max(numbers, initial=0))
    if np.issubdtype(numbers.dtype, np.integer) and largest < LARGE:
        return _harmonic_table(largest.bit_length())[numbers]
    from scipy.special import digamma  # takes a quarter of a second, as long as 10⁶ logarithms

    harmonic: np.ndarray = digamma(np.asarray(numbers, dtype=np.float64) + 1) + np.euler_gamma
    return harmonic


@cache
def _harmonic_table(bits: int) -> np.ndarray:
    """1 + 1/2 + … + 1/n of n = 0 … 2ᵇ, ndarray of shape (2ᵇ + 1,)."""
    reciprocals = 1 / np.arange(1, 2**bits + 1)
    return np.concatenate([[0.0], np.cumsum(reciprocals)])


def _aurc(at: Reached) -> np.ndarray:
    """The mean risk.

    At a score of errors: e of them and n regions in all lie above, m at it, f of these wrong. At
    the score the risks are Σ (e + f j / m) / (n + j) for j = 1 … m; below it (e + f) / j for each
    further region j. Errors are the negative side, from the lowest score up: what is reached lies
    at or below.
    """
    error_count = at.total[..., None]
    region_count = error_count + at.other_total[..., None]
    errors_above = error_count - at.own
    errors_equal = at.step
    regions_above = errors_above + at.other_total[..., None] - at.other
    regions_up_to = region_count - (at.own - errors_equal) - at.other_before
    # From each score down to the next score of an error.
    last = np.broadcast_to(region_count, regions_above[..., :1].shape)
    regions_up_to_next = np.concatenate([last, regions_above[..., :-1]], axis=-1)

    harmonic_above = _harmonic(regions_above)
    harmonic_up_to = _harmonic(regions_up_to)
    harmonic_up_to_next = _harmonic(regions_up_to_next)
    error_share = np.nan_to_num(ratio(errors_equal, regions_up_to - regions_above))
    risks = (
        errors_equal
        + (errors_above - error_share * regions_above) * (harmonic_up_to - harmonic_above)
        + (errors_above + errors_equal) * (harmonic_up_to_next - harmonic_up_to)
    )
    return np.sum(risks, axis=-1) / region_count[..., 0]


def _e_aurc(at: Reached) -> np.ndarray:
    """`_aurc` less that of the best score."""
    correct = at.other_total
    errors = at.total
    count = correct + errors
    best = (errors - correct * (_harmonic(count) - _harmonic(correct))) / count
    return _aurc(at) - best


#: Each metric of correct regions, the positive side, and errors.
METRICS: dict[str, SeparationMetric] = {
    "auroc": ood.METRICS["auroc"],
    "fpr95": ood.METRICS["fpr95"],
    "detection_error": ood.METRICS["detection_error"],
    "detection_error95": ood.METRICS["detection_error95"],
    "aurc": SeparationMetric(_aurc, "negative"),
    "e_aurc": SeparationMetric(_e_aurc, "negative"),
}

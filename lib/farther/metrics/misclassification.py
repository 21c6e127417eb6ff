"""Misclassification detection: separation of ID regions of the right class from errors by a score.

Both sides are regions of ID images. A score that separates unknown objects may fail here, and the other way round
(Recalcati et al., "Toward a Realistic Benchmark for Out-of-Distribution Detection", 2023, arXiv:2404.10474, Table VII).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.metrics import ood
from farther.metrics.matching import true_classes
from farther.metrics.weighting import RowWeights
from farther.tables import Objects, Regions


def is_correct(objects: Objects, regions: Regions, iou: float = 0.5) -> np.ndarray:
    """Regions whose class is that of the object that they overlap most, ndarray of shape (N,), bool.

    Args:
        objects: Ground truth of ID images.
        regions: Regions in them; for a classifier one per image.
        iou: Smallest overlap that counts.
    """
    found = true_classes(objects, regions, iou).category.astype(str)
    return found == np.array(regions.classes, dtype=str)[regions.label] if len(regions) else np.zeros(0, dtype=bool)


def evaluate(scores: np.ndarray, correct: np.ndarray, weights: RowWeights | None = None) -> dict[str, Any]:
    """Metrics of misclassification detection; correct regions are the positive class.

    Args:
        scores: ndarray of shape (N,), higher where the region counts as more certain.
        correct: ndarray of shape (N,), bool: see `is_correct`.
        weights: Weights of the regions in B replicates; each region counts once when None.

    Returns:
        Fractions, None where no region is correct or none is wrong; with weights ndarrays of shape (B,), NaN for None.

        auroc, fpr95, detection_error: see `farther.metrics.ood.evaluate`; FPR95 is the share of errors that pass when
            95% of the correct regions do.
        aurc: Area under the risk–coverage curve: the mean, over k = 1 … N, of the share of errors among the k regions
            with the highest scores (Geifman and El-Yaniv, 2017, arXiv:1705.08500). Of equal scores, the mean over
            all orders.
        e_aurc: `aurc` less that of a score that ranks all correct regions above all errors (Geifman et al., 2019,
            arXiv:1805.08206, Eq. 2, with the finite sum in place of its approximation r + (1 − r) ln(1 − r)).

    Raises:
        DataError: a score is NaN.

    >>> found = evaluate(np.array([4.0, 3.0, 2.0, 1.0]), np.array([True, False, True, True]))
    >>> round(found["aurc"], 4), round(found["e_aurc"], 4)  # (0 + 1/2 + 1/3 + 1/4) / 4, less (1/4) / 4
    (0.2708, 0.2083)
    """
    correct = np.asarray(correct, dtype=bool)
    scores = np.asarray(scores, dtype=np.float64)
    right, wrong = ((scores[rows], None if weights is None else weights[rows]) for rows in (correct, ~correct))
    return ood.measure(METRICS, right, wrong, names=("scores of correct regions", "scores of errors"))


def _harmonic(numbers: np.ndarray) -> np.ndarray:
    """1 + 1/2 + … + 1/n of each n ≥ 0."""
    from scipy.special import digamma

    harmonic: np.ndarray = digamma(np.asarray(numbers, dtype=np.float64) + 1) + np.euler_gamma
    return harmonic


def _aurc(true: np.ndarray, false: np.ndarray) -> np.ndarray:
    """At each score: e errors, n regions before it, m more, of which a share f is wrong: Σ (e + f j)/(n + j)."""
    count = (true + false).astype(np.float64)
    before = np.concatenate([np.zeros_like(count[..., :1]), count[..., :-1]], axis=-1)
    more, errors = count - before, np.diff(false, axis=-1, prepend=0)
    share = np.divide(errors, more, out=np.zeros_like(more), where=more > 0)
    risks = errors + (false - errors - share * before) * (_harmonic(count) - _harmonic(before))
    return np.sum(risks, axis=-1) / count[..., -1]


def _e_aurc(true: np.ndarray, false: np.ndarray) -> np.ndarray:
    correct, errors = true[..., -1].astype(np.float64), false[..., -1]
    count = correct + errors
    best = (errors - correct * (_harmonic(count) - _harmonic(correct))) / count
    return _aurc(true, false) - best


#: Each metric as in `farther.metrics.ood.METRICS`, with correct regions and errors in place of ID and OOD regions.
METRICS: dict[str, ood.Formula] = {
    **{name: ood.METRICS[name] for name in ("auroc", "fpr95", "detection_error")},
    "aurc": _aurc,
    "e_aurc": _e_aurc,
}

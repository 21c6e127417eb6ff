"""Probability of a detection's class against that of the background.

On known objects and on unknown ones (Dhamija et al., WACV 2020,
doi:10.1109/WACV45572.2020.9093355, Figure 8 and Table 3 of its supplement).

A detector with a column for the background gives each region the probabilities p_i of its class and
p_b of the background. Detectors do not reject a region where p_b > p_i; these metrics say what
doing so would reject.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.errors import DataError
from farther.metrics import ood
from farther.metrics.weighting import RowWeights, each_once, plain, ratio
from farther.tables import Regions, RegionsFolder
from farther.tables.arguments import floats, instance, texts

#: Bins of the histogram of p_i - p_b over [-1, 1].
BINS = 40


def margins(regions: Regions) -> np.ndarray:
    """p_i - p_b of each region, from the softmax over all columns: ndarray of shape (N,), -1 to 1.

    Raises:
        DataError: there are no logits, no column for the background, or the logits are not those of
            a softmax.

    >>> regions = Regions(
    ...     image_id=["a"],
    ...     region_id=[0],
    ...     box=[[0, 0, 9, 9]],
    ...     score=[0.75],
    ...     label=[1],
    ...     logits=[[0.0, np.log(3.0)]],
    ...     classes=("background", "cat"),
    ...     background_index=0,
    ... )
    >>> margins(regions).round(6).tolist()
    [0.5]
    """
    if not applies(regions):
        raise DataError(
            "expected logits of a softmax with a column for the background", field="logits"
        )
    logits = regions.logits.astype(np.float64)
    probability = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    probability /= probability.sum(axis=1, keepdims=True)
    of_class: np.ndarray = probability[np.arange(len(regions)), regions.label]
    return of_class - probability[:, regions.background_index]


def applies(regions: Regions | RegionsFolder) -> bool:
    """True if the regions have logits of a softmax with a column for the background."""
    instance(regions, (Regions, RegionsFolder), "regions")
    return (
        regions.has("logits")
        and regions.background_index is not None
        and regions.activation == "softmax"
    )


def metrics(
    known: np.ndarray,
    unknown: np.ndarray,
    known_weights: RowWeights | None = None,
    unknown_weights: RowWeights | None = None,
) -> dict[str, Any]:
    """Separation of correct detections from detections of unknown objects by p_i - p_b.

    Args:
        known: Margins of correct detections of known objects, ndarray of shape (N,).
        unknown: Margins of detections of unknown objects, ndarray of shape (M,).
        known_weights, unknown_weights: Weights of the detections in B replicates; each counts once
            when None.

    Returns:
        Fractions, None where a side is empty; with weights ndarrays of shape (B,), NaN for None.

        rejected_known, rejected_unknown: Share of either side whose background probability is the
            higher one.
        auroc: Area under the receiver operating characteristic, known being the positive class.

    >>> metrics(np.array([0.9, -0.1]), np.array([0.5, -0.5]))
    {'rejected_known': 0.5, 'rejected_unknown': 0.5, 'auroc': 0.75}
    """
    known = floats(known, "known")
    unknown = floats(unknown, "unknown")
    rejected = {
        "rejected_known": _rejected_share(known, known_weights),
        "rejected_unknown": _rejected_share(unknown, unknown_weights),
    }
    shares = plain(rejected) if known_weights is None else rejected
    return {**shares, "auroc": ood.auroc(known, unknown, known_weights, unknown_weights)}


def _rejected_share(margin: np.ndarray, weights: RowWeights | None) -> np.ndarray:
    """Share of the margins below 0, ndarray of shape (B,)."""
    if weights is None:
        weights = each_once(len(margin))
    rejected = weights[margin < 0].total().astype(float)
    return ratio(rejected, weights.total().astype(float))


def by_class(margin: np.ndarray, name: np.ndarray) -> dict[str, dict[str, Any]]:
    """Mean and standard deviation of the margins of each class (Table 3).

    Args:
        margin: ndarray of shape (N,).
        name: Class of each, ndarray of shape (N,).

    Returns:
        {class: {"mean", "sd", "rejected" (share below 0), "detections"}}, sorted by name.
    """
    margin = floats(margin, "margin")
    name = texts(name, "name", length=len(margin))
    statistics = {}
    for class_name in sorted(set(name.tolist())):
        of_class = margin[name == class_name]
        statistics[class_name] = {
            "mean": float(of_class.mean()),
            "sd": float(of_class.std()),
            "rejected": float(np.mean(of_class < 0)),
            "detections": len(of_class),
        }
    return statistics


def histogram(margin: np.ndarray) -> list[float]:
    """Share of the margins in each of `BINS` equal bins of [-1, 1] (Figure 8); empty without any.

    Args:
        margin: p_i − p_b of each region, ndarray of shape (N,), as `margins` gives.
    """
    margin = floats(margin, "margin")
    if not len(margin):
        return []
    counts, _ = np.histogram(margin, bins=BINS, range=(-1, 1))
    return (counts / len(margin)).tolist()

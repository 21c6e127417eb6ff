"""Metrics as functions of the two thresholds: τ of the OOD score, and t* of the confidence.

Regions are stored at a low confidence once, so any threshold can be tried without running the
detector again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.methods.rows import LABELLED_UNKNOWN
from farther.metrics import ood, open_set
from farther.metrics.closed_set import COCO_IOUS, ClosedSet
from farther.metrics.closed_set.matched_detections import MatchedDetections
from farther.metrics.open_set.outcomes import OpenSetSplit
from farther.metrics.weighting import mean_of_defined, value

#: Shares of the ID regions that τ keeps.
KEPT = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.999)

#: Values of t*.
CONFIDENCES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

#: Metrics of unknown objects in each row of a sweep, besides `fn_missed`.
OPEN_SET_METRICS = ("nose", "p_u", "r_u", "ap_u", "ap_u_11", "aose")


def over_tau(
    split: OpenSetSplit, scores: np.ndarray, id_scores: np.ndarray, kept: Sequence[float] = KEPT
) -> list[dict[str, Any]]:
    """Open-set metrics for thresholds τ that keep different shares of the ID regions.

    Args:
        split: The split's objects and its N regions.
        scores: ndarray of shape (N,), higher means more in-distribution.
        id_scores: Scores of ID regions, ndarray of shape (M,).
        kept: Smallest shares that τ keeps of the ID regions that the detector labels as known; it
            always flags those labelled as unknown.

    Returns:
        One row per share: kept, tau, nose, p_u, r_u, fn_missed (share of the unknown objects),
        ap_u, ap_u_11 and aose; an empty list where there is no ID region.

    Raises:
        DataError: `scores` is not one number per region.
        ValueError: a share is not above 0 and at most 1.
    """
    scores = np.asarray(scores)
    rows = []
    for share, tau in _tau_by_share(id_scores, kept).items():
        metrics = open_set.metrics(split.match(scores < tau), -scores)
        rows.append({"kept": share, "tau": tau, **_open_set_row(metrics)})
    return rows


def closed_set_over_tau(
    closed: ClosedSet, id_scores: np.ndarray, kept: Sequence[float] = KEPT
) -> dict[float, float | None]:
    """mAP50 of the ID regions that thresholds τ keep: the cost of flagging for the detector.

    Args:
        closed: Objects and the M regions of the ID split.
        id_scores: ndarray of shape (M,).
        kept: see `over_tau`.

    Returns:
        {share: map50}, None where there is no object; empty where there is no region.

    Raises:
        ValueError: a share is not above 0 and at most 1.
    """
    map50_by_share = {}
    for share, tau in _tau_by_share(id_scores, kept).items():
        matched = closed.keeping(id_scores >= tau).match(COCO_IOUS[:1])
        map50_by_share[share] = mean_average_precision(matched)["map50"]
    return map50_by_share


def _tau_by_share(id_scores: np.ndarray, kept: Sequence[float]) -> dict[float, float]:
    """The largest τ that keeps each share of the ID regions that the detector labels as known.

    Empty where there is no such region.
    """
    id_scores = np.asarray(id_scores)
    labelled_known = id_scores > -LABELLED_UNKNOWN
    return ood.thresholds_at(id_scores[labelled_known], kept)


@dataclass(frozen=True)
class ConfidenceStep:
    """A split at one value of t*.

    Args:
        confidence: The value of t*.
        rows: Whether each region of the split is at or above it, ndarray of shape (N,), bool.
        is_ood: Whether each region that `rows` selects is out of distribution, bool.
        id_rows: Whether each region of the ID split is at or above it, ndarray of shape (M,), bool.
        split: The split with the regions that `rows` selects.
        no_detection: Share of the split's images without one of these regions.
    """

    confidence: float
    rows: np.ndarray
    is_ood: np.ndarray
    id_rows: np.ndarray
    split: OpenSetSplit
    no_detection: float | None


def over_confidence(
    steps: Iterable[ConfidenceStep],
    scores: np.ndarray,
    id_scores: np.ndarray,
    tau: float,
    aupr: ood.Aupr = "step",
) -> list[dict[str, Any]]:
    """All metrics of a method for values of t*, with its τ unchanged.

    Args:
        steps: The split at each value.
        scores: Scores of the split's stored regions, ndarray of shape (N,).
        id_scores: Scores of the stored regions of the ID split, ndarray of shape (M,).
        tau: The method's threshold.
        aupr: see `farther.metrics.ood.evaluate`.

    Returns:
        One row per value: t, no_detection, auroc, fpr95, nose, ap_u, p_u, r_u, fn_missed (share of
        the unknown objects), ap_u_11, aose, aupr_in, aupr_out, detection_error.

    Raises:
        DataError: there are not as many scores as regions.
    """
    rows = []
    for step in steps:
        _check_length(scores, step.rows, "scores")
        _check_length(id_scores, step.id_rows, "id_scores")

        step_scores = scores[step.rows]
        metrics = open_set.metrics(step.split.match(step_scores < tau), -step_scores)
        separation = ood.evaluate(id_scores[step.id_rows], step_scores[step.is_ood], aupr=aupr)
        row = {"t": step.confidence, "no_detection": step.no_detection}
        rows.append({**row, **separation, **_open_set_row(metrics)})
    return rows


def _check_length(scores: np.ndarray, rows: np.ndarray, field: str) -> None:
    if len(scores) != len(rows):
        raise DataError(f"{len(scores)} scores, but {len(rows)} regions", field=field)


def mean_average_precision(
    matched: MatchedDetections, confidence: float = 0.0
) -> dict[str, float | None]:
    """map50 and map of the detections at or above a confidence; None where there are no objects.

    Nothing is matched again: the object of a detection does not depend on less confident ones.

    Args:
        matched: All detections at some IoU thresholds, 0.5 the first.
        confidence: The smallest confidence that counts.
    """
    average_precision = matched.above(confidence).average_precision()
    return {
        "map50": value(mean_of_defined(average_precision[0])[0]),
        "map": value(mean_of_defined(average_precision, axis=(0, 1))[0]),
    }


def _open_set_row(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Open-set metrics of a row; missed objects as a share."""
    row = {name: metrics[name] for name in OPEN_SET_METRICS}
    row["fn_missed"] = None
    if metrics["unknown_objects"]:
        row["fn_missed"] = metrics["fn_missed"] / metrics["unknown_objects"]
    return row

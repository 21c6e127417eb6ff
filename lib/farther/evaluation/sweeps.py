"""Figures as functions of the two thresholds: τ of the OOD score, and t* of the detector's confidence.

Detections are stored at a low confidence once, so any threshold can be tried without running the detector again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.metrics import ood, open_set
from farther.metrics.closed_set import COCO_IOUS, Labelled, Verdicts
from farther.metrics.true_classes import not_of_known
from farther.tables import Objects, Regions

#: Shares of the ID regions that τ keeps.
KEPT = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.999)

#: Confidences that t* is set to.
CONFIDENCES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def over_tau(
    split: open_set.Split, scores: np.ndarray, id_scores: np.ndarray, kept: Sequence[float] = KEPT
) -> list[dict[str, Any]]:
    """Open-set figures for thresholds τ that keep more and more of the ID regions.

    Args:
        split: The split's objects and its N regions.
        scores: ndarray of shape (N,), higher means more in-distribution.
        id_scores: Scores of ID regions, ndarray of shape (M,).
        kept: Shares of them that τ keeps at least.

    Returns:
        A row for each share: kept, tau, and nose, p_u, r_u, fn_missed (share of the unknown objects), ap_u, ap_u_11,
        aose; an empty list where there is no ID region.

    Raises:
        DataError: `scores` is not one number a region.
        ValueError: a share is not above 0 and at most 1.
    """
    rows = []
    for share in kept:
        tau = ood.threshold_at(id_scores, share)
        if tau is None:
            continue
        figures = split.judge(np.asarray(scores) < tau).figures(unknown_score=-np.asarray(scores))
        shown = {name: figures[name] for name in ("nose", "p_u", "r_u")}
        shown |= {"fn_missed": _missed(figures), **{name: figures[name] for name in ("ap_u", "ap_u_11", "aose")}}
        rows.append({"kept": share, "tau": tau, **shown})
    return rows


def closed_set_over_tau(
    closed: Labelled, id_scores: np.ndarray, kept: Sequence[float] = KEPT
) -> dict[float, float | None]:
    """What flagging costs the detector: map50 of the ID regions that thresholds τ keep.

    Args:
        closed: Objects and the M regions of the ID split.
        id_scores: ndarray of shape (M,).
        kept: Shares of the regions that τ keeps at least.

    Returns:
        {share: map50}, None where there is no object; empty where there is no region.

    Raises:
        ValueError: a share is not above 0 and at most 1.
    """
    taus = {share: ood.threshold_at(id_scores, share) for share in kept}
    return {
        share: mean_average_precision(closed.keeping(id_scores >= tau).verdicts(COCO_IOUS[:1]))["map50"]
        for share, tau in taus.items()
        if tau is not None
    }


def _missed(figures: Mapping[str, Any]) -> float | None:
    """Share of the unknown objects that are missed."""
    return figures["fn_missed"] / figures["unknown_objects"] if figures["unknown_objects"] else None


@dataclass(frozen=True)
class Scored:
    """Regions of some images with the scores that methods gave them.

    Args:
        regions: N regions, stored at a low confidence.
        scores: {method: ndarray of shape (N,)}, higher means more in-distribution.
        images: How many images there are, those without regions too.

    Raises:
        DataError: a method has another number of scores.
    """

    regions: Regions
    scores: Mapping[str, np.ndarray]
    images: int

    def __post_init__(self) -> None:
        for method, scores in self.scores.items():
            if len(scores) != len(self.regions):
                raise DataError(f"{len(scores)} scores of {method!r}, but {len(self.regions)} regions", field="scores")

    def above(self, confidence: float) -> Scored:
        """Only the regions whose confidence is at least that."""
        rows = self.regions.score >= confidence
        return Scored(self.regions[rows], {method: s[rows] for method, s in self.scores.items()}, self.images)

    @property
    def no_detection(self) -> float | None:
        """Share of the images without a region."""
        return 1 - len(set(self.regions.image_id)) / self.images if self.images else None


def over_confidence(
    objects: Objects,
    tested: Scored,
    reference: Scored,
    taus: Mapping[str, float],
    confidences: Sequence[float] = CONFIDENCES,
    iou: float = 0.5,
    protocol: open_set.Protocol = "paper",
    known_classes: Sequence[str] = (),
    closed: Verdicts | None = None,
) -> list[dict[str, Any]]:
    """All figures for operating thresholds t*, with each method's τ left as it is.

    Args:
        objects: Ground truth of the OOD split.
        tested, reference: Its regions, and those of the ID split it is compared with.
        taus: {method: τ}: the methods that are swept.
        confidences: Values of t*.
        iou, protocol, known_classes: see `farther.metrics.open_set.evaluate`.
        closed: What all detections of the ID split turned out to be, at COCO's IoU thresholds, for mAP; see
            `farther.metrics.closed_set.Labelled.verdicts`.

    Returns:
        A row for each t* and method: t, method, no_detection, auroc, fpr95, nose, ap_u, p_u, r_u, fn_missed (share
        of the unknown objects), ap_u_11, aose, aupr_in, aupr_out, detection_error, map50, map (of the detector on the
        ID split; None without `closed`).

    Raises:
        DataError: a method has no scores.
    """
    for method in taus:
        if method not in tested.scores or method not in reference.scores:
            raise DataError(f"there are no scores of {method!r}", field="scores")
    rows = []
    precision = {c: mean_average_precision(closed, c) for c in confidences}
    stored = open_set.Split(objects, tested.regions, iou, protocol, known_classes)
    foreign = not_of_known(objects, tested.regions, known_classes, iou)
    for confidence in confidences:
        made, known = tested.above(confidence), reference.above(confidence)
        away = foreign[tested.regions.score >= confidence]
        split = stored.keeping(tested.regions.score >= confidence)
        for method, tau in taus.items():
            scores = made.scores[method]
            figures = split.judge(scores < tau).figures(unknown_score=-scores)
            row = {"t": confidence, "method": method, "no_detection": made.no_detection}
            separated = ood.evaluate(known.scores[method], scores[away])
            row |= {name: separated[name] for name in ("auroc", "fpr95")}
            row |= {name: figures[name] for name in ("nose", "ap_u", "p_u", "r_u")}
            row |= {"fn_missed": _missed(figures), **{name: figures[name] for name in ("ap_u_11", "aose")}}
            row |= {name: separated[name] for name in ("aupr_in", "aupr_out", "detection_error")}
            rows.append(row | precision[confidence])
    return rows


def mean_average_precision(closed: Verdicts | None, confidence: float = 0.0) -> dict[str, float | None]:
    """map50 and map of the detections whose confidence is at least that; None where there are no objects.

    No detection is matched again: who gets which object does not depend on less confident ones.

    Args:
        closed: What all detections turned out to be at some IoU thresholds, 0.5 the first; None where not known.
    """
    if closed is None or not closed.positives.any():
        return {"map50": None, "map": None}
    each = closed.above(confidence).average_precision()
    return {"map50": float(np.nanmean(each[0])), "map": float(np.nanmean(each))}

"""Error budget: the gain from correcting all errors of one kind, for known and unknown objects.

The kinds, and how each is corrected, are those of TIDE (Bolya et al., 2020, arXiv:2008.08115; its
package `tidecv`). An error is a detection that is not correct, or an object that no detection can
be corrected to find. With τ the IoU that a match needs (0.5), the first that fits:

- localisation: it overlaps an object of its class by 0.1 or more, but by less than τ; corrected: it
  matches;
- classification: it overlaps an object of another class by τ; corrected: it is of that class and
  matches;
- duplicate: it overlaps an object of its class by τ, which a better detection has; corrected: it is
  removed;
- background: it overlaps no object by 0.1; corrected: it is removed;
- both: another class and too little overlap; corrected: it is removed;
- missed: an object without a match that no localisation or classification error overlaps more than
  any other object; corrected: it is not counted.

Of several detections that would match one object the most confident does, and the others are
removed; where the object has a match already, all are. What ignored detections (of crowds) overlap
does not count.

For unknown objects there is one class, "unknown": a kept detection on an unknown object is a
classification error, and correcting it flags it. So is a flagged detection on a known object, which
is then no longer flagged. R_U and nOSE count a missed object that is corrected as found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from farther.metrics import open_set
from farther.metrics.closed_set import ClosedSet
from farther.metrics.closed_set.matched_detections import MatchedDetections
from farther.metrics.errors.error_diagnosis import TOUCH
from farther.metrics.matching.boxes import OverlapPairs, pairs
from farther.metrics.open_set.outcomes import (
    FALSE_UNKNOWN,
    FOUND,
    IGNORED,
    MISCLASSIFIED,
    MISSED,
    NOT_COUNTED,
    TRUE_UNKNOWN,
    Outcome,
)
from farther.metrics.precision_recall import FALSE, TRUE
from farther.metrics.precision_recall import IGNORED as LEFT_OUT
from farther.metrics.weighting import ImageWeights, mean_of_defined, once
from farther.tables.arguments import instance, number, one_of, texts

KINDS = ("classification", "localisation", "both", "duplicate", "background", "missed")

#: Metrics of unknown objects that corrections change.
OF_UNKNOWN = ("ap_u", "r_u", "nose")


@dataclass(frozen=True)
class Errors:
    """The errors among N detections of M objects.

    Args:
        kind: Index in `KINDS` of each detection's error, −1 for none, ndarray of shape (N,).
        target: The object that correcting it would match, −1 for none, ndarray of shape (N,).
        matches: Errors that match an object once they are corrected, ndarray of shape (N,), bool.
        missed: Objects that are missed, ndarray of shape (M,), bool.
    """

    kind: np.ndarray
    target: np.ndarray
    matches: np.ndarray
    missed: np.ndarray

    @property
    def counts(self) -> dict[str, int]:
        """Number of errors of each kind."""
        detections = np.bincount(self.kind[self.kind >= 0], minlength=len(KINDS))
        counts = dict(zip(KINDS, detections.tolist(), strict=True))
        counts["missed"] = int(self.missed.sum())
        return counts

    def of(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Detections that correcting a kind of error makes matches, and those that it removes.

        Returns:
            Two ndarrays of shape (N,), bool.
        """
        has_kind = self.kind == KINDS.index(kind)
        return has_kind & self.matches, has_kind & ~self.matches

    @classmethod
    def of_pairs(
        cls,
        near: OverlapPairs,
        is_same: np.ndarray,
        is_wrong: np.ndarray,
        rank: np.ndarray,
        is_free: np.ndarray,
        smallest_overlap: float,
    ) -> Errors:
        """The errors of detections that are wrong.

        Args:
            near: Pairs of a detection and an object that overlap by `TOUCH`, the most preferred of
                each region first.
            is_same: Pairs whose detection has the class of the object, ndarray of bool.
            is_wrong: Detections that are not correct, ndarray of shape (N,), bool.
            rank: Position of each detection by falling confidence, ndarray of shape (N,).
            is_free: Objects that are counted and have no match, ndarray of shape (M,), bool.
            smallest_overlap: τ, the IoU that a match needs.
        """
        same = _Nearest.of(near[is_same], len(is_wrong))
        other = _Nearest.of(near[~is_same], len(is_wrong))
        # The first that fits.
        is_kind = {
            "localisation": (same.overlap > 0) & (same.overlap < smallest_overlap),
            "classification": other.overlap >= smallest_overlap,
            "duplicate": same.overlap >= smallest_overlap,
            "background": (same.overlap == 0) & (other.overlap == 0),
        }
        kind = np.select(
            list(is_kind.values()),
            [_number(name) for name in is_kind],
            default=_number("both"),
        )
        kind = np.where(is_wrong, kind, np.int8(-1))

        target = np.where(kind == _number("localisation"), same.target, -1)
        target = np.where(kind == _number("classification"), other.target, target)
        rows = np.flatnonzero(target >= 0)
        rows = rows[is_free[target[rows]]]
        # The most confident detection of each object matches it.
        rows = rows[np.lexsort((rank[rows], target[rows]))]
        is_first_of_object = np.diff(target[rows], prepend=-1) != 0
        matches = np.zeros(len(is_wrong), dtype=bool)
        matches[rows[is_first_of_object]] = True
        missed = is_free.copy()
        missed[target[rows]] = False
        return cls(kind, target, matches, missed)


def _number(kind: str) -> np.int8:
    """Index of a kind in `KINDS`."""
    return np.int8(KINDS.index(kind))


@dataclass(frozen=True)
class _Nearest:
    """The object that each of N detections overlaps most.

    Args:
        overlap: The overlap with it, 0 for none, ndarray of shape (N,).
        target: The object, −1 for none, ndarray of shape (N,), int32.
    """

    overlap: np.ndarray
    target: np.ndarray

    @classmethod
    def of(cls, near: OverlapPairs, detections: int) -> _Nearest:
        """From pairs, the most preferred of each region first, and the number of detections."""
        first = near.first_of_each_region()
        overlap = np.zeros(detections)
        overlap[first.region] = first.overlap
        target = np.full(detections, -1, dtype=np.int32)
        target[first.region] = first.target
        return cls(overlap, target)


def of_known(
    known: ClosedSet, iou: float = 0.5
) -> tuple[Errors, Iterator[tuple[str, MatchedDetections]]]:
    """Errors in detecting known objects, and the detections with each kind of them corrected.

    Args:
        known: Objects and detections of the known classes.
        iou: Smallest IoU of a match.

    Returns:
        The errors of `known.detections` and of the objects of `known.object_row`; and (kind,
        corrected detections).
    """
    instance(known, ClosedSet, "known")
    iou = number(iou, "iou", above=0, at_most=1)
    matched, target = known.match_once(iou)
    is_counted = known.counted()
    near = pairs(
        known.boxes[known.detections.row],
        known.detections.image,
        known.object_box,
        known.object_image,
        known.is_crowd,
        TOUCH,
    )
    near = near[is_counted[near.target]].preferred_first(known.is_ignored, known.object_id)

    detected_class = matched.of_class
    is_same = detected_class[near.region] == known.object_class[near.target]
    order = np.lexsort((detected_class, known.detections.image, -known.detections.score))
    is_free = is_counted.copy()
    is_free[target[matched.kind[0] == TRUE]] = False
    errors = Errors.of_pairs(
        near, is_same, matched.kind[0] == FALSE, np.argsort(order), is_free, iou
    )
    corrected = ((kind, _corrected_known(known, matched, errors, kind)) for kind in KINDS)
    return errors, corrected


def _corrected_known(
    known: ClosedSet, matched: MatchedDetections, errors: Errors, kind: str
) -> MatchedDetections:
    """Detections of known classes, with all errors of one kind corrected.

    Args:
        known: Objects and detections of the known classes.
        matched: Its matches at one IoU threshold.
        errors: The errors of them.
        kind: One of `KINDS`.
    """
    matching, removed = errors.of(kind)
    corrected_kind = matched.kind[0].copy()
    corrected_kind[matching] = TRUE
    corrected_kind[removed] = LEFT_OUT
    detected_class = matched.of_class
    detected_class[matching] = known.object_class[errors.target[matching]]
    order = np.lexsort((matched.image, -matched.score, detected_class))
    is_counted = known.counted()
    if kind == "missed":
        is_counted &= ~errors.missed
    return MatchedDetections(
        kind=corrected_kind[None, order],
        place=matched.place[order],
        score=matched.score[order],
        image=matched.image[order],
        bounds=np.searchsorted(detected_class[order], np.arange(len(known.bounds))),
        object_class=known.object_class[is_counted],
        object_image=known.object_image[is_counted],
        images=matched.images,
    )


def known_gains(
    known: ClosedSet, iou: float = 0.5, weights: ImageWeights | None = None
) -> dict[str, np.ndarray]:
    """Mean average precision of the known classes, and the gains from corrections (TIDE's dAP).

    Args:
        known, iou: see `of_known`.
        weights: see `farther.metrics.closed_set.Matches.metrics`.

    Returns:
        {"ap": at 101 recalls; kind: gain, 0 or more}, ndarrays of shape (B,), with B = 1 without
        weights. A class all of whose objects are missed keeps an average precision of 0 when they
        are corrected.

    >>> from farther.tables import Objects, Regions
    >>> fox, hen = [0, 0, 10, 10], [50, 0, 60, 10]
    >>> objects = Objects.from_dicts([{"boxes": [fox, hen], "labels": ["fox", "hen"]}])
    >>> regions = Regions.from_dicts(
    ...     [{"boxes": [fox, hen], "scores": [0.9, 0.8], "labels": ["fox", "fox"]}]
    ... )
    >>> gains = known_gains(ClosedSet.of(objects, regions, ["fox", "hen"]))
    >>> gains["ap"].item(), gains["classification"].item()
    (0.5, 0.5)
    """
    instance(known, ClosedSet, "known")
    iou = number(iou, "iou", above=0, at_most=1)
    ap_before = known.match([iou]).average_precision(weights)[0]
    gains = {"ap": mean_of_defined(ap_before)}
    _, corrected = of_known(known, iou)
    for kind, matched in corrected:
        ap_after = matched.average_precision(weights)[0]
        lost_all_objects = np.isnan(ap_after) & ~np.isnan(ap_before)
        ap_after = np.where(lost_all_objects, 0.0, ap_after)
        gains[kind] = np.maximum(mean_of_defined(ap_after) - gains["ap"], 0.0)
    return gains


def of_unknown(outcome: Outcome, near: OverlapPairs) -> Errors:
    """Errors in finding unknown objects.

    Args:
        outcome: The outcome of regions and objects under a method.
        near: Pairs of its split's regions and objects that overlap by `TOUCH`: `candidates` of the
            same tables at that IoU.
    """
    instance(outcome, Outcome, "outcome")
    instance(near, OverlapPairs, "near")
    split = outcome.split
    is_flagged = (outcome.kind == TRUE_UNKNOWN) | (outcome.kind == FALSE_UNKNOWN)
    is_unknown = split.is_counted
    # Of kept regions only what they do to unknown objects counts.
    is_relevant = is_flagged[near.region] | is_unknown[near.target]
    near = near[is_relevant & ~split.is_ignored[near.target]]
    errors = Errors.of_pairs(
        near,
        is_same=is_flagged[near.region] & is_unknown[near.target],
        is_wrong=(outcome.kind == FALSE_UNKNOWN) | outcome.misclassifies,
        rank=split.detections.rank,
        is_free=is_unknown & (outcome.of_object != FOUND),
        smallest_overlap=split.settings.smallest_overlap,
    )
    return replace(errors, missed=errors.missed & (outcome.of_object == MISSED))


def unknown_gains(
    outcome: Outcome,
    errors: Errors,
    unknown_score: np.ndarray,
    weights: ImageWeights | None = None,
    kinds: Sequence[str] = KINDS,
) -> dict[str, dict[str, np.ndarray]]:
    """Gains in AP_U and R_U, and reductions of nOSE, from correcting each kind of error.

    Args:
        outcome: Of regions and objects under a method.
        errors: From `of_unknown`.
        unknown_score: Minus the method's scores, ndarray of shape (N,).
        weights: see `farther.metrics.open_set.metrics`.
        kinds: The kinds that are corrected.

    Returns:
        {kind: {"ap_u", "r_u", "nose"}}, 0 or more, NaN without unknown objects; ndarrays of shape
        (B,), B = 1 without weights.
    """
    instance(outcome, Outcome, "outcome")
    instance(errors, Errors, "errors")
    kinds = texts(kinds, "kinds").tolist()
    for kind in kinds:
        one_of(kind, KINDS, "kind of error")
    if weights is None:
        weights = once(len(outcome.split.images))
    before = open_set.metrics(outcome, unknown_score, weights)
    gains_by_kind = {}
    for kind in kinds:
        corrected = _corrected_unknown(outcome, errors, kind)
        after = open_set.metrics(corrected, unknown_score, weights)
        if kind == "missed":
            # R_U and nOSE count the missed objects as found.
            of_object = np.where(errors.missed, FOUND, outcome.of_object)
            as_found = replace(outcome, of_object=of_object)
            metrics_as_found = open_set.metrics(as_found, unknown_score, weights)
            after["r_u"] = metrics_as_found["r_u"]
            after["nose"] = metrics_as_found["nose"]
        gains_by_kind[kind] = _gains(before, after)
    return gains_by_kind


def _gains(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gain in each of `OF_UNKNOWN`, 0 or more; that of nOSE is a reduction."""
    gains = {}
    for metric in OF_UNKNOWN:
        gain = after[metric] - before[metric]
        if metric == "nose":
            gain = -gain
        gains[metric] = np.maximum(gain, 0.0)
    return gains


def _corrected_unknown(outcome: Outcome, errors: Errors, kind: str) -> Outcome:
    """The outcome with all errors of one kind corrected.

    Args:
        outcome: Of regions and objects under a method.
        errors: From `of_unknown`.
        kind: One of `KINDS`.
    """
    matching, removed = errors.of(kind)
    region_kind = np.where(matching, TRUE_UNKNOWN, outcome.kind)
    region_kind[removed & (outcome.kind == FALSE_UNKNOWN)] = IGNORED
    of_object = outcome.of_object.copy()
    misclassifies = outcome.misclassifies
    if kind == "classification":
        of_object[of_object == MISCLASSIFIED] = MISSED
        misclassifies = np.zeros_like(misclassifies)
    of_object[errors.target[matching]] = FOUND
    if kind == "missed":
        of_object[errors.missed] = NOT_COUNTED
    return replace(outcome, kind=region_kind, of_object=of_object, misclassifies=misclassifies)

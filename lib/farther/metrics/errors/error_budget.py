"""Error budget: what correcting all errors of one kind would be worth, for known and for unknown objects.

The kinds, and how each is corrected, are those of TIDE (Bolya et al., 2020, arXiv:2008.08115; its
package `tidecv`). An error is a detection that is not correct, or an object that no detection can
be corrected to find. With `least` the IoU that a match needs (0.5), the first that fits:

- localisation: it overlaps an object of its class by 0.1 or more, but by less than `least`;
  corrected: it matches;
- classification: it overlaps an object of another class by `least`; corrected: it is of that class
  and matches;
- duplicate: it overlaps an object of its class by `least`, which a better detection has; corrected:
  it is removed;
- background: it overlaps no object by 0.1; corrected: it is removed;
- both: all others: another class and too little overlap; corrected: it is removed;
- missed: an object without a match that no localisation or classification error lies on most;
  corrected: it is not counted.

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

KINDS = ("classification", "localisation", "both", "duplicate", "background", "missed")

#: Metrics of unknown objects that corrections change.
OF_UNKNOWN = ("ap_u", "r_u", "nose")


@dataclass(frozen=True)
class Errors:
    """The errors among N detections of M objects.

    Args:
        kind: Place in `KINDS` of each detection's error, −1 for none, ndarray of shape (N,).
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
        found = np.bincount(self.kind[self.kind >= 0], minlength=len(KINDS))
        return {name: int(n) for name, n in zip(KINDS, found, strict=True)} | {
            "missed": int(self.missed.sum())
        }

    def of(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Detections that correcting a kind makes matches, and those that it removes; bool, shape (N,)."""
        wrong = self.kind == KINDS.index(kind)
        return wrong & self.matches, wrong & ~self.matches

    @classmethod
    def of_pairs(
        cls,
        near: OverlapPairs,
        is_same: np.ndarray,
        is_wrong: np.ndarray,
        rank: np.ndarray,
        is_free: np.ndarray,
        least: float,
    ) -> Errors:
        """The errors of detections that are wrong.

        Args:
            near: Pairs of a detection and an object that overlap by `TOUCH`, the most preferred of
                each region first.
            is_same: Pairs whose detection has the class of the object, ndarray of bool.
            is_wrong: Detections that are not correct, ndarray of shape (N,), bool.
            rank: Place of each detection by falling confidence, ndarray of shape (N,).
            is_free: Objects that are counted and have no match, ndarray of shape (M,), bool.
            least: see the module.
        """
        overlap, target = (
            np.zeros((2, len(is_wrong))),
            np.full((2, len(is_wrong)), -1, dtype=np.int32),
        )
        for side, rows in enumerate((is_same, ~is_same)):
            most = near[rows].first_of_each_region()
            overlap[side, most.region], target[side, most.region] = most.overlap, most.target
        same, other = overlap
        fits = {
            "localisation": (same > 0) & (same < least),
            "classification": other >= least,
            "duplicate": same >= least,
            "background": (same == 0) & (other == 0),
        }
        numbers = [np.int8(KINDS.index(name)) for name in fits]
        kind = np.where(
            is_wrong,
            np.select(list(fits.values()), numbers, np.int8(KINDS.index("both"))),
            np.int8(-1),
        )
        chosen = np.where(kind == KINDS.index("localisation"), target[0], -1)
        chosen = np.where(kind == KINDS.index("classification"), target[1], chosen)
        rows = np.flatnonzero(chosen >= 0)
        rows = rows[is_free[chosen[rows]]]
        rows = rows[np.lexsort((rank[rows], chosen[rows]))]
        matches = np.zeros(len(is_wrong), dtype=bool)
        matches[rows[np.diff(chosen[rows], prepend=-1) != 0]] = True
        missed = is_free.copy()
        missed[chosen[rows]] = False
        return cls(kind, chosen, matches, missed)


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
    matched, assigned = known.match_once(iou)
    of_detection = np.repeat(np.arange(len(known.classes)), np.diff(known.bounds))
    counted = known.counted()
    near = pairs(
        known.boxes[known.detections.row],
        known.detections.image,
        known.object_box,
        known.object_image,
        known.is_crowd,
        TOUCH,
    )
    near = near[counted[near.target]].preferred_first(known.is_ignored, known.object_id)
    is_true = matched.kind[0] == TRUE
    is_free = counted.copy()
    is_free[assigned[is_true]] = False
    is_same = of_detection[near.region] == known.object_class[near.target]
    rank = np.argsort(np.lexsort((of_detection, known.detections.image, -known.detections.score)))
    errors = Errors.of_pairs(near, is_same, matched.kind[0] == FALSE, rank, is_free, iou)

    def corrected() -> Iterator[tuple[str, MatchedDetections]]:
        for name in KINDS:
            matching, removed = errors.of(name)
            kind = matched.kind[0].copy()
            kind[matching], kind[removed] = TRUE, LEFT_OUT
            now = of_detection.copy()
            now[matching] = known.object_class[errors.target[matching]]
            order = np.lexsort((matched.image, -matched.score, now))
            left = counted & ~errors.missed if name == "missed" else counted
            yield (
                name,
                MatchedDetections(
                    kind=kind[None, order],
                    place=matched.place[order],
                    score=matched.score[order],
                    image=matched.image[order],
                    bounds=np.searchsorted(now[order], np.arange(len(known.bounds))),
                    object_class=known.object_class[left],
                    object_image=known.object_image[left],
                    images=matched.images,
                ),
            )

    return errors, corrected()


def known_gains(
    known: ClosedSet, iou: float = 0.5, weights: ImageWeights | None = None
) -> dict[str, np.ndarray]:
    """Mean average precision of the known classes, and what correcting each kind of error adds to it (TIDE's dAP).

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
    >>> found = known_gains(ClosedSet.of(objects, regions, ["fox", "hen"]))
    >>> found["ap"].item(), found["classification"].item()
    (0.5, 0.5)
    """
    before = known.match([iou]).average_precision(weights)[0]
    found = {"ap": mean_of_defined(before)}
    for name, matched in of_known(known, iou)[1]:
        after = matched.average_precision(weights)[0]
        after = np.where(np.isnan(after) & ~np.isnan(before), 0.0, after)
        found[name] = np.maximum(mean_of_defined(after) - found["ap"], 0.0)
    return found


def of_unknown(outcome: Outcome, near: OverlapPairs) -> Errors:
    """Errors in finding unknown objects.

    Args:
        outcome: The outcome of regions and objects under a method.
        near: Pairs of its split's regions and objects that overlap by `TOUCH`: `candidates` of the
            same tables at that IoU.
    """
    split = outcome.split
    is_flagged = (outcome.kind == TRUE_UNKNOWN) | (outcome.kind == FALSE_UNKNOWN)
    counted = split.is_counted
    # Of kept regions only what they do to unknown objects counts.
    rows = ~split.is_ignored[near.target] & (is_flagged[near.region] | counted[near.target])
    near = near[rows]
    errors = Errors.of_pairs(
        near,
        is_flagged[near.region] & counted[near.target],
        (outcome.kind == FALSE_UNKNOWN) | outcome.misclassifies,
        split.detections.rank,
        counted & (outcome.of_object != FOUND),
        split.settings.smallest_overlap,
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
    weights = once(len(outcome.split.images)) if weights is None else weights
    before = open_set.metrics(outcome, unknown_score, weights)
    found = {}
    for name in kinds:
        after = open_set.metrics(_corrected(outcome, errors, name), unknown_score, weights)
        if name == "missed":
            of_object = np.where(errors.missed, FOUND, outcome.of_object)
            counted = open_set.metrics(
                replace(outcome, of_object=of_object), unknown_score, weights
            )
            after |= {metric: counted[metric] for metric in ("r_u", "nose")}
        less = {metric: -1 if metric == "nose" else 1 for metric in OF_UNKNOWN}
        found[name] = {
            m: np.maximum(sign * (after[m] - before[m]), 0.0) for m, sign in less.items()
        }
    return found


def _corrected(outcome: Outcome, errors: Errors, name: str) -> Outcome:
    matching, removed = errors.of(name)
    kind = np.where(matching, TRUE_UNKNOWN, outcome.kind)
    kind[removed & (outcome.kind == FALSE_UNKNOWN)] = IGNORED
    of_object, misclassifies = outcome.of_object.copy(), outcome.misclassifies
    if name == "classification":
        of_object[of_object == MISCLASSIFIED] = MISSED
        misclassifies = np.zeros_like(misclassifies)
    of_object[errors.target[matching]] = FOUND
    if name == "missed":
        of_object[errors.missed] = NOT_COUNTED
    return replace(outcome, kind=kind, of_object=of_object, misclassifies=misclassifies)

"""Outcome of each object of a known class: detected as its class or another, flagged, or missed.

Each counted object has one outcome, the first of these that applies:

- *correct*: a kept region is detected as the object's own class. Regions choose objects of their
  class by falling confidence, one to one, as for average precision.
- *flagged*: a region flagged as unknown lies on it, whatever its class. Flagged regions choose
  among the other objects by falling confidence, one to one, as they choose unknown objects
  (`farther.metrics.open_set.outcomes`).
- *wrong class*: a kept region of another class lies on it; the most confident one decides.
- *missed*: none of these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farther.metrics.matching import assign
from farther.metrics.matching.boxes import OverlapPairs
from farther.metrics.open_set.outcomes import FALSE_UNKNOWN, KEPT, Outcome
from farther.tables import ObjectOutcomes, RegionOutcomes, Regions
from farther.tables.arguments import instance

#: Outcomes of an object, by their names in tables.
CORRECT = "correct"
FLAGGED = "flagged"
WRONG_CLASS = "wrong_class"
MISSED = "missed"
NOT_COUNTED = "not_counted"


@dataclass(frozen=True)
class KnownOutcome:
    """The outcomes of the known objects of a split; `KnownOutcome.of` builds it.

    Args:
        outcome: The split, and the regions that are flagged.
        of_object: Outcome of each object, object array of shape (M,); `NOT_COUNTED` for unknown
            objects, crowds and difficult objects.
        region: The region that decided each object's outcome, ndarray of shape (M,), int64; −1 for
            none.
    """

    outcome: Outcome
    of_object: np.ndarray
    region: np.ndarray

    @classmethod
    def of(cls, outcome: Outcome) -> KnownOutcome:
        """The outcomes of known objects.

        Args:
            outcome: Of a split whose rules name the known classes, under protocol "paper".

        >>> from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
        >>> from farther.tables import Objects, Regions
        >>> box = [[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10], [60, 0, 70, 10]]
        >>> image = ["a", "a", "a", "a"]
        >>> objects = Objects(image_id=image, object_id=[0, 1, 2, 3], box=box, category=["cat"] * 4)
        >>> regions = Regions(
        ...     image_id=image[:3],
        ...     region_id=[0, 1, 2],
        ...     box=box[:3],
        ...     score=[0.9, 0.8, 0.7],
        ...     label=[0, 1, 0],
        ...     logits=[[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]],
        ...     classes=("cat", "dog"),
        ... )
        >>> rules = MatchingRules(known_classes=["cat", "dog"])
        >>> outcome = OpenSetSplit.of(objects, regions, rules).match(np.array([False, False, True]))
        >>> KnownOutcome.of(outcome).of_object.tolist()
        ['correct', 'wrong_class', 'flagged', 'missed']
        """
        instance(outcome, Outcome, "outcome")
        split = outcome.split
        is_counted = split.is_known & ~split.is_ignored
        on_known = split.candidates[is_counted[split.candidates.target]]
        of_object = np.full(len(is_counted), NOT_COUNTED, dtype=object)
        of_object[is_counted] = MISSED
        region = np.full(len(is_counted), -1, dtype=np.int64)

        region_class = split.detections.label[on_known.region]
        has_own_class = region_class == split.object_class[on_known.target]
        is_kept = outcome.kind[on_known.region] == KEPT
        correct = _matched(outcome, on_known[is_kept & has_own_class])
        region[correct.target] = correct.region
        of_object[correct.target] = CORRECT

        is_flagged = outcome.kind[on_known.region] == FALSE_UNKNOWN
        is_free = of_object[on_known.target] == MISSED
        flagged = _matched(outcome, on_known[is_flagged & is_free])
        region[flagged.target] = flagged.region
        of_object[flagged.target] = FLAGGED

        is_free = of_object[on_known.target] == MISSED
        wrong = on_known[is_kept & ~has_own_class & is_free]
        # Of several regions for one object the last remains, the most confident one.
        least_confident_first = np.argsort(-split.detections.rank[wrong.region])
        wrong = wrong[least_confident_first]
        region[wrong.target] = wrong.region
        of_object[wrong.target] = WRONG_CLASS
        return cls(outcome, of_object, region)

    def tables(self, regions: Regions) -> tuple[RegionOutcomes, ObjectOutcomes]:
        """The outcomes of regions and of objects as tables.

        Args:
            regions: The regions that were matched.
        """
        of_regions, _ = self.outcome.tables(regions)
        objects = self.outcome.split.objects
        of_objects = ObjectOutcomes(
            image_id=objects.frame["image_id"],
            object_id=objects.object_id,
            category=objects.frame["category"],
            outcome=self.of_object,
            region_id=np.append(regions.region_id, -1)[self.region],
        )
        return of_regions, of_objects


@dataclass(frozen=True)
class _Matched:
    """Regions and the object that each of them took, ndarrays of one length."""

    region: np.ndarray
    target: np.ndarray


def _matched(outcome: Outcome, candidates: OverlapPairs) -> _Matched:
    """Greedy one-to-one matching by falling confidence.

    Args:
        outcome: Has the ranks of the regions.
        candidates: Regions and the objects that they may take.
    """
    no_object_twice = np.zeros(len(outcome.of_object), dtype=bool)
    target = assign(candidates, outcome.split.detections.rank, no_object_twice)
    region = np.flatnonzero(target >= 0)
    return _Matched(region, target[region])

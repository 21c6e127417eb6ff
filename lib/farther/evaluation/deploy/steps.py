"""What each threshold τ costs: the steps at which objects are misclassified, found or lost, by method and t*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.metrics.closed_set import COCO_IOUS, ClosedSet
from farther.metrics.matching.boxes import places
from farther.metrics.open_set.critical_thresholds import known_objects, unknown_objects
from farther.metrics.weighting import ImageWeights, joined, mean_of_defined


@dataclass(frozen=True)
class ThresholdSteps:
    """Thresholds τ at which units (detections or objects) change, and the image of each unit.

    Args:
        at: ndarray of shape (N,), may be infinite.
        image: Place of each unit's image, ndarray of shape (N,).
    """

    at: np.ndarray
    image: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> ThresholdSteps:
        """The units that a mask selects."""
        return ThresholdSteps(self.at[rows], self.image[rows])

    def of(self, images: np.ndarray) -> ThresholdSteps:
        """The units of the images that a mask selects."""
        return self[images[self.image]]

    def counts(self, images: int) -> np.ndarray:
        """Number of units of each image, ndarray of shape (images,)."""
        return np.bincount(self.image, minlength=images)


@dataclass(frozen=True)
class IdSteps:
    """Costs of a method at one t* in ID images.

    Args:
        flagged: Detections, which are flagged at each τ above their step.
        lost: Objects, which are lost at each τ above their step: ∞ for those that are not detected
            at the run's t* without flagging, −∞ for those that t* alone loses.
    """

    flagged: ThresholdSteps
    lost: ThresholdSteps


@dataclass(frozen=True)
class OodSteps:
    """Outcomes of unknown objects under a method at one t*.

    Args:
        misclassified: Objects, which are misclassified at each τ up to their step.
        found: The same objects, which are found at each τ above their step.
        detections: Detections, with their scores as steps.
    """

    misclassified: ThresholdSteps
    found: ThresholdSteps
    detections: ThresholdSteps


class IdImages:
    """The images of an ID split, and the known objects that the run detects in them.

    Args:
        inputs: The run's inputs.
        split: The split.
    """

    def __init__(self, inputs: RunInputs, split: RunSplit):
        self.names = np.array(sorted(split.images), dtype=object)
        self._inputs, self._split = inputs, split
        self._regions = split.regions()
        self._region_image = places(self.names, self._regions.image_id)
        self._closed = ClosedSet.of(split.objects, self._regions)
        self._image = np.searchsorted(self.names, self._closed.images)

    @cached_property
    def _detected(self) -> np.ndarray:
        """Counted objects that are detected at the run's t* without any flagging."""
        return self._known(self._inputs.threshold, np.zeros(len(self._regions))).at > -np.inf

    def _known(self, operating: float, scores: np.ndarray) -> ThresholdSteps:
        closed = self._closed.keeping(self._regions.score >= operating)
        known = known_objects(closed, scores, self._inputs.settings.iou)
        return ThresholdSteps(known.detected_to, self._image[known.image])

    def lost_by(self, operating: float) -> ThresholdSteps:
        """The steps of `IdSteps.lost` where nothing is flagged: −∞ for the objects that a t* loses, else ∞."""
        known = self._known(operating, np.zeros(len(self._regions)))
        return ThresholdSteps(
            np.where(self._detected & np.isinf(known.at), -np.inf, np.inf), known.image
        )

    def steps(self, method: str, operating: float) -> IdSteps:
        """Costs of a method at a t*."""
        scores = self._inputs.scores(method, self._split)
        known = self._known(operating, scores)
        lost = np.where(self._detected, known.at, np.inf)
        return IdSteps(self._flagged(scores, operating), ThresholdSteps(lost, known.image))

    def flagged(self, method: str, operating: float) -> ThresholdSteps:
        """The steps of `IdSteps.flagged`, which need no objects."""
        return self._flagged(self._inputs.scores(method, self._split), operating)

    def _flagged(self, scores: np.ndarray, operating: float) -> ThresholdSteps:
        rows = self._regions.score >= operating
        return ThresholdSteps(scores[rows], self._region_image[rows])

    def map50(
        self, method: str | None, operating: float, tau: float, weights: ImageWeights | None
    ) -> np.ndarray:
        """mAP50 of the detections that are not flagged, ndarray of shape (B,); of all from t* on without a method."""
        kept = self._regions.score >= operating
        if method is not None:
            kept &= self._inputs.scores(method, self._split) >= tau
        matched = self._closed.keeping(kept).match(COCO_IOUS[:1])
        of_images = None if weights is None else weights[:, self._image]
        return mean_of_defined(matched.average_precision(of_images)[0])


class OodImages:
    """The images of several OOD splits, one after the other.

    Args:
        inputs: The run's inputs.
        splits: The splits.
    """

    def __init__(self, inputs: RunInputs, splits: Sequence[TestSplit]):
        self.splits = splits
        self._inputs = inputs
        each = [np.array(sorted(split.images), dtype=object) for split in splits]
        self._names = each
        self.names = np.concatenate([np.array([], dtype=object), *each])
        self.split = np.repeat(np.arange(len(each)), [len(names) for names in each])
        self._start = np.cumsum([0, *(len(names) for names in each)])

    def in_split(self, name: str) -> np.ndarray:
        """The images of one split, ndarray of bool."""
        return self.split == [split.name for split in self.splits].index(name)

    def steps(self, method: str, operating: float) -> OodSteps:
        """Outcomes of unknown objects under a method at a t*."""
        misclassified, found, detections = [], [], []
        for split, names, start in zip(self.splits, self._names, self._start, strict=False):
            regions = split.regions()
            rows = regions.score >= operating
            scores = self._inputs.scores(method, split)[rows]
            part = split.stored_split.keeping(rows)
            objects = unknown_objects(part, scores)
            image = start + np.searchsorted(names, part.images)[objects.image]
            misclassified.append(ThresholdSteps(objects.misclassified_to, image)[objects.counted])
            found.append(ThresholdSteps(objects.found_above, image)[objects.counted])
            detections.append(ThresholdSteps(scores, start + places(names, regions.image_id[rows])))
        return OodSteps(*(_joined(each) for each in (misclassified, found, detections)))

    def weights(self) -> ImageWeights | None:
        """How often each image is drawn in each replicate, shape (B, images); None without replicates."""
        drawn = [split.draws.weights for split in self.splits if split.draws is not None]
        return reduce(joined, drawn) if drawn else None


def _joined(each: Sequence[ThresholdSteps]) -> ThresholdSteps:
    at = np.concatenate([np.zeros(0), *(steps.at for steps in each)])
    return ThresholdSteps(
        at, np.concatenate([np.zeros(0, dtype=np.int64), *(steps.image for steps in each)])
    )


def halves(names: np.ndarray, group: np.ndarray, seed: int) -> np.ndarray:
    """Which images are in the first of two halves, ndarray of bool.

    Args:
        names: Names of images; the same image is always in the same half.
        group: The split of each, which is divided evenly.
        seed: Of the order in which images are dealt out.
    """
    distinct, place = np.unique(names.astype(str), return_inverse=True)
    in_groups = np.zeros((len(distinct), int(group.max(initial=-1)) + 1), dtype=bool)
    in_groups[place, group] = True
    drawn = np.random.default_rng(seed).permutation(len(distinct))
    order = np.lexsort((drawn, *in_groups.T))  # images of the same splits are neighbours
    first = np.zeros(len(distinct), dtype=bool)
    first[order[::2]] = True
    return first[place]

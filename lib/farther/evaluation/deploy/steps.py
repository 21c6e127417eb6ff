"""Costs of each threshold τ, by method and t*.

They follow from the steps: the thresholds at which objects are misclassified, found or lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np

from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.metrics.closed_set import COCO_IOUS, ClosedSet
from farther.metrics.matching.boxes import places
from farther.metrics.open_set.critical_thresholds import known_objects, unknown_objects
from farther.metrics.open_set.proposals import apart_from_detections, finders
from farther.metrics.weighting import ImageWeights, joined, mean_of_defined
from farther.tables import Regions


@dataclass(frozen=True)
class ThresholdSteps:
    """Thresholds τ at which units (detections or objects) change, and the image of each unit.

    Args:
        at: ndarray of shape (N,), may be infinite.
        image: Index of each unit's image, ndarray of shape (N,).
    """

    at: np.ndarray
    image: np.ndarray

    @classmethod
    def concatenate(cls, parts: Sequence[ThresholdSteps]) -> ThresholdSteps:
        """The units of several parts, one part after the other."""
        at = [np.zeros(0)]
        image = [np.zeros(0, dtype=np.int64)]
        for part in parts:
            at.append(part.at)
            image.append(part.image)
        return cls(np.concatenate(at), np.concatenate(image))

    def __getitem__(self, rows: np.ndarray) -> ThresholdSteps:
        """The units that a mask or an index selects."""
        return ThresholdSteps(self.at[rows], self.image[rows])

    def of(self, images: np.ndarray) -> ThresholdSteps:
        """The units of the images that a mask selects."""
        return self[images[self.image]]

    def below(self, threshold: float) -> ThresholdSteps:
        """The units whose step is below a threshold."""
        return self[self.at < threshold]

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
        proposals: Proposals on no detection, with their objectness as steps.
    """

    flagged: ThresholdSteps
    lost: ThresholdSteps
    proposals: ThresholdSteps = field(default_factory=lambda: ThresholdSteps.concatenate([]))


@dataclass(frozen=True)
class OodSteps:
    """Outcomes of unknown objects under a method at one t*.

    Args:
        misclassified: Objects, which are misclassified at each τ up to their step.
        found: The same objects, which are found at each τ above their step.
        detections: Detections, with their scores as steps.
        proposals: Proposals on no detection, with their objectness as steps.
        recovered: The same objects as `found`, with the objectness of the proposal that finds each
            one that no detection matches; −∞ where none does.
    """

    misclassified: ThresholdSteps
    found: ThresholdSteps
    detections: ThresholdSteps
    proposals: ThresholdSteps
    recovered: ThresholdSteps


class IdImages:
    """The images of an ID split, and the known objects that the run detects in them.

    Args:
        inputs: The run's inputs.
        split: The split.
        source: Name of a source of proposals; None for none.
    """

    def __init__(self, inputs: RunInputs, split: RunSplit, source: str | None = None):
        self._inputs = inputs
        self._split = split
        self._regions = split.regions()
        self._proposals = read_proposals(inputs, split, source)
        self._closed_set = ClosedSet.of(split.objects, self._regions)
        self.names = np.array(sorted(split.images), dtype=object)
        self._region_image = places(self.names, self._regions.image_id)
        self._closed_set_image = np.searchsorted(self.names, self._closed_set.images)

    @cached_property
    def _is_detected(self) -> np.ndarray:
        """Whether each counted object is detected at the run's t* without any flagging, bool."""
        return self._known(self._inputs.threshold, np.zeros(len(self._regions))).at > -np.inf

    def _known(self, operating: float, scores: np.ndarray) -> ThresholdSteps:
        """Known objects, which are detected at each τ up to their step.

        Args:
            operating: t*.
            scores: Scores of the stored regions.
        """
        closed_set = self._closed_set.keeping(self._regions.score >= operating)
        known = known_objects(closed_set, scores, self._inputs.settings.iou)
        return ThresholdSteps(known.detected_to, self._closed_set_image[known.image])

    def lost_by(self, operating: float) -> ThresholdSteps:
        """The steps of `IdSteps.lost` without flagging: −∞ for objects that a t* loses, else ∞."""
        known = self._known(operating, np.zeros(len(self._regions)))
        is_lost = self._is_detected & np.isinf(known.at)
        return ThresholdSteps(np.where(is_lost, -np.inf, np.inf), known.image)

    def steps(self, method: str, operating: float) -> IdSteps:
        """Costs of a method at a t*."""
        scores = self._inputs.scores(method, self._split)
        known = self._known(operating, scores)
        lost = ThresholdSteps(np.where(self._is_detected, known.at, np.inf), known.image)
        rows = self._regions.score >= operating
        flagged = ThresholdSteps(scores[rows], self._region_image[rows])
        return IdSteps(flagged, lost, self.called(operating))

    def called(self, operating: float) -> ThresholdSteps:
        """The steps of `IdSteps.proposals`."""
        detections = self._regions.above(operating)
        is_beside = apart_from_detections(self._proposals, detections, self._inputs.settings.iou)
        beside = self._proposals[is_beside]
        return ThresholdSteps(beside.score.astype(np.float64), places(self.names, beside.image_id))

    def map50(
        self, method: str | None, operating: float, tau: float, weights: ImageWeights | None
    ) -> np.ndarray:
        """mAP50 of the detections that are not flagged, ndarray of shape (B,).

        Args:
            method: The method that flags; None for all detections at or above t*.
            operating: t*.
            tau: The method's threshold.
            weights: Weights of the images, shape (B, I); None counts each once.
        """
        is_kept = self._regions.score >= operating
        if method is not None:
            is_kept &= self._inputs.scores(method, self._split) >= tau
        matched = self._closed_set.keeping(is_kept).match(COCO_IOUS[:1])

        closed_set_weights = None
        if weights is not None:
            closed_set_weights = weights[:, self._closed_set_image]
        return mean_of_defined(matched.average_precision(closed_set_weights)[0])


class OodImages:
    """The images of several OOD splits, one split after the other.

    Args:
        inputs: The run's inputs.
        splits: The splits.
        source: Name of a source of proposals; None for none.

    Attributes:
        names: Name of each of I images, object array of shape (I,).
        split: Index of each image's split, ndarray of shape (I,).
    """

    def __init__(self, inputs: RunInputs, splits: Sequence[TestSplit], source: str | None = None):
        self.splits = splits
        self._proposals = [read_proposals(inputs, split, source) for split in splits]
        self._proposed: dict[float, list[_Proposed]] = {}
        self._inputs = inputs
        self._names_by_split = [np.array(sorted(split.images), dtype=object) for split in splits]
        self.names = np.concatenate([np.array([], dtype=object), *self._names_by_split])
        sizes = [len(names) for names in self._names_by_split]
        self.split = np.repeat(np.arange(len(sizes)), sizes)
        self._first_image = np.cumsum([0, *sizes])

    def in_split(self, name: str) -> np.ndarray:
        """Whether each image is of a split, ndarray of bool."""
        names = [split.name for split in self.splits]
        return self.split == names.index(name)

    def steps(self, method: str, operating: float) -> OodSteps:
        """Outcomes of unknown objects under a method at a t*."""
        misclassified = []
        found = []
        detections = []
        proposals = []
        recovered = []
        for number, split in enumerate(self.splits):
            first_image = self._first_image[number]
            names = self._names_by_split[number]
            regions = split.regions()
            rows = regions.score >= operating
            scores = self._inputs.scores(method, split)[rows]

            open_set = split.stored_open_set.keeping(rows)
            objects = unknown_objects(open_set, scores)
            image = first_image + np.searchsorted(names, open_set.images)[objects.image]
            counted = objects.counted
            misclassified.append(ThresholdSteps(objects.misclassified_to, image)[counted])
            found.append(ThresholdSteps(objects.found_above, image)[counted])

            region_image = first_image + places(names, regions.image_id[rows])
            detections.append(ThresholdSteps(scores, region_image))

            proposed = self._proposed_at(operating)[number]
            proposals.append(ThresholdSteps(proposed.objectness, first_image + proposed.image))
            recovered.append(ThresholdSteps(proposed.recovered, image)[counted])
        return OodSteps(
            ThresholdSteps.concatenate(misclassified),
            ThresholdSteps.concatenate(found),
            ThresholdSteps.concatenate(detections),
            ThresholdSteps.concatenate(proposals),
            ThresholdSteps.concatenate(recovered),
        )

    def _proposed_at(self, operating: float) -> list[_Proposed]:
        """What proposals do in each split at a t*, which all methods share."""
        if operating not in self._proposed:
            proposed = []
            for split, names, proposals in zip(
                self.splits, self._names_by_split, self._proposals, strict=True
            ):
                detections = split.regions().above(operating)
                proposed.append(_Proposed.of(split, names, detections, proposals))
            self._proposed[operating] = proposed
        return self._proposed[operating]

    def weights(self) -> ImageWeights | None:
        """Weight of each image in each replicate, shape (B, I); None without replicates."""
        weights_by_split = [split.draws.weights for split in self.splits if split.draws is not None]
        if not weights_by_split:
            return None
        return reduce(joined, weights_by_split)


@dataclass(frozen=True)
class _Proposed:
    """Proposals of an OOD split beside its detections at a t*.

    Args:
        objectness: Of P proposals on no detection, float64, shape (P,).
        image: Index of each one's image, shape (P,).
        recovered: For each object of the split, the objectness of the proposal that finds it; −∞
            for none, shape (M,).
    """

    objectness: np.ndarray
    image: np.ndarray
    recovered: np.ndarray

    @classmethod
    def of(
        cls, split: TestSplit, names: np.ndarray, detections: Regions, proposals: Regions
    ) -> _Proposed:
        """What proposals do.

        Args:
            split: The split.
            names: Names of its images, sorted.
            detections: Detections at or above t*.
            proposals: All proposals.
        """
        rules = split.matching_rules
        _, finder = finders(split.objects, detections, proposals, rules)
        objectness = np.append(proposals.score.astype(np.float64), -np.inf)
        beside = proposals[apart_from_detections(proposals, detections, rules.iou)]
        return cls(
            objectness=beside.score.astype(np.float64),
            image=places(names, beside.image_id),
            recovered=objectness[finder],
        )


def read_proposals(inputs: RunInputs, split: RunSplit, source: str | None) -> Regions:
    """The proposals of a source in a split; none without a source.

    Raises:
        DataError: they are absent or damaged.
    """
    if source is None:
        return Regions.empty(split.folder.header)
    return Regions.read(inputs.files.proposals(source, split.name))


def halves(names: np.ndarray, group: np.ndarray, seed: int) -> np.ndarray:
    """Whether each image is in the first of two halves, ndarray of bool.

    Args:
        names: Names of images; the same image is always in the same half.
        group: The split of each, which is divided evenly.
        seed: Seed of the order in which images are dealt out.
    """
    distinct_names, number = np.unique(names.astype(str), return_inverse=True)
    in_groups = np.zeros((len(distinct_names), int(group.max(initial=-1)) + 1), dtype=bool)
    in_groups[number, group] = True

    random_order = np.random.default_rng(seed).permutation(len(distinct_names))
    order = np.lexsort((random_order, *in_groups.T))  # images of the same splits are neighbours
    is_first = np.zeros(len(distinct_names), dtype=bool)
    is_first[order[::2]] = True
    return is_first[number]

"""Inputs that all methods of a run share.

They are the regions of each split, their overlaps with objects, and the bootstrap draws of images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.evaluation.files import Roles, RunFiles, RunSplit, aligned_scores
from farther.evaluation.image_pairs import PairedSplit
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.sweeps import ConfidenceStep
from farther.evaluation.threshold import read_threshold
from farther.evaluation.weights import Weights
from farther.metrics.catalogue import COMPARED
from farther.metrics.closed_set import ClosedSet
from farther.metrics.errors.error_diagnosis import TOUCH
from farther.metrics.matching import not_of_known, true_classes
from farther.metrics.matching.boxes import OverlapPairs
from farther.metrics.ood.classification import Classified
from farther.metrics.ood.misclassification import is_correct
from farther.metrics.open_set.open_world import MixedImages
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.user_defined import create_all
from farther.metrics.weighting import ImageWeights, joined
from farther.processes import release_memory
from farther.tables import Objects, Regions

T = TypeVar("T", Objects, Regions)

#: Number of regions from which on reading their scores takes much memory.
LARGE = 1_000_000
#: Number of regions of all splits from which on freed memory is worth the time to return it.
MANY = 100_000
#: Most regions of a split whose scores stay in memory: they are read several times.
SMALL = 20_000

#: Number of categories or classes that an error message names.
LISTED = 5


class RunInputs:
    """The splits of a run at its operating threshold t*.

    Each property is computed when it is first needed.

    Args:
        files: Paths of the run's files.
        roles: Roles of the benchmark's splits.
        settings: How the run is evaluated.

    Attributes:
        threshold: The operating threshold t*.
        id_split: The ID split that OOD splits are compared with.
        tested: The OOD splits.
        shifted: The splits of shifted ID images.
        base_splits: The splits that images of OOD splits were made from, by name.
        user_defined: The user-defined metrics of the settings, by name.

    Raises:
        DataError: an input is absent or wrong; names file, row and field.
        ParameterError: see `farther.metrics.user_defined.create_all`.
    """

    def __init__(self, files: RunFiles, roles: Roles, settings: EvaluationSettings):
        self.files = files
        self.roles = roles
        self.settings = settings
        self.user_defined = create_all(settings.user_defined, taken=COMPARED)
        self.threshold = read_threshold(files.threshold)
        #: Scores that were read, by method and split.
        self._scores: dict[tuple[str, str], np.ndarray] = {}
        self.id_split = RunSplit(files, settings.id_split, logits=self.needs_logits)
        self.tested = [TestSplit(self, name) for name in roles.test]
        self.shifted = [RunSplit(files, name) for name in roles.shifted]
        self.base_splits = self._read_base_splits()
        _refuse_other_classes(self.id_split)

    def release_memory(self) -> None:
        """Returns freed memory to the system, where the splits have many regions."""
        splits = [self.id_split, *self.tested, *self.shifted]
        if sum(len(split.folder) for split in splits) > MANY:
            release_memory()

    def _read_base_splits(self) -> dict[str, RunSplit]:
        """The splits that images of OOD splits were made from; none is read twice."""
        base_splits: dict[str, RunSplit] = {}
        split_by_name: dict[str, RunSplit] = {self.id_split.name: self.id_split}
        for split in self.tested:
            split_by_name[split.name] = split

        for params in self.roles.pairs.values():
            name = params["of"]
            if name not in split_by_name:
                split_by_name[name] = RunSplit(self.files, name)
            base_splits[name] = split_by_name[name]
        return base_splits

    @property
    def needs_logits(self) -> bool:
        """Whether the settings need the logits of regions in the ID split and the tested ones."""
        return self.settings.protocol == "published-code" or bool(self.settings.user_defined)

    @property
    def whole_images(self) -> bool:
        """Whether the detector is a classifier, whose regions are whole images."""
        return self.id_split.folder.header.whole_images

    @cached_property
    def id_regions(self) -> Regions:
        """Regions of the ID split at or above t*."""
        return self.id_split.regions(self.threshold)

    @cached_property
    def id_above_threshold(self) -> np.ndarray:
        """Whether each stored region of the ID split is at or above t*, bool."""
        return self.id_split.regions().score >= self.threshold

    @cached_property
    def id_draws(self) -> ImageDraws | None:
        """Draws of the images of the ID split; None without replicates."""
        return self.settings.draws(self.id_split.images)

    @cached_property
    def closed_set(self) -> ClosedSet:
        """Objects of the ID split and its regions at or above t*."""
        return ClosedSet.of(self.id_split.objects, self.id_regions)

    @cached_property
    def id_open_set(self) -> OpenSetSplit:
        """The same by the rules for OOD splits, by which known objects are flagged or missed."""
        rules = MatchingRules(self.settings.iou, known_classes=self.id_split.known_classes)
        return OpenSetSplit.of(self.id_split.objects, self.id_regions, rules)

    @cached_property
    def id_mixed(self) -> MixedImages:
        """The ID split, as one part of mixed images."""
        return self.mixed_part(self.id_split)

    def mixed_part(self, split: RunSplit) -> MixedImages:
        """A split, as one part of mixed images."""
        return MixedImages.of(
            split.objects, split.regions(), self.id_split.known_classes, self.settings.iou
        )

    @cached_property
    def is_correct(self) -> np.ndarray:
        """Whether the class of each region of the ID split at or above t* is right, bool."""
        return is_correct(self.id_split.objects, self.id_regions, self.settings.iou)

    @cached_property
    def classified(self) -> Classified:
        """Labelled images of the ID split, and a classifier's predictions for them."""
        return Classified.of(self.id_split.objects, self.id_split.regions())

    @cached_property
    def _full_spectrum(self) -> list[tuple[RunSplit, np.ndarray]]:
        """The ID split and, after it, the shifted splits, with masks of regions at or above t*."""
        splits = [self.id_split, *self.shifted]
        return [(split, split.regions().score >= self.threshold) for split in splits]

    @cached_property
    def full_spectrum_image_id(self) -> np.ndarray:
        """Image of each region at or above t* in the ID split and, after them, in shifted splits.

        A shifted image is drawn together with its original, which has the same name.
        """
        image_ids = [split.regions().image_id[is_above] for split, is_above in self._full_spectrum]
        return np.concatenate(image_ids)

    @cached_property
    def full_spectrum_draws(self) -> ImageDraws | None:
        """Draws of the images of the ID split and the shifted splits; None without replicates."""
        images: frozenset[str] = frozenset()
        for split, _ in self._full_spectrum:
            images |= split.images
        return self.settings.draws(images)

    def full_spectrum_scores(self, method: str) -> np.ndarray:
        """A method's scores of the regions of `full_spectrum_image_id`."""
        scores = [self.scores(method, split)[is_above] for split, is_above in self._full_spectrum]
        return np.concatenate(scores)

    def scores(self, method: str, split: RunSplit) -> np.ndarray:
        """A method's scores of the stored regions of a split; see `aligned_scores`."""
        kept = self._scores.get((method, split.name))
        if kept is not None:
            return kept
        file = self.files.scores(method, split.name)
        scores = aligned_scores(split.regions(), file, len(split.folder))
        if len(scores) > LARGE:  # the table's other columns took more
            release_memory()
        if len(scores) <= SMALL:
            scores.setflags(write=False)
            self._scores[method, split.name] = scores
        return scores


class TestSplit(RunSplit):
    """An OOD split at the operating threshold t*, and at each value of the sweep over t*.

    A *detection* is a region at or above t*.

    Args:
        inputs: The run's other inputs.
        name: The name of the split.
    """

    __test__ = False  # not a test case of pytest

    def __init__(self, inputs: RunInputs, name: str):
        super().__init__(inputs.files, name, logits=inputs.needs_logits)
        self.inputs = inputs
        self._seed = inputs.settings.seed + 1
        self._mixed: MixedImages | None = None

    @cached_property
    def above_threshold(self) -> np.ndarray:
        """Whether each stored region is at or above t*, bool."""
        return self.regions().score >= self.inputs.threshold

    @cached_property
    def detections(self) -> Regions:
        """Regions at or above t*."""
        return self.regions(self.inputs.threshold)

    @cached_property
    def categories(self) -> np.ndarray:
        """Category of the object that each detection overlaps most, "" where there is none."""
        truth = true_classes(self.objects, self.detections, self.inputs.settings.iou)
        category: np.ndarray = truth.category
        return category.astype(str)

    @cached_property
    def matching_rules(self) -> MatchingRules:
        """Rules by which regions are matched to objects."""
        settings = self.inputs.settings
        return MatchingRules(settings.iou, settings.protocol, self.known_classes)

    @cached_property
    def open_set(self) -> OpenSetSplit:
        """Detections and objects with their overlaps, which are those of `stored_open_set`."""
        return self.stored_open_set.keeping(self.above_threshold)

    @cached_property
    def stored_open_set(self) -> OpenSetSplit:
        """All stored regions and objects, with their overlaps."""
        return OpenSetSplit.of(self.objects, self.regions(), self.matching_rules)

    @cached_property
    def paper_open_set(self) -> OpenSetSplit:
        """Detections and objects with their overlaps by the rules of protocol "paper"."""
        if self.matching_rules.protocol == "paper":
            return self.open_set
        rules = replace(self.matching_rules, protocol="paper")
        return OpenSetSplit.of(self.objects, self.detections, rules)

    @cached_property
    def touching(self) -> OverlapPairs:
        """Detections and objects that overlap enough for an error in localisation."""
        rules = replace(self.matching_rules, iou=TOUCH)
        return OpenSetSplit.of(self.objects, self.detections, rules).candidates

    @cached_property
    def is_ood(self) -> np.ndarray:
        """Whether each detection is out of distribution: it is not of a known object, bool."""
        return self._stored_is_ood[self.above_threshold]

    @cached_property
    def on_unknown(self) -> np.ndarray:
        """Whether each detection is OOD and lies on a labelled unknown object, bool."""
        is_unknown_object = self.open_set.is_counted
        return self._lies_on(is_unknown_object) & self.is_ood

    @cached_property
    def on_nothing(self) -> np.ndarray:
        """Whether each detection is OOD and lies on no labelled object, bool."""
        is_object = np.ones_like(self.open_set.is_counted)
        return ~self._lies_on(is_object) & self.is_ood

    def _lies_on(self, objects: np.ndarray) -> np.ndarray:
        """Whether each of N detections lies on an object that the mask `objects` selects, bool."""
        overlaps = self.open_set.candidates
        lies_on = np.zeros(len(self.detections), dtype=bool)
        lies_on[overlaps.region[objects[overlaps.target]]] = True
        return lies_on

    def prepare(self) -> None:
        """Computes `mixed` before anything else is in memory, as that takes the most of it."""
        if self._mixed is None:
            self._mixed = self._mix()
            self.inputs.release_memory()

    @property
    def mixed(self) -> MixedImages:
        """The ID split and this one as one set of images; this one's have its name in front."""
        if self._mixed is None:
            self._mixed = self._mix()
        return self._mixed

    def _mix(self) -> MixedImages:
        inputs = self.inputs
        if len(inputs.tested) == 1:  # then the ID images need not stay in memory
            id_part = inputs.mixed_part(inputs.id_split)
        else:
            id_part = inputs.id_mixed
        return id_part.joined(inputs.mixed_part(self), self.name)

    @cached_property
    def weights(self) -> Weights | None:
        """Weights of the images in each replicate; None without replicates."""
        inputs = self.inputs
        if inputs.id_draws is None or self.draws is None:
            return None

        full_spectrum = None
        if inputs.shifted:
            full_spectrum = inputs.full_spectrum_draws
        mixed = None
        if not inputs.whole_images:
            mixed = self._mixed_weights(inputs.id_draws, self.draws)
        scenes = None
        if self.pairs is not None:
            scenes = self.pairs.weights(inputs.settings, self._seed)

        return Weights(
            id_images=inputs.id_draws,
            images=self.draws,
            full_spectrum=full_spectrum,
            mixed=mixed,
            scenes=scenes,
        )

    def _mixed_weights(self, id_draws: ImageDraws, draws: ImageDraws) -> ImageWeights:
        """Weights of the images of `mixed`, shape (B, I)."""
        names_in_mixed = [f"{self.name}/{name}" for name in draws.names]
        names = np.concatenate([id_draws.names, names_in_mixed])
        order = np.argsort(names)
        column = order[np.searchsorted(names[order], self.mixed.split.images)]
        return joined(id_draws.weights, draws.weights)[:, column]

    @cached_property
    def draws(self) -> ImageDraws | None:
        """Draws of the split's images; None without replicates."""
        return self.inputs.settings.draws(self.images, self._seed)

    @cached_property
    def pairs(self) -> PairedSplit | None:
        """The images beside those that they were made from; None where they were not made so."""
        params = self.inputs.roles.pairs.get(self.name)
        if params is None:
            return None
        return PairedSplit(
            self,
            self.detections,
            self.inputs.base_splits[params["of"]],
            params,
            threshold=self.inputs.threshold,
            matching=self.matching_rules,
        )

    def steps(self) -> Iterator[ConfidenceStep]:
        """The split at each value of t* for which all regions are stored, one at a time."""
        stored_from = max(
            self.folder.header.score_threshold,
            self.inputs.id_split.folder.header.score_threshold,
        )
        for confidence in self.inputs.settings.confidences:
            if confidence >= stored_from:
                yield self._step(confidence)

    def _step(self, confidence: float) -> ConfidenceStep:
        rows = self.regions().score >= confidence
        images = len(self.images)
        no_detection = None
        if images:
            image_of_rows = self.stored_open_set.detections.image[rows]
            images_with_detections = np.count_nonzero(np.bincount(image_of_rows))
            no_detection = 1 - images_with_detections / images

        return ConfidenceStep(
            confidence=confidence,
            rows=rows,
            is_ood=self._stored_is_ood[rows],
            id_rows=self.inputs.id_split.regions().score >= confidence,
            split=self.stored_open_set.keeping(rows),
            no_detection=no_detection,
        )

    @cached_property
    def _stored_is_ood(self) -> np.ndarray:
        iou = self.inputs.settings.iou
        return not_of_known(self.objects, self.regions(), self.known_classes, iou)


def _refuse_other_classes(split: RunSplit) -> None:
    """Refuses a split none of whose objects is of a class of the detector."""
    if not len(split.objects):
        return
    known = split.known_classes
    if np.isin(split.objects.category.astype(str), known).any():
        return

    categories = ", ".join(sorted(set(split.objects.category))[:LISTED])
    classes = ", ".join(known[:LISTED])
    problem = (
        f"none of the categories ({categories}, …) of split '{split.name}' "
        f"is a class of the detector ({classes}, …): names must agree"
    )
    raise DataError(problem, file=split.source, field="category")


def named_together(splits: Sequence[RunSplit], like: RunSplit) -> tuple[Objects, Regions]:
    """Objects and regions of several splits as one table each.

    The names of images get the name of their split in front, as two splits may share names.

    Args:
        splits: The splits.
        like: A split of the same detector, whose classes the tables have where there are no splits.
    """
    objects = [like.objects[:0]]
    regions = [like.regions()[:0]]
    for split in splits:
        objects.append(_with_split_name(split.objects, split))
        regions.append(_with_split_name(split.regions(), split))
    return Objects.concatenate(objects), Regions.concatenate(regions)


def _with_split_name(table: T, split: RunSplit) -> T:
    image_id = pl.lit(f"{split.name}/") + pl.col("image_id")
    return table.with_frame(table.frame.with_columns(image_id=image_id))

"""Inputs that all methods of a run share: the regions of each split, their overlaps, and the draws of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import polars as pl

from farther.cores import give_back_memory
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
from farther.tables import Objects, Regions

T = TypeVar("T", Objects, Regions)

#: Regions of a split, whose scores take much memory while they are read.
LARGE = 1_000_000


class RunInputs:
    """The splits of a run at its operating threshold; what is computed is computed when it is first needed.

    Args:
        files: Paths of the run's files.
        roles: What the benchmark's splits are for.
        settings: How the run is evaluated.

    Attributes:
        user_defined: The user-defined metrics that are asked for, by name.

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
        self.id_split = RunSplit(files, settings.id_split, logits=self.needs_logits)
        self.tested = [TestSplit(self, name) for name in roles.test]
        self.shifted = [RunSplit(files, name) for name in roles.shifted]
        read = {split.name: split for split in (self.id_split, *self.tested)}
        names = dict.fromkeys(params["of"] for params in roles.pairs.values())
        self.bases = {name: read.get(name) or RunSplit(files, name) for name in names}
        _refuse_other_classes(self.id_split)

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
    def id_above(self) -> np.ndarray:
        """Stored regions of the ID split at or above t*, bool."""
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
    def id_mixed(self) -> MixedImages:
        """The ID split, as one part of mixed images."""
        return self.mixed_with(self.id_split)

    def mixed_with(self, split: RunSplit) -> MixedImages:
        """A split, as one part of mixed images."""
        return MixedImages.of(
            split.objects, split.regions(), self.id_split.known_classes, self.settings.iou
        )

    @cached_property
    def is_correct(self) -> np.ndarray:
        """Regions of the ID split at or above t* whose class is right, bool."""
        return is_correct(self.id_split.objects, self.id_regions, self.settings.iou)

    @cached_property
    def classified(self) -> Classified:
        """Labelled images of the ID split, and a classifier's predictions for them."""
        return Classified.of(self.id_split.objects, self.id_split.regions())

    @cached_property
    def spectrum(self) -> np.ndarray:
        """Image of each region at or above t* in the ID split and, after them, in the shifted splits.

        A shifted image is drawn together with the one that it was made from, which has the same
        name.
        """
        images = [
            split.regions(self.threshold).image_id for split in (self.id_split, *self.shifted)
        ]
        return np.concatenate(images)

    @cached_property
    def spectrum_draws(self) -> ImageDraws | None:
        """Draws of the images of the ID split and the shifted splits; None without replicates."""
        return self.settings.draws(
            frozenset().union(*(split.images for split in (self.id_split, *self.shifted)))
        )

    def spectrum_scores(self, method: str) -> np.ndarray:
        """A method's scores of the regions of `spectrum`."""
        each = [
            self.scores(method, s)[s.regions().score >= self.threshold]
            for s in (self.id_split, *self.shifted)
        ]
        return np.concatenate(each)

    def scores(self, method: str, split: RunSplit) -> np.ndarray:
        """A method's scores of the stored regions of a split; see `aligned_scores`."""
        found = aligned_scores(
            split.regions(), self.files.scores(method, split.name), len(split.folder)
        )
        if len(found) > LARGE:  # the table's other columns took more
            give_back_memory()
        return found


class TestSplit(RunSplit):
    """An OOD split, also at the operating threshold, and at each value of the sweep over t*.

    Args:
        inputs: The run's other inputs.
        name: The name of the split.
    """

    __test__ = False  # not a test case of pytest

    def __init__(self, inputs: RunInputs, name: str):
        super().__init__(inputs.files, name, logits=inputs.needs_logits)
        self.inputs = inputs
        self._seed = inputs.settings.seed + 1

    @cached_property
    def above(self) -> np.ndarray:
        """Stored regions at or above t*, bool."""
        return self.regions().score >= self.inputs.threshold

    @cached_property
    def detections(self) -> Regions:
        """Regions at or above t*."""
        return self.regions(self.inputs.threshold)

    @cached_property
    def categories(self) -> np.ndarray:
        """Category of the object that each region at or above t* overlaps most, "" where there is none."""
        category: np.ndarray = true_classes(
            self.objects, self.detections, self.inputs.settings.iou
        ).category
        return category.astype(str)

    @cached_property
    def matching(self) -> MatchingRules:
        """Rules by which regions are matched to objects."""
        settings = self.inputs.settings
        return MatchingRules(settings.iou, settings.protocol, self.known_classes)

    @cached_property
    def split(self) -> OpenSetSplit:
        """Regions at or above t*, with their overlaps, which are those of `stored_split`."""
        return self.stored_split.keeping(self.above)

    @cached_property
    def touching(self) -> OverlapPairs:
        """Regions at or above t* and objects that overlap enough for an error in localisation."""
        settings = replace(self.matching, iou=TOUCH)
        return OpenSetSplit.of(self.objects, self.detections, settings).candidates

    @cached_property
    def is_ood(self) -> np.ndarray:
        """Regions at or above t* that are out of distribution: all but those of known objects."""
        return self._stored_is_ood[self.above]

    @cached_property
    def on_unknown(self) -> np.ndarray:
        """Detections of `is_ood` that lie on a labelled unknown object, bool."""
        return self._near(self.split.is_counted) & self.is_ood

    @cached_property
    def on_nothing(self) -> np.ndarray:
        """Detections of `is_ood` that lie on no labelled object, bool."""
        return ~self._near(np.ones_like(self.split.is_counted)) & self.is_ood

    def _near(self, objects: np.ndarray) -> np.ndarray:
        """Regions at or above t* that lie on one of some objects, bool."""
        near, found = self.split.candidates, np.zeros(len(self.detections), dtype=bool)
        found[near.region[objects[near.target]]] = True
        return found

    @cached_property
    def mixed(self) -> MixedImages:
        """The ID split and this one as one set of images; those of this one have its name in front."""
        inputs = self.inputs
        alone = len(inputs.tested) == 1  # then the ID images need not be kept
        return (inputs.mixed_with(inputs.id_split) if alone else inputs.id_mixed).joined(
            inputs.mixed_with(self), self.name
        )

    @cached_property
    def weights(self) -> Weights | None:
        """How often images are drawn; None without replicates."""
        inputs, settings = self.inputs, self.inputs.settings
        if inputs.id_draws is None or self.draws is None:
            return None
        return Weights(
            id_images=inputs.id_draws,
            images=self.draws,
            spectrum=inputs.spectrum_draws if inputs.shifted else None,
            mixed=None if inputs.whole_images else self._mixed_weights(inputs.id_draws, self.draws),
            scenes=None if self.pairs is None else self.pairs.weights(settings, self._seed),
        )

    def _mixed_weights(self, id_draws: ImageDraws, draws: ImageDraws) -> ImageWeights:
        names = np.concatenate([id_draws.names, [f"{self.name}/{name}" for name in draws.names]])
        order = np.argsort(names)
        place = order[np.searchsorted(names[order], self.mixed.split.images)]
        return joined(id_draws.weights, draws.weights)[:, place]

    @cached_property
    def draws(self) -> ImageDraws | None:
        """Draws of the split's images; None without replicates."""
        return self.inputs.settings.draws(self.images, self._seed)

    @cached_property
    def pairs(self) -> PairedSplit | None:
        """The split's images beside those that they were made from; None where they were not made from others."""
        params, inputs = self.inputs.roles.pairs.get(self.name), self.inputs
        if params is None:
            return None
        base = inputs.bases[params["of"]]
        return PairedSplit(
            self, self.detections, base, params, threshold=inputs.threshold, matching=self.matching
        )

    def steps(self) -> Iterator[ConfidenceStep]:
        """The split at each value of t* from which on regions are stored, one at a time in memory."""
        id_split = self.inputs.id_split
        stored = max(split.folder.header.score_threshold for split in (self, id_split))
        return (
            self._step(confidence)
            for confidence in self.inputs.settings.confidences
            if confidence >= stored
        )

    def _step(self, confidence: float) -> ConfidenceStep:
        rows = self.regions().score >= confidence
        seen = np.count_nonzero(np.bincount(self.stored_split.detections.image[rows]))
        images = len(self.images)
        return ConfidenceStep(
            confidence=confidence,
            rows=rows,
            is_ood=self._stored_is_ood[rows],
            id_rows=self.inputs.id_split.regions().score >= confidence,
            split=self.stored_split.keeping(rows),
            no_detection=1 - seen / images if images else None,
        )

    @cached_property
    def stored_split(self) -> OpenSetSplit:
        """All stored regions, with their overlaps."""
        return OpenSetSplit.of(self.objects, self.regions(), self.matching)

    @cached_property
    def _stored_is_ood(self) -> np.ndarray:
        iou = self.inputs.settings.iou
        return not_of_known(self.objects, self.regions(), self.known_classes, iou)


def _refuse_other_classes(split: RunSplit) -> None:
    known = split.known_classes
    if len(split.objects) and not np.isin(split.objects.category.astype(str), known).any():
        problem = (
            f"none of the categories ({', '.join(sorted(set(split.objects.category))[:5])}, …) of split '{split.name}' "
            f"is a class of the detector ({', '.join(known[:5])}, …): names must agree"
        )
        raise DataError(problem, file=split.source, field="category")


def named_together(splits: Sequence[RunSplit], like: RunSplit) -> tuple[Objects, Regions]:
    """Objects and regions of splits with the splits' names in front of their images' names, as two may share names.

    Without splits they are tables without rows, of the classes of `like`.
    """

    def named(table: T, split: RunSplit) -> T:
        return table.with_frame(
            table.frame.with_columns(image_id=pl.lit(f"{split.name}/") + pl.col("image_id"))
        )

    objects = Objects.concatenate([like.objects[:0], *(named(one.objects, one) for one in splits)])
    return objects, Regions.concatenate(
        [like.regions()[:0], *(named(one.regions(), one) for one in splits)]
    )

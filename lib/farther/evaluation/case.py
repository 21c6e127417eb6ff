"""A method on an OOD split: what metrics are computed from. All of it is computed when it is first needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from farther.evaluation.inputs import RunInputs, TestSplit
from farther.metrics import ood
from farther.metrics.open_set.outcomes import OpenSetSplit, Outcome


@dataclass(frozen=True)
class ScoredSide:
    """Regions, or images, of which scores are compared with those of another side.

    Args:
        image_id: Their images, object array of shape (N,).
        scores: ndarray of shape (N,).
    """

    image_id: np.ndarray
    scores: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> ScoredSide:
        """Some of them."""
        return ScoredSide(self.image_id[rows], self.scores[rows])

    def __len__(self) -> int:
        return len(self.scores)

    def by_image(self) -> ScoredSide:
        """The images, each with the score of its least in-distribution region."""
        return ScoredSide(*ood.per_image(self.image_id, self.scores))


class MethodScores:
    """A method's threshold, and its scores of the splits that all OOD splits are compared with.

    Args:
        inputs: The run's splits.
        name: The method's name in params.yaml.
        tau: Its threshold τ.
    """

    def __init__(self, inputs: RunInputs, name: str, tau: float):
        self.inputs, self.name, self.tau = inputs, name, tau

    @cached_property
    def stored(self) -> np.ndarray:
        """Scores of the stored regions of the ID split."""
        return self.inputs.scores(self.name, self.inputs.id_split)

    @cached_property
    def of_id(self) -> ScoredSide:
        """Regions of the ID split at or above t*."""
        return ScoredSide(self.inputs.id_regions.image_id, self.stored[self.inputs.id_above])

    @cached_property
    def of_id_images(self) -> ScoredSide:
        """Images of the ID split with such a region."""
        return self.of_id.by_image()

    @cached_property
    def of_spectrum(self) -> ScoredSide:
        """Regions at or above t* of the ID split and the shifted splits."""
        return ScoredSide(self.inputs.spectrum, self.inputs.spectrum_scores(self.name))


class SplitCase:
    """A method on an OOD split: its scores, and the outcomes of the regions that it flags.

    Args:
        method: The method.
        split: The split.
    """

    def __init__(self, method: MethodScores, split: TestSplit):
        self.method, self.split = method, split
        self.inputs, self.settings = split.inputs, split.inputs.settings

    @cached_property
    def stored(self) -> np.ndarray:
        """Scores of the split's stored regions."""
        return self.inputs.scores(self.method.name, self.split)

    @cached_property
    def regions(self) -> ScoredSide:
        """The split's regions at or above t*."""
        return ScoredSide(self.split.detections.image_id, self.stored[self.split.above])

    @cached_property
    def of_ood(self) -> ScoredSide:
        """Those of them that are out of distribution."""
        return self.regions[self.split.is_ood]

    @cached_property
    def of_ood_images(self) -> ScoredSide:
        """Images with such a region."""
        return self.of_ood.by_image()

    @property
    def unknown_score(self) -> np.ndarray:
        """Minus the scores of `regions`: higher means more likely unknown."""
        return -self.regions.scores

    @cached_property
    def is_unknown(self) -> np.ndarray:
        """Which of `regions` are flagged, bool."""
        return self.regions.scores < self.method.tau

    @cached_property
    def outcome(self) -> Outcome:
        """The outcome of regions and objects."""
        return self.split.split.match(self.is_unknown)

    @cached_property
    def paper_outcome(self) -> Outcome:
        """The outcome under protocol "paper", by which the known classes are always measured."""
        matching = self.split.matching
        if matching.protocol == "paper":
            return self.outcome
        split = OpenSetSplit.of(
            self.split.objects, self.split.detections, replace(matching, protocol="paper")
        )
        return split.match(self.is_unknown)

    @cached_property
    def pair_outcomes(self) -> tuple[Outcome, Outcome] | None:
        """The outcomes in the images of `TestSplit.pairs`, with and without unknown objects."""
        pairs = self.split.pairs
        if pairs is None:
            return None
        return pairs.match(
            self.is_unknown, self.inputs.scores(self.method.name, pairs.base) < self.method.tau
        )

    @cached_property
    def mixed_outcome(self) -> Outcome:
        """The outcome in the ID images and the split's as one set, from all stored regions."""
        return self.split.mixed.match(
            np.concatenate([self.method.stored, self.stored]) < self.method.tau
        )

"""A method's scores of an OOD split and of the ID split: the input of the groups of metrics.

Each property is computed when it is first needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from farther.evaluation.inputs import RunInputs, TestSplit
from farther.metrics import ood
from farther.metrics.open_set.outcomes import OpenSetSplit, Outcome


@dataclass(frozen=True)
class ScoredSide:
    """One side of a comparison of scores: regions or images, and their scores.

    Args:
        image_id: Image of each region, object array of shape (N,).
        scores: ndarray of shape (N,).
    """

    image_id: np.ndarray
    scores: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> ScoredSide:
        """The rows that a mask or an index selects."""
        return ScoredSide(self.image_id[rows], self.scores[rows])

    def __len__(self) -> int:
        return len(self.scores)

    def by_image(self) -> ScoredSide:
        """The images, each with the score of its least in-distribution region."""
        image_id, scores = ood.per_image(self.image_id, self.scores)
        return ScoredSide(image_id, scores)


class MethodScores:
    """A method's threshold τ, and its scores of the splits that all OOD splits are compared with.

    Args:
        inputs: The run's splits.
        name: The method's name in params.yaml.
        tau: Its threshold τ.
    """

    def __init__(self, inputs: RunInputs, name: str, tau: float):
        self.inputs = inputs
        self.name = name
        self.tau = tau

    @cached_property
    def stored_scores(self) -> np.ndarray:
        """Scores of the stored regions of the ID split."""
        return self.inputs.scores(self.name, self.inputs.id_split)

    @cached_property
    def detections(self) -> ScoredSide:
        """Regions of the ID split at or above t*."""
        scores = self.stored_scores[self.inputs.id_above_threshold]
        return ScoredSide(self.inputs.id_regions.image_id, scores)

    @cached_property
    def images(self) -> ScoredSide:
        """Images of the ID split with at least one region at or above t*."""
        return self.detections.by_image()

    @cached_property
    def full_spectrum(self) -> ScoredSide:
        """Regions at or above t* of the ID split and the shifted splits."""
        scores = self.inputs.full_spectrum_scores(self.name)
        return ScoredSide(self.inputs.full_spectrum_image_id, scores)


class ScoredSplit:
    """A method's scores of an OOD split, and the outcomes of the regions that it flags.

    Args:
        method: The method.
        split: The split.
    """

    def __init__(self, method: MethodScores, split: TestSplit):
        self.method = method
        self.split = split
        self.inputs = split.inputs
        self.settings = split.inputs.settings

    @cached_property
    def stored_scores(self) -> np.ndarray:
        """Scores of the split's stored regions."""
        return self.inputs.scores(self.method.name, self.split)

    @cached_property
    def detections(self) -> ScoredSide:
        """The split's regions at or above t*."""
        scores = self.stored_scores[self.split.above_threshold]
        return ScoredSide(self.split.detections.image_id, scores)

    @cached_property
    def ood_detections(self) -> ScoredSide:
        """The detections that are out of distribution."""
        return self.detections[self.split.is_ood]

    @cached_property
    def ood_images(self) -> ScoredSide:
        """Images with at least one detection that is out of distribution."""
        return self.ood_detections.by_image()

    @property
    def unknown_score(self) -> np.ndarray:
        """Minus the scores of `detections`: higher means more likely unknown."""
        return -self.detections.scores

    @cached_property
    def is_unknown(self) -> np.ndarray:
        """Whether each of `detections` is flagged as unknown, bool."""
        return self.detections.scores < self.method.tau

    @cached_property
    def outcome(self) -> Outcome:
        """The outcome of detections and objects."""
        return self.split.open_set.match(self.is_unknown)

    @cached_property
    def paper_outcome(self) -> Outcome:
        """The outcome under protocol "paper", by which known classes are always measured."""
        rules = self.split.matching_rules
        if rules.protocol == "paper":
            return self.outcome

        paper_rules = replace(rules, protocol="paper")
        open_set = OpenSetSplit.of(self.split.objects, self.split.detections, paper_rules)
        return open_set.match(self.is_unknown)

    @cached_property
    def pair_outcomes(self) -> tuple[Outcome, Outcome] | None:
        """The outcomes in the images of `TestSplit.pairs`, with and without unknown objects."""
        pairs = self.split.pairs
        if pairs is None:
            return None
        base_scores = self.inputs.scores(self.method.name, pairs.base)
        return pairs.match(self.is_unknown, base_scores < self.method.tau)

    @cached_property
    def mixed_outcome(self) -> Outcome:
        """The outcome of all stored regions in the ID images and the split's as one set."""
        scores = np.concatenate([self.method.stored_scores, self.stored_scores])
        return self.split.mixed.match(scores < self.method.tau)

"""A method's scores of an OOD split and of the ID split: the input of the groups of metrics.

Each property is computed when it is first needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from farther.evaluation.inputs import RunInputs, TestSplit
from farther.evaluation.threshold import StoredTau
from farther.evaluation.weights import ONCE, Weights
from farther.metrics import ood
from farther.metrics.open_set.drawn_thresholds import FlaggedSplit
from farther.metrics.open_set.outcomes import Outcome


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
        tau: Its threshold τ, in all and in each bootstrap replicate.
    """

    def __init__(self, inputs: RunInputs, name: str, tau: StoredTau):
        self.inputs = inputs
        self.name = name
        self.tau = tau.threshold
        self.taus = tau.taus

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

    def taus(self, weights: Weights) -> np.ndarray:
        """τ in each replicate, ndarray of shape (B,), or where it is the same, of shape (1,).

        Args:
            weights: Of replicates; where each image counts once, τ is the method's.
        """
        if weights.are_drawn:
            return self.method.taus
        return np.array([self.method.tau])

    def flagged(self, weights: Weights) -> FlaggedSplit:
        """The outcomes of detections and objects at the τ that goes with the weights."""
        if weights.are_drawn:
            return self._drawn
        return self._at_tau

    def paper_flagged(self, weights: Weights) -> FlaggedSplit:
        """The same under protocol "paper", by which known classes are always measured."""
        if self.split.matching_rules.protocol == "paper":
            return self.flagged(weights)
        scores = self.detections.scores
        return FlaggedSplit.of(self.split.paper_open_set, scores, self.taus(weights))

    @cached_property
    def _at_tau(self) -> FlaggedSplit:
        return FlaggedSplit.of(self.split.open_set, self.detections.scores, self.taus(ONCE))

    @cached_property
    def _drawn(self) -> FlaggedSplit:
        if len(self.method.taus) == 1:
            return self._at_tau
        return FlaggedSplit.of(self.split.open_set, self.detections.scores, self.method.taus)

    @property
    def outcome(self) -> Outcome:
        """The outcome of detections and objects."""
        return self._at_tau.outcome

    @property
    def paper_outcome(self) -> Outcome:
        """The outcome under protocol "paper"."""
        return self.paper_flagged(ONCE).outcome

    def pair_outcomes(self, weights: Weights) -> tuple[FlaggedSplit, FlaggedSplit] | None:
        """The outcomes in the images of `TestSplit.pairs`, with and without unknown objects.

        Args:
            weights: See `taus`.
        """
        pairs = self.split.pairs
        if pairs is None:
            return None
        base_scores = self.inputs.scores(self.method.name, pairs.base)
        return pairs.match(self.detections.scores, base_scores, self.taus(weights))

    @cached_property
    def mixed_outcome(self) -> Outcome:
        """The outcome of all stored regions in the ID images and the split's as one set."""
        return self.split.mixed.match(self._mixed_scores < self.method.tau)

    def mixed_on_unknown(self, weights: Weights) -> FlaggedSplit:
        """Of these, the outcomes of the regions on unknown objects.

        Args:
            weights: See `taus`.
        """
        mixed = self.split.mixed
        scores = self._mixed_scores[mixed.rows][mixed.is_on_unknown]
        return FlaggedSplit.of(mixed.on_unknown, scores, self.taus(weights))

    @cached_property
    def _mixed_scores(self) -> np.ndarray:
        """Scores of the stored regions of the ID split and, after them, of this one."""
        return np.concatenate([self.method.stored_scores, self.stored_scores])

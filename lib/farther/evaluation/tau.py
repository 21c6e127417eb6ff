"""The threshold τ of each method, chosen from its stored scores of the ID validation split."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import FittedMethod
from farther.evaluation.threshold import StoredTau
from farther.methods.tau import threshold
from farther.scoring.inputs import TauSettings


class Calibration:
    """The detections that τ is chosen from.

    They are those of a split at or above t*, without those labelled unknown.

    Args:
        inputs: The run's inputs.
        settings: The split, the fraction to keep, and the rule.
    """

    def __init__(self, inputs: RunInputs, settings: TauSettings):
        self._inputs = inputs
        self.settings = settings

    @cached_property
    def _split(self) -> RunSplit:
        return RunSplit(self._inputs.files, self.settings.calibration_split)

    @cached_property
    def _is_used(self) -> np.ndarray:
        """Whether τ is chosen from each stored region of the split, bool."""
        regions = self._split.regions()
        return (regions.score >= self._inputs.threshold) & ~regions.is_labelled_unknown

    def tau_of(self, name: str, fitted: FittedMethod) -> StoredTau:
        """τ of a method: its own, or the one that keeps the fraction of the scores.

        Args:
            name: The method's name in params.yaml.
            fitted: The fitted method.

        Raises:
            DataError: the split's scores are absent, or of other regions.
            ParameterError: see `farther.methods.threshold`.
        """
        if fitted.fixed_threshold is not None:
            return StoredTau(threshold=fitted.fixed_threshold, rule="fixed", keep=None, regions=0)

        scores = self._inputs.scores(name, self._split)[self._is_used]
        rule = self.settings.threshold_rule
        tau = threshold(scores, self.settings.keep, rule)
        return StoredTau(threshold=tau, rule=rule, keep=self.settings.keep, regions=len(scores))

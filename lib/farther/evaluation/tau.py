"""The threshold τ of each method, chosen from its stored scores of the ID validation split."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import FittedMethod
from farther.evaluation.threshold import StoredTau
from farther.methods.tau import threshold, weighted_thresholds
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import RowWeights, blocks
from farther.scoring.inputs import TauSettings
from farther.tables.files import digest


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
        return self._is_used_at(self._inputs.threshold)

    def _is_used_at(self, operating: float) -> np.ndarray:
        """The same at another t*."""
        regions = self._split.regions()
        return (regions.score >= operating) & ~regions.is_labelled_unknown

    @cached_property
    def draws(self) -> ImageDraws | None:
        """Draws of the split's images, the same for all methods; None where τ stays fixed.

        They are independent of those of other splits, unless the split is the ID split itself.
        """
        settings = self._inputs.settings
        if not settings.replicate_thresholds:
            return None
        if self._split.name == self._inputs.id_split.name:
            return self._inputs.id_draws
        return settings.draws(self._split.images, settings.seed + 2)

    @cached_property
    def _weights(self) -> RowWeights | None:
        """Weights of the detections that τ is chosen from."""
        if self.draws is None:
            return None
        return self.draws.rows(self._split.regions().image_id[self._is_used])

    @property
    def images_digest(self) -> str:
        """Hash of the names of the images that are drawn; "" where τ stays fixed."""
        if self.draws is None:
            return ""
        return digest("\0".join(self.draws.names))

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
        return StoredTau(
            threshold=tau,
            rule=rule,
            keep=self.settings.keep,
            regions=len(scores),
            replicates=self._replicates(scores, tau),
        )

    def tau_at(self, name: str, fitted: FittedMethod, operating: float) -> float | None:
        """The τ that a method would have at another t*; None without a detection to take it from.

        Args:
            name, fitted: See `tau_of`.
            operating: t*.
        """
        if fitted.fixed_threshold is not None:
            return fitted.fixed_threshold
        scores = self._inputs.scores(name, self._split)[self._is_used_at(operating)]
        if not len(scores):
            return None
        return threshold(scores, self.settings.keep, self.settings.threshold_rule)

    def _replicates(self, scores: np.ndarray, tau: float) -> list[float]:
        """τ in each bootstrap replicate; see `StoredTau`.

        Args:
            scores: The scores that τ is chosen from.
            tau: τ, which replicates without any of these scores keep.
        """
        if self._weights is None:
            return []

        # Sorted once, as sorting again what is sorted takes hardly any time.
        falling = np.argsort(-scores, kind="stable")
        sorted_scores = scores[falling]
        sorted_weights = self._weights[falling]
        taus = []
        for block in blocks(len(sorted_weights.of_images), len(scores)):
            weights = sorted_weights.in_block(block)
            taus.append(
                weighted_thresholds(
                    sorted_scores, weights, self.settings.keep, self.settings.threshold_rule
                )
            )
        drawn_taus = np.concatenate(taus)
        drawn_taus[np.isnan(drawn_taus)] = tau
        replicates: list[float] = drawn_taus.tolist()
        return replicates

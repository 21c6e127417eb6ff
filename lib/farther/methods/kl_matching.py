"""Match with the typical class probabilities."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.logits import ClassesMethod, class_columns, class_logits, log_sum_exp, softmax
from farther.registry import STRICT
from farther.tables import Regions


@register("kl_matching")
@dataclass(config=STRICT, kw_only=True)
class KLMatching(ClassesMethod):
    """Minus the Kullback-Leibler divergence from the typical probabilities of the nearest class.

    A class is typical in the mean of the probabilities of the regions where it has the largest; classes that never have
    it are left out.

    Formula:
        score = − min_k Σ_c p_c log(p_c / d_kc), with p = softmax(c), d_k the mean of p over regions whose largest is k

    Source:
        Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", 2022 ("KLM" of OpenOOD).
    """

    title: ClassVar[str] = "KL matching"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def _fit(self, regions: RegionsLike) -> None:
        classes = len(class_columns(regions.header, self.background))
        sums, counts = np.zeros((classes, classes)), np.zeros(classes)
        for batch in self._batches(regions):
            probabilities = softmax(class_logits(batch, self.background))
            members = (probabilities.argmax(axis=1) == np.arange(classes)[:, None]).astype(np.float64)
            sums += members @ probabilities
            counts += members.sum(axis=1)
        typical = sums[counts > 0] / counts[counts > 0, None]
        self.log_typical_ = np.log(np.maximum(typical, np.finfo(np.float64).tiny))

    def _score(self, regions: Regions) -> np.ndarray:
        logits = class_logits(regions, self.background)
        logs = logits - log_sum_exp(logits)[:, None]
        probabilities = np.exp(logs)
        return -((probabilities * logs).sum(axis=1)[:, None] - probabilities @ self.log_typical_.T).min(axis=1)

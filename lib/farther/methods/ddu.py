"""Deep deterministic uncertainty: density under one Gaussian a class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat
from pydantic.dataclasses import dataclass

from farther.methods.base import FitError, RegionsLike, register
from farther.methods.logits import log_sum_exp
from farther.methods.parts.gaussians import cholesky, class_covariances, log_densities
from farther.methods.parts.vectors import VectorMethod, class_means
from farther.registry import STRICT
from farther.tables import Regions


@register("ddu")
@dataclass(config=STRICT, kw_only=True)
class DDU(VectorMethod):
    """The log density of the features under a mixture of one Gaussian a class, with full covariances.

    Classes with fewer than two detections are left out. The state holds a D × D matrix a class. What is added to the
    covariances' diagonals so that they factorise is stored as `jitter_`: with fewer detections than dimensions it
    decides the scores.

    Formula:
        score = log Σ_c π_c N(z; μ_c, Σ_c + ε I), π_c = N_c / N

    Source:
        Mukhoti et al., "Deep Deterministic Uncertainty: A New Simple Baseline", 2023; FMIYC, Eq. 22 and 23.

    Args:
        jitter: ε; None takes the smallest of 0, 10⁻²⁰, 10⁻¹⁹ … 1 with which all covariances factorise.
        protocol: "paper": classes weigh by their share of the detections, covariances are divided by N_c;
            "published-code": all weigh 1, covariances are divided by N_c − 1.
    """

    title: ClassVar[str] = "DDU"
    jitter: NonNegativeFloat | None = None
    protocol: Literal["paper", "published-code"] = "paper"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "labels"})

    def _fit(self, regions: RegionsLike) -> None:
        passes = self._passes(regions)
        counts, means = class_means(passes, len(regions.header.classes))
        kept = np.flatnonzero(counts > 1)
        if len(kept) == 0:
            raise FitError(f"{self.name}: no class has two detections to take a covariance of")
        self.means_ = means[kept]
        covariances = class_covariances(self._members(regions), counts, means, kept)
        if self.protocol == "paper":
            self.log_weights_ = np.log(counts[kept] / counts.sum())
        else:
            self.log_weights_ = np.zeros(len(kept))
            covariances *= (counts[kept] / (counts[kept] - 1))[:, None, None]
        self.factors_, self.jitter_ = cholesky(covariances, self.jitter)

    def _members(self, regions: RegionsLike) -> Iterator[tuple[int, np.ndarray]]:
        for batch in self._batches(regions):
            for label in np.unique(batch.label):
                yield int(label), self._vectors(batch[batch.label == label])

    def _score(self, regions: Regions) -> np.ndarray:
        return log_sum_exp(log_densities(self._vectors(regions), self.means_, self.factors_) + self.log_weights_)

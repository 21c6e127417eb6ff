"""Match with the mean class probabilities."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from farther.methods.arrays import Array, log_sum_exp, softmax
from farther.methods.base import Method, Publication, RegionsLike, register
from farther.methods.linear_algebra import add_class_sums
from farther.methods.logits import Background, class_columns, class_logits
from farther.methods.publications import SCALING
from farther.methods.rows import Rows


@register("kl_matching")
class KLMatching(Method):
    """Minus the smallest Kullback-Leibler divergence from the mean probabilities of a class.

    The mean is taken over the training regions whose largest probability is that class's; classes
    without such regions are left out.

    Formula:
        score = − min_k Σ_c p_c log(p_c / d_kc), with p = softmax(z), d_k the mean of p over regions
        whose largest is k

    Args:
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        log_typical_: log d, ndarray of shape (K, C), one row per class with regions.

    References:
        Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", 2022,
        arXiv:1911.11132. Code: https://github.com/hendrycks/anomaly-seg

        "KLM" of OpenOOD.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(logits=[[0.0, 5.0], [5.0, 0.0]])
        >>> (create("kl_matching").fit(train).score(train) + 0.0).round(
        ...     9
        ... )  # each is the mean of its class
        array([0., 0.])
    """

    publication: ClassVar[Publication | None] = SCALING
    title: ClassVar[str] = "KL matching"
    aliases: ClassVar[tuple[str, ...]] = ("KLM",)
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        classes = len(class_columns(regions.header, self.background))
        sums = np.zeros((classes, classes))
        counts = np.zeros(classes)
        for block in self._blocks(regions):
            p = softmax(class_logits(block, self.background))
            largest = p.argmax(axis=1)
            add_class_sums(sums, p, largest)
            counts += np.bincount(largest, minlength=classes)
        typical = sums[counts > 0] / counts[counts > 0, None]
        self.log_typical_ = np.log(np.maximum(typical, np.finfo(np.float64).tiny))

    def _score(self, rows: Rows) -> Array:
        z = rows.logits(self.background)
        xp = rows.xp
        log_p = z - log_sum_exp(z)[:, None]
        p = xp.exp(log_p)
        return -xp.min(xp.sum(p * log_p, axis=1)[:, None] - p @ self.log_typical_.T, axis=1)

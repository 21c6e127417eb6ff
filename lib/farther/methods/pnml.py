"""Regret of the predictive normalised maximum likelihood."""

from __future__ import annotations

import math
from typing import ClassVar

from farther.methods.arrays import Array, normalised, softmax, squared_norms, whitened
from farther.methods.base import FitError, Method, Publication, RegionsLike, register
from farther.methods.linear_algebra import scatter_matrix, whitening
from farther.methods.logits import Background, class_columns
from farther.methods.rows import Rows


@register("pnml")
class PNML(Method):
    """How little the last layer could change its mind if it learned the region with any label.

    The regret is the logarithm of the sum of the probabilities that the classes would get, each if
    the region had been learned with it. It is large where features lie in directions that training
    features have hardly any part in, and the prediction is uncertain.

    Formula:
        score = −log Σ_c p_c^s / (p_c^s + 1 − p_c) / log C; s = 1 / (1 + uᵀ (Σ_i u_i u_iᵀ)⁺ u), p =
        softmax(W u + b), u = h / ‖h‖, i the training regions, C the number of classes. The paper
        writes p_c / (p_c + p_c^(1 − s) (1 − p_c)) for the summands, which is the same

    Args:
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        whitening_: A with A Aᵀ = (Σ_i u_i u_iᵀ)⁺, ndarray of shape (D, r).

    References:
        Bibas et al., "Single Layer Predictive Normalized Maximum Likelihood for
        Out-of-Distribution Detection", 2021, arXiv:2110.09246. Code:
        https://github.com/kobybibas/pnml_ood_detection

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(features=[[1.0, 0.0], [0.0, 1.0]])
        >>> pnml = create("pnml").fit(train)  # s = ½ in all directions
        >>> pnml.score(toy_regions(features=[[1.0, 1.0]])).round(4)  # p = ½: −log₂(2 · 0.5858)
        array([-0.2284])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Single Layer Predictive Normalized Maximum Likelihood for Out-of-Distribution Detection",
        2021,
        "https://arxiv.org/abs/2110.09246",
        code="https://github.com/kobybibas/pnml_ood_detection",
    )
    title: ClassVar[str] = "pNML"
    aliases: ClassVar[tuple[str, ...]] = ("Predictive normalized maximum likelihood",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        if len(class_columns(regions.header, self.background)) < 2:
            raise FitError(f"{self.name}: one class has no regret")
        scatter = scatter_matrix(normalised(h) for h, _ in self._pass(regions))
        self.whitening_ = whitening(scatter)

    def _score(self, rows: Rows) -> Array:
        xp = rows.xp
        weight, bias = rows.last_layer(self.background)
        u = normalised(self._vectors(rows))
        p = softmax(u @ weight.T + bias)
        power = 1 / (1 + squared_norms(whitened(u, self.whitening_)))
        learned = p ** power[:, None]
        of_classes = xp.sum(learned / (learned + (1 - p)), axis=1)
        return -xp.log(of_classes) / rows.number(math.log(int(p.shape[1])))

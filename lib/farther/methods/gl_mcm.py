"""Global and local maximum concept matching."""

from __future__ import annotations

from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat

from farther.methods.arrays import Array
from farther.methods.base import Publication, register
from farther.methods.mcm import TextMethod
from farther.methods.rows import Rows
from farther.tables.regions import LAYER


@register("gl_mcm")
class GlMcm(TextMethod):
    """MCM of an image, plus MCM of its best patch: for images in which a known object is small.

    A pass of kind `crops` with `patches: true` has the embedding of the best patch, `latent.patch`:
    that with the largest probability of a class at temperature 1. Negative prompts do not count.

    Formula:
        score = max_c p_c(h) + λ max_c p_c(h_patch), with p(h) = softmax(cos(h, w_c) / τ), w_c the
        last layer's row of c

    Args:
        temperature: τ, 1 in the paper.
        weight: λ, 1 in the paper.

    References:
        Miyai et al., "GL-MCM: Global and Local Maximum Concept Matching for Zero-Shot
        Out-of-Distribution Detection", 2023, arXiv:2304.04521. Code:
        https://github.com/AtsuMiyai/GL-MCM

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> patch = {"latent.patch": [[0.0, 2.0]]}
        >>> create("gl_mcm").score(toy_regions(features=[[3.0, 0.0]], **patch)).round(
        ...     4
        ... )  # 2 e / (e + 1)
        array([1.4621])
    """

    publication: ClassVar[Publication | None] = Publication(
        "GL-MCM: Global and Local Maximum Concept Matching for Zero-Shot Out-of-Distribution "
        "Detection",
        2023,
        "https://arxiv.org/abs/2304.04521",
        code="https://github.com/AtsuMiyai/GL-MCM",
    )
    title: ClassVar[str] = "GL-MCM"
    aliases: ClassVar[tuple[str, ...]] = ("Global-local MCM",)
    layer: ClassVar[tuple[str, ...]] = ("features", "patch")
    temperature: PositiveFloat = 1.0
    weight: NonNegativeFloat = 1.0

    def _score(self, rows: Rows) -> Array:
        whole = self._largest_probability(rows, "features", self.temperature)
        patch = self._largest_probability(rows, f"{LAYER}patch", self.temperature)
        return whole + rows.number(self.weight) * patch

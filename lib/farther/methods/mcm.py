"""Maximum concept matching."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat

from farther.methods.arrays import Array, cast, largest_probability, normalised, squared_norms
from farther.methods.base import Method, parameters, register
from farther.methods.rows import Rows


@parameters
class TextMethod(Method):
    """Base of the scores by the cosines of image and text embeddings."""

    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})

    def _cosines(self, rows: Rows, column: str = "features") -> Array:
        """Cosines of each embedding with each text, shape (N, K); 0 for an embedding of zeros."""
        embeddings = cast(rows.array(column), rows.dtype)
        products = embeddings @ self._unit_text(rows).T
        lengths = squared_norms(embeddings)[:, None] ** 0.5
        return products / (lengths + (lengths == 0))

    def _unit_text(self, rows: Rows) -> Array:
        """The rows of the last layer at norm 1, shape (K, D).

        Arrays are scaled once, not for each part of the rows.
        """
        weight = rows.weight
        if not isinstance(weight, np.ndarray):
            return normalised(weight)
        scaled: tuple[np.ndarray, np.ndarray] | None = vars(self).get("_text")
        if scaled is None or scaled[0] is not weight:
            scaled = (weight, normalised(weight.astype(np.float64)))
            vars(self)["_text"] = scaled
        return scaled[1]


@register("mcm")
class MCM(TextMethod):
    """The largest class probability by cosines of image and text embeddings.

    Of an image's embedding and those of the classes' texts.

    The rows of the last layer are the text embeddings, whatever they are scaled by, as those of a
    pass of kind `crops` and of CLIP as a classifier are. Negative prompts do not count.

    Formula:
        score = max_c p_c, with p = softmax(cos(h, w_c) / τ), w_c the last layer's row of class c

    Args:
        temperature: τ, 1 in the paper. CLIP's own is 1 / its logit scale, with which MCM is `msp`.

    References:
        Ming et al., "Delving into Out-of-Distribution Detection with Vision-Language
        Representations", 2022, arXiv:2211.13445, Eq. 1. Code:
        https://github.com/deeplearning-wisc/MCM

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("mcm").score(toy_regions(features=[[3.0, 0.0]])).round(4)  # e / (e + 1)
        array([0.7311])
    """

    title: ClassVar[str] = "MCM"
    aliases: ClassVar[tuple[str, ...]] = ("Maximum concept matching",)
    temperature: PositiveFloat = 1.0

    def _score(self, rows: Rows) -> Array:
        cosines = rows.counted(self._cosines(rows), "drop")
        if self.temperature != 1:
            cosines = cosines / rows.number(self.temperature)
        return largest_probability(cosines)

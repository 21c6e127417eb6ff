"""Maximum concept matching."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat

from farther.methods.base import Method, parameters, register
from farther.methods.linear_algebra import normalised
from farther.methods.logits import class_columns, softmax
from farther.tables import Regions


@parameters
class TextMethod(Method):
    """Base of the scores by the cosines of image and text embeddings."""

    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})

    def _cosines(self, regions: Regions, column: str = "features") -> np.ndarray:
        """Cosines of vectors, by their column, and the rows of the last layer, ndarray of shape (n, K), float64."""
        weight = regions.weight
        assert weight is not None  # in `needs`
        kept = getattr(self, "_text", None)
        if kept is None or kept[0] is not weight:  # scaled once, not for each part of the rows
            kept = self._text = (weight, normalised(weight.astype(np.float64)))
        vectors: np.ndarray = regions.array(column)  # type: ignore[assignment]  # it is in `inputs`
        found: np.ndarray = normalised(vectors.astype(np.float64)) @ kept[1].T
        return found


@register("mcm")
class MCM(TextMethod):
    """The largest class probability by the cosines of an image's embedding and the classes' text embeddings.

    The rows of the last layer are the text embeddings, whatever they are scaled by, as those of a pass of kind `crops`
    and of CLIP as a classifier are. Negative prompts do not count.

    Formula:
        score = max_c p_c, with p = softmax(cos(h, w_c) / τ), w_c the last layer's row of class c

    Args:
        temperature: τ, 1 in the paper. CLIP's own is 1 / its logit scale, with which MCM is `msp`.

    References:
        Ming et al., "Delving into Out-of-Distribution Detection with Vision-Language Representations", 2022,
        arXiv:2211.13445, Eq. 1. Code: https://github.com/deeplearning-wisc/MCM

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("mcm").score(toy_regions(features=[[3.0, 0.0]])).round(4)  # e / (e + 1)
        array([0.7311])
    """

    title: ClassVar[str] = "MCM"
    temperature: PositiveFloat = 1.0

    def _score(self, regions: Regions) -> np.ndarray:
        cosines = self._cosines(regions)[:, class_columns(regions.header, "drop")]
        return softmax(cosines / self.temperature).max(axis=1)

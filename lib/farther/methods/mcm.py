"""Maximum concept matching."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass

from farther.methods.base import Method, register
from farther.methods.linear_algebra import normalised
from farther.methods.logits import class_columns, softmax
from farther.registry import STRICT
from farther.tables import Regions


@register("mcm")
@dataclass(config=STRICT, kw_only=True)
class MCM(Method):
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
    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})
    temperature: PositiveFloat = 1.0

    def _score(self, regions: Regions) -> np.ndarray:
        cosines = text_cosines(regions, self._vectors(regions))
        return softmax(cosines[:, class_columns(regions.header, "drop")] / self.temperature).max(axis=1)


def text_cosines(regions: Regions, vectors: np.ndarray) -> np.ndarray:
    """Cosines of vectors and the rows of the last layer, ndarray of shape (n, K), float64.

    Args:
        regions: Of this header.
        vectors: ndarray of shape (n, D), which is overwritten.
    """
    assert regions.weight is not None  # the methods need it
    return normalised(vectors) @ normalised(regions.weight.astype(np.float64)).T

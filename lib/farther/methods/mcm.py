"""Maximum concept matching."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from farther.methods.arrays import Array, cast, largest_probability, normalised, squared_norms
from farther.methods.base import Method, Publication, parameters, register
from farther.methods.rows import MAX_CLASSES_TRANSPOSED, Rows, class_columns

#: Values of embeddings whose float64 copy stays in the cache of a core.
VALUES_IN_CACHE = 1 << 18


@parameters
class TextMethod(Method):
    """Base of the scores by the cosines of image and text embeddings."""

    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})

    def _cosines(self, rows: Rows, column: str = "features") -> Array:
        """Cosines of each embedding with each text, shape (N, K); 0 for an embedding of zeros."""
        return cosines(rows.array(column), self._unit_text(rows), rows.dtype)

    def _largest_probability(self, rows: Rows, column: str, temperature: float) -> Array:
        """max_c p_c with p = softmax(cos / τ) over the classes alone, shape (N,)."""
        text = self._unit_text(rows)
        if isinstance(text, np.ndarray):
            counted = class_columns(rows.header, "drop")
            if len(counted) < len(text):
                text = text[counted]
            of_classes = cosines(rows.array(column), text, rows.dtype)
        else:
            of_classes = rows.counted(self._cosines(rows, column), "drop")
        if temperature != 1:
            of_classes = of_classes / rows.number(temperature)
        return largest_probability(of_classes)

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


def cosines(embeddings: Array, unit_text: Array, dtype: Any) -> Array:
    """Cosines of embeddings (N, D) and texts of norm 1 (K, D), shape (N, K), in `dtype`."""
    if not isinstance(embeddings, np.ndarray):
        embeddings = cast(embeddings, dtype)
        lengths = squared_norms(embeddings)[:, None] ** 0.5
        return embeddings @ unit_text.T / (lengths + (lengths == 0))
    count, width = embeddings.shape
    # Of few classes, classes are contiguous in memory, as in `Rows.logits`.
    order: Literal["C", "F"] = "C"
    if len(unit_text) <= MAX_CLASSES_TRANSPOSED:
        order = "F"
    result = np.empty((count, len(unit_text)), dtype, order=order)
    step = max(1, VALUES_IN_CACHE // width)
    for first in range(0, count, step):
        part = embeddings[first : first + step].astype(dtype)
        lengths = np.sqrt(squared_norms(part))[:, None]
        lengths[lengths == 0] = 1
        np.divide(part @ unit_text.T, lengths, out=result[first : first + step])
    return result


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

    publication: ClassVar[Publication | None] = Publication(
        "Delving into Out-of-Distribution Detection with Vision-Language Representations",
        2022,
        "https://arxiv.org/abs/2211.13445",
        code="https://github.com/deeplearning-wisc/MCM",
    )
    title: ClassVar[str] = "MCM"
    aliases: ClassVar[tuple[str, ...]] = ("Maximum concept matching",)
    temperature: PositiveFloat = 1.0

    def _score(self, rows: Rows) -> Array:
        return self._largest_probability(rows, "features", self.temperature)

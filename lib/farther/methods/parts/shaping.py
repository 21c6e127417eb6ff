"""Scores that change a feature, send it through the last layer again, and take the energy of the logits."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike
from farther.methods.logits import ClassesMethod, last_layer, log_sum_exp
from farther.methods.parts.quantiles import percentile
from farther.methods.parts.vectors import VectorMethod
from farther.registry import STRICT
from farther.tables import Regions

#: A percentage that leaves something on either side.
Percentile = Annotated[float, Field(gt=0, lt=100)]
#: exp of more than this may overflow when it is multiplied by features and weights.
LARGEST_EXPONENT = 80.0


@dataclass(config=STRICT, kw_only=True)
class ShapingMethod(ClassesMethod, VectorMethod):
    """Base of the scores that take the energy of changed features."""

    needs: ClassVar[frozenset[str]] = frozenset({"features", "last_layer"})

    def _score(self, regions: Regions) -> np.ndarray:
        weight, bias = last_layer(regions, self.background)
        return log_sum_exp(self._shaped(self._vectors(regions)) @ weight.T + bias)

    def _shaped(self, vectors: np.ndarray) -> np.ndarray:
        """The changed features, ndarray of shape (n, D); may overwrite what it is given."""
        raise NotImplementedError(type(self).__name__)

    def _activation_percentile(self, regions: RegionsLike, percent: float) -> float:
        """A percentile of all training activations, of all features together."""
        return percentile(lambda: (getattr(batch, self.column) for batch in self._batches(regions)), percent)


def kept_count(values: int, percent: float) -> int:
    """How many of so many values the largest (100 − percent) per cent are."""
    return values - round(values * percent / 100)


def largest(vectors: np.ndarray, percent: float) -> np.ndarray:
    """Which values are among the largest (100 − percent) per cent of their row: a mask of shape (n, D)."""
    count = kept_count(vectors.shape[1], percent)
    if count == 0:
        return np.zeros(vectors.shape, bool)
    mask = vectors >= largest_values(vectors, count)[:, :1]
    tied = np.flatnonzero(mask.sum(axis=1) > count)  # rare, and dearer: which of the equal values are kept is arbitrary
    mask[tied] = False
    mask[tied[:, None], np.argpartition(vectors[tied], -count, axis=1)[:, -count:]] = True
    return mask


def largest_values(vectors: np.ndarray, count: int) -> np.ndarray:
    """The `count` largest values of each row, the smallest of them first: ndarray of shape (n, count), float32.

    Features are stored as float32 or less, so nothing is lost. They are sorted, not partitioned: NumPy sorts float32
    with vector instructions, which makes it the faster of the two.
    """
    ordered = vectors.astype(np.float32)
    ordered.sort(axis=1)
    return ordered[:, vectors.shape[1] - count :]


def sharpening(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """exp(s1 / s2) of each row, ndarray of shape (n, 1), from its sums before and after pruning.

    s1 / s2 is taken for 0 where s2 is 0, and for at most 80, so that the result is a number one can calculate with.
    """
    before, after = before[:, None], after[:, None]
    ratio = np.divide(before, after, out=np.zeros_like(before), where=after != 0)
    return np.exp(np.minimum(ratio, LARGEST_EXPONENT))

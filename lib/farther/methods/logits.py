"""The one rule for what a score reads of the logits.

**Background.** A head may carry a logits column for "no object". The benchmark's paper defines the logits as one value
per in-distribution class (FMIYC, Appendix F.1), so by default that column, and its row of the last layer, is left out
(`background="drop"`). With `background="keep"` it is one more class, as some methods of the published code treat it.
Where a head has no such column the parameter changes nothing.

**Sigmoid heads.** Scores are defined on a softmax over the classes (Eq. 11), and the published code takes it of the
stored logits of sigmoid detectors too. So does `activation="softmax"`, the default. With `activation="detector"` the
detector's own activation is used: for a sigmoid head each class is then a yes-or-no question of its own.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import Method, RegionsLike
from farther.registry import STRICT
from farther.tables import Header, Regions

Background = Literal["drop", "keep"]
Activation = Literal["softmax", "detector"]

#: Up to here exponentials, and sums of many, are far from overflow and from losing digits.
LARGEST_EXPONENT = 500.0


@dataclass(config=STRICT, kw_only=True)
class ClassesMethod(Method):
    """Base of the scores that read logits, or the last layer that makes them, one a class.

    Args:
        background: "drop" leaves the background column out, "keep" takes it for one more class.
    """

    background: Background = "drop"


@dataclass(config=STRICT, kw_only=True)
class LogitsMethod(ClassesMethod):
    """Base of the scores that are a function of a region's logits, and need no fitting.

    Args:
        activation: "softmax" over the classes, or "detector": the head's own (sigmoid for a sigmoid head).
    """

    activation: Activation = "softmax"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def _score(self, regions: Regions) -> np.ndarray:
        logits = class_logits(regions, self.background)
        return self._sigmoid_score(logits) if self._is_sigmoid(regions) else self._softmax_score(logits)

    def _is_sigmoid(self, regions: Regions) -> bool:
        """Whether each class is to be taken for a yes-or-no question of its own."""
        return self.activation == "detector" and regions.activation == "sigmoid"

    def _softmax_score(self, logits: np.ndarray) -> np.ndarray:
        raise NotImplementedError(type(self).__name__)

    def _sigmoid_score(self, logits: np.ndarray) -> np.ndarray:
        raise NotImplementedError(type(self).__name__)


def class_columns(header: Header, background: Background) -> np.ndarray:
    """Indices of the logits columns that count as classes, ndarray of shape (C,)."""
    columns = np.arange(len(header.classes))
    if background == "drop" and header.background_index is not None:
        columns = np.delete(columns, header.background_index)
    return columns


def class_logits(regions: Regions, background: Background) -> np.ndarray:
    """The logits of the classes, a copy, ndarray of shape (N, C), float64.

    Classes are contiguous in memory, not regions: what is taken of all classes of a region is then vectorised.
    """
    return _chosen(regions, background, "F")


def energies(regions: Regions, background: Background) -> np.ndarray:
    """log Σ exp of the logits of the classes, ndarray of shape (N,), float64."""
    return log_sum_exp(_chosen(regions, background, "C"))


def _chosen(regions: Regions, background: Background, order: Literal["C", "F"]) -> np.ndarray:
    logits, index = regions.logits, regions.header.background_index
    if background == "keep" or index is None:
        return logits.astype(np.float64, order=order)
    chosen = np.empty((len(logits), logits.shape[1] - 1), order=order)
    chosen[:, :index], chosen[:, index:] = logits[:, :index], logits[:, index + 1 :]
    return chosen


def last_layer(regions: RegionsLike, background: Background) -> tuple[np.ndarray, np.ndarray]:
    """The last layer's rows of the classes: weight of shape (C, D) and bias of shape (C,), float64.

    Raises:
        ValueError: the header has no last layer; methods that call this say so in `needs`.
    """
    weight, bias = regions.header.weight, regions.header.bias
    if weight is None or bias is None:
        raise ValueError("the header has no last layer")
    columns = class_columns(regions.header, background)
    return weight[columns].astype(np.float64), bias[columns].astype(np.float64)


def log_sum_exp(values: np.ndarray) -> np.ndarray:
    """log Σ exp over the last axis, without overflow. SciPy's is the same; this one imports nothing."""
    if values.size and values.min() > -LARGEST_EXPONENT and values.max() < LARGEST_EXPONENT:
        return np.log(row_sums(np.exp(values)))  # half the cost: no search for the largest of each row
    largest = values.max(axis=-1)
    powers = values - largest[..., None]
    np.exp(powers, out=powers)
    return np.log(row_sums(powers)) + largest


def row_sums(values: np.ndarray) -> np.ndarray:
    """Sums over the last axis, by a matrix product: for short rows several times as fast as `sum`."""
    return values @ np.ones(values.shape[-1])


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis (FMIYC, Eq. 11)."""
    powers = logits - logits.max(axis=-1, keepdims=True)
    np.exp(powers, out=powers)
    powers *= (1 / row_sums(powers))[..., None]
    return powers


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(−x)), without overflow, and exact to the last digits near 0 too."""
    return np.exp(-np.logaddexp(0.0, -logits))


def softplus(logits: np.ndarray) -> np.ndarray:
    """log(1 + exp(x)), without overflow."""
    return np.logaddexp(0.0, logits)

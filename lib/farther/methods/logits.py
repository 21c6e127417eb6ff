"""Logits and the last layer, as the methods read them.

**Background.** A head may have a logits column for "no object". FMIYC (arXiv:2506.14008, Appendix F.1) defines the
logits as one value per in-distribution class, so by default that column, and its row of the last layer, is left out
(`background="drop"`). With `background="keep"` it counts as one more class, as in the published codes of FMIYC (msp,
energy, gen, vim, ash, react, dice, dice_react) and SAOD (entropy, dempster_shafer): those methods keep it with
`protocol="published-code"`. Where a head has no such column the parameter changes nothing.

**Unknown classes.** Columns of classes that mean unknown objects (`Header.unknown_columns`) are always left out.

**Sigmoid heads.** Scores are defined on a softmax over the classes (FMIYC, Eq. 11), and the published code applies it
to the stored logits of sigmoid detectors too; so does `activation="softmax"`, the default. With `activation="detector"`
the detector's own activation is used: for a sigmoid head each class is then a binary decision. Where the detector
stored logarithms of the sigmoid's values (the header's activation is "exp", as in the published code of YOLOv8), a
softmax is taken of these, but with `activation="detector"` of the logits before the sigmoid.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from farther.methods.base import Method, RegionsLike, parameters
from farther.tables import Header, Regions

Background = Literal["drop", "keep"]
Activation = Literal["softmax", "detector"]
Protocol = Literal["paper", "published-code"]

#: Below this, exponentials and sums of many of them neither overflow nor lose digits.
LARGEST_EXPONENT = 500.0


@parameters
class LogitsMethod(Method):
    """Base of the methods whose published code counts the background as a class.

    Args:
        protocol: "paper", or "published-code", with which the background logit counts.
        background: "drop" leaves the background logit out, "keep" counts it as one more class; None takes the
            protocol's.
    """

    protocol: Protocol = "paper"
    background: Background | None = None

    @property
    def counted_background(self) -> Background:
        """`background`, or the protocol's where it is None."""
        return self.background or ("drop" if self.protocol == "paper" else "keep")


def class_columns(header: Header, background: Background) -> np.ndarray:
    """Indices of the logits columns that count as classes, ndarray of shape (C,)."""
    left_out = [*header.unknown_columns]
    if background == "drop" and header.background_index is not None:
        left_out.append(header.background_index)
    return np.delete(np.arange(len(header.classes)), left_out)


def class_logits(regions: Regions, background: Background, activation: Activation = "softmax") -> np.ndarray:
    """Logits z of the classes, ndarray of shape (N, C), float64: a copy.

    Classes are contiguous in memory, not regions, which vectorises reductions over classes.
    """
    z = _class_logits(regions, background, "F")
    if activation == "detector" and regions.activation == "exp":
        z = np.minimum(z, -np.finfo(np.float32).tiny)
        return z - np.log(-np.expm1(z))
    return z


def energy(regions: Regions, background: Background) -> np.ndarray:
    """log Σ_c exp(z_c), ndarray of shape (N,), float64."""
    return log_sum_exp(_class_logits(regions, background, "C"))


def _class_logits(regions: Regions, background: Background, order: Literal["C", "F"]) -> np.ndarray:
    logits, index = regions.logits, regions.header.background_index
    if regions.header.unknown_columns:
        return logits[:, class_columns(regions.header, background)].astype(np.float64, order=order)
    if background == "keep" or index is None:
        return logits.astype(np.float64, order=order)
    kept = np.empty((len(logits), logits.shape[1] - 1), order=order)
    kept[:, :index], kept[:, index:] = logits[:, :index], logits[:, index + 1 :]
    return kept


def is_sigmoid(regions: Regions, activation: Activation) -> bool:
    """True if each class is to be treated as a binary decision."""
    return activation == "detector" and regions.activation in ("sigmoid", "exp")


def last_layer(regions: RegionsLike, background: Background) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the classes in the last layer: weight W of shape (C, D) and bias b of shape (C,), float64.

    Raises:
        ValueError: the header has no last layer; methods that call this declare it in `needs`.
    """
    weight, bias = regions.header.weight, regions.header.bias
    if weight is None or bias is None:
        raise ValueError("the header has no last layer")
    columns = class_columns(regions.header, background)
    return weight[columns].astype(np.float64), bias[columns].astype(np.float64)


def log_sum_exp(values: np.ndarray) -> np.ndarray:
    """log Σ exp over the last axis, without overflow. The same as SciPy's, without the import."""
    if values.size and values.min() > -LARGEST_EXPONENT and values.max() < LARGEST_EXPONENT:
        return np.log(row_sums(np.exp(values)))  # half the cost: needs no maximum per row
    largest = values.max(axis=-1)
    powers = values - largest[..., None]
    np.exp(powers, out=powers)
    return np.log(row_sums(powers)) + largest


def row_sums(values: np.ndarray) -> np.ndarray:
    """Sums over the last axis, as a matrix product: for short rows several times as fast as `sum`."""
    return values @ np.ones(values.shape[-1])


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis (FMIYC, Eq. 11)."""
    powers = logits - logits.max(axis=-1, keepdims=True)
    np.exp(powers, out=powers)
    powers *= (1 / row_sums(powers))[..., None]
    return powers


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(−x)), without overflow, and accurate near 0."""
    return np.exp(-np.logaddexp(0.0, -logits))


def softplus(logits: np.ndarray) -> np.ndarray:
    """log(1 + exp(x)), without overflow."""
    return np.logaddexp(0.0, logits)

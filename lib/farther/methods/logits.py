"""Logits and the last layer, as the methods read them.

**Background.** A head may have a logits column for "no object". FMIYC (arXiv:2506.14008, Appendix
F.1) defines the logits as one value per in-distribution class, so by default that column, and its
row of the last layer, is left out (`background="drop"`). With `background="keep"` it counts as one
more class, as in the published codes of FMIYC (msp, energy, gen, vim, ash, react, dice, dice_react)
and SAOD (entropy, dempster_shafer): those methods keep it with `protocol="published-code"`. Where a
head has no such column the parameter changes nothing.

**Unknown classes.** Columns of classes that mean unknown objects (`Header.unknown_columns`) are
always left out.

**Sigmoid heads.** Scores are defined on a softmax over the classes (FMIYC, Eq. 11), and the
published code applies it to the stored logits of sigmoid detectors too; so does
`activation="softmax"`, the default. With `activation="detector"` the detector's own activation is
used: for a sigmoid head each class is then a binary decision. Where the detector stored logarithms
of the sigmoid's values (the header's activation is "exp", as in the published code of YOLOv8), a
softmax is taken of these, but with `activation="detector"` of the logits before the sigmoid.
"""

from __future__ import annotations

import numpy as np

from farther.methods.arrays import (
    LARGEST_EXPONENT,
    Array,
    log_sum_exp,
    row_sums,
    sigmoid,
    softmax,
    softplus,
)
from farther.methods.base import Method, RegionsLike, parameters
from farther.methods.rows import Activation, Background, Rows, class_columns, last_layer_of
from farther.tables import Regions
from farther.terms import Protocol

__all__ = [
    "LARGEST_EXPONENT",
    "Activation",
    "Background",
    "LogitsMethod",
    "Protocol",
    "class_columns",
    "class_logits",
    "energy",
    "is_sigmoid",
    "last_layer",
    "log_sum_exp",
    "row_sums",
    "sigmoid",
    "softmax",
    "softplus",
]


@parameters
class LogitsMethod(Method):
    """Base of the methods whose published code counts the background as a class.

    Args:
        protocol: "paper", or "published-code", with which the background logit counts.
        background: "drop" leaves the background logit out, "keep" counts it as one more class; None
            takes the protocol's.
    """

    protocol: Protocol = "paper"
    background: Background | None = None

    @property
    def counted_background(self) -> Background:
        """`background`, or the protocol's where it is None."""
        return self.background or ("drop" if self.protocol == "paper" else "keep")


def class_logits(
    rows: Rows | Regions, background: Background, activation: Activation = "softmax"
) -> Array:
    """Logits z of the classes of rows or of a block of regions, shape (N, C), float64.

    See `Rows.logits`.
    """
    return Rows.of(rows).logits(background, activation)


def energy(rows: Rows | Regions, background: Background) -> Array:
    """log Σ_c exp(z_c) of rows or of a block of regions, shape (N,), float64."""
    return Rows.of(rows).energy(background)


def is_sigmoid(rows: Rows | Regions, activation: Activation) -> bool:
    """True if each class is to be treated as a binary decision."""
    return Rows.of(rows).is_sigmoid(activation)


def last_layer(regions: RegionsLike, background: Background) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the classes in the last layer: see `last_layer_of`."""
    return last_layer_of(regions.header, background)

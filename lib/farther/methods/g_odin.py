"""Generalized ODIN: numerator or denominator of a classifier's quotients."""

from __future__ import annotations

from typing import ClassVar, Literal

from farther.methods.arrays import Array, softmax
from farther.methods.base import Method, Publication, register
from farther.methods.rows import Rows
from farther.tables.regions import DENOMINATOR, NUMERATOR
from farther.terms import Protocol


@register("g_odin")
class GOdin(Method):
    """The largest numerator of a classifier with logits h_c(x) / g(x), or its denominator.

    The columns `latent.numerator` and `latent.denominator` hold h and g: of a checkpoint of
    OpenOOD's `GodinNet`, or one that the trainer `classifier` wrote with `g_odin: {}`. The paper's
    step of the image is the pass `{kind: perturb, loss: numerator, epsilon: 0.0025}`; there the
    paper takes the ε with the largest sum of scores of ID validation images, and OpenOOD 0.0025.

    Formula:
        score = max_c h_c, or g; with `protocol="published-code"`, as in OpenOOD, max_c softmax(h)_c

    Args:
        output: "numerator" or "denominator".
        protocol: "paper", or "published-code": OpenOOD's, which differs for the numerator only.

    References:
        Hsu et al., "Generalized ODIN: Detecting Out-of-distribution Image without Learning from
        Out-of-distribution Data", 2020, arXiv:2002.11297, Section 3.1. Code of OpenOOD:
        https://github.com/Jingkang50/OpenOOD

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> regions = toy_regions(logits=[[1.0, 2.0]], **{"latent.numerator": [[0.5, 1.0]]})
        >>> create("g_odin").score(regions)
        array([1.])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Generalized ODIN: Detecting Out-of-distribution Image without Learning from "
        "Out-of-distribution Data",
        2020,
        "https://arxiv.org/abs/2002.11297",
    )
    title: ClassVar[str] = "G-ODIN"
    aliases: ClassVar[tuple[str, ...]] = ("GODIN", "Generalised ODIN", "Generalized ODIN")
    needs: ClassVar[frozenset[str]] = frozenset({NUMERATOR})
    output: Literal["numerator", "denominator"] = "numerator"
    protocol: Protocol = "paper"

    @property
    def inputs(self) -> frozenset[str]:
        """See `Method.inputs`: the column of `output`."""
        if self.output == "denominator":
            return frozenset({DENOMINATOR})
        return self.needs

    def _score(self, rows: Rows) -> Array:
        if self.output == "denominator":
            return rows.vectors(DENOMINATOR)[:, 0]
        numerator = rows.vectors(NUMERATOR)
        if self.protocol == "published-code":
            numerator = softmax(numerator)
        return rows.xp.max(numerator, axis=1)

"""The confidence that a branch of a classifier learned."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.arrays import Array, sigmoid
from farther.methods.base import Method, Publication, register
from farther.methods.rows import Rows
from farther.tables.regions import CONFIDENCE


@register("conf_branch")
class ConfBranch(Method):
    """The confidence of a classifier's confidence branch.

    The branch was trained to ask for hints where the classifier errs.

    The column `latent.confidence` holds it before the sigmoid: of a checkpoint of OpenOOD's
    `ConfBranchNet`, or one that the trainer `classifier` wrote with `confidence_branch: {}`. The
    paper's step of the image is the pass `{kind: perturb, loss: confidence}`.

    Formula:
        score = sigmoid(u_i), u_i the output of the confidence branch for region i

    References:
        DeVries and Taylor, "Learning Confidence for Out-of-Distribution Detection in Neural
        Networks", 2018, arXiv:1802.04865. Code:
        https://github.com/uoguelph-mlrg/confidence_estimation

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> regions = toy_regions(
        ...     logits=[[0.0, 1.0], [2.0, 0.0]], **{"latent.confidence": [[0.0], [2.0]]}
        ... )
        >>> create("conf_branch").score(regions).round(4)
        array([0.5   , 0.8808])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Learning Confidence for Out-of-Distribution Detection in Neural Networks",
        2018,
        "https://arxiv.org/abs/1802.04865",
        code="https://github.com/uoguelph-mlrg/confidence_estimation",
    )
    title: ClassVar[str] = "ConfBranch"
    aliases: ClassVar[tuple[str, ...]] = ("Confidence branch",)
    needs: ClassVar[frozenset[str]] = frozenset({CONFIDENCE})

    def _score(self, rows: Rows) -> Array:
        return sigmoid(rows.vectors(CONFIDENCE)[:, 0])

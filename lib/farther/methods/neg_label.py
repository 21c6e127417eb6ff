"""Negative labels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from farther.methods.arrays import Array
from farther.methods.base import Publication, RegionsLike, register
from farther.methods.mcm import TextMethod
from farther.methods.rows import Rows


@register("neg_label")
class NegLabel(TextMethod):
    """The probability of the classes among classes and negative prompts.

    It is the mean over groups of negative prompts.

    The rows of the last layer are text embeddings, as in `mcm`; the header's `unknown_columns` are
    negative prompts, which `farther benchmark negatives` mines and the parameter `unknown` of a
    pass of kind `crops` names.

    Formula:
        score = mean over groups g of Σ_c e_c / (Σ_c e_c + Σ_{j in g} e_j), with e = exp(cos(h, w) /
        τ), c the classes, j the negative prompts

    Args:
        temperature: τ. The paper's, 0.01, is that of CLIP.
        groups: Number of groups, 100 in the paper; as many as there are prompts where there are
            fewer. Prompts that the number does not divide are left out, as in the published code.
        seed: Seed of the order in which prompts are prompts into groups.

    References:
        Jiang et al., "Negative Label Guided OOD Detection with Pretrained Vision-Language Models",
        2024, arXiv:2403.20078, Eq. 6 and Appendix A.2. Code: https://github.com/tmlr-group/NegLabel

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> regions = toy_regions(
        ...     features=[[1.0, 0.0], [0.0, 1.0]], classes=("cat", "cloud"), unknown_columns=(1,)
        ... )
        >>> create("neg_label", temperature=1.0).score(regions[:1]).round(4)  # e / (e + 1)
        array([0.7311])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Negative Label Guided OOD Detection with Pretrained Vision-Language Models",
        2024,
        "https://arxiv.org/abs/2403.20078",
        code="https://github.com/tmlr-group/NegLabel",
    )
    title: ClassVar[str] = "NegLabel"
    temperature: PositiveFloat = 0.01
    groups: PositiveInt = 100
    seed: NonNegativeInt = 0

    def missing(self, regions: RegionsLike) -> list[str]:
        """Negative prompts, where the header has none."""
        missing = super().missing(regions)
        if not regions.header.unknown_columns:
            missing.append("negative prompts (`unknown` of a pass of kind crops)")
        return missing

    def _score(self, rows: Rows) -> Array:
        header = rows.header
        xp = rows.xp
        groups = min(self.groups, len(header.unknown_columns))
        prompts = np.random.default_rng(self.seed).permutation(header.unknown_columns)
        prompts = prompts[: len(prompts) // groups * groups]
        # Relative to a cosine of 1, so that nothing overflows; at CLIP's τ the powers are above
        # 10⁻⁸⁷.
        powers = xp.exp((self._cosines(rows) - 1) / rows.number(self.temperature))
        known = xp.sum(rows.counted(powers, "drop"), axis=1, keepdims=True)
        in_groups = xp.reshape(powers[:, prompts], (-1, groups, len(prompts) // groups))
        negative = xp.sum(in_groups, axis=2)
        return xp.mean(known / (known + negative), axis=1)

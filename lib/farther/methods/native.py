"""The detector's own decision that an object is unknown."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.arrays import Array
from farther.methods.base import Method, Publication, RegionsLike, register
from farther.methods.rows import Rows


@register("native")
class Native(Method):
    """The label of a detector that itself labels objects as unknown.

    Open-world detectors, or those with negative prompts.

    A detection is flagged as unknown where its label is one of the header's `unknown_columns`, and
    nowhere else: the threshold is fixed and learns from no data. Flagged detections are ranked by
    the detector's confidence in that label, as open-world papers rank them for the average
    precision of the unknown class; all others are above them, by their confidence. With any other
    method, detections labelled unknown are flagged too, and the method decides about the rest.

    Formula:
        score = s_i where the label is a known class, else −10³⁰ (1 + s_i); τ = 0; s_i the
        confidence of region i

    References:
        Joseph et al., "Towards Open World Object Detection", CVPR 2021, arXiv:2103.02603, whose
        detector has a label for unknown objects.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> regions = toy_regions(
        ...     score=[0.25, 0.5], label=[0, 1], classes=("cat", "unknown"), unknown_columns=(1,)
        ... )
        >>> create("native").score(regions) < 0
        array([False,  True])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Towards Open World Object Detection",
        2021,
        "https://arxiv.org/abs/2103.02603",
    )
    title: ClassVar[str] = "Native"
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    fixed_threshold: ClassVar[float | None] = 0.0

    def missing(self, regions: RegionsLike) -> list[str]:
        """A class that means unknown objects, where the detector has none."""
        absent = []
        if not regions.header.unknown_columns:
            absent.append("a class that means unknown objects")
        return super().missing(regions) + absent

    def _score(self, rows: Rows) -> Array:
        return rows.score

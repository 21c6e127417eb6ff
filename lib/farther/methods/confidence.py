"""The detector's confidence, as a baseline."""

from __future__ import annotations

from typing import ClassVar

from farther.methods.arrays import Array
from farther.methods.base import Method, Publication, register
from farther.methods.rows import Rows


@register("confidence")
class Confidence(Method):
    """The detector's confidence in a region: the baseline of all methods.

    It needs neither logits nor features, so detections imported as plain boxes, classes and scores
    have it too. For a softmax classifier it equals `msp`; for a detector it may include more, such
    as an objectness factor.

    Formula:
        score = s_i, s_i the confidence of region i, from 0 to 1

    References:
        Dhamija et al., "The Overlooked Elephant of Object Detection: Open Set", WACV 2020, which
        rejects unknown objects by a threshold on it.
        https://openaccess.thecvf.com/content_WACV_2020/html/Dhamija_The_Overlooked_Elephant_of_Object_Detection_Open_Set_WACV_2020_paper.html

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("confidence").score(toy_regions(score=[0.25, 0.5]))
        array([0.25, 0.5 ])
    """

    publication: ClassVar[Publication | None] = Publication(
        "The Overlooked Elephant of Object Detection: Open Set",
        2020,
        "https://openaccess.thecvf.com/content_WACV_2020/html/Dhamija_The_Overlooked_Elephant_of_Object_Detection_Open_Set_WACV_2020_paper.html",
    )
    title: ClassVar[str] = "Confidence"
    aliases: ClassVar[tuple[str, ...]] = ("Detector confidence",)
    needs: ClassVar[frozenset[str]] = frozenset({"score"})

    def _score(self, rows: Rows) -> Array:
        return rows.score

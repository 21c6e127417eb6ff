"""The kind of classifier that a detector has, as Dhamija et al. (2020) divide detectors."""

from __future__ import annotations

from farther.tables.header import Header

#: The kinds of Section 2, and what a detector has in none of them: no logits that would tell.
WITHOUT_BACKGROUND = "multi-class without background"
WITH_BACKGROUND = "multi-class with background"
ONE_VS_REST = "one vs. rest"
OBJECTNESS = "objectness-based"
UNKNOWN = ""


def classifier_type(header: Header, *, has_logits: bool) -> str:
    """The kind of a detector's classifier (Dhamija et al., 2020, Section 2).

    A softmax over the known classes has a background class or not. Sigmoids and similarities to
    prompts are one vs. rest; with an objectness before them, as in YOLOv2 to YOLOv7 and YOLOX, they
    are objectness-based.

    Args:
        header: Of the detector's regions.
        has_logits: Whether its regions have logits; without these nothing is known.

    >>> classifier_type(Header(classes=("background", "cat"), background_index=0), has_logits=True)
    'multi-class with background'
    """
    if not has_logits:
        return UNKNOWN
    if header.detector.get("objectness"):
        return OBJECTNESS
    if header.activation != "softmax":
        return ONE_VS_REST
    if header.background_index is None:
        return WITHOUT_BACKGROUND
    return WITH_BACKGROUND

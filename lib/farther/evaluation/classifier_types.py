"""The type of a detector's classifier, as in Dhamija et al. (2020)."""

from __future__ import annotations

from farther.tables.header import Header

#: The types of Section 2, and `UNKNOWN` for a detector without logits.
WITHOUT_BACKGROUND = "multi-class without background"
WITH_BACKGROUND = "multi-class with background"
ONE_VS_REST = "one vs. rest"
OBJECTNESS = "objectness-based"
UNKNOWN = ""


def classifier_type(header: Header, *, has_logits: bool) -> str:
    """The type of a detector's classifier (Dhamija et al., 2020, Section 2).

    A softmax over the known classes has a background class or not. Sigmoids and similarities to
    prompts are one vs. rest; with an objectness before them, as in YOLOv2 to YOLOv7 and YOLOX, they
    are objectness-based.

    Args:
        header: Header of the detector's regions.
        has_logits: Whether its regions have logits; without them the type is unknown.

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

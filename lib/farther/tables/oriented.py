"""Oriented boxes: their envelopes, the smallest upright boxes around them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

#: Unit of an angle, "unknown" where a name does not tell it.
Unit = Literal["degrees", "radians", "unknown"]
#: An upright box: xmin, ymin, xmax, ymax.
Envelope = tuple[float, float, float, float]

#: Names of angles of boxes, in lower case without punctuation, with the unit at their end.
_ANGLE = re.compile(
    r"(bbox|box|obb|r)?(angle|theta|rotation|rot|orientation)"
    r"(?P<unit>|deg|degree|degrees|rad|radian|radians)"
)

#: How oriented boxes can be written.
ADVICE = (
    "write the centre, width, height and the angle as angle_degrees or angle_radians (cx, cy, "
    "width, height, angle_degrees), the four corners (x1, y1, x2, y2, x3, y3, x4, y4), or the "
    "upright box around them"
)


@lru_cache(maxsize=1_000)
def angle_unit(name: str) -> Unit | None:
    """The unit of an angle of boxes with this name; None if the name is not one of an angle.

    >>> angle_unit("angle_degrees"), angle_unit("Theta"), angle_unit("class")
    ('degrees', 'unknown', None)
    """
    match = _ANGLE.fullmatch(re.sub(r"[^a-z]", "", name.casefold()))
    if match is None:
        return None
    if match["unit"].startswith("deg"):
        return "degrees"
    if match["unit"].startswith("rad"):
        return "radians"
    return "unknown"


def envelope_of_corners(coordinates: Sequence[float]) -> Envelope:
    """The envelope of corners x1, y1, x2, y2, …

    >>> envelope_of_corners([5, 0, 10, 5, 5, 10, 0, 5])
    (0, 0, 10, 10)
    """
    x = coordinates[0::2]
    y = coordinates[1::2]
    return min(x), min(y), max(x), max(y)


def envelope_of_rotated(
    cx: float, cy: float, width: float, height: float, radians: float
) -> Envelope:
    """The envelope of a box that is rotated about its centre, clockwise or counterclockwise.

    >>> [round(edge, 6) for edge in envelope_of_rotated(10, 10, 6, 2, math.pi / 2)]
    [9.0, 7.0, 11.0, 13.0]
    """
    cosine = abs(math.cos(radians))
    sine = abs(math.sin(radians))
    half_width = (width * cosine + height * sine) / 2
    half_height = (width * sine + height * cosine) / 2
    return cx - half_width, cy - half_height, cx + half_width, cy + half_height

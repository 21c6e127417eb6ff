"""Whole numbers as programs write them: 6, 6.0 and "6.0" are one."""

from __future__ import annotations

import re
from typing import Any

#: A whole number in a text, possibly with zeros after the point.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?")


def whole_number(value: Any) -> int | None:
    """A value as a whole number; None if it is not one.

    Args:
        value: A number, or a text.

    >>> whole_number(6), whole_number(6.0), whole_number(" 6.0")
    (6, 6, 6)
    >>> whole_number(6.5), whole_number("six")
    (None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    return None

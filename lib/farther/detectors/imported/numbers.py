"""Whole numbers as programs write them: 6, 6.0 and "6.0" are one."""

from __future__ import annotations

import re
from typing import Any

#: A whole number in a text, with a fraction of zeros at most.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?")


def whole_number(value: Any) -> int | None:
    """The whole number that a value is; None where it is none.

    Args:
        value: A number, or a text.

    >>> (
    ...     whole_number(6),
    ...     whole_number(6.0),
    ...     whole_number(" 6.0"),
    ...     whole_number(6.5),
    ...     whole_number("six"),
    ... )
    (6, 6, 6, None, None)
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

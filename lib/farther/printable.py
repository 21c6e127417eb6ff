"""Text in which everything shows: no name in a file may move the cursor, change a title or hide what follows."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

#: Zero-width characters that writing needs, and categories of those that they join: emoji, marks,
#: letters without case.
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
_JOINED = ("So", "Sk", "Mn", "Mc", "Lo")


def printable(text: str) -> str:
    r"""The text with everything escaped that has no glyph: control characters, directions of writing, escape codes.

    What names are written with remains: one space of any script between two glyphs, and joiners
    within emoji and words.

    >>> printable("cat\x1b[31m\r\n\N{RIGHT-TO-LEFT OVERRIDE}tac")
    'cat\\x1b[31m\\r\n\\u202etac'
    >>> printable("\N{DOG FACE}\N{ZERO WIDTH JOINER}\N{BONE} c\N{ZERO WIDTH JOINER}at") == (
    ...     "\N{DOG FACE}\N{ZERO WIDTH JOINER}\N{BONE} c\\u200dat"
    ... )
    True
    """
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or c == "\n" or _is_written(text, at)
        else c.encode("unicode_escape").decode()
        for at, c in enumerate(text)
    )


def _is_written(text: str, at: int) -> bool:
    """Whether a character without a glyph is part of the writing: by itself between two that have one."""
    around = text[at - 1 : at] + text[at + 1 : at + 2]
    if at == 0 or len(around) < 2 or not around.isprintable() or " " in around:
        return False
    kinds = [unicodedata.category(c) for c in around]
    return unicodedata.category(text[at]) == "Zs" or (
        text[at] in _JOINERS and all(kind in _JOINED for kind in kinds)
    )


def printable_line(text: str) -> str:
    """The same in one line: line breaks are escaped, too."""
    return printable(text).replace("\n", "\\n")


def printable_texts(value: Any) -> Any:
    """The same of all texts of a value: of lists, and of keys and values of mappings.

    Markup is left as it is.
    """
    if isinstance(value, str):
        return value if hasattr(value, "__html__") else printable(value)
    if isinstance(value, Mapping):
        return {printable_texts(name): printable_texts(of) for name, of in value.items()}
    return [printable_texts(one) for one in value] if isinstance(value, list | tuple) else value

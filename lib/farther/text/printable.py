"""Text in which everything shows.

No name in a file may move the cursor, change a title or hide the text after it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

#: Zero-width characters that writing needs, and categories of those that they join: emoji, marks,
#: letters without case.
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
_JOINED = ("So", "Sk", "Mn", "Mc", "Lo")


def printable(text: str) -> str:
    r"""The text with everything escaped that has no glyph.

    Such are control characters, directions of writing and escape codes. What names are written with
    remains: one space of any script between two glyphs, and joiners within emoji and words.

    >>> printable("cat\x1b[31m\r\n\N{RIGHT-TO-LEFT OVERRIDE}tac")
    'cat\\x1b[31m\\r\n\\u202etac'
    >>> printable("\N{DOG FACE}\N{ZERO WIDTH JOINER}\N{BONE} c\N{ZERO WIDTH JOINER}at") == (
    ...     "\N{DOG FACE}\N{ZERO WIDTH JOINER}\N{BONE} c\\u200dat"
    ... )
    True
    """
    if text.isprintable() or text.replace("\n", "").isprintable():
        return text
    characters = []
    for position, character in enumerate(text):
        if character.isprintable() or character == "\n" or _is_written(text, position):
            characters.append(character)
        else:
            characters.append(character.encode("unicode_escape").decode())
    return "".join(characters)


def _is_written(text: str, position: int) -> bool:
    """Whether a character without a glyph is part of the writing.

    Then it stands by itself between two characters that have a glyph.
    """
    neighbours = text[position - 1 : position] + text[position + 1 : position + 2]
    if position == 0 or len(neighbours) < 2:
        return False
    if not neighbours.isprintable() or " " in neighbours:
        return False
    if unicodedata.category(text[position]) == "Zs":
        return True
    categories = [unicodedata.category(character) for character in neighbours]
    return text[position] in _JOINERS and all(category in _JOINED for category in categories)


def printable_line(text: str) -> str:
    """The same in one line: line breaks are escaped, too."""
    return printable(text).replace("\n", "\\n")


def printable_texts(value: Any) -> Any:
    """The same of all texts of a value: of lists, and of keys and values of mappings.

    Markup is left as it is.
    """
    if isinstance(value, str):
        if hasattr(value, "__html__"):
            return value
        return printable(value)
    if isinstance(value, Mapping):
        return {printable_texts(name): printable_texts(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [printable_texts(element) for element in value]
    return value

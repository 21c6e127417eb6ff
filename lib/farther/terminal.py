"""What farther prints: text in which nothing is hidden, and its own colours."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

from farther.printable import printable

#: Colours that `say` lets through: those of `farther.command.output`.
_COLOURS = re.compile("(\033\\[(?:0|1|3[1-3])m)")


def has_colours() -> bool:
    """Whether stdout is a terminal that has colours, and NO_COLOR is unset."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def say(
    *texts: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False
) -> None:
    """`print` of printable text; farther prints with nothing else.

    On terminals, farther's own colours are kept.
    """
    text = sep.join(map(str, texts))
    if has_colours():
        pieces = _COLOURS.split(text)  # text, colour, text, colour, …
        pieces[::2] = map(printable, pieces[::2])
        text = "".join(pieces)
    else:
        text = printable(text)
    print(text, end=end, file=file, flush=flush)


def counted(number: int, noun: str) -> str:
    """A number of things in words.

    >>> counted(1, "image"), counted(2500, "image")
    ('1 image', '2,500 images')
    """
    ending = "" if number == 1 else "s"
    return f"{number:,} {noun}{ending}"

"""What farther prints: text in which nothing is hidden, and its own colours."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from farther.text.printable import printable, printable_line

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
    if _line is not None:
        _line.erase()
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


#: Erases the line of the cursor.
ERASE = "\r\033[K"


class _ProgressLine:
    """A line on stderr, drawn anew each second, with the time since the start.

    Args:
        text: What is being done.
    """

    def __init__(self, text: str):
        self._text = printable_line(text)
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw_each_second, daemon=True)

    def begin(self) -> None:
        """Draws it until `end`."""
        self._draw()
        self._thread.start()

    def end(self) -> None:
        """Erases it for good."""
        self._ended.set()
        self.erase()

    def erase(self) -> None:
        """Erases it until it is drawn again."""
        with self._lock:
            sys.stderr.write(ERASE)
            sys.stderr.flush()

    def _draw_each_second(self) -> None:
        while not self._ended.wait(1.0):
            self._draw()

    def _draw(self) -> None:
        seconds = time.monotonic() - self._start
        time_text = f"{seconds:.0f} s" if seconds >= 1 else ""
        columns = shutil.get_terminal_size().columns
        line = f"{self._text} … {time_text}"[: columns - 1]
        with self._lock:
            if not self._ended.is_set():
                sys.stderr.write(f"{ERASE}{line}")
                sys.stderr.flush()


#: The line that is shown now.
_line: _ProgressLine | None = None


@contextmanager
def working(text: str) -> Iterator[None]:
    """Shows on a terminal what a command is doing, until it is done; elsewhere prints nothing.

    Within another `working`, the outer text stays.

    Args:
        text: What is being done: "reading pets".
    """
    global _line
    if _line is not None or not sys.stderr.isatty():
        yield
        return
    _line = _ProgressLine(text)
    _line.begin()
    try:
        yield
    finally:
        _line.end()
        _line = None

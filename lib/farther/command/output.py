"""Output of the command: aligned tables, text of 80 columns, JSON, and colours for terminals."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

from farther.text import escaping
from farther.text.printable import printable_line
from farther.text.terminal import has_colours, say

#: Escape codes of the colours; the words alone carry the meaning, too.
COLOURS = {
    "ok": "32",
    "missing": "31",
    "wrong": "31",
    "worse": "31",
    "better": "32",
    "note": "33",
    "head": "1",
}

#: Width of text where the output is not a terminal, and of tables there.
USUAL_WIDTH = 80
UNWRAPPED = 10_000
#: Width that columns of text keep beside numbers; a table that has less is not wrapped.
TEXT_WIDTH = 12


def width() -> int:
    """Columns of the terminal, 80 where there is none."""
    if not sys.stdout.isatty():
        return USUAL_WIDTH
    return shutil.get_terminal_size((USUAL_WIDTH, 24)).columns


def coloured(text: str, kind: str) -> str:
    """The text in the colour of a key of `COLOURS`.

    As it is where the terminal has no colours or NO_COLOR is set, and for other kinds.
    """
    text = printable_line(text)
    if kind not in COLOURS or not has_colours():
        return text
    return f"\033[{COLOURS[kind]}m{text}\033[0m"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """Rows in aligned columns under their heads, the last `numbers` of them aligned to the right.

    On a terminal, columns of text wrap: the last one, or those before numbers. Numbers are never
    cut: where they need more columns than the terminal has, its lines continue below. Elsewhere
    each row is one line.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not sys.stdout.isatty() and not has_colours():
        return _unwrapped(heads, rows, numbers)
    grid = Table(
        box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=any(heads), header_style="bold"
    )
    first_number = len(heads) - numbers
    for column, head in enumerate(heads):
        justify: Literal["left", "right"] = "left" if column < first_number else "right"
        is_last_text = column == len(heads) - 1 and numbers == 0
        is_before_numbers = column < first_number and numbers > 0
        wraps = is_last_text or is_before_numbers
        grid.add_column(Text(head), justify=justify, no_wrap=not wraps, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(printable_line(cell)) for cell in row))
    columns = UNWRAPPED
    if sys.stdout.isatty() and _width_of_numbers(heads, rows, numbers) <= width() - TEXT_WIDTH:
        columns = width()
    console = Console(width=columns, color_system="auto" if has_colours() else None)
    with console.capture() as printed:
        console.print(grid)
    return "\n".join(line.rstrip() for line in printed.get().splitlines())


def _unwrapped(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int) -> str:
    """The same table where nothing wraps, without the time that Rich takes for it."""
    from rich.cells import cell_len

    lines = [[printable_line(cell) for cell in row] for row in rows]
    if any(heads):
        lines.insert(0, list(heads))
    widths = [
        max((cell_len(line[column]) for line in lines), default=0) for column in range(len(heads))
    ]
    first_number = len(heads) - numbers
    texts = []
    for line in lines:
        text = ""
        for column, cell in enumerate(line):
            space = " " * (widths[column] - cell_len(cell))
            text += f"{cell}{space}  " if column < first_number else f"{space}{cell}  "
        texts.append(text.rstrip())
    return "\n".join(texts)


def _width_of_numbers(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int) -> int:
    """Columns of a terminal that the last `numbers` of a table take, with spaces before each."""
    from rich.cells import cell_len

    total = 0
    for column in range(len(heads) - numbers, len(heads)):
        total += 2 + max(cell_len(row[column]) for row in [heads, *rows])
    return total


def paragraph(text: str, indent: int = 0) -> str:
    """Text wrapped to the terminal's width."""
    return hanging(" ".join(text.split()), indent, indent)


def hanging(text: str, first: int, rest: int) -> str:
    """Text wrapped between words, its first line and the rest indented differently.

    Paths are not broken.
    """
    wrapper = textwrap.TextWrapper(
        width(), " " * first, " " * rest, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.fill(text)


def next_step(*steps: str) -> None:
    """Prints what to do next: the first step, and others while a line of 80 columns has room.

    On stderr, as git's advice: what is piped or redirected is the result alone. A longer command
    continues on further lines as shells read it.
    """
    line = f"Next: {steps[0]}"
    for step in steps[1:]:
        longer = f"{line}, or {step}"
        if len(longer) <= USUAL_WIDTH:
            line = longer
    if len(line) > USUAL_WIDTH:
        lines = textwrap.wrap(
            line,
            USUAL_WIDTH - 2,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        line = " \\\n".join(lines)
    sys.stdout.flush()
    say(line, file=sys.stderr)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """The same table in Markdown."""
    rule = ["---"] * (len(heads) - numbers) + ["---:"] * numbers
    lines = [_markdown_line(heads), _markdown_line(rule)]
    for row in rows:
        lines.append(_markdown_line([escaping.markdown(cell) for cell in row]))
    return "\n".join(lines)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(value: Any) -> str:
    """JSON, one line per key.

    NaN and infinities are null, and what is not printable is escaped as JSON does it.
    """
    from pydantic_core import to_json

    text = to_json(value, indent=2, inf_nan_mode="null", serialize_unknown=True).decode()
    if text.replace("\n", "").isprintable():
        return text
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    """A character as JSON escapes it, unless it is printable or a line break."""
    if character.isprintable() or character == "\n":
        return character
    return json.dumps(character)[1:-1]


def size(count: float) -> str:
    """A number of bytes in decimal units.

    >>> size(1_900_000_000), size(512)
    ('1.9 GB', '512 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            decimals = 0 if unit == "B" or count >= 100 else 1
            return f"{count:.{decimals}f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """A number of seconds in a fitting unit.

    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 1:
        return "under 1 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

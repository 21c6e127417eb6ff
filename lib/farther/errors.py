"""Errors that a user can fix. Each says what was found, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from reprlib import Repr
from typing import Any

#: Most names that a message lists.
LISTED = 40

#: Most characters of a value that a message repeats.
SHOWN = 200

_REPR = Repr()
_REPR.maxlevel, _REPR.maxlong, _REPR.maxother, _REPR.maxstring = 4, SHOWN, SHOWN, SHOWN
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = _REPR.maxdict = 10


class FartherError(Exception):
    """Base of every error that farther raises on purpose."""


class ParameterError(FartherError):
    """A name or a parameter that a user wrote is unknown or has a wrong value."""


class DataError(FartherError):
    """A file holds something that cannot be used.

    The message starts with the place, as precisely as it is known: `file: row 3: field 'box': …`.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | str | None = None,
        field: str | None = None,
    ):
        self.problem = problem
        self.file = None if file is None else str(file)
        self.row = row
        self.field = field
        place = (self.file, None if row is None else f"row {row}", None if field is None else f"field '{field}'")
        super().__init__(": ".join([*filter(None, place), problem]))


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """The name, if it is known.

    Args:
        kind: What it names, in the singular ("run").

    Raises:
        ParameterError: it is not known; the message suggests the nearest name and lists the known ones.
    """
    names = sorted(set(known))
    if name in names:
        return name
    close = [one for one in names if name and one.startswith(name)] or difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    raise ParameterError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(names[:LISTED]) or 'none'}{more}")


def shorten(value: Any) -> str:
    """`repr` of a value in at most 200 characters; of a large or deep value only the beginning is looked at."""
    try:
        text = repr(value) if isinstance(value, (bool, float)) else _REPR.repr(value)
    except ValueError:  # an integer of thousands of digits
        text = f"a number of {value.bit_length():,} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"

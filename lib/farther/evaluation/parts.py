"""Parts: texts that say what of a split, a method or a detector a value of the long table is of.

"" is the whole; a part with two keys is "class=cow, beta=1". Names of categories and classes, and
values of attributes, are free texts. A comma of theirs that would read as the one before a further
key is written "%2C": the part of the category "a, size=b" is "category=a%2C size=b".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

#: What comes before the value of a further key.
FURTHER_KEY = ", [^,=]+="

_COMMA_BEFORE_KEY = re.compile(rf",(?={FURTHER_KEY.removeprefix(',')})")
_LIKE_WRITTEN_COMMA = re.compile("%(?=(?:25)*2C)")
_WRITTEN = re.compile("%25(?=(?:25)*2C)|%2C")


def part_text(value_by_key: Mapping[str, object]) -> str:
    """The text of a part.

    >>> part_text({"class": "cow", "beta": 1})
    'class=cow, beta=1'
    >>> part_text({"category": "a, size=b"})
    'category=a%2C size=b'
    """
    return ", ".join(f"{key}={_write(str(value))}" for key, value in value_by_key.items())


def _write(value: str) -> str:
    """A value as a part has it."""
    return _COMMA_BEFORE_KEY.sub("%2C", _LIKE_WRITTEN_COMMA.sub("%25", value))


def read_value(written: str) -> str:
    """The value of a key, as it was before `part_text`.

    >>> read_value("a%2C size=b")
    'a, size=b'
    """
    return _WRITTEN.sub(lambda match: "," if match[0] == "%2C" else "%", written)


def keys_of(parts: pl.Expr) -> pl.Expr:
    """What comes before the last value of parts: "class=cow, beta=" of "class=cow, beta=1"."""
    return parts.str.extract("(?s)^((?:.*, )?[^,=]+=)")


def has_further_key(values: pl.Expr) -> pl.Expr:
    """Whether further keys follow a value, bool.

    Args:
        values: What follows "key=" in parts.
    """
    return values.str.contains(FURTHER_KEY)

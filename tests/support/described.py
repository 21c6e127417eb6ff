"""The keys that the reference of params.yaml describes, compared with those of a file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from farther.pipeline.sections import SECTIONS, KeyTable, tables_of
from farther_demo import DemoWorld


@cache
def described() -> dict[str, list[KeyTable]]:
    """The tables of each section; that of the demo world is made as the docs make it."""
    tables = {section.name: section.load() for section in SECTIONS}
    tables["demo"] = tables_of("demo", DemoWorld)
    return tables


def is_at(table: KeyTable, place: list[str]) -> bool:
    """Whether a table describes the mapping at a place: capitals stand for any name."""
    parts = table.path.split(".")
    if len(parts) != len(place):
        return False
    return all(part in (name, part.upper()) for part, name in zip(parts, place, strict=True))


def undescribed(value: Any, place: list[str]) -> Iterator[str]:
    """Places of the keys in a value of params.yaml that no table has."""
    tables = [table for table in described().get(place[0], ()) if is_at(table, place)]
    if isinstance(value, list):
        for item in value:
            yield from undescribed(item, [*place, "ITEM"])
    if not isinstance(value, dict):
        return
    known = {key.name for table in tables for key in table.keys}
    is_open = any(table.further for table in tables) or any(name.isupper() for name in known)
    for name, inner in value.items():
        if tables and not is_open and name not in known:
            yield ".".join([*place, name])
        yield from undescribed(inner, [*place, name])

"""What is known of a method beside its figures: from its own documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.methods.reference import NEEDS
from farther.registry import describe
from farther.report.overview import Listing
from farther.scoring.entries import find, read_entry


@dataclass(frozen=True)
class MethodText:
    """The documentation of a method.

    Args:
        name: Its name.
        summary: What it is, in a sentence.
        more: What else there is to say.
        formula, source: As its docstring has them, "" where it has none.
        reads: What it needs of a region.
        parameters: Its parameters, None where it has none.
    """

    name: str
    summary: str
    more: str
    formula: str
    source: str
    reads: tuple[str, ...]
    parameters: Listing | None


def texts_of(entry: str, values: Mapping[str, Any], own: Path) -> list[MethodText]:
    """The documentation of a line of section `methods`: of its method, or of all that may be chosen.

    Args:
        entry, values: The line's name, and what it says.
        own: Folder of one's own methods.

    Raises:
        ParameterError: the method is unknown, or its parameters are wrong.
    """
    read = read_entry(entry, values, own)
    choice = read.search or read.oracle
    return [_text(name, own) for name in (sorted(choice.grids) if choice else [read.method])]


def _text(name: str, own: Path) -> MethodText:
    cls = find(name, own)
    text = describe(cls)
    rows = tuple((p.name, p.default, p.description) for p in text.parameters)
    heads = ("Parameter", "Default", "What it is")
    return MethodText(
        name=name,
        summary=text.summary,
        more=text.text,
        formula=text.sections.get("Formula", ""),
        source=" ".join(text.sections.get("References", "").split()),
        reads=tuple(NEEDS.get(need, need) for need in sorted(cls.needs)),
        parameters=Listing(f"Parameters of {name}.", heads, rows) if rows else None,
    )

"""A registered class in words: its docstring's first sentence, and its parameters with what they are."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from farther.command.output import as_json, paragraph, table


@dataclasses.dataclass(frozen=True)
class Described:
    """A class that users name.

    Args:
        name: Under which they do.
        summary: What it is, in a sentence.
        text: The rest of its docstring, without the parameters.
        parameters: Of each parameter its name, default and description.
    """

    name: str
    summary: str
    text: str
    parameters: tuple[tuple[str, str, str], ...]

    def shown(self) -> str:
        """All of it, as text."""
        parts = [paragraph(f"{self.name}: {self.summary}"), *map(paragraph, filter(None, self.text.split("\n\n")))]
        if self.parameters:
            parts.append(table(("parameter", "default", "what it is"), self.parameters))
        return "\n\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        heads = ("name", "default", "description")
        rows = [dict(zip(heads, parameter, strict=True)) for parameter in self.parameters]
        return {"name": self.name, "summary": self.summary, "text": self.text, "parameters": rows}


def describe(name: str, cls: type) -> Described:
    """A registered dataclass, from its docstring and those of the classes that its parameters come from."""
    head, _, _ = inspect.cleandoc(cls.__doc__ or "").partition("\nArgs:")
    first, _, rest = re.split(r"\n(?:Raises|Returns):\n", head)[0].strip().partition("\n\n")
    known = _descriptions(cls)
    parameters = tuple(
        (field.name, _shown(field), known.get(field.name, "")) for field in dataclasses.fields(cls) if field.init
    )
    return Described(name, " ".join(first.split()), rest.strip(), parameters)


def show(given: argparse.Namespace, names: Sequence[str], get: Callable[[str], type]) -> None:
    """Prints a list of names, or all about the one that was given.

    Args:
        given: The arguments `command`, `name` (or None) and `json`.
        names: All names.
        get: The class behind a name.

    Raises:
        ParameterError: the name that was given is unknown.
    """
    described = [describe(name, get(name)) for name in ([given.name] if given.name else names)]
    if given.json:
        print(as_json([one.to_json() for one in described]))
    elif given.name:
        print(described[0].shown())
    else:
        print(table(("name", "what it is"), [(one.name, one.summary) for one in described]))
        print(f"\n`farther {given.command} NAME` lists its parameters.")


def _descriptions(cls: type) -> dict[str, str]:
    """What each parameter is; a class's own words before those of the classes that it is made of."""
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):
        _, _, after = inspect.cleandoc(owner.__doc__ or "").partition("\nArgs:\n")
        section = re.split(r"\n(?=\S)", after, maxsplit=1)[0]
        text = inspect.cleandoc(section)
        for names, description in re.findall(r"^([\w, ]+): (.+(?:\n +.+)*)", text, flags=re.MULTILINE):
            found |= dict.fromkeys(names.split(", "), " ".join(description.split()))
    return found


def _shown(field: dataclasses.Field[Any]) -> str:
    """A parameter's default; pydantic keeps it inside a description of its own where there are limits."""
    given, factory = field.default, field.default_factory
    if isinstance(given, FieldInfo):
        given, factory = given.default, given.default_factory or dataclasses.MISSING
    if given in (dataclasses.MISSING, PydanticUndefined) and factory is dataclasses.MISSING:
        return "(required)"
    value = given if factory is dataclasses.MISSING else factory()
    if isinstance(value, (tuple, list, dict)):
        return "(several)" if value else "(none)"
    return "null" if value is None else str(value)

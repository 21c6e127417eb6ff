"""What the docstring of a registered class says: its summary, its sections and its parameters."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


@dataclass(frozen=True)
class Parameter:
    """A parameter of a registered class.

    Args:
        name: Its name.
        default: Its default, as written in params.yaml.
        description: Its description in the docstring of the class.
    """

    name: str
    default: str
    description: str


@dataclass(frozen=True)
class Description:
    """A class as its docstring describes it.

    Args:
        summary: The first paragraph.
        text: The paragraphs between the summary and the first section.
        sections: The text of each section by its title: "Formula", "Source", "Args".
        parameters: What its constructor takes.
    """

    summary: str
    text: str
    sections: dict[str, str]
    parameters: tuple[Parameter, ...]


def describe(cls: type) -> Description:
    """Describes a dataclass by its docstring and those of the classes that it inherits from."""
    summary, text, sections = _parsed(cls)
    known: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):
        for names, words in re.findall(
            r"^([\w, ]+): (.+(?:\n +.+)*)", _parsed(owner)[2].get("Args", ""), re.MULTILINE
        ):
            known |= dict.fromkeys(names.split(", "), " ".join(words.split()))
    listed = (field for field in fields(cls) if field.init)
    parameters = tuple(
        Parameter(field.name, _default(field), known.get(field.name, "")) for field in listed
    )
    return Description(summary, text, sections, parameters)


def _parsed(cls: type) -> tuple[str, str, dict[str, str]]:
    """Summary, text and sections of a class's own docstring."""
    head, *rest = re.split(
        r"^([A-Z]\w+):\n(?= )", inspect.cleandoc(cls.__doc__ or ""), flags=re.MULTILINE
    )
    summary, _, text = head.strip().partition("\n\n")
    sections = {
        title: inspect.cleandoc(body) for title, body in zip(rest[::2], rest[1::2], strict=True)
    }
    return " ".join(summary.split()), text.strip(), sections


def _default(field: Field[Any]) -> str:
    """A parameter's default; pydantic keeps it in a `FieldInfo` where there are limits."""
    value = field.default
    factory = field.default_factory
    if isinstance(value, FieldInfo):
        value, factory = value.default, value.default_factory or MISSING
    if value in (MISSING, PydanticUndefined) and factory is MISSING:
        return "(required)"
    value = value if factory is MISSING else factory()
    if isinstance(value, (tuple, list, dict)):
        return "(several)" if value else "(none)"
    return "null" if value is None else str(value)

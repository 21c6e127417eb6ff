"""Parses the docstring of a registered class: its summary, its sections and its parameters."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import MISSING, Field, dataclass, fields, replace
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
    """The content of a class's docstring.

    Args:
        summary: The first paragraph.
        text: The paragraphs between the summary and the first section.
        sections: The text of each section by its title: "Formula", "Source", "Args".
        parameters: Parameters of its constructor.
    """

    summary: str
    text: str
    sections: dict[str, str]
    parameters: tuple[Parameter, ...]


#: An entry of a section Args: names, a colon, and a description that may go on in indented lines.
_ARGUMENT = re.compile(r"^([\w, ]+): (.+(?:\n +.+)*)", re.MULTILINE)
#: The title of a section, above indented lines.
_TITLE = re.compile(r"^([A-Z]\w+):\n(?= )", re.MULTILINE)


def describe(cls: type) -> Description:
    """Describes a dataclass by its docstring and those of the classes that it inherits from."""
    own = _parse(cls)
    description_by_name = arguments(cls)
    parameters = []
    for field in fields(cls):
        if field.init:
            description = description_by_name.get(field.name, "")
            parameters.append(Parameter(field.name, _default(field), description))
    return replace(own, parameters=tuple(parameters))


def arguments(cls: type) -> dict[str, str]:
    """Description of each argument in the docstrings of a class and of those it inherits from."""
    description_by_name: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):
        entries = _parse(owner).sections.get("Args", "")
        for names, description in _ARGUMENT.findall(entries):
            for name in names.split(", "):
                description_by_name[name] = " ".join(description.split())
    return description_by_name


def summary_and_text(cls: type) -> tuple[str, str]:
    """The first paragraph of a class's docstring, and those between it and the first section."""
    own = _parse(cls)
    return own.summary, own.text


def _parse(cls: type) -> Description:
    """Summary, text and sections of a class's own docstring; no parameters."""
    docstring = inspect.cleandoc(cls.__doc__ or "")
    head, *titles_and_bodies = _TITLE.split(docstring)
    titles = titles_and_bodies[::2]
    bodies = titles_and_bodies[1::2]
    sections = {}
    for title, body in zip(titles, bodies, strict=True):
        sections[title] = textwrap.dedent(body).strip()
    summary, _, text = head.strip().partition("\n\n")
    return Description(" ".join(summary.split()), text.strip(), sections, parameters=())


def _default(field: Field[Any]) -> str:
    """Default of a parameter, as text; pydantic stores it in a `FieldInfo` if there are limits."""
    default = field.default
    factory: Any = field.default_factory
    if isinstance(default, FieldInfo):
        factory = default.default_factory or MISSING
        default = default.default
    if factory is not MISSING:
        default = factory()
    elif default in (MISSING, PydanticUndefined):
        return "(required)"

    if isinstance(default, (tuple, list, dict)):
        return "(several)" if default else "(none)"
    if default is None:
        return "null"
    return str(default)

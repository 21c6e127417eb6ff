"""Types of values in params.yaml in words, from the type hints of the classes that read them."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.fields import FieldInfo

#: Types without parts, in words.
PLAIN = {
    Any: "any value",
    bool: "true or false",
    dict: "mapping",
    float: "number",
    int: "integer",
    object: "any value",
    str: "text",
    type(None): "null",
    Path: "path",
}
#: Where the mapping of a class is in a value: the value itself, or each entry of it.
VALUE_ITSELF = "value itself"
ENTRIES_OF = "entries of the value"


def type_text(hint: Any, metadata: Iterable[Any] = ()) -> str:
    """A type in words; values that may be written are in backticks.

    Args:
        hint: The type hint.
        metadata: Limits of the value, as pydantic has them.

    >>> type_text(Literal["local", "ray"])
    '`local` or `ray`'
    >>> from pydantic import Field
    >>> type_text(Annotated[float, Field(gt=0, le=1)] | None)
    'number > 0, ≤ 1 or null'
    >>> type_text(tuple[int, ...]), type_text(dict[str, Path])
    ('list (integer)', 'mapping (name: path)')
    """
    alternatives = list(dict.fromkeys(_alternatives(hint, tuple(metadata))))
    if "null" in alternatives:
        alternatives.remove("null")
        alternatives.append("null")
    if len(alternatives) == 1:
        return alternatives[0]
    return f"{', '.join(alternatives[:-1])} or {alternatives[-1]}"


def _alternatives(hint: Any, metadata: tuple[Any, ...]) -> Iterator[str]:
    """The forms that a value may have."""
    origin = get_origin(hint)
    inner = get_args(hint)
    if origin is Annotated:
        yield from _alternatives(inner[0], (*_limits(inner[1:]), *metadata))
    elif origin in (Union, types.UnionType):
        for kind in inner:
            yield from _alternatives(kind, metadata)
    elif origin is Literal:
        for value in inner:
            yield f"`{value}`"
    elif origin is dict:
        yield _mapping_text(inner[1])
    elif origin in (tuple, list):
        yield _list_text(inner, metadata)
    elif is_mapping(hint):
        yield "mapping"
    elif hint in (int, float):
        yield PLAIN[hint] + _range_text(hint, metadata)
    else:
        yield PLAIN[hint]


def _limits(metadata: Iterable[Any]) -> Iterator[Any]:
    """The limits in the metadata of a type, those within a pydantic Field included."""
    for entry in metadata:
        if isinstance(entry, FieldInfo):
            yield from entry.metadata
        else:
            yield entry


def _mapping_text(value: Any) -> str:
    if value is Any or get_origin(value) is dict:
        return "mapping"
    return f"mapping (name: {type_text(value)})"


def _list_text(items: tuple[Any, ...], metadata: tuple[Any, ...]) -> str:
    """A list of any length, or of as many items as a tuple has."""
    size = ""
    if len(items) > 1 and items[-1] is not Ellipsis:
        size = f" of {len(items)}"
    elif any(hasattr(limit, "min_length") for limit in metadata):
        size = " of at least 1"
    return f"list{size} ({type_text(items[0])})"


def _range_text(hint: Any, metadata: tuple[Any, ...]) -> str:
    """The limits of a number: " from 0 to 1", " > 0, ≤ 1"; empty without any."""
    from_to: list[Any] = []
    limits = []
    for limit in metadata:
        if hasattr(limit, "gt") and hint is int:
            limits.append(f"≥ {limit.gt + 1}")
        elif hasattr(limit, "gt"):
            limits.append(f"> {limit.gt}")
        elif hasattr(limit, "ge"):
            from_to.append(limit.ge)
            limits.append(f"≥ {limit.ge}")
        elif hasattr(limit, "le"):
            from_to.append(limit.le)
            limits.append(f"≤ {limit.le}")
        elif hasattr(limit, "lt"):
            limits.append(f"< {limit.lt}")
    if not limits:
        return ""
    if len(from_to) == 2:
        return f" from {min(from_to)} to {max(from_to)}"
    return f" {', '.join(limits)}"


def is_mapping(hint: Any) -> bool:
    """Whether values of a type are mappings whose keys a class declares."""
    if not isinstance(hint, type):
        return False
    return is_pydantic_dataclass(hint) or issubclass(hint, BaseModel)


def nested_classes(hint: Any, form: str = VALUE_ITSELF) -> Iterator[tuple[type, str]]:
    """The classes of the mappings in a value, each with its form: where it is in the value.

    Args:
        hint: The value's type hint.
        form: `VALUE_ITSELF` or `ENTRIES_OF`.
    """
    origin = get_origin(hint)
    inner = get_args(hint)
    if is_mapping(hint):
        yield hint, form
    elif origin is dict:
        yield from nested_classes(inner[1], ENTRIES_OF)
    elif origin in (tuple, list):
        yield from nested_classes(inner[0], ENTRIES_OF)
    elif origin is Annotated:
        yield from nested_classes(inner[0], form)
    elif origin in (Union, types.UnionType):
        for kind in inner:
            yield from nested_classes(kind, form)

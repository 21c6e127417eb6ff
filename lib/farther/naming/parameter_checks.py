"""Classes of parameters: each value has the type that its field declares, or is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ArgsKwargs, CoreSchema, core_schema

from farther.errors import ParameterError, shorten
from farther.text.documentation import arguments, summary_and_text

T = TypeVar("T")

#: Most problems that a message lists.
PROBLEMS = 5

#: Longest name of a file in bytes, as in most file systems.
LONGEST_NAME = 255
#: Longest path in bytes that is accepted.
LONGEST_PATH = 3_000


#: What every registered dataclass uses: `@dataclass(config=STRICT, kw_only=True)`. Unknown
#: parameters are refused, and so are numbers that are not finite.
STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)

#: The types of values that are never converted, by their names in pydantic's core schemas.
_NEVER_CONVERTED = ("bool", "float", "int")


class Parameters:
    """Base of all classes of parameters: a value has the type that its field declares.

    `true` is not a number, `1` and `"yes"` are not booleans, `"10"` is text and 2.5 is not an
    integer. An integer is a number. Lists become tuples, text a path, mappings the classes of
    parameters within others, and scalars of NumPy those of Python.

    Raises:
        ParameterError: a parameter is unknown or missing, or a value does not fit; names it.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema by which pydantic checks the fields."""
        strict = _without_conversions(handler(source))
        return core_schema.no_info_wrap_validator_function(partial(_constructed, cls), strict)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The JSON schema that pydantic writes, with descriptions from the docstring."""
        schema = handler(core)
        add_descriptions(handler.resolve_ref_schema(schema), cls)
        return schema


def add_descriptions(schema: dict[str, Any], cls: type) -> None:
    """Adds what the docstring of a class says of it and of its fields to its JSON schema, in place.

    Defaults that are made by a function are added, too: pydantic leaves them out.
    """
    schema["description"] = "\n\n".join(part for part in summary_and_text(cls) if part)
    description_by_field = arguments(cls)
    schema_by_field = schema["properties"]
    schema["properties"] = {}
    for name, info in cls.__pydantic_fields__.items():  # type: ignore[attr-defined]
        if name not in schema_by_field:
            continue
        field = schema["properties"][name] = schema_by_field[name]
        field.pop("title", None)
        if name in description_by_field:
            field["description"] = description_by_field[name]
        if info.default_factory is not None and "default" not in field:
            field["default"] = _as_yaml(info.default_factory())


def _as_yaml(value: Any) -> Any:
    """A default as lists, mappings, texts and numbers; {} for a class of parameters."""
    if is_dataclass(value) and not isinstance(value, type):
        if not any(info.is_required() for info in type(value).__pydantic_fields__.values()):  # type: ignore[attr-defined]
            return {}
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [_as_yaml(item) for item in value]
    return value


def build(cls: type[T], what: str, params: dict[str, Any]) -> T:
    """`cls(**params)` for a pydantic dataclass, with errors that call it by another name.

    Args:
        what: Name of the thing in messages: "method 'knn'".

    Raises:
        ParameterError: a parameter is unknown or has a wrong value.
    """
    try:
        instance = TypeAdapter(cls).validate_python(params)
    except ValidationError as error:
        raise ParameterError(_explain(cls, what, error)) from None
    _refuse_long_paths(instance, what)
    return instance


def _constructed(cls: type, values: Any, validate: Callable[[Any], Any]) -> Any:
    """An instance; of a call of the class, errors are those of farther.

    Of values within other parameters, errors are left to the class that has these.
    """
    if not isinstance(values, ArgsKwargs):
        return validate(values)
    try:
        instance = validate(values)
    except ValidationError as error:
        raise ParameterError(_explain(cls, cls.__name__, error)) from None
    _refuse_long_paths(instance, cls.__name__)
    return instance


def _refuse_long_paths(instance: Any, what: str) -> None:
    """Refuses paths among parameters that no file system has."""
    for name, path in _paths(vars(instance)):
        sizes = [len(part.encode(errors="replace")) for part in path.parts]
        if max(sizes, default=0) > LONGEST_NAME or sum(sizes) + len(sizes) > LONGEST_PATH:
            raise ParameterError(
                f"{what}: parameter {name!r}: the path is too long: {shorten(str(path))}"
            )


def _without_conversions(schema: Any) -> Any:
    """A core schema, with booleans and numbers strict in all of its parts."""
    if isinstance(schema, (list, tuple)):
        return type(schema)(_without_conversions(part) for part in schema)
    if not isinstance(schema, dict):
        return schema

    parts: Any = {}
    for key, part in schema.items():
        if key == "choices" and schema["type"] == "union":
            parts[key] = [_named_choice(choice) for choice in part]
        elif key == "default":
            parts[key] = part
        else:
            parts[key] = _without_conversions(part)
    if schema.get("type") not in _NEVER_CONVERTED:
        return parts
    parts["strict"] = True
    return core_schema.no_info_before_validator_function(_of_python, parts)


def _named_choice(choice: Any) -> Any:
    """A choice of a union, with the label that the names of parameters in messages have."""
    strict = _without_conversions(choice)
    if isinstance(choice, dict) and choice["type"] in (*_NEVER_CONVERTED, "list", "tuple"):
        return strict, choice["type"]
    return strict


def _of_python(value: Any) -> Any:
    """A scalar of NumPy, or a tensor of one value, as Python has it."""
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def _paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Path]]:
    """The paths among parameters, those of nested ones included, with their names."""
    for name, value in values.items():
        if isinstance(value, Path):
            yield f"{prefix}{name}", value
        elif isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{name}.")
        elif is_dataclass(value) and not isinstance(value, type):
            yield from _paths(vars(value), f"{prefix}{name}.")


def parameters(cls: type) -> dict[str, Any]:
    """Names of a dataclass's constructor parameters and their defaults.

    `dataclasses.MISSING` where there is none.
    """
    defaults = {}
    for field in fields(cls):
        if field.init:
            defaults[field.name] = field.default
    return defaults


def _explain(cls: type, what: str, error: ValidationError) -> str:
    """The problems of parameters in plain words, one per line."""
    lines = []
    for problem in error.errors():
        path = problem["loc"]
        message = problem["msg"].removeprefix("Value error, ")
        name = ".".join(str(part) for part in path if str(part).strip())
        if problem["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            known = ", ".join(parameters(_nested(cls, path[:-1]))) or "none"
            lines.append(f"{what}: unknown parameter {name!r}. Known: {known}")
        elif problem["type"] == "unexpected_positional_argument":
            known = ", ".join(f"{name}=…" for name in parameters(cls)) or "none"
            found = shorten(problem["input"])
            lines.append(f"{what}: {found} has no name. Write parameters as {known}")
        elif problem["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
            lines.append(f"{what}: parameter {name!r} is missing")
        elif name:
            if problem["type"] == "dataclass_type":
                message = f"expected a mapping with {', '.join(parameters(_nested(cls, path)))}"
            found = problem.get("input")
            lines.append(
                f"{what}: parameter {name!r}: {message}, found {shorten(found)}"
                f"{_as_number(found, problem['type'])}"
            )
        else:  # a check of the class found that parameters do not fit together
            lines.append(f"{what}: {message}")
    if len(lines) > PROBLEMS:
        lines[PROBLEMS:] = [f"and {len(lines) - PROBLEMS:,} more problems"]
    return "\n".join(lines)


def _as_number(found: Any, problem: str) -> str:
    """What to write for a text that means a number, such as YAML's `1e-3`; else ""."""
    if problem not in ("int_type", "float_type") or not isinstance(found, str):
        return ""
    try:
        number = float(found)
    except ValueError:
        return ""
    if not math.isfinite(number):
        return ""
    return f": write {number:g}"


def _nested(cls: Any, path: tuple[int | str, ...]) -> type:
    """The dataclass of the parameters at a path: that of `splits.near` in a benchmark."""
    for name in path:
        field = getattr(cls, "__pydantic_fields__", {}).get(name)
        if field is None:
            continue
        for kind in _kinds(field.annotation):
            if is_dataclass(kind):
                cls = kind
                break
    return cls


def _kinds(hint: Any) -> list[type]:
    """The types that a type hint names."""
    kinds = []
    if isinstance(hint, type):
        kinds.append(hint)
    for argument in get_args(hint):
        kinds += _kinds(argument)
    return kinds

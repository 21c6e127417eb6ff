"""Checks of JSON headers and states by a typed schema."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from farther.errors import DataError, shorten
from farther.tables.documents import read_json


class Schema(BaseModel):
    """Base of schemas: types are strict (no text for a number), and numbers finite.

    Fields that a schema does not declare are allowed.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


S = TypeVar("S", bound=Schema)
T = TypeVar("T")


def check(schema: type[S], value: Any, file: str | Path) -> S:
    """The content of a JSON file, checked.

    Args:
        schema: The schema.
        value: The content.
        file: The file, for messages.

    Raises:
        DataError: a field is missing or of another type; names file and field.
    """
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise _first_problem(error, file) from None


def read_typed(kind: type[T], file: str | Path) -> T:
    """The content of a JSON file as a value of a type, such as `list[str]` or a dataclass.

    Raises:
        DataError: as in `check`.
    """
    try:
        content = read_json(file)
        return TypeAdapter(kind).validate_python(content, strict=not is_dataclass(kind))
    except ValidationError as error:
        raise _first_problem(error, file) from None


def _first_problem(error: ValidationError, file: str | Path) -> DataError:
    """The first of several problems, with file and field."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or None
    if first["type"] == "missing":
        return DataError("the field is missing", file=file, field=field)
    expected = re.split(r" or (?:an )?instance of ", first["msg"])[0]
    problem = f"{expected}, found {shorten(first['input'])}"
    return DataError(problem, file=file, field=field)

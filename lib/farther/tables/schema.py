"""Checks of JSON headers and states by a typed schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from farther.errors import DataError, shorten


class Schema(BaseModel):
    """Base of schemas: types as written (no text for a number), finite numbers, further fields allowed."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


S = TypeVar("S", bound=Schema)


def check(schema: type[S], value: Any, file: str | Path) -> S:
    """The content of a JSON file, checked.

    Raises:
        DataError: a field is missing or of another type; names file and field.
    """
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or None
        found = f"{problem['msg']}, found {shorten(problem['input'])}"
        text = "the field is missing" if problem["type"] == "missing" else found
        raise DataError(text, file=file, field=field) from None

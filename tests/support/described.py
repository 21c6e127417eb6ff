"""The keys that the reference of params.yaml describes, and the classes that read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_args

import jsonschema

from farther.pipeline.described_keys import KeyTable, tables_of, tables_of_schema
from farther.pipeline.dvc_file import ROOT
from farther.pipeline.params_schema import SECTIONS, JsonSchema, Schemas
from farther_demo import DemoWorld


@cache
def described() -> dict[str, list[KeyTable]]:
    """The tables of each section; that of the demo world is made as the docs make it."""
    tables = {section.name: tables_of(section) for section in SECTIONS}
    schemas = Schemas()
    tables["demo"] = tables_of_schema("demo", schemas.of(DemoWorld), schemas)
    return tables


class RecordedSchemas(Schemas):
    """Schemas that remember the classes that they are of."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: list[type] = []

    def of(self, cls: type) -> JsonSchema:
        self.classes.append(cls)
        return super().of(cls)


@cache
def classes_of_sections() -> dict[type, str]:
    """The classes that read params.yaml, those of values within others too → their section."""
    section_by_class = {}
    for section in SECTIONS:
        schemas = RecordedSchemas()
        section.make(schemas)
        for cls in schemas.classes:
            for inner in [cls, *inner_classes(cls)]:
                section_by_class.setdefault(inner, section.name)
    return section_by_class


def inner_classes(cls: type) -> Iterator[type]:
    """The classes of the values of a class's fields."""
    for info in cls.__pydantic_fields__.values():
        for hint in hints_in(info.annotation):
            if isinstance(hint, type) and is_dataclass(hint) and hint is not cls:
                yield hint
                yield from inner_classes(hint)


def hints_in(hint: Any) -> Iterator[Any]:
    """A type hint, and those within it."""
    yield hint
    for inner in get_args(hint):
        yield from hints_in(inner)


@cache
def validator() -> jsonschema.Draft7Validator:
    """A validator of params.yaml by the schema that editors use."""
    schema = json.loads((ROOT / "params.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def problems(params: dict[str, Any]) -> dict[str, str]:
    """Place → message of what the schema of params.yaml refuses."""
    return {error.json_path: error.message for error in validator().iter_errors(params)}

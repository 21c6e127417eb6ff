"""JSON values that are checked by a schema or a type."""

from dataclasses import dataclass

import pytest

from farther.errors import DataError
from farther.tables.documents import (
    parse_yaml,
    write_json,
)
from farther.tables.schema import Schema, check, read_typed


class Limits(Schema):
    least: float


@dataclass
class Size:
    width: int


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("least: .inf", "field 'least': Input should be a finite number, found inf"),
        ("least: .nan", "field 'least': Input should be a finite number, found nan"),
        ("least: '1'", "field 'least': Input should be a valid number, found '1'"),
        ("most: 1", "field 'least': the field is missing"),
        ("[1]", r"Input should be a valid dictionary, found \[1\]"),
    ],
)
def test_a_value_that_a_schema_does_not_take_is_named_with_what_it_should_be(text, problem):
    with pytest.raises(DataError, match=f"^params.yaml: {problem}$"):
        check(Limits, parse_yaml(text), "params.yaml")


def test_a_value_in_place_of_fields_is_named_in_words_of_json(tmp_path):
    write_json(tmp_path / "a.json", [1])
    with pytest.raises(DataError, match=r"a\.json: Input should be a dictionary, found \[1\]$"):
        read_typed(Size, tmp_path / "a.json")

"""Loaders of YAML, JSON and CSV: a damaged or hostile text is an error with file and line."""

import json
import os
from dataclasses import dataclass

import pytest

from farther.errors import DataError
from farther.tables import documents, json_stream
from farther.tables.documents import (
    DEPTH,
    parse_json,
    parse_yaml,
    read_json,
    read_sealed,
    read_yaml,
    write_json,
    write_sealed,
)
from farther.tables.files import csv_rows, read_text
from farther.tables.json_stream import list_elements
from farther.tables.schema import Schema, check, read_typed

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(40))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAUGHS, r"more than 1,000,000 values, those that aliases repeat included \(line 18\)"),
        ("a: &a [*a]", "the alias 'a' has no anchor before it, or is within it"),
        ("a: 1\nb: " + "[" * 5000, r"nested more than 100 levels deep \(line 2\)"),
        ("a: " + "9" * 5000, "a number of 5,000 characters"),
        ("a: " + ":".join("1" * 300_000), "a number of 599,999 characters"),
        ("a: !!int '" + "9" * 5000 + "'", "a number of 5,000 characters"),
        (
            "a: 1\nb: 2020-13-45",
            r"not a value of the type 'timestamp'.*: month must be in 1..12.*\(line 2, column 4\)",
        ),
        ("a: !!int x", r"not a value of the type 'int'.*\(line 1, column 4\)"),
        ("a: !!bool x", "not a value of the type 'bool'"),
        ("a: !!float x", "not a value of the type 'float'"),
        ("a: !!timestamp x", "not a value of the type 'timestamp'"),
        ("a: !!python/object/apply:os.system [touch PWNED]", "could not determine a constructor"),
        ("a: [1\nb: 2", r"\(line 2, column"),
        ("a: \0", "unacceptable character"),
        ("{[1]: 2}", "unhashable key"),
    ],
)
def test_yaml_that_is_damaged_or_hostile_is_refused_with_file_and_line(tmp_path, text, problem):
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(DataError, match=rf"rules\.yaml: not (readable )?YAML.*{problem}") as error:
        read_yaml(file)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": ' + "[" * 90_000, "nested more than 100 levels deep"),
        ("[" * (DEPTH + 1) + "1" + "]" * (DEPTH + 1), "nested more than 100 levels deep"),
        ("[" * (DEPTH + 1) + " " * 2**25 + "]" * (DEPTH + 1), "nested more than 100 levels deep"),
        ("9" * 5000, "not readable JSON: Exceeds the limit"),
        (
            '{"threshold": ' + "9" * 400 + "}",
            "not readable JSON: int too large to convert to float",
        ),
        ('{"a": "\\ud800"}', "occur in pairs only"),
        (
            '{"a": [0, {"b": NaN}]}',
            r"field 'a\.1\.b': not readable JSON: the number NaN is not finite",
        ),
        ('{"a": NaN}}', "the number NaN is not finite"),
        ('{"a": "1e999", "b": 1e999}', r"field 'b': .* the number 1e999 is not finite"),
        ("[" + "9" * 5000 + ", -Infinity]", "Exceeds the limit"),
        ("[-Infinity, " + "9" * 5000 + "]", r"field '0': .* the number -Infinity is not finite"),
        ("[" * (DEPTH + 1) + "NaN" + "]" * (DEPTH + 1), "the number NaN is not finite"),
        ('{"a": 1,\n"b": x}', r"row 2: not JSON: Expecting value \(column 6\)"),
    ],
)
def test_json_that_is_damaged_or_hostile_is_refused_with_its_file(tmp_path, text, problem):
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(DataError, match=rf"a\.json: .*{problem}"):
        read_json(file)


def test_ordinary_texts_are_read_as_ever():
    assert parse_json('["' + "9" * 400 + '", ' + "9" * 300 + "]") == ["9" * 400, int("9" * 300)]
    assert parse_yaml("a: &x {b: 0x1F, c: 1:30}\nd: {<<: *x, b: 2001-02-03}\ne: [*x, *x]")["e"][
        1
    ] == {"b": 31, "c": 90}
    assert parse_json('["1e999, NaN", 1e300, 1.5]') == ["1e999, NaN", 1e300, 1.5]
    assert parse_yaml("") is None
    assert parse_yaml("a: '" + "7" * 5000 + "'") == {"a": "7" * 5000}
    assert parse_json("[" * DEPTH + "]" * DEPTH) is not None
    assert parse_json(json.dumps({"a": "😀"})) == {"a": "😀"}
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("YAML_SIZE", "abcde"),
        ("YAML_VALUES", "[1, 2, 3, 4]"),
        ("DEPTH", "[[[[[]]]]]"),
        ("DIGITS", "a: 12345"),
    ],
)
def test_a_yaml_text_may_reach_a_limit_but_not_exceed_it(monkeypatch, limit, text):
    monkeypatch.setattr(documents, limit, 5)
    assert parse_yaml(text)
    monkeypatch.setattr(documents, limit, 4)
    with pytest.raises(DataError, match=r"(at most|more than) 4\b"):
        parse_yaml(text)


def test_fields_that_are_not_wanted_are_dropped_wherever_they_are(tmp_path):
    value = {"a": 1, "mask": [1], "objects": [{"mask": {"b": 2}, "c": {"poly2d": 3, "d": "mask"}}]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json", without=("poly2d", "mask")) == {
        "a": 1,
        "objects": [{"c": {"d": "mask"}}],
    }
    assert read_json(tmp_path / "a.json") == value


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


def test_a_field_of_a_csv_file_that_is_too_long_is_named_with_its_row(tmp_path):
    file = tmp_path / "a.csv"
    for length in (131_072, 131_073):
        file.write_text(f"a,b\n1,2\n{'x' * length},3\n")
        if length == 131_072:
            assert list(csv_rows(file))[2] == ["x" * length, "3"]
        else:
            with pytest.raises(
                DataError, match=r"a\.csv: row 3: not readable CSV: field larger than"
            ):
                list(csv_rows(file))


def test_a_path_that_is_not_a_file_of_text_is_an_error_that_names_it(tmp_path):
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("latin", "loop", "folder", "pipe", "absent", "n" * 300, "nul\0"):
        for read in (read_text, read_json, read_yaml):
            with pytest.raises(DataError) as error:
                read(tmp_path / name)
            assert error.value.file == str(tmp_path / name)


def test_a_file_that_only_farther_writes_is_read_as_it_was_written_and_not_after_a_change(tmp_path):
    file, value = tmp_path / "a.json", {"b": [1, 2.5, None], "a": {"é": (1, 2)}, "n": 0.1 + 0.2}
    write_sealed(file, value)
    assert read_sealed(file, "rerun it") == {
        "b": [1, 2.5, None],
        "a": {"é": [1, 2]},
        "n": 0.1 + 0.2,
    }
    file.write_text("\ufeff" + file.read_text().replace("\n", "\r\n"), encoding="utf-8")
    assert read_sealed(file, "rerun it")["n"] == value["n"]
    for before, after in (
        ("2.5", "2.6"),
        ("0.30000000000000004", "0.3"),
        ('"b"', '"c"'),
        ("null", "true"),
    ):
        write_sealed(file, value)
        file.write_text(file.read_text().replace(before, after))
        with pytest.raises(
            DataError, match=r"a\.json: field 'digest': damaged or edited.*; rerun it"
        ):
            read_sealed(file, "rerun it")
    file.write_text("[]")
    with pytest.raises(DataError, match=r"expected an object, found \[\]: rerun it"):
        read_sealed(file, "rerun it")


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        ('"' + "a" * 1_100_000 + '"', "row 1: not JSON: an element of more than 1 MB"),
        ("9" * 300_000, "not JSON: a number of more than 4,300 characters"),
        ("[" + "1, " * 400_000 + "1]", "row 1: not JSON: an element of more than 1 MB"),
        ("[" * DEPTH + "1" + "]" * DEPTH, f"nested more than {DEPTH} levels deep"),
    ],
)
def test_one_element_of_a_list_is_bounded(tmp_path, element, problem, monkeypatch):
    monkeypatch.setattr(json_stream, "ELEMENT_BYTES", 1_000_000)
    (tmp_path / "large.json").write_text(f'["{"b" * 1000}", {element}]')
    with pytest.raises(DataError, match=problem):
        list(list_elements(tmp_path / "large.json"))
    (tmp_path / "keyed.json").write_text(f'{{"info": [{{}}], "rows": ["{"b" * 1000}", {element}]}}')
    with pytest.raises(DataError, match=problem.replace("row 1", r"row rows\[1\] or later")):
        list(list_elements(tmp_path / "keyed.json", "rows"))


@pytest.mark.parametrize("at", range(65_536 - 4302, 65_536 + 4, 717))
def test_a_number_that_python_does_not_read_is_found_wherever_a_block_ends(tmp_path, at):
    for digits in (4300, 4301):
        text = f'["{"b" * (at - 6)}", 0.{"3" * (digits - 2)}]'
        (tmp_path / "a.json").write_text(text)
        if digits == 4300:
            assert list(list_elements(tmp_path / "a.json")) == json.loads(text)
        else:
            with pytest.raises(DataError, match="a number of more than 4,300 characters"):
                list(list_elements(tmp_path / "a.json"))


def test_brackets_within_texts_are_no_levels(tmp_path):
    rows = [
        {"note": text, "deep": [[[n]]]}
        for n in range(3_000)
        for text in (':[ \\" {', "\\", 'a"[{', "é\n[")
    ]
    (tmp_path / "sad.json").write_text(json.dumps(rows))
    assert list(list_elements(tmp_path / "sad.json")) == rows
    (tmp_path / "keyed.json").write_text(json.dumps({"notes": rows, "rows": rows[:9]}))
    assert list(list_elements(tmp_path / "keyed.json", "rows")) == rows[:9]


def test_a_list_of_many_elements_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "ELEMENT_BYTES", 1_000_000)
    (tmp_path / "many.json").write_text("[" + ", ".join(['"' + "a" * 800_000 + '"'] * 20) + "]")
    assert len(list(list_elements(tmp_path / "many.json"))) == 20


@pytest.mark.parametrize("length", [1, 40, 100_000])
def test_json_is_read_as_it_was_written(tmp_path, length):
    elements = [{"a": [1, -2.5e3, "},{", 'é"\\']}, 12345, [], {}, "x" * length, None, True]
    file = tmp_path / "a.json"
    for indent in (None, 2):
        file.write_text(json.dumps(elements, indent=indent), encoding="utf-8")
        assert list(list_elements(file)) == elements
        file.write_text(
            json.dumps({"n": 123, "skip": [1, {}], "b": elements, "c": {"b": [1]}}, indent=indent)
        )
        assert list(list_elements(file, "b")) == elements


def test_a_byte_order_mark_is_skipped(tmp_path):
    (tmp_path / "a.json").write_text("[1]", encoding="utf-8-sig")
    assert list(list_elements(tmp_path / "a.json")) == [1]


@pytest.mark.parametrize(
    "text", ['[{"a": 1}, {"a": 2', '[{"a": 1}, {"a": tru}]', '[{"a": 1}, ]', '[{"a": 1} {"a": 2}]']
)
def test_damaged_json_names_file_and_place(tmp_path, text):
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(DataError, match=r"a\.json: row [01]: .*Is the file complete\?"):
        list(list_elements(file))


@pytest.mark.parametrize(
    ("value", "near"),
    [
        (b"NaN", "NaN"),
        (b"1e999", "1e999"),
        (b"Infinity", "Infinity"),
        (b'"caf\xe9"', '"caf\N{REPLACEMENT CHARACTER}"'),
    ],
)
def test_values_that_are_not_json_are_refused_with_the_text_around_them(tmp_path, value, near):
    (tmp_path / "a.json").write_bytes(b'[{"score": ' + value + b"}]")
    with pytest.raises(
        DataError, match=rf"a\.json: row 0: not JSON: (lexical|parse) error: .* near '.*{near}"
    ):
        list(list_elements(tmp_path / "a.json"))


@pytest.mark.parametrize("text", ["", "{}", "3"])
def test_json_that_is_not_a_list_is_refused(tmp_path, text):
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(DataError, match=r"a\.json: expected"):
        list(list_elements(file))

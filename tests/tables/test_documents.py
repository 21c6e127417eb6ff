"""YAML and JSON: a damaged or hostile text is an error with file and line."""

import json
from pathlib import Path

import numpy as np
import pytest

from farther.errors import DataError
from farther.tables import documents
from farther.tables.documents import (
    JSON_DEPTH,
    parse_json,
    parse_yaml,
    read_json,
    read_sealed,
    read_yaml,
    write_json,
    write_sealed,
)

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
        ("a: {b: 1, c: 2,\n 'b': 3}", r"the key 'b' occurs twice.*\(line 2, column 2\)"),
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
        ('{"a": ' + "[" * 90_000, "nested more than 201 levels deep"),
        ("[" * (JSON_DEPTH + 1) + "1" + "]" * (JSON_DEPTH + 1), "nested more than 201 levels deep"),
        (
            "[" * (JSON_DEPTH + 1) + " " * 2**25 + "]" * (JSON_DEPTH + 1),
            "nested more than 201 levels deep",
        ),
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
        ('{"a": 1E+0999\n}', r"field 'a': .* the number 1E\+0999 is not finite"),
        ("[[1e999]]", r"field '0\.0': .* the number 1e999 is not finite"),
        ("1e999", "the number 1e999 is not finite"),
        (" " * 99 + "[" + "9" * 309 + "]", "int too large to convert to float"),
        ('{"a": "1e999", "b": 1e999}', r"field 'b': .* the number 1e999 is not finite"),
        ("[" + "9" * 5000 + ", -Infinity]", "Exceeds the limit"),
        ("[1, 1E+0999]", r"field '1': .* the number 1E\+0999 is not finite"),
        ("1e999", "the number 1e999 is not finite"),
        ("[-Infinity, " + "9" * 5000 + "]", r"field '0': .* the number -Infinity is not finite"),
        ("[" * (JSON_DEPTH + 1) + "NaN" + "]" * (JSON_DEPTH + 1), "the number NaN is not finite"),
        ('{"a": 1,\n"b": x}', r"row 2: not JSON: Expecting value \(column 6\)"),
    ],
)
def test_json_that_is_damaged_or_hostile_is_refused_with_its_file(tmp_path, text, problem):
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(DataError, match=rf"a\.json: .*{problem}"):
        read_json(file)


TEXTS = (
    *(
        "0",
        "-0",
        "-0.0",
        "1e5",
        "1E+5",
        "5e-324",
        "2.2250738585072011e-308",
        "1.7976931348623157e308",
    ),
    *("12345678901234567890123", "[]", "{}", " null\n", "true", '"a\\/b\\u00e9\\ud83d\\ude00 é"'),
    '{"b": 1, "a": [1, 2.0, {"c": null}], "b": 2}',
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_of_json_has_pythons_types_and_digits(text):
    expected = repr(json.loads(text))
    assert repr(parse_json(text)) == expected
    assert repr(parse_json(text.encode())) == expected
    assert repr(parse_json(b"\xef\xbb\xbf" + text.encode())) == expected


def test_numbers_of_json_are_read_to_the_last_digit():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    texts = [repr(float(number)) for number in numbers[np.isfinite(numbers)]]
    for _ in range(2_000):
        digits = "".join(map(str, rng.integers(0, 10, rng.integers(1, 60))))
        texts.append(f"{rng.integers(10**9)}.{digits}e{rng.integers(-340, 99)}")
    text = f"[{', '.join(texts)}]"
    assert parse_json(text) == [float(number) for number in texts]


def test_ordinary_texts_are_read_as_ever():
    assert parse_json('["' + "9" * 400 + '", ' + "9" * 300 + "]") == ["9" * 400, int("9" * 300)]
    assert parse_yaml("a: &x {b: 0x1F, c: 1:30}\nd: {<<: *x, b: 2001-02-03}\ne: [*x, *x]")["e"][
        1
    ] == {"b": 31, "c": 90}
    assert parse_json('["1e999, NaN", 1e300, 1.5]') == ["1e999, NaN", 1e300, 1.5]
    assert parse_json('["3e903", "ae9031", 1e-999]') == ["3e903", "ae9031", 0]
    assert parse_yaml("") is None
    assert parse_yaml("a: '" + "7" * 5000 + "'") == {"a": "7" * 5000}
    assert parse_json("[" * JSON_DEPTH + "]" * JSON_DEPTH) is not None
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
    write_json(file, value)
    with pytest.raises(DataError, match="field 'digest': damaged or edited"):
        read_sealed(file, "rerun it")
    file.write_text("[]")
    with pytest.raises(DataError, match=r"expected an object, found \[\]: rerun it"):
        read_sealed(file, "rerun it")


def test_json_has_letters_as_they_are_and_keys_in_their_order_one_per_line(tmp_path: Path):
    write_json(tmp_path / "value.json", {"b": "é", "a": ["日本"]})
    text = (tmp_path / "value.json").read_text(encoding="utf-8")
    assert text == '{\n  "b": "é",\n  "a": [\n    "日本"\n  ]\n}\n'


def test_json_has_no_nan(tmp_path: Path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "value.json", float("nan"))

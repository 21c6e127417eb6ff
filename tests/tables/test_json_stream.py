"""Lists in JSON files, one element at a time: limits, encodings and damage."""

import json

import pytest

from farther.errors import DataError
from farther.tables import json_stream
from farther.tables.documents import (
    JSON_DEPTH,
)
from farther.tables.json_stream import list_elements, list_parts


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        ('"' + "a" * 1_100_000 + '"', "row 1: not JSON: an element of more than 1 MB"),
        ("9" * 300_000, "not JSON: a number of more than 4,300 characters"),
        ("[" + "1, " * 400_000 + "1]", "row 1: not JSON: an element of more than 1 MB"),
        ("[" * JSON_DEPTH + "1" + "]" * JSON_DEPTH, f"nested more than {JSON_DEPTH} levels deep"),
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


@pytest.mark.parametrize("size", [7, 20, 64, 1_000])
def test_a_list_is_cut_at_the_ends_of_elements_only(tmp_path, monkeypatch, size):
    monkeypatch.setattr(json_stream, "PART_BYTES", size)
    texts = ("}, {", '"}', "\\", "é}", "]")
    rows = [
        {"n": n, "text": text, "inner": {"a": [{}, n / 3]}} for n in range(40) for text in texts
    ]
    file = tmp_path / "a.json"
    for indent in (None, 1):
        file.write_text(json.dumps(rows, indent=indent), encoding="utf-8")
        assert list(list_elements(file)) == rows
        assert [row for part in list_parts(file) for row in part] == rows


@pytest.mark.parametrize("damage", [", ,", " ", ", tru,", "] ["])
def test_damage_behind_the_first_parts_names_its_row(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(json_stream, "PART_BYTES", 100)
    rows = [json.dumps({"n": n}) for n in range(200)]
    text = f"[{', '.join(rows[:150])}{damage}{', '.join(rows[150:])}]"
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"a\.json: row 150: not JSON"):
        list(list_elements(tmp_path / "a.json"))

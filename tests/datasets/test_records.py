import pytest

from farther.datasets.records import Record, records
from farther.errors import DataError, shorten
from farther.tables.documents import read_json


def test_named_fields_are_dropped_at_any_depth(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        '{"outline": [1], "items": '
        '[{"id": 1, "outline": [[2, 3]]}, {"at": {"outline": null, "x": 4}}]}'
    )
    assert read_json(path, without=["outline"]) == {"items": [{"id": 1}, {"at": {"x": 4}}]}


def test_an_error_names_the_way_to_the_field(tmp_path):
    record = next(iter(records([{"box": {"corner": {"x": "left"}}}], tmp_path, "items")))
    with pytest.raises(DataError) as error:
        record.record("box").record("corner").number("x")
    assert (error.value.row, error.value.field) == ("items[0]", "box.corner.x")
    assert error.value.problem == "expected a finite number, found 'left'"


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (1, True), (0, False), (None, False)]
)
def test_a_flag_may_be_a_truth_value_a_number_or_absent(tmp_path, value, expected):
    assert Record({"flag": value}, tmp_path).flag("flag") is expected
    assert Record({}, tmp_path).flag("flag") is False


def test_a_long_or_deep_value_is_cut_in_messages():
    nested = value = []
    for _ in range(5000):
        value.append([])
        value = value[0]
    for value in (
        "a" * 1000,
        ["a" * 100] * 1000,
        nested,
        {n: [n] * 99 for n in range(99)},
        10**5000,
    ):
        assert len(shorten(value)) <= 200
    assert shorten([1, {"b": 2, "a": "x"}]) == "[1, {'a': 'x', 'b': 2}]"

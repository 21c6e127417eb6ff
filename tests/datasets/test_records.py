import pytest

from farther.datasets.records import Record, read_json, records, shorten
from farther.errors import DataError


def test_fields_that_nobody_needs_are_dropped_wherever_they_stand(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"outline": [1], "items": [{"id": 1, "outline": [[2, 3]]}, {"at": {"outline": null, "x": 4}}]}')
    assert read_json(path, without=["outline"]) == {"items": [{"id": 1}, {"at": {"x": 4}}]}


def test_an_error_names_the_way_to_the_field(tmp_path):
    record = next(iter(records([{"box": {"corner": {"x": "left"}}}], tmp_path, "items")))
    with pytest.raises(DataError) as error:
        record.record("box").record("corner").number("x")
    assert (error.value.row, error.value.field) == ("items[0]", "box.corner.x")
    assert error.value.problem == "expected a finite number, found 'left'"


@pytest.mark.parametrize(("value", "expected"), [(True, True), (1, True), (0, False), (None, False)])
def test_a_flag_may_be_a_truth_value_a_number_or_absent(tmp_path, value, expected):
    assert Record({"flag": value}, tmp_path).flag("flag") is expected
    assert Record({}, tmp_path).flag("flag") is False


def test_a_long_value_is_cut_in_messages():
    assert shorten("a" * 100) == "'" + "a" * 76 + "…"
    assert shorten([1, 2]) == "[1, 2]"

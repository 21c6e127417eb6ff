"""Outcomes and false alarms by attributes of images."""

import pytest
from tests.evaluation.evaluated_runs import evaluate, write_scores

from farther.evaluation.files import RunSplit
from farther.evaluation.long_table import read_long_table
from farther.tables import ImageAttributes, Regions


def write_attributes(files, split, *rows):
    images, attributes, values = zip(*rows, strict=True)
    table = ImageAttributes(image_id=images, attribute=attributes, value=values)
    table.write(files.attributes(split))


@pytest.fixture
def weathered(files):
    """The run with the weather of its images; of o3, which shows no object, it is not known."""
    write_attributes(
        files,
        "far",
        ("o1", "weather", "rain"),
        ("o2", "weather", "clear"),
        *((name, "camera", "left") for name in ("o1", "o2", "o3")),
    )
    write_attributes(files, "test", ("i1", "weather", "rain"), ("i2", "weather", "clear"))
    # The detection of i2 is flagged: its score is below τ = 0.65.
    id_regions = RunSplit(files, "test").regions()
    assert isinstance(id_regions, Regions)
    write_scores(files, "msp", "test", id_regions, [0.9, 0.6, 0.1])
    return files


def test_outcomes_are_those_of_the_objects_in_the_images_of_a_value(weathered):
    results = evaluate(weathered).methods["msp"].splits["far"]
    by_weather = results.by_attribute["weather"]
    # In o1 one fox is found, the other taken for a cat; the bear of o2 is missed.
    counts = ("unknown_objects", "tp_u", "fn_misclassified", "fn_missed")
    assert [by_weather["rain"].values[key] for key in counts] == [2, 1, 1, 0]
    assert [by_weather["clear"].values[key] for key in counts] == [1, 0, 0, 1]
    whole = results.groups["open_set"].values
    for key in counts:
        assert sum(part.values[key] for part in by_weather.values()) == whole[key]
    assert by_weather["rain"].intervals["r_u"] is None  # all resamples have the same image


def test_an_attribute_with_one_value_divides_nothing(weathered):
    assert list(RunSplit(weathered, "far").attributes) == ["weather"]


def test_false_alarms_are_those_of_the_id_images_of_a_value(weathered):
    by_weather = evaluate(weathered).methods["msp"].costs_by_attribute["weather"]
    clear = by_weather["clear"].values
    assert (clear["images"], clear["flagged"], clear["id_flagged"]) == (1, 1, 1)
    rain = by_weather["rain"].values
    assert (rain["images"], rain["flagged"], rain["id_flagged"]) == (1, 0, 0)


def test_the_long_table_has_a_row_per_value(weathered):
    evaluate(weathered)
    rows = read_long_table(weathered.long_table).filter(metric="r_u", part="weather=rain")
    assert rows["value"].to_list() == [0.5]
    rows = read_long_table(weathered.long_table).filter(metric="id_flagged", split="test")
    by_part = dict(rows.select("part", "value").iter_rows())
    assert by_part == {"": 0.5, "weather=clear": 1, "weather=rain": 0}


def test_other_attributes_are_evaluated_again(weathered):
    evaluate(weathered)
    write_attributes(weathered, "far", ("o1", "weather", "clear"), ("o2", "weather", "rain"))
    by_weather = evaluate(weathered).methods["msp"].splits["far"].by_attribute["weather"]
    assert by_weather["rain"].values["fn_missed"] == 1

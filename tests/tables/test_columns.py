"""Values of columns that are refused, by row and field."""

import numpy as np
import polars as pl
import pytest
from tests.tables.examples import objects

from farther.errors import DataError
from farther.tables import Images, Objects, Regions, Scores
from farther.tables.annotations import REGION_OUTCOMES, RegionOutcomes
from farther.tables.columns import SMALL_TABLE, first_repeated


def test_vectors_in_place_of_texts_are_refused_before_they_become_objects():
    vectors = pl.Series("category", np.zeros((3, 5), np.float32))
    with pytest.raises(
        DataError, match=r"row 0: field 'category': expected text, found Array\(Float32"
    ):
        Objects.from_frame(objects().frame.with_columns(vectors))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("category", pl.Series(["cat", None, "dog"])),
        ("category", pl.Series(["cat", None, "dog"], dtype=pl.Categorical)),
        ("object_id", pl.Series([1, None, 2])),
        ("is_crowd", pl.Series([True, None, False])),
        ("box", pl.Series([[0.0, 0, 1, 1], None, [0, 0, 2, 2]])),
    ],
)
def test_a_null_is_refused_by_row_and_field(name, values):
    with pytest.raises(DataError, match=f"row 1: field '{name}': the value is null"):
        objects(**{name: values})


@pytest.mark.parametrize("rows", [3, SMALL_TABLE + 1])
def test_a_text_that_a_column_does_not_allow_is_refused_by_row(rows):
    shared = {
        "image_id": ["a"] * rows,
        "region_id": np.arange(rows),
        "object_id": np.zeros(rows),
        "iou": [0.5] * rows,
    }
    outcome = [*REGION_OUTCOMES, *["known"] * rows][:rows]
    assert RegionOutcomes(**shared, outcome=outcome).outcome.tolist() == outcome
    with pytest.raises(
        DataError,
        match="row 2: field 'outcome': unknown outcome 'lost'; known: found, misclassified",
    ):
        RegionOutcomes(**shared, outcome=[*outcome[:2], "lost", *outcome[3:]])


def test_a_value_that_must_be_unique_is_refused_twice():
    with pytest.raises(DataError, match="row 2: field 'object_id': 1 is in an earlier row too"):
        objects(object_id=[1, 2, 1])
    with pytest.raises(DataError, match="row 1: field 'image_id'"):
        Images(
            image_id=["a", "a"],
            dataset=["x"] * 2,
            file=["f"] * 2,
            width=[1, 1],
            height=[1, 1],
            digest=["", ""],
        )


def test_the_first_repeated_value_is_that_which_a_loop_finds():
    random = np.random.default_rng(2)
    drawn = [random.integers(0, 3 * n + 1, n).tolist() for n in range(12) for _ in range(10)]
    found = []
    for numbers in (*drawn, *map(sorted, drawn), list(range(9))):
        first = next((row for row, number in enumerate(numbers) if number in numbers[:row]), None)
        texts = [f"{number}" for number in numbers]
        series = pl.Series(numbers, dtype=pl.Int64), pl.Series(texts, dtype=pl.String)
        for given in (np.array(numbers, np.int64), np.array(texts, object), *series):
            assert first_repeated(given) == first
        found.append(first)
    assert None in found and len(set(found)) > 5


def test_a_score_is_never_nan():
    with pytest.raises(DataError, match="row 1: field 'score'"):
        Scores(image_id=["a", "a"], region_id=[0, 1], score=[0.5, np.nan])


def test_lists_of_different_lengths_are_refused_with_the_row():
    ragged = pl.Series([[1.0, 2.0], [3.0, 4.0], [5.0]])
    with pytest.raises(DataError, match=r"row 2: .*1 values, but 2 in row 0"):
        Regions(
            image_id=["a"] * 3,
            region_id=[0, 1, 2],
            box=np.ones((3, 4)),
            score=[1.0] * 3,
            label=[0] * 3,
            logits=ragged,
        )
    with pytest.raises(DataError, match=r"field 'score': expected numbers, found text"):
        Regions(
            image_id=["a"],
            region_id=[0],
            box=np.ones((1, 4)),
            score=["x"],
            label=[0],
            logits=[[1.0]],
        )

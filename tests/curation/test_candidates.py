"""Files of candidates: written, read back, and damaged."""

import polars as pl
import pytest
from tests.support.messages import ABSENT

from farther.curation.candidates import CANDIDATES, candidate_mask, write_candidates
from farther.errors import DataError


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "dataset,subset,image_id\nphotos,pool,a\n\nphotos,pool,x\n",
            r"c\.csv: row 4: field 'image_id': photos pool has no image 'x'",
        ),
        (
            "dataset,subset,image_id\nphotos,pool,a\nphotos,,b\n",
            "row 3: expected dataset, subset and image_id",
        ),
        ("dataset,subset\nphotos,pool\n", "row 1: no column 'image_id'"),
    ],
)
def test_a_wrong_row_of_candidates_is_named_by_its_line(tmp_path, text, problem):
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(DataError, match=problem):
        candidate_mask(tmp_path / "c.csv", "photos", "pool", ["a", "b"])


def test_a_mask_of_candidates_is_in_the_order_of_the_images(tmp_path):
    (tmp_path / "c.csv").write_text(
        "dataset,subset,image_id\nphotos,pool,b\nphotos,other,a\nmore,pool,c\n"
    )
    assert candidate_mask(tmp_path / "c.csv", "photos", "pool", ["a", "b", "c"]).tolist() == [
        False,
        True,
        False,
    ]


def test_semicolons_between_the_columns_of_candidates_are_read(tmp_path):
    (tmp_path / "c.csv").write_text("dataset;subset;image_id\nphotos;pool;b,c\n")
    assert candidate_mask(tmp_path / "c.csv", "photos", "pool", ["a", "b,c"]).tolist() == [
        False,
        True,
    ]


def test_a_file_of_candidates_is_read_back_and_damage_is_named(tmp_path):
    path = tmp_path / "c.csv"
    row = ("photos", "pool", 'a "b", c', "far", "Kite", 3, "id 1", 0.87654)
    candidates = pl.DataFrame([row], schema=CANDIDATES, orient="row")
    write_candidates(path, candidates)
    assert path.read_text().splitlines()[1] == 'photos,pool,"a ""b"", c",far,Kite,3,id 1,0.8765'
    assert candidate_mask(path, "photos", "pool", ["x", 'a "b", c']).tolist() == [False, True]
    assert candidate_mask(path, "photos", "other", ["x"]).tolist() == [False]
    with pytest.raises(
        DataError, match=r"c\.csv: row 2: field 'image_id': photos pool has no image"
    ):
        candidate_mask(path, "photos", "pool", ["x"])
    for text, problem in (
        ("dataset,image_id\n", "no column 'subset'"),
        ("dataset,subset,image_id\nphotos,pool\n", "row 2: expected dataset, subset and image_id"),
        ('dataset,subset,image_id\nphotos,"pool,x\n', "not CSV"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=problem):
            candidate_mask(path, "photos", "pool", ["x"])
    with pytest.raises(DataError, match=ABSENT):
        candidate_mask(tmp_path / "none.csv", "photos", "pool", ["x"])

"""The files of a run."""

import re

import numpy as np
import pytest
from tests.evaluation.deployable import lay

from farther.errors import DataError
from farther.evaluation import files as run
from farther.evaluation.threshold import read_threshold
from farther.tables import Objects, Scores

BOX = [0, 0, 1, 1]


def test_scores_are_joined_by_image_and_region_whatever_their_order_and_numbers(regions, tmp_path):
    table = regions(("a", BOX, 0.1), ("a", BOX, 0.2), ("b", BOX, 0.3), ("b", BOX, 0.4))
    table = table.with_columns(region_id=[2**62, -5, 2**62, 7])
    order = [3, 0, 2, 1]
    Scores(
        image_id=table.image_id[order],
        region_id=table.region_id[order],
        score=np.array([4.0, 1, 3, 2]),
    ).write(tmp_path / "scores.parquet")
    assert run.aligned_scores(table, tmp_path / "scores.parquet", stored=4).tolist() == [1, 2, 3, 4]
    assert run.aligned_scores(table[2:], tmp_path / "scores.parquet", stored=4).tolist() == [3, 4]


def test_a_region_that_is_scored_twice_is_named_with_the_row_of_its_second_score(regions, tmp_path):
    table = regions(("a", BOX, 0.1), ("a", BOX, 0.2), ("b", BOX, 0.3))
    Scores(image_id=["b", "a", "a"], region_id=[2, 1, 1], score=np.zeros(3)).write(
        tmp_path / "scores.parquet"
    )
    with pytest.raises(DataError, match="region 1 of 'a' is scored twice") as error:
        run.aligned_scores(table, tmp_path / "scores.parquet", stored=3)
    assert (error.value.row, error.value.field) == (2, "region_id")


@pytest.mark.parametrize("name", ["../up", "/root", ""])
def test_names_do_not_lead_out_of_the_artifacts(name, tmp_path):
    with pytest.raises(DataError):
        run.RunFiles("r", "b", tmp_path).scores("msp", f"../../../../{name}")
    with pytest.raises(DataError):
        run.RunFiles("../r/../..", "b", tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"threshold": null}', "field 'threshold': Input should be a valid number, found None"),
        ('{"threshold": true}', "field 'threshold': Input should be a valid number, found True"),
        ('{"tau": 0.5}', "field 'threshold': the field is missing"),
        ("[]", "Input should be a valid dictionary, found []"),
    ],
)
def test_a_threshold_must_be_a_number(tmp_path, text, problem):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(DataError, match=re.escape(f"t.json: {problem}")):
        read_threshold(tmp_path / "t.json")


def test_an_object_of_an_image_that_numpy_takes_for_an_empty_name_is_refused_with_its_row(tmp_path):
    artifacts = lay(tmp_path)
    file = artifacts / "splits/b/far/objects.parquet"
    objects = Objects.read(file)
    objects.with_columns(
        image_id=np.array([*objects.image_id[:2], "\0", objects.image_id[3]], dtype=object)
    ).write(file)
    with pytest.raises(DataError, match="is not a readable image of split 'far'") as error:
        run.RunSplit(run.RunFiles("r", "b", artifacts), "far")
    assert (error.value.file, error.value.row, error.value.field) == (str(file), 2, "image_id")

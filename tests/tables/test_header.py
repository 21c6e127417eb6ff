"""Damaged headers of regions."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from farther.errors import DataError
from farther.tables import Regions
from farther.tables.regions import RegionsFolder


@pytest.fixture
def folder(tmp_path):
    rows = np.arange(40)
    regions = Regions(
        image_id=[f"image {row}" for row in rows],
        region_id=rows,
        box=np.tile([0, 0, 2, 2], (40, 1)),
        score=rows / 40,
        label=rows % 2,
        logits=np.ones((40, 2)),
        features=np.ones((40, 3)),
        classes=("a", "b"),
        weight=np.ones((2, 3)),
        bias=np.ones(2),
    )
    regions.write(tmp_path / "r")
    return tmp_path / "r"


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("classes", 1.5, "classes"),
        ("classes", ["a", 2], r"classes\.1"),
        ("shards", {}, "shards"),
        ("shards", [{"regions": 40}], r"shards\.0\.file"),
        ("shards", [{"file": "part-00000.parquet", "regions": -1}], r"shards\.0\.regions"),
        ("columns", None, "columns"),
        ("detector", [], "detector"),
        ("failures", [1], r"failures\.0"),
        ("background_index", "0", "background_index"),
        ("score_threshold", float("inf"), "score_threshold"),
        ("activation", ["softmax"], "activation"),
    ],
)
def test_a_header_field_of_another_type_is_named(folder, field, value, named):
    info = json.loads((folder / "regions.json").read_text())
    (folder / "regions.json").write_text(json.dumps({**info, field: value}))
    with pytest.raises(DataError, match=rf"regions\.json: field '{named}'"):
        RegionsFolder(folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"background_index": 2}, "field 'background_index': expected 0 … 1, found 2"),
        (
            {"background_index": 0, "unknown_columns": [0]},
            "field 'unknown_columns': expected different columns from 0 to 1",
        ),
        ({"classes": ["a", "a"]}, "field 'classes': the class 'a' is listed twice"),
        (
            {"classes": ["a", "b", "c"]},
            r"field 'weight': expected 3, one per class, found shape \(2, 3\)",
        ),
    ],
)
def test_fields_of_a_header_that_contradict_each_other_are_named_with_the_file(
    folder, changes, problem
):
    info = json.loads((folder / "regions.json").read_text())
    (folder / "regions.json").write_text(json.dumps({**info, **changes}))
    with pytest.raises(DataError, match=rf"regions\.json: {problem}"):
        RegionsFolder(folder)


@pytest.mark.parametrize(
    "weight", [np.ones((2, 3), np.int32), np.float32([[1, 2, 3], [4, np.nan, 6]])]
)
def test_a_last_layer_of_other_than_finite_numbers_is_refused_by_file_and_field(folder, weight):
    save_file({"weight": weight, "bias": np.ones(2, np.float32)}, folder / "last_layer.safetensors")
    with pytest.raises(
        DataError, match=r"last_layer\.safetensors: field 'weight': expected finite numbers"
    ):
        RegionsFolder(folder)

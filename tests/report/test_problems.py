"""Warnings about the data, and images that could not be used, as the report lists them."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.evaluations import SEARCH

from farther.report.problems import doubts, unusable_images, warnings
from farther.tables import Header, Regions, RegionsWriter
from farther.tables.documents import write_json

PARAMS = {"datasets": {"pets": {}, "wild": {}}, "benchmarks": {"b": {}}}
UNREADABLE = {
    "kind": "image unreadable",
    "file": "val/3.jpg",
    "subset": "val",
    "found": "unknown image format",
}


@pytest.fixture
def artifacts(tmp_path):
    """A dataset with an unreadable image, a benchmark with a warning, and two runs that failed.

    The runs failed on the same image.
    """
    counts = {"image unreadable": 1, "box leaves its image": 7}
    write_json(tmp_path / "tables/pets/warnings.json", {"counts": counts, "warnings": [UNREADABLE]})
    write_json(
        tmp_path / "splits/b/warnings.json", {"count": 1, "warnings": ["split 'far' has no image"]}
    )
    header = Header(classes=("cat",))
    for run in ("one", "two"):
        writer = RegionsWriter(tmp_path / "regions" / run / "near", header)
        rows = Regions.empty(header).with_columns(uncertainty=np.zeros(0, np.float32))
        writer.write_shard(
            0, rows, 5, [{"image_id": "000007", "reason": "image file is truncated"}]
        )
        writer.close(1)
    return tmp_path


def test_warnings_are_those_of_ingest_and_curate(artifacts):
    assert warnings(artifacts, PARAMS).frame.rows() == [
        ("dataset pets", "image unreadable", 1),
        ("dataset pets", "box leaves its image", 7),
        ("benchmark b", "split 'far' has no image", 1),
    ]


def test_each_unusable_image_has_one_row_with_the_reason_and_the_runs(artifacts):
    assert unusable_images(artifacts, PARAMS, ["one", "two"]).frame.rows() == [
        ("val/3.jpg", "dataset pets, val", "unknown image format", "ingest"),
        ("000007", "split near", "image file is truncated", "one, two"),
    ]


def test_without_problems_there_is_nothing_to_list(tmp_path):
    assert not len(warnings(tmp_path, PARAMS))
    assert not len(unusable_images(tmp_path, PARAMS, ["one"]))


def test_images_that_clip_tells_from_id_ones_are_suspected_of_covariate_shift(tmp_path):
    auroc = {"coco_near": 0.7, "coco_far": 0.96}
    write_json(
        tmp_path / "counts/similarity/b.json",
        {"similarity": {"auroc_from_id": auroc, "auroc_of_near": 0.55}},
    )
    shifted, mixed = doubts(tmp_path, PARAMS, [])
    assert "covariate shift" in shifted
    assert "coco_far (AUROC 96.0%)" in shifted
    assert "coco_near" not in shifted
    assert "near and far images are not separated" in mixed
    good = {"similarity": {"auroc_from_id": {"coco_near": 0.94}, "auroc_of_near": 0.6}}
    write_json(tmp_path / "counts/similarity/b.json", good)
    assert doubts(tmp_path, PARAMS, []) == []


def test_a_run_s_empty_splits_and_failed_images_are_named(tmp_path, make_run):
    splits = {
        "test": {"images": 9, "failed_images": 2},
        "coco_near": {"images": 0, "failed_images": 0},
    }
    run = make_run({"msp": {}}, {"splits": splits})
    assert doubts(tmp_path, {"benchmarks": {}, "detectors": {}}, [run]) == [
        "net (voc): no image in coco_near.",
        "net (voc): images that could not be used: 2 in test.",
    ]


def test_thresholds_and_parameters_that_were_chosen_on_test_images_are_named(tmp_path, make_run):
    fitted = {"choice": replace(SEARCH, oracle=True)}
    run = make_run({"msp": {}}, {"methods": {"msp": {"fitted": fitted}}})
    params = {"benchmarks": {}, "detectors": {"net": {}}, "threshold": {"split": "test"}}
    assert doubts(tmp_path, params, [run]) == [
        "net (voc): t* was chosen on test, test images that results are reported on.",
        "net (voc): parameters of MSP (oracle) were chosen on test images that results are "
        "reported on.",
    ]

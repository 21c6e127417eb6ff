"""Splits as COCO JSON, as pycocotools and the reader of this library see them."""

import pytest
from tests.publication.conftest import collect_publication

from farther import datasets
from farther.publication import publish


def test_coco_json_is_what_pycocotools_reads(project, tmp_path):
    from pycocotools.coco import COCO

    out = publish(collect_publication(project), tmp_path / "out", "coco")
    near = COCO(out / "annotations/instances_pool_near.json")
    assert near.getImgIds() == [4]
    (zebra,) = near.loadAnns(near.getAnnIds(imgIds=[4], catIds=near.getCatIds(catNms=["zebra"])))
    assert zebra == {
        "id": 49,
        "image_id": 4,
        "category_id": 3,
        "bbox": [10.1, 2.2, 20.3, 10.4],
        "area": 211.12,
        "iscrowd": 0,
    }
    far = COCO(out / "annotations/instances_pool_far.json")
    flags = {
        one["id"]: (one["iscrowd"], one.get("is_difficult", 0))
        for one in far.loadAnns(far.getAnnIds())
    }
    assert flags == {50: (0, 1), 48: (1, 0)}
    goats = COCO(out / "annotations/instances_open_far.json")
    assert goats.getImgIds() == ["00aa"]
    assert goats.loadCats(goats.getCatIds(catNms=["Goat"]))[0]["supercategory"] == "Animal"


def test_an_object_0_counts_in_pycocotools_and_comes_back_as_object_0(project, tmp_path):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    out = publish(collect_publication(project, ["open_far"]), tmp_path / "out", "coco")
    assert collect_publication(project).splits[2].objects.object_id.tolist() == [0]
    truth = COCO(out / "annotations/instances_open_far.json")
    (goat,) = truth.loadAnns(truth.getAnnIds())
    truth.dataset["annotations"][0]["iscrowd"] = 0
    truth.createIndex()
    found = truth.loadRes(
        [{"image_id": "00aa", "category_id": 2, "bbox": goat["bbox"], "score": 0.9}]
    )
    evaluation = COCOeval(truth, found, "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    assert evaluation.stats[0] == pytest.approx(1)
    reader = datasets.create("coco", root=out, subset_names=("open_far",))
    assert reader.read("open_far").objects.object_id.tolist() == [0]


def test_credits_that_were_published_as_coco_are_read_again(project, tmp_path):
    out = publish(collect_publication(project), tmp_path / "out", "coco")
    again = datasets.create("coco", root=out)
    (image_id, credit), *_ = again.credits("open_far")
    assert (image_id, credit.author, credit.source_url) == ("00aa", "Ann", "https://example.org/1")
    assert credit.license == credit.license_url == "https://example.org/by"

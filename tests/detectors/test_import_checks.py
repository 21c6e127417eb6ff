"""The check of `farther doctor` reads detections as `infer` does, in bounded time."""

import json

import numpy as np
import pytest
from PIL import Image

from farther.detectors import check
from farther.detectors.imported import Scopes
from farther.tables import Images

WIDTH, HEIGHT = 60, 40


@pytest.fixture
def check_boxes(tmp_path):
    """Checks COCO results of these boxes in 3 images whose size no table has."""
    names = ["a.png", "b.png", "c.png"]
    for name in names:
        Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / name)
    zeros = np.zeros(3, np.int32)
    images = Images(
        image_id=names, dataset=["d"] * 3, file=names, width=zeros, height=zeros, digest=[""] * 3
    )
    scopes = Scopes(frozenset(["test"]), frozenset(["d"]), {"d": tmp_path})

    def finding(boxes, **more):
        records = []
        for number, box in enumerate(boxes):
            record = {"image_id": names[number % 3], "category_id": "cat", "bbox": box}
            records.append({**record, "score": 0.5, **more})
        (tmp_path / "found.json").write_text(json.dumps(records))
        entry = {
            "adapter": "coco_results",
            "benchmark": "b",
            "weights": str(tmp_path / "found.json"),
            "params": {"classes": ["cat"]},
        }
        return next(check.check_run("run", entry, ["cat"], ({"test": images}, scopes)))

    return finding


def test_corners_as_coco_results_are_wrong(check_boxes):
    finding = check_boxes([[30, 20, 55, 38]] * 6)
    assert finding.state == "wrong"
    assert "6 of 6 boxes lie outside of their images" in finding.text
    assert finding.text.endswith("COCO's boxes are x, y, width, height")


def test_right_boxes_are_ok(check_boxes):
    finding = check_boxes([[30, 20, 25, 18]] * 6, colour="red")
    assert finding.state == "ok"
    assert "6 detections; not read: 'colour'" in finding.text


def test_fractions_as_pixels_are_wrong(check_boxes):
    assert "within the first pixel" in check_boxes([[0.1, 0.2, 0.5, 0.5]] * 6).text


def test_of_large_files_the_first_detections_are_read(check_boxes, monkeypatch):
    monkeypatch.setattr(check, "OPENED_BYTES", 100)
    monkeypatch.setattr(check, "FIRST_ROWS", 1)
    monkeypatch.setattr("farther.detectors.coco_results.BATCH", 2)
    finding = check_boxes([[0, 0, 5, 5]] * 4)
    assert finding.state == "ok"
    assert "the first 2 detections of large files" in finding.text
    assert check_boxes([[30, 20, 55, 38]] * 4).state == "wrong"


def test_of_many_images_some_sizes_are_read(check_boxes, monkeypatch):
    monkeypatch.setattr(check, "SIZED", 2)
    assert "4 of 4 boxes" in check_boxes([[30, 20, 55, 38]] * 6).text


def test_images_that_cannot_be_read_are_not_compared(check_boxes, tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).unlink()
    assert check_boxes([[30, 20, 55, 38]] * 6).state == "ok"

"""Corrections to the annotations of every format."""

import json

from PIL import Image
from tests.datasets.conftest import coco_reader, tables

from farther import datasets
from farther.datasets.ingest import ingest
from farther.datasets.tidying import REPEATED
from farther.tables import Images, Objects
from farther.tables.stored import ingest_warnings


def test_rows_that_are_equal_to_the_last_digit_are_one_object(lay, tmp_path):
    box = {"image_id": 0, "category_id": 1, "bbox": [1, 2, 8, 6]}
    rows = [box, box, {**box, "bbox": [1, 2, 8, 6.000001]}, {**box, "iscrowd": 1}]
    annotations = [{"id": 10 + number, **row} for number, row in enumerate(rows)]
    reader = coco_reader(lay, ["a.jpg"], ["a.jpg"], annotations)
    _, objects, kinds = tables(reader, tmp_path / "out", "train")
    assert objects.object_id.tolist() == [10, 12, 13]
    assert kinds == {REPEATED: "1 of 4 equal an earlier one of their image in box and class"}


def test_a_subset_of_a_layout_that_is_not_there_is_listed(lay, tmp_path):
    reader = coco_reader(lay, ["a.jpg"], ["a.jpg"])
    reader = datasets.create(
        "coco", root=reader.root, layout={"train": ("a.json", "."), "test": ("b.json", ".")}
    )
    assert reader.subsets() == ["train"]
    _, _, kinds = tables(reader, tmp_path / "out", "train")
    assert kinds == {"subset that is not there": "test: b.json does not exist, or is empty"}
    # The layout of a published dataset is not a user's.
    published = datasets.create("objects365", root=reader.root)
    assert published.absent_subsets() == {}


def test_categories_of_nearly_one_name_and_files_with_several_ids_are_listed(tmp_path):
    names = ("Fox", "fox", "cafe\u0301", "caf\u00e9", "owl", "owl\u200b")
    images = [{"id": number, "file_name": "a.png"} for number in (1, 2)]
    categories = [{"id": number, "name": name} for number, name in enumerate(names)]
    content = {"images": images, "annotations": [], "categories": categories}
    (tmp_path / "all.json").write_text(json.dumps(content))
    Image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    reader = datasets.create("coco", root=str(tmp_path), layout={"all": ["all.json", "."]})
    ingest(reader, "pets", tmp_path / "out")
    warnings = {
        (warning["kind"], warning["found"])
        for warning in ingest_warnings(tmp_path / "out")["warnings"]
    }
    assert ("categories with nearly the same name", "'Fox', 'fox'") in warnings
    assert ("categories with nearly the same name", "'cafe\u0301', 'caf\u00e9'") in warnings
    assert ("categories with nearly the same name", r"'owl', 'owl\u200b'") in warnings
    assert ("image file with several ids", "a.png") in warnings


def test_an_image_file_with_several_ids_is_one_image_with_the_objects_of_all(tmp_path):
    images = [
        {"id": 1, "file_name": "a.png"},
        {"id": 2, "file_name": "b.png"},
        {"id": 3, "file_name": "a.png"},
    ]
    annotations = [
        {"id": number, "image_id": number, "category_id": 1, "bbox": [number, 1, 5, 5]}
        for number in (1, 2, 3)
    ]
    categories = [{"id": 1, "name": "fox"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "all.json").write_text(json.dumps(content))
    for name in ("a.png", "b.png"):
        Image.new("RGB", (20, 10)).save(tmp_path / name)
    reader = datasets.create("coco", root=str(tmp_path), layout={"all": ["all.json", "."]})
    ingest(reader, "pets", tmp_path / "out")
    assert Images.read(tmp_path / "out/all/images.parquet").file.tolist() == ["a.png", "b.png"]
    objects = Objects.read(tmp_path / "out/all/objects.parquet")
    assert list(zip(objects.image_id, objects.box[:, 0].tolist(), strict=True)) == [
        ("000000000001", 1.0),
        ("000000000002", 2.0),
        ("000000000001", 3.0),
    ]

"""nuImages in miniature, in the layout of its archives."""

import pytest

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError


def nuimages(**changes) -> dict:
    """Two frames, one of them a key frame, with a car, a child and a road."""
    tables = {
        "sample_data": [
            {"token": "k", "sample_token": "s", "filename": "samples/CAM_FRONT/k.jpg",
             "is_key_frame": True, "width": 160, "height": 90, "timestamp": 1},
            {"token": "f", "sample_token": "s", "filename": "sweeps/CAM_FRONT/f.jpg",
             "is_key_frame": False, "width": 160, "height": 90, "timestamp": 2},
        ],
        "category": [
            {"token": "c1", "name": "human.pedestrian.child", "description": ""},
            {"token": "c2", "name": "vehicle.car", "description": ""},
            {"token": "c3", "name": "animal", "description": ""},
            {"token": "c4", "name": "flat.driveable_surface", "description": ""},
        ],
        "object_ann": [
            {"token": "o1", "category_token": "c2", "bbox": [10, 20, 60, 70],
             "mask": {"counts": "x"}, "sample_data_token": "k", "attribute_tokens": []},
            {"token": "o2", "category_token": "c1", "bbox": [80, 5, 99, 50],
             "mask": None, "sample_data_token": "k", "attribute_tokens": ["a"]},
            {"token": "o3", "category_token": "c2", "bbox": [0, 0, 9, 9],
             "mask": None, "sample_data_token": "f", "attribute_tokens": []},
        ],
    }  # fmt: skip
    return {f"v1.0-mini/{name}.json": table for name, table in {**tables, **changes}.items()}


def test_key_frames_of_nuimages_are_read_with_the_ten_classes_of_detection(lay, tmp_path):
    root = lay({**nuimages(), "samples/CAM_FRONT/k.jpg": (160, 90)})
    reader = datasets.create("nuimages", root=root)
    assert reader.subsets() == ["mini"]
    annotations = reader.read("mini")
    assert annotations.images.image_id.tolist() == ["k"]
    assert annotations.images.file.tolist() == ["samples/CAM_FRONT/k.jpg"]
    assert annotations.categories == ["pedestrian", "car", "animal"]
    assert [annotations.categories[c] for c in annotations.objects.category] == [
        "car",
        "pedestrian",
    ]
    assert annotations.objects.box.tolist() == [[10, 20, 60, 70], [80, 5, 99, 50]]
    assert ingest(reader, "nu", tmp_path / "out")["mini"]["objects"] == 2


def test_categories_of_nuimages_may_be_grouped_otherwise(lay):
    renamed = {
        "human.pedestrian.child": "pedestrian",
        "vehicle.car": "vehicle",
        "animal": "vehicle",
    }
    annotations = datasets.create("nuimages", root=lay(nuimages()), renamed=renamed).read("mini")
    assert annotations.categories == ["pedestrian", "vehicle"]
    assert annotations.objects.category.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("filename", "../secret.jpg", r"sample_data.json: row \[0\]: field 'filename': .*leaves"),
        (
            "sample_data_token",
            "x",
            r"object_ann.json: row \[1\]: field 'sample_data_token': no row has the token 'x'",
        ),
        (
            "category_token",
            "x",
            r"object_ann.json: row \[1\]: field 'category_token': no row has the token 'x'",
        ),
        ("token", "o1", r"object_ann.json: row \[1\]: field 'token': 'o1' occurs twice"),
        ("bbox", [1, 2, 3], r"object_ann.json: row \[1\]: field 'bbox': expected 4 numbers"),
        ("bbox", [50, 2, 3, 9], r"object_ann.json: row \[1\]: field 'bbox': the size is negative"),
    ],
)
def test_a_damaged_row_of_nuimages_is_named(lay, field, value, message):
    tables = nuimages()
    table, row = ("sample_data", 0) if field == "filename" else ("object_ann", 1)
    tables[f"v1.0-mini/{table}.json"][row][field] = value
    with pytest.raises(DataError, match=message):
        datasets.create("nuimages", root=lay(tables)).read("mini")

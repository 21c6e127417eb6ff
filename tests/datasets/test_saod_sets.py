"""nuImages, SVHN and iNaturalist in miniature, in the layout of their archives."""

import h5py
import numpy as np
import pytest

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import Objects

# -------------------------------------------------------------------------------------------------------
# nuImages


def nuimages(**changes) -> dict:
    """Two frames, one of them a key frame, with a car, a child and a road."""
    tables = {
        "sample_data": [
            {"token": "k", "sample_token": "s", "filename": "samples/CAM_FRONT/k.jpg", "is_key_frame": True,
             "width": 160, "height": 90, "timestamp": 1},
            {"token": "f", "sample_token": "s", "filename": "sweeps/CAM_FRONT/f.jpg", "is_key_frame": False,
             "width": 160, "height": 90, "timestamp": 2},
        ],
        "category": [
            {"token": "c1", "name": "human.pedestrian.child", "description": ""},
            {"token": "c2", "name": "vehicle.car", "description": ""},
            {"token": "c3", "name": "animal", "description": ""},
            {"token": "c4", "name": "flat.driveable_surface", "description": ""},
        ],
        "object_ann": [
            {"token": "o1", "category_token": "c2", "bbox": [10, 20, 60, 70], "mask": {"counts": "x"},
             "sample_data_token": "k", "attribute_tokens": []},
            {"token": "o2", "category_token": "c1", "bbox": [80, 5, 99, 50], "mask": None, "sample_data_token": "k",
             "attribute_tokens": ["a"]},
            {"token": "o3", "category_token": "c2", "bbox": [0, 0, 9, 9], "mask": None, "sample_data_token": "f",
             "attribute_tokens": []},
        ],
    }  # fmt: skip
    return {f"v1.0-mini/{name}.json": table for name, table in {**tables, **changes}.items()}


def test_key_frames_of_nuimages_are_read_with_the_ten_classes_of_detection(lay, tmp_path):
    root = lay({**nuimages(), "samples/CAM_FRONT/k.jpg": (160, 90)})
    reader = datasets.create("nuimages", root=root)
    assert reader.subsets() == ["mini"]
    found = reader.read("mini")
    assert found.images.image_id.tolist() == ["k"]
    assert found.images.file.tolist() == ["samples/CAM_FRONT/k.jpg"]
    assert found.categories == ["pedestrian", "car", "animal"]
    assert [found.categories[c] for c in found.objects.category] == ["car", "pedestrian"]
    assert found.objects.box.tolist() == [[10, 20, 60, 70], [80, 5, 99, 50]]
    assert ingest(reader, "nu", tmp_path / "out")["mini"]["objects"] == 2


def test_categories_of_nuimages_may_be_grouped_otherwise(lay):
    renamed = {
        "human.pedestrian.child": "pedestrian",
        "vehicle.car": "vehicle",
        "animal": "vehicle",
    }
    found = datasets.create("nuimages", root=lay(nuimages()), renamed=renamed).read("mini")
    assert found.categories == ["pedestrian", "vehicle"]
    assert found.objects.category.tolist() == [1, 0]


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


# -----------------------------------------------------------------------------------------------------------
# SVHN


def digit_struct(path, numbers: dict[str, list[tuple]]) -> None:
    """A file as MATLAB writes it: a reference to the name of each image and one to the boxes of its digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        whole, held = file.create_group("digitStruct"), file.create_group("#refs#")
        kinds = dict.fromkeys(("name", "bbox"), h5py.ref_dtype)
        columns = {
            part: whole.create_dataset(part, (len(numbers), 1), dtype=kind)
            for part, kind in kinds.items()
        }
        for row, (name, digits) in enumerate(numbers.items()):
            letters = held.create_dataset(
                f"n{row}", data=np.array([[ord(letter)] for letter in name], np.uint16)
            )
            box = held.create_group(f"b{row}")
            for part, values in zip(
                ("left", "top", "width", "height", "label"), zip(*digits, strict=True), strict=True
            ):
                if len(values) == 1:
                    box.create_dataset(part, data=np.array([[float(values[0])]]))
                    continue
                references = box.create_dataset(part, (len(values), 1), dtype=h5py.ref_dtype)
                for k, value in enumerate(values):
                    references[k, 0] = held.create_dataset(
                        f"{part}{row}_{k}", data=np.array([[float(value)]])
                    ).ref
            columns["name"][row, 0], columns["bbox"][row, 0] = letters.ref, box.ref


def test_digits_of_svhn_are_read_from_matlab_s_file(lay, tmp_path):
    root = lay({"train/1.png": (60, 40), "train/2.png": (50, 30)})
    digit_struct(
        root / "train/digitStruct.mat",
        {"1.png": [(3, 4, 10, 20, 1), (15, 4, 9, 20, 10)], "2.png": [(5, 6, 7, 8, 9)]},
    )
    reader = datasets.create("svhn", root=root)
    assert reader.subsets() == ["train"]
    found = reader.read("train")
    assert found.images.file.tolist() == ["train/1.png", "train/2.png"]
    assert [found.categories[c] for c in found.objects.category] == ["1", "0", "9"]
    assert found.objects.box.tolist() == [[3, 4, 13, 24], [15, 4, 24, 24], [5, 6, 12, 14]]
    ingest(reader, "svhn", tmp_path / "out")
    assert Objects.read(tmp_path / "out/train/objects.parquet").category.tolist() == ["1", "0", "9"]


def test_a_wrong_label_of_svhn_is_named(lay):
    root = lay({"test/1.png": (60, 40)})
    digit_struct(root / "test/digitStruct.mat", {"1.png": [(3, 4, 10, 20, 11)]})
    with pytest.raises(
        DataError,
        match=r"digitStruct.mat: row digitStruct\(1\): field 'label': expected 1 to 10, found 11",
    ):
        datasets.create("svhn", root=root).read("test")


@pytest.mark.parametrize("damage", ["not HDF5", "another structure", "link"])
def test_a_damaged_file_of_svhn_is_named(lay, damage):
    root = lay({"test/1.png": (60, 40), "test/digitStruct.mat": b"nothing"})
    if damage != "not HDF5":
        with h5py.File(root / "test/digitStruct.mat", "w") as file:
            if damage == "link":
                digit_struct(root / "other.mat", {"1.png": [(3, 4, 10, 20, 1)]})
                file["digitStruct"] = h5py.ExternalLink(str(root / "other.mat"), "/digitStruct")
            else:
                file["digitStruct/name"] = np.zeros((2, 1))
    with pytest.raises(
        DataError, match=r"digitStruct.mat: row digitStruct\(1\): not SVHN's digitStruct.mat"
    ):
        datasets.create("svhn", root=root).read("test")


# ----------------------------------------------------------------------------------------------------
# iNaturalist


def test_the_boxes_of_inaturalist_2017_are_read(lay):
    name = "train_val_images/Aves/Ardea alba/1.jpg"
    content = {
        "info": {"year": 2017},
        "images": [
            {
                "id": 5,
                "file_name": name,
                "width": 80,
                "height": 60,
                "license": 1,
                "rights_holder": "x",
            }
        ],
        "categories": [{"id": 7, "name": "Ardea alba", "supercategory": "Aves"}],
        "annotations": [
            {
                "id": 1,
                "image_id": 5,
                "category_id": 7,
                "bbox": [10.0, 5.0, 20.0, 30.0],
                "area": 600,
                "iscrowd": 0,
            }
        ],
        "licenses": [{"id": 1, "name": "CC", "url": ""}],
    }
    reader = datasets.create(
        "inaturalist", root=lay({"val_2017_bboxes.json": content, name: (80, 60)})
    )
    assert reader.subsets() == ["val"]
    found = reader.read("val")
    assert found.images.file.tolist() == [name]
    assert found.categories == ["Ardea alba"]
    assert found.objects.box.tolist() == [[10, 5, 30, 35]]

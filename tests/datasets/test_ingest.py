import json

import numpy as np
import pytest

from farther import datasets
from farther.datasets import ingest as module
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import Images, Objects
from farther.tables.files import digest

FILE = "annotations/instances_val2017.json"


def coco(*boxes, images=((1, 100, 80), (2, 50, 60))):
    """COCO annotations of cats: boxes (image, x, y, width, height), images (id, width, height)."""
    image_records = []
    for image_id, width, height in images:
        file = f"{image_id}.png"
        image_records.append({"id": image_id, "file_name": file, "width": width, "height": height})
    annotations = []
    for object_id, (image_id, *box) in enumerate(boxes, start=10):
        annotations.append({"id": object_id, "image_id": image_id, "category_id": 5, "bbox": box})
    return {
        "images": image_records,
        "categories": [{"id": 5, "name": "cat"}, {"id": 6, "name": "dog"}],
        "annotations": annotations,
    }


def pictures(**files):
    """The two images of `coco`, and further files."""
    return {"val2017/1.png": (100, 80), "val2017/2.png": (50, 60)} | files


def run(root, tmp_path, **params):
    """Ingests with every warning allowed by default; returns summary and warnings."""
    reader = datasets.create("coco", root=root, **{"max_warnings": 1.0, **params})
    summary = ingest(reader, "pets", tmp_path / "out")
    warnings = json.loads((tmp_path / "out/warnings.json").read_text())
    return summary, warnings


def objects_of(tmp_path):
    return Objects.read(tmp_path / "out/val2017/objects.parquet")


def test_the_tables_hold_what_the_annotations_and_the_files_say(lay, tmp_path):
    root = lay(pictures(**{FILE: coco((2, 10, 20, 30, 40), (1, 0, 0, 100, 80))}))
    summary, warnings = run(root, tmp_path, max_warnings=0)
    images = Images.read(tmp_path / "out/val2017/images.parquet")
    assert images.image_id.tolist() == ["000000000001", "000000000002"]
    assert images.dataset.tolist() == ["pets", "pets"]
    assert images.file.tolist() == ["val2017/1.png", "val2017/2.png"]
    assert (images.width.tolist(), images.height.tolist()) == ([100, 50], [80, 60])
    assert images.digest.tolist() == [
        digest(root / "val2017/1.png"),
        digest(root / "val2017/2.png"),
    ]
    objects = objects_of(tmp_path)
    assert objects.image_id.tolist() == ["000000000002", "000000000001"]
    assert objects.box.tolist() == [[10, 20, 40, 60], [0, 0, 100, 80]]
    assert objects.object_id.tolist() == [10, 11]
    assert objects.category.tolist() == ["cat", "cat"]
    assert summary == {"val2017": {"images": 2, "objects": 2, "categories": 1, "warnings": 0}}
    assert warnings == {"counts": {}, "warnings": []}
    assert json.loads((tmp_path / "out/categories.json").read_text()) == {
        "categories": ["cat", "dog"],
        "parents": {},
    }


LEAVES, OUTSIDE, EMPTY = "box leaves its image", "box outside its image", "box empty"


@pytest.mark.parametrize(
    ("box", "edges", "kind"),
    [
        ([90, -5, 30, 25], [90, 0, 100, 20], LEAVES),
        ([90, 70, 10, 11.5], [90, 70, 100, 80], LEAVES),
        ([0, -1.25, 9, 9], [0, 0, 9, 7.75], LEAVES),
        ([90.5, 70, 10, 11], [90.5, 70, 100, 80], None),  # by up to a pixel: rounded
        (
            [0.1, 0.2, 0.3, 0.4],
            np.float32([0.1, 0.2, 0.4, 0.6]).tolist(),
            "box smaller than a pixel",
        ),
        ([200, 10, 20, 20], None, OUTSIDE),
        ([-30, 10, 20, 20], None, OUTSIDE),
        ([100, 10, 20, 20], None, OUTSIDE),
        ([10, 10, 0, 20], None, EMPTY),
        ([10, 10, 20, 0], None, EMPTY),
    ],
)
def test_a_box_is_clipped_to_its_image_or_dropped_and_listed(lay, tmp_path, box, edges, kind):
    root = lay(pictures(**{FILE: coco((1, 0, 0, 9, 9), (1, *box))}))
    _, warnings = run(root, tmp_path)
    np.testing.assert_allclose(
        objects_of(tmp_path).box, [[0, 0, 9, 9], *([edges] if edges else [])], atol=1e-6
    )
    assert warnings["counts"] == ({kind: 1} if kind else {})
    for warning in warnings["warnings"]:
        assert warning["action"] == (
            "dropped" if edges is None else "clipped" if kind == LEAVES else "kept as it is"
        )


def test_a_warning_names_file_row_and_field(lay, tmp_path):
    _, warnings = run(lay(pictures(**{FILE: coco((1, 0, 0, 9, 9), (1, 90, -5, 30, 25))})), tmp_path)
    place = {
        "subset": "val2017",
        "about": "object",
        "file": FILE,
        "row": "annotations[1]",
        "field": "bbox",
    }
    found = "edges 90, -5, 120, 20 in an image of 100×80"
    assert warnings["warnings"] == [{"kind": LEAVES, **place, "found": found, "action": "clipped"}]


def test_boxes_are_checked_alike_however_many_are_checked_at_once(lay, tmp_path, monkeypatch):
    root = lay(pictures(**{FILE: coco(*[(1, x, 10, 20, 20) for x in range(-30, 110, 7)])}))
    _, warnings = run(root, tmp_path)
    objects_at_once = objects_of(tmp_path)
    monkeypatch.setattr(module, "BLOCK", 3)
    _, warnings_by_blocks = run(root, tmp_path)
    assert warnings_by_blocks == warnings
    np.testing.assert_array_equal(objects_of(tmp_path).box, objects_at_once.box)


def test_a_missing_image_is_an_error_by_default(lay, tmp_path):
    root = lay({"val2017/1.png": (100, 80), FILE: coco((1, 0, 0, 9, 9))})
    with pytest.raises(
        DataError, match=r"2.png: the image '000000000002' is annotated.*\(1 of 2 are missing\)"
    ) as error:
        run(root, tmp_path)
    assert "missing_images: drop" in str(error.value)
    assert error.value.file == str(root / "val2017/2.png")


@pytest.mark.parametrize("missing_images", ["error", "drop"])
def test_a_folder_of_images_that_does_not_exist_is_always_refused(lay, tmp_path, missing_images):
    files = {"val2017/1.png": (100, 80), FILE: coco((1, 0, 0, 10, 10))}
    content = files[FILE]
    content["images"][1]["file_name"] = "disk/part/2.png"
    root = lay(files)
    with pytest.raises(DataError, match=r"the folder does not exist, but 1 of 2 ann") as error:
        run(root, tmp_path, missing_images=missing_images)
    assert str(error.value).startswith(f"{root / 'val2017/disk'}: ")
    assert "Mount or unpack it" in str(error.value)


def test_an_empty_folder_of_images_is_refused_as_a_disk_that_is_not_mounted(lay, tmp_path):
    root = lay({FILE: coco((1, 0, 0, 10, 10))})
    (root / "val2017").mkdir()
    with pytest.raises(DataError, match=r"val2017: the folder is empty, but 2 of 2 ann"):
        run(root, tmp_path, missing_images="drop")


def test_missing_images_can_be_dropped_with_their_objects(lay, tmp_path):
    root = lay({"val2017/1.png": (100, 80), FILE: coco((1, 0, 0, 9, 9), (2, 0, 0, 9, 9))})
    summary, warnings = run(root, tmp_path, missing_images="drop")
    assert summary == {"val2017": {"images": 1, "objects": 1, "categories": 1, "warnings": 1}}
    assert objects_of(tmp_path).image_id.tolist() == ["000000000001"]
    assert [(w["kind"], w["file"], w["found"]) for w in warnings["warnings"]] == [
        ("image missing", "val2017/2.png", "no such file")
    ]


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n\x00\x00"])
def test_a_file_that_is_no_image_does_not_end_the_run(lay, tmp_path, content):
    root = lay(
        {
            "val2017/1.png": (100, 80),
            "val2017/2.png": content,
            FILE: coco((1, 0, 0, 9, 9), (2, 0, 0, 9, 9)),
        }
    )
    summary, warnings = run(root, tmp_path)
    assert summary["val2017"]["images"] == 1
    assert summary["val2017"]["objects"] == 1
    assert warnings["counts"] == {"image unreadable": 1}


def test_warnings_hold_no_path_of_this_machine(lay, tmp_path):
    root = lay(
        {"val2017/1.png": (100, 80), "val2017/2.png/folder": "", FILE: coco((1, 0, 0, 9, 9))}
    )
    _, warnings = run(root, tmp_path)
    assert warnings["warnings"][0]["found"] == "cannot be read: not a file"
    assert str(tmp_path) not in json.dumps(warnings)


def test_the_size_of_the_file_counts_where_the_annotations_say_another(lay, tmp_path):
    root = lay(pictures(**{FILE: coco((1, 0, 0, 100, 80), images=[(1, 80, 100)])}))
    _, warnings = run(root, tmp_path)
    images = Images.read(tmp_path / "out/val2017/images.parquet")
    assert (images.width.tolist(), images.height.tolist()) == ([100], [80])
    assert warnings["warnings"][0]["found"] == "100×80, annotated as 80×100"
    assert warnings["warnings"][0]["kind"] == "image of another size"


def test_more_warnings_than_allowed_are_an_error_that_counts_them_by_kind(lay, tmp_path):
    root = lay(
        pictures(
            **{FILE: coco((1, 0, 0, 9, 9), (1, 90, 0, 30, 30), (1, 5, 5, 0, 0), (1, 90, 0, 40, 30))}
        )
    )
    with pytest.raises(DataError) as error:
        run(root, tmp_path, max_warnings=0.5)
    message = str(error.value)
    assert "3 warnings about 4 objects, more than max_warnings: 0.5 allows" in message
    assert "2 × box leaves its image, 1 × box empty" in message
    assert (error.value.row, error.value.field) == ("annotations[1]", "bbox")
    run(root, tmp_path, max_warnings=0.75)


def test_warnings_of_the_reader_count_too(lay, tmp_path):
    content = coco((1, 0, 0, 9, 9), (7, 0, 0, 9, 9))
    root = lay(pictures(**{FILE: content}))
    with pytest.raises(
        DataError, match=r"1 warning about 2 objects.*1 × object of an unknown image"
    ):
        run(root, tmp_path, max_warnings=0.4)
    _, warnings = run(root, tmp_path, max_warnings=0.5)
    assert warnings["counts"] == {"object of an unknown image": 1}


def test_a_subset_without_any_image_is_an_error(lay, tmp_path):
    root = lay({FILE: coco(), "val2017/other.png": (5, 5)})
    with pytest.raises(
        DataError, match=r"instances_val2017.json: no image can be read; parameter 'root'"
    ):
        run(root, tmp_path, missing_images="drop")


def test_no_subset_takes_the_name_of_the_folder_of_extracted_images(lay, tmp_path):
    root = lay(
        {"extracted-images/1.png": (9, 9), "annotations/instances_extracted-images.json": coco()}
    )
    with pytest.raises(DataError, match="no subset may be called 'extracted-images'"):
        run(root, tmp_path, subset_names=["extracted-images"])


def test_a_failed_run_leaves_the_tables_of_the_last_one(lay, tmp_path):
    root = lay(pictures(**{FILE: coco((1, 0, 0, 9, 9))}))
    run(root, tmp_path)
    (root / "val2017/2.png").unlink()
    with pytest.raises(DataError):
        run(root, tmp_path)
    assert len(objects_of(tmp_path)) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name != "root"] == ["out"]


def test_the_same_dataset_gives_the_same_bytes(lay, tmp_path):
    root = lay(pictures(**{FILE: coco((1, 0, 0, 9, 9), (1, 90, -5, 30, 25))}))
    reader = datasets.create("coco", root=root, max_warnings=1)
    for name in ("one", "two"):
        ingest(reader, "pets", tmp_path / name)
    for path in (tmp_path / "one").rglob("*.*"):
        assert (
            path.read_bytes()
            == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()
        )


def test_fractions_become_pixels_of_the_true_image(lay, tmp_path):
    root = lay(
        {
            "validation/a.jpg": (40, 20),
            "validation-annotations-bbox.csv": (
                "ImageID,LabelName,XMin,XMax,YMin,YMax\na,/m/1,0.25,0.75,0.1,0.5\n"
            ),
            "class-descriptions-boxable.csv": "/m/1,Cat\n/m/0,Animal\n",
            "bbox_labels_600_hierarchy.json": {
                "LabelName": "/m/0",
                "Subcategory": [{"LabelName": "/m/1"}],
            },
        }
    )
    ingest(datasets.create("openimages", root=root), "oi", tmp_path / "out")
    objects = Objects.read(tmp_path / "out/validation/objects.parquet")
    np.testing.assert_array_equal(objects.box, np.float32([[10, 2, 30, 10]]))
    categories = json.loads((tmp_path / "out/categories.json").read_text())
    assert categories == {"categories": ["Cat", "Animal"], "parents": {"Cat": ["Animal"]}}


def test_several_subsets_share_one_list_of_categories(lay, tmp_path):
    train = coco((1, 0, 0, 9, 9))
    train["categories"] = [{"id": 5, "name": "cat"}, {"id": 9, "name": "fox"}]
    more = {
        "annotations/instances_train2017.json": train,
        "train2017/1.png": (100, 80),
        "train2017/2.png": (50, 60),
    }
    root = lay(pictures(**{FILE: coco((1, 0, 0, 9, 9)), **more}))
    summary, _ = run(root, tmp_path)
    assert list(summary) == ["train2017", "val2017"]
    assert json.loads((tmp_path / "out/categories.json").read_text())["categories"] == [
        "cat",
        "fox",
        "dog",
    ]


def test_a_subset_without_any_object_is_listed(lay, tmp_path):
    summary, warnings = run(lay(pictures(**{FILE: coco()})), tmp_path, max_warnings=0)
    assert summary["val2017"]["objects"] == 0
    assert warnings["counts"] == {"no object is labelled": 1}
    assert warnings["warnings"][0]["found"] == "no object in 2 images"


def test_boxes_in_fractions_of_the_image_are_refused(lay, tmp_path):
    root = lay(pictures(**{FILE: coco((1, 0.1, 0.2, 0.3, 0.4), (2, 0.5, 0.5, 0.5, 0.5))}))
    with pytest.raises(
        DataError, match=r"annotations\[0\].*2 of 2 boxes lie in the first two pixels .*fractions"
    ):
        run(root, tmp_path)


def test_fractions_are_seen_where_edges_are_pixels_and_a_box_is_tiny_if_its_part_of_the_image_is(
    lay, tmp_path
):
    moved = lay(pictures(**{FILE: coco((1, -0.9, -0.8, 1.3, 1.4), (2, 0.5, 0.5, 1.2, 1.5))}))
    with pytest.raises(DataError, match="fractions of the image"):
        run(moved, tmp_path)
    beside = lay(pictures(**{FILE: coco((1, -0.9, -0.8, 1.3, 1.4), (2, 10, 10, 20, 20))}))
    assert run(beside, tmp_path)[1]["counts"] == {module.TINY: 1}

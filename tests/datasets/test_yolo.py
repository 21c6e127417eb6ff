import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import Objects

YAML = "path: ../datasets/pets\ntrain: images/train\nval: images/val\ntest:\nnames:\n  0: cat\n  1: guide dog\n"


def files(rows="1 0.5 0.5 0.25 0.5\n", text=YAML, **others):
    return {"data.yaml": text, "images/val/a.jpg": (40, 20), "labels/val/a.txt": rows} | others


def read(root, subset="val", **params):
    return datasets.create("yolo", root=root, **params).read(subset)


def test_centre_and_size_become_pixels_of_the_image(lay, tmp_path):
    root = lay(files(text=YAML.replace("train: images/train\n", "")))
    summary = ingest(datasets.create("yolo", root=root), "pets", tmp_path / "out")
    assert summary == {"val": {"images": 1, "objects": 1, "categories": 1, "warnings": 0}}
    objects = Objects.read(tmp_path / "out/val/objects.parquet")
    assert objects.box.tolist() == [[15, 5, 25, 15]]
    assert objects.category.tolist() == ["guide dog"]


def test_an_outline_is_the_smallest_box_around_it(lay):
    objects = read(lay(files("0 0.1 0.5 0.3 0.2 0.2 0.9\n1 0.5 0.5 0.7 0.5 0.7 0.6 0.5 0.6\n"))).objects
    np.testing.assert_allclose(objects.box, [[0.1, 0.2, 0.3, 0.9], [0.5, 0.5, 0.7, 0.6]])


def test_images_without_a_label_file_or_with_an_empty_one_have_no_objects(lay):
    root = lay(files(**{"images/val/b.png": (4, 4), "images/val/c.jpg": (4, 4), "labels/val/c.txt": "\n"}))
    annotations = read(root)
    assert annotations.images.image_id.tolist() == ["a", "b", "c"]
    assert annotations.objects.image.tolist() == [0]


def test_images_in_folders_below_are_found_and_other_files_are_not_images(lay):
    root = lay(files(**{"images/val/x/d.JPEG": (4, 4), "images/val/notes.txt": "", "images/val/.e.jpg": (4, 4)}))
    assert read(root).images.image_id.tolist() == ["a", "x/d"]


def test_only_the_last_folder_called_images_has_a_twin_called_labels(lay):
    text = "val: images/images/val\nnames: [cat]\n"
    root = lay({"data.yaml": text, "images/images/val/a.jpg": (4, 4), "images/labels/val/a.txt": "0 0.5 0.5 1 1"})
    assert len(read(root).objects) == 1


def test_a_list_of_images_and_several_folders_are_read(lay):
    text = "train: train.txt\nval: [images/val, more/images]\nnames: [cat, dog]\n"
    root = lay(
        files(
            text=text, **{"train.txt": "./images/val/a.jpg\n\n", "more/images/z.jpg": (4, 4), "more/labels/z.txt": ""}
        )
    )
    reader = datasets.create("yolo", root=root)
    assert reader.subsets() == ["train", "val"]
    assert reader.read("train").images.file.tolist() == ["images/val/a.jpg"]
    assert len(reader.read("train").objects) == 1
    assert reader.read("val").images.image_id.tolist() == ["a", "z"]


def test_folders_that_exporters_write_with_dots_before_are_looked_for_in_the_root(lay):
    root = lay(files(text="val: ../images/val\nnames: [cat, dog]\nnc: 2\n"))
    assert read(root).images.file.tolist() == ["images/val/a.jpg"]


@pytest.mark.parametrize(
    ("rows", "row", "field", "problem"),
    [
        ("0 0.5 0.5 1 1\n\n2 0.5 0.5 1 1", "3", "class", "expected a class from 0 to 1, found 2"),
        ("-1 0.5 0.5 1 1", "1", "class", "expected a class from 0 to 1, found -1"),
        ("0.5 0.5 0.5 1 1", "1", "class", "expected a class from 0 to 1, found 0.5"),
        ("cat 0.5 0.5 1 1", "1", None, "expected finite numbers, found 'cat 0.5 0.5 1 1'"),
        ("0 0.5 nan 1 1", "1", None, "expected finite numbers"),
        ("0 0.5 0.5 -1 1", "1", "box", "the size is negative"),
        ("0 0.5 0.5 1", "1", "box", "found 3 numbers"),
        ("0 0.5 0.5 1 1 0.99", "1", "box", "found 5 numbers"),
        ("0", "1", "box", "found 0 numbers"),
    ],
)
def test_a_wrong_row_is_an_error_that_names_file_line_and_field(lay, rows, row, field, problem):
    root = lay(files(rows))
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(root)
    assert (error.value.file, error.value.row, error.value.field) == (str(root / "labels/val/a.txt"), row, field)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("val: [", "not YAML"),
        ("- val", "expected names, train and val, found ['val']"),
        ("val: images/val", "field 'names': expected a list of classes, or a mapping from 0, found None"),
        ("val: images/val\nnames: {1: cat, 2: dog}", "field 'names': expected the numbers 0 to 1, found [1, 2]"),
        ("val: images/val\nnames: [cat, cat]", "field 'names': two classes are called 'cat'"),
        ("val: images/val\nnames: [cat, dog]\nnc: 3", "field 'nc': 3 classes, but 2 names"),
        ("val: images/val\nnames: [cat, dog]\nkpt_shape: [17, 3]", "field 'kpt_shape': rows of key points"),
        ("names: [cat, dog]", "field 'val': expected a folder, a list of images, or several of them, found None"),
        ("val: /etc\nnames: [cat, dog]", "field 'val': file name '/etc' leaves its folder"),
        ("val: images/../../x\nnames: [cat, dog]", "field 'val': file name 'images/../../x' leaves its folder"),
    ],
)
def test_a_wrong_description_is_an_error_that_names_the_field(lay, text, problem):
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(lay(files(text=text)))
    assert "data.yaml" in str(error.value)


def test_a_listed_image_outside_the_root_is_an_error(lay):
    root = lay(files(text="val: val.txt\nnames: [cat]\n", **{"val.txt": "images/a.jpg\n../../secret.jpg\n"}))
    with pytest.raises(DataError, match=r"val.txt: row 2: file name '../../secret.jpg' leaves its folder"):
        read(root)


def test_two_images_with_one_label_file_are_an_error(lay):
    root = lay(files(**{"images/val/a.png": (4, 4)}))
    with pytest.raises(DataError, match=r"a.png: image 'a' occurs twice, first with the file images/val/a.jpg"):
        read(root)


def test_an_image_that_two_folders_of_a_subset_hold_is_an_error(lay):
    root = lay(files(text="val: [images, images/val]\nnames: [cat, dog]\n"))
    with pytest.raises(DataError, match=r"'images/val/a.jpg' and 'images/val/a.jpg' have their labels in one file"):
        read(root)


def test_absent_files_are_named_with_what_names_them(lay):
    root = lay(files())
    with pytest.raises(DataError, match=r"images/train: the folder of images does not exist; data.yaml names it"):
        read(root, "train")
    with pytest.raises(DataError, match=r"pets.yaml: the file does not exist; parameter 'file'"):
        datasets.create("yolo", root=root, file="pets.yaml").subsets()


def test_a_label_file_in_another_encoding_is_an_error(lay):
    with pytest.raises(DataError, match=r"a.txt: not UTF-8 at byte 0"):
        read(lay(files("0 0.5 0.5 1 1".encode("utf-16"))))


size = st.integers(1, 100).map(lambda n: n / 100)


@settings(deadline=None, max_examples=30)
@given(boxes=st.lists(st.tuples(st.integers(0, 1), size, size, size, size), max_size=6))
def test_boxes_that_are_written_as_yolo_are_read_as_they_were(tmp_path_factory, boxes):
    root = tmp_path_factory.mktemp("yolo")
    (root / "images").mkdir()
    (root / "labels").mkdir()
    (root / "images/a.jpg").touch()
    (root / "data.yaml").write_text("val: images\nnames: [cat, dog]\n", encoding="utf-8")
    rows = "".join(" ".join(map(repr, box)) + "\n" for box in boxes)
    (root / "labels/a.txt").write_text(rows, encoding="utf-8")
    objects = read(root).objects
    assert objects.category.tolist() == [box[0] for box in boxes]
    found = objects.box
    centres = np.concatenate([(found[:, :2] + found[:, 2:]) / 2, found[:, 2:] - found[:, :2]], axis=1)
    np.testing.assert_allclose(centres, np.array([box[1:] for box in boxes]).reshape(-1, 4), atol=1e-12)


def test_a_subset_without_any_label_file_is_refused(lay):
    root = lay({"data.yaml": YAML, "images/val/a.jpg": (4, 4), "labelTxt/a.txt": "0 0.5 0.5 1 1"})
    with pytest.raises(
        DataError, match=r"none of the 1 images of 'val' has a label file; that of images/val/a\.jpg would"
    ):
        read(root)


def test_absolute_paths_below_the_root_and_numbers_as_text_are_taken(lay):
    text = "path: /somewhere/else\nval: val.txt\ntrain: ROOT/images/val\nnames: {'0': cat, '1': dog}\n"
    root = lay(files(text=text))
    (root / "data.yaml").write_text(text.replace("ROOT", str(root)))
    (root / "val.txt").write_text(f"{root}/images/val/a.jpg\n")
    assert read(root).images.image_id.tolist() == ["val/a"]
    assert read(root, "train").images.file.tolist() == ["images/val/a.jpg"]
    assert read(root).categories == ["cat", "dog"]


def test_an_absolute_path_outside_the_root_is_refused(lay):
    root = lay(files(text="val: val.txt\nnames: [cat, dog]\n", **{"val.txt": "/elsewhere/a.jpg\n"}))
    with pytest.raises(DataError, match=r"val\.txt: row 1: file name '/elsewhere/a\.jpg' leaves its folder"):
        read(root)


def test_a_folder_is_looked_for_below_the_path_where_it_is_not_below_the_root(lay):
    root = lay(files(text="path: images\nval: val\nnames: [cat, dog]\n"))
    assert read(root).images.file.tolist() == ["images/val/a.jpg"]


def test_a_sixth_column_is_taken_when_asked_for(lay):
    root = lay(files("1 0.5 0.5 0.25 0.5 0.87\n"))
    with pytest.raises(DataError, match="found 5 numbers"):
        read(root)
    np.testing.assert_allclose(read(root, confidence=True).objects.box, [[0.375, 0.25, 0.625, 0.75]])


def test_images_behind_a_link_to_a_folder_are_found(lay, tmp_path):
    root = lay(files())
    (tmp_path / "far" / "away").mkdir(parents=True)
    (root / "images/val/a.jpg").rename(tmp_path / "far/away/b.jpg")
    (root / "images/val/more").symlink_to(tmp_path / "far/away")
    (root / "labels/val/more").mkdir()
    (root / "labels/val/more/b.txt").write_text("0 0.5 0.5 1 1\n")
    assert read(root).images.image_id.tolist() == ["more/b"]

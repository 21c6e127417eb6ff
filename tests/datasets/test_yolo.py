import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.projects import recognise
from farther.tables import Objects

YAML = """\
path: ../datasets/pets
train: images/train
val: images/val
test:
names:
  0: cat
  1: guide dog
"""


def files(rows="1 0.5 0.5 0.25 0.5\n", text=YAML, **further_files):
    return {
        "data.yaml": text,
        "images/val/a.jpg": (40, 20),
        "labels/val/a.txt": rows,
    } | further_files


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
    objects = read(
        lay(files("0 0.1 0.5 0.3 0.2 0.2 0.9\n1 0.5 0.5 0.7 0.5 0.7 0.6 0.5 0.6\n"))
    ).objects
    np.testing.assert_allclose(objects.box, [[0.1, 0.2, 0.3, 0.9], [0.5, 0.5, 0.7, 0.6]])


def test_images_without_labels_have_no_objects_and_other_files_are_not_images(
    lay,
):
    images = dict.fromkeys(("images/val/b.png", "images/val/c.jpg", "images/val/x/d.JPEG"), (4, 4))
    further_files = {
        "labels/val/c.txt": "\n",
        "images/val/notes.txt": "",
        "images/val/.e.jpg": (4, 4),
    }
    annotations = read(lay(files(**images, **further_files)))
    assert annotations.images.image_id.tolist() == ["a", "b", "c", "x/d"]
    assert annotations.objects.image.tolist() == [0]


def test_only_the_last_folder_called_images_has_a_twin_called_labels(lay):
    text = "val: images/images/val\nnames: [cat]\n"
    root = lay(
        {
            "data.yaml": text,
            "images/images/val/a.jpg": (4, 4),
            "images/labels/val/a.txt": "0 0.5 0.5 1 1",
        }
    )
    assert len(read(root).objects) == 1


def test_a_list_of_images_and_several_folders_are_read(lay):
    text = "train: train.txt\nval: [images/val, more/images]\nnames: [cat, dog]\n"
    root = lay(
        files(
            text=text,
            **{
                "train.txt": "./images/val/a.jpg\n\n",
                "more/images/z.jpg": (4, 4),
                "more/labels/z.txt": "",
            },
        )
    )
    reader = datasets.create("yolo", root=root)
    assert reader.subsets() == ["train", "val"]
    assert reader.read("train").images.file.tolist() == ["images/val/a.jpg"]
    assert len(reader.read("train").objects) == 1
    assert reader.read("val").images.image_id.tolist() == ["a", "z"]


@pytest.mark.parametrize(
    "text",
    [
        "val: ../images/val\nnames: [cat, dog]\nnc: 2\n",
        "path: images\nval: val\nnames: [cat, dog]\n",
    ],
)
def test_folders_are_looked_for_in_the_root_where_exporters_write_dots_or_another_path_before(
    lay, text
):
    assert read(lay(files(text=text))).images.file.tolist() == ["images/val/a.jpg"]


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
    assert (error.value.file, error.value.row, error.value.field) == (
        str(root / "labels/val/a.txt"),
        row,
        field,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("val: [", "not YAML"),
        ("- val", "expected names, train and val, found ['val']"),
        (
            "val: images/val",
            "field 'names': expected a list of classes, or a mapping from 0, found None",
        ),
        (
            "val: images/val\nnames: {1: cat, 2: dog}",
            "field 'names': expected the numbers 0 to 1, found [1, 2]",
        ),
        ("val: images/val\nnames: [cat, cat]", "field 'names': two classes are called 'cat'"),
        ("val: images/val\nnames: [cat, dog]\nnc: 3", "field 'nc': 3 classes, but 2 names"),
        (
            "val: images/val\nnames: [cat, dog]\nkpt_shape: [17, 3]",
            "field 'kpt_shape': rows of keypoints",
        ),
        (
            "names: [cat, dog]\nval: 3",
            "field 'val': expected a folder, a list of images, or several of them, found 3",
        ),
        ("val: /etc\nnames: [cat, dog]", "field 'val': file name '/etc' leaves its folder"),
        (
            "val: images/../../x\nnames: [cat, dog]",
            "field 'val': file name 'images/../../x' leaves its folder",
        ),
    ],
)
def test_a_wrong_description_is_an_error_that_names_the_field(lay, text, problem):
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(lay(files(text=text)))
    assert "data.yaml" in str(error.value)


@pytest.mark.parametrize("name", ["../../secret.jpg", "/elsewhere/a.jpg"])
def test_a_listed_image_outside_the_root_is_an_error(lay, name):
    root = lay(files(text="val: val.txt\nnames: [cat]\n", **{"val.txt": f"images/a.jpg\n{name}\n"}))
    with pytest.raises(DataError, match=rf"val.txt: row 2: file name '{name}' leaves its folder"):
        read(root)


@pytest.mark.parametrize(
    ("changes", "subset", "problem"),
    [
        (
            {"images/val/a.png": (4, 4)},
            "val",
            r"a.png: image 'a' occurs twice, first with the file images/val/a.jpg",
        ),
        (
            {"text": "val: [images, images/val]\nnames: [cat, dog]\n"},
            "val",
            "'images/val/a.jpg' and 'images/val/a.jpg' have their labels in one file",
        ),
        ({}, "train", "images/train: the folder of images does not exist; data.yaml names it"),
        (
            {"rows": "0 0.5 0.5 1 1".encode("utf-16-be")},
            "val",
            "a.txt: row 1: expected finite numbers",
        ),
    ],
    ids=["two endings", "two folders", "no folder", "another encoding"],
)
def test_what_is_wrong_with_the_files_is_named(lay, changes, subset, problem):
    with pytest.raises(DataError, match=problem):
        read(lay(files(**changes)), subset)


def test_an_absent_description_is_an_error_that_names_the_parameter(lay):
    with pytest.raises(DataError, match=r"pets.yaml: the file does not exist; parameter 'file'"):
        datasets.create("yolo", root=lay(files()), file="pets.yaml").subsets()


def test_a_subset_without_any_label_file_is_refused(lay):
    root = lay({"data.yaml": YAML, "images/val/a.jpg": (4, 4), "labelTxt/a.txt": "0 0.5 0.5 1 1"})
    with pytest.raises(
        DataError,
        match=r"none of the 1 images of 'val' has a label file; that of images/val/a\.jpg would",
    ):
        read(root)


def test_absolute_paths_below_the_root_and_numbers_as_text_are_taken(lay):
    text = (
        "path: /somewhere/else\nval: val.txt\ntrain: ROOT/images/val\nnames: {'0': cat, '1': dog}\n"
    )
    root = lay(files(text=text))
    (root / "data.yaml").write_text(text.replace("ROOT", str(root)))
    (root / "val.txt").write_text(f"{root}/images/val/a.jpg\n")
    assert read(root).images.image_id.tolist() == ["val/a"]
    assert read(root, "train").images.file.tolist() == ["images/val/a.jpg"]
    assert read(root).categories == ["cat", "dog"]


def test_a_sixth_column_is_taken_when_asked_for(lay):
    root = lay(files("1 0.5 0.5 0.25 0.5 0.87\n"))
    with pytest.raises(DataError, match="found 5 numbers"):
        read(root)
    np.testing.assert_allclose(
        read(root, confidence=True).objects.box, [[0.375, 0.25, 0.625, 0.75]]
    )


def test_images_behind_a_link_to_a_folder_are_found(lay, tmp_path):
    root = lay(files())
    (tmp_path / "far" / "away").mkdir(parents=True)
    (root / "images/val/a.jpg").rename(tmp_path / "far/away/b.jpg")
    (root / "images/val/more").symlink_to(tmp_path / "far/away")
    (root / "labels/val/more").mkdir()
    (root / "labels/val/more/b.txt").write_text("0 0.5 0.5 1 1\n")
    assert read(root).images.image_id.tolist() == ["more/b"]


@pytest.mark.parametrize(
    ("files", "names", "subsets"),
    [
        (("images/train/a", "images/val/b"), "data.yaml", {"train": "a", "val": "b"}),
        (
            ("train/images/a", "valid/images/b", "test/images/c"),
            "names.yaml",
            {"train": "a", "val": "b", "test": "c"},
        ),
        (("images/a",), "classes.txt", {"all": "a"}),  # Label Studio
        (("a",), "classes.txt", {"all": "a"}),  # LabelImg: texts beside the images
        (("images/a",), "labels/classes.txt", {"all": "a"}),
        (("obj_train_data/a",), "obj.names", {"train": "a"}),  # CVAT, Darknet
    ],
)
def test_without_subsets_in_the_yaml_file_the_folders_say_which_there_are(
    tmp_path, files, names, subsets
):
    for file in files:
        image, label = (
            tmp_path / f"{file}.jpg",
            tmp_path / f"{file.replace('images/', 'labels/')}.txt",
        )
        for path in (image, label):
            path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10)).save(image)
        label.write_text("1 0.5 0.5 0.2 0.4\n")
    (tmp_path / names).parent.mkdir(exist_ok=True)
    (tmp_path / names).write_text(
        "names: [cat, dog]\n" if names.endswith(".yaml") else "cat\ndog\n"
    )
    entry = recognise(tmp_path).entry
    assert entry["format"] == "yolo"
    reader = datasets.create(**entry)
    assert sorted(reader.subsets()) == sorted(subsets)
    for subset, image_id in subsets.items():
        annotations = reader.read(subset)
        assert [Path(name).name for name in annotations.images.image_id] == [image_id]
        assert [annotations.categories[k] for k in annotations.objects.category] == ["dog"]

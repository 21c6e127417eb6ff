"""The folder of the images that annotations name."""

import json
from pathlib import Path

import pytest
from tests.projects.files import picture

from farther.projects import recognise

BOX = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
XML = f"<annotation><object><name>cat</name>{BOX}</object></annotation>"


def coco(file: Path, *names: str) -> None:
    """A COCO file with one box per image."""
    numbered = list(enumerate(names, start=1))
    content = {
        "images": [{"id": number, "file_name": name} for number, name in numbered],
        "annotations": [
            {"id": number, "image_id": number, "category_id": 1, "bbox": [1, 2, 8, 6]}
            for number, _ in numbered
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


def pictures(folder: Path, *names: str) -> None:
    for name in names:
        picture(folder / name)


def folders(root: Path) -> dict[str, str]:
    """The folder of images of each subset."""
    layout = recognise(root).entry["layout"]
    return {subset: folder for subset, (_, folder) in layout.items()}


NAMES = ("1.jpg", "2.jpg", "3.jpg", "4.jpg")


@pytest.mark.parametrize(
    ("files", "image_folders"),
    [
        (("instances_train", "instances_val"), ("train_images", "val_images")),
        (("Training", "Validation"), ("TrainImages", "valid")),
        (("beach", "market"), ("images/beach", "photos/market")),
        (("cam_1", "cam_11"), ("cam-1", "cam-11")),
        (("pets_train", "pets_val"), ("pets_train_images", "pets_val_images")),
    ],
)
def test_equal_names_in_two_folders_are_read_from_the_folder_of_the_file(
    tmp_path, files, image_folders
):
    for file, folder in zip(files, image_folders, strict=True):
        pictures(tmp_path / folder, *NAMES)
        coco(tmp_path / f"annotations/{file}.json", *NAMES)
    found = recognise(tmp_path)
    assert (found.repeats, found.questions, found.images) == ({}, (), 8)
    folder_by_file = dict(found.entry["layout"].values())
    assert folder_by_file == {
        f"annotations/{file}.json": folder
        for file, folder in zip(files, image_folders, strict=True)
    }


def test_a_missing_image_does_not_move_a_subset_to_the_folder_of_another(tmp_path):
    pictures(tmp_path / "train_images", *NAMES)
    pictures(tmp_path / "val_images", *NAMES[1:])
    for name in ("train", "val"):
        coco(tmp_path / f"{name}.json", *NAMES)
    assert folders(tmp_path) == {"train": "train_images", "val": "val_images"}
    note = "1 of 4 images that val.json names are not in val_images"
    assert note in recognise(tmp_path).notes


def test_images_in_the_folder_of_another_subset_are_found_where_no_other_has_them(tmp_path):
    pictures(tmp_path / "train2014", *NAMES)
    pictures(tmp_path / "val2014", "9.jpg")
    coco(tmp_path / "instances_minival.json", *NAMES)
    coco(tmp_path / "val.json", *NAMES[:2])
    assert set(folders(tmp_path).values()) == {"train2014"}


def test_the_folder_with_most_images_is_taken_whatever_the_first_is(tmp_path):
    pictures(tmp_path / "old", "1.jpg")
    pictures(tmp_path / "images/deep", *NAMES[1:])
    coco(tmp_path / "annotations/labels.json", *NAMES)
    assert folders(tmp_path) == {"all": "images/deep"}


@pytest.mark.parametrize("name", ["a/1.jpg", "a\\1.jpg", "./a/1.JPG", "a/%31.jpg"])
def test_names_may_be_paths_in_any_spelling(tmp_path, name):
    pictures(tmp_path / "pictures/a", "1.jpg")
    pictures(tmp_path / "pictures/b", "1.jpg")
    coco(tmp_path / "labels.json", name)
    assert list(folders(tmp_path).values()) == ["pictures"]


def test_folders_that_fit_equally_are_a_question(tmp_path):
    for folder in ("images", "thumbnails"):
        pictures(tmp_path / folder, *NAMES)
    coco(tmp_path / "labels.json", *NAMES)
    found = recognise(tmp_path)
    assert found.questions == (
        "the images that labels.json names are in images and in thumbnails: images is taken",
    )


def test_absent_images_of_two_subsets_are_not_said_to_be_the_same(tmp_path):
    picture(tmp_path / "other.jpg")
    for name in ("train", "val"):
        coco(tmp_path / f"{name}.json", *NAMES)
    found = recognise(tmp_path)
    assert (found.subsets, found.repeats) == (["train", "val"], {})
    assert "no folder has an image that train.json names (4)" in found.notes


def test_parallel_trees_of_xml_and_images_are_matched_folder_by_folder(tmp_path):
    for folder in ("c", "c1", "d e"):
        pictures(tmp_path / f"Images/{folder}", *NAMES)
        for name in NAMES:
            file = tmp_path / f"Annotation/{folder}/{name[:1]}.xml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(XML)
    layout = recognise(tmp_path).entry["layout"]
    assert sorted(layout.values()) == [
        [f"Annotation/{folder}", f"Images/{folder}"] for folder in ("c", "c1", "d e")
    ]


def test_parallel_trees_of_coco_and_images_are_matched_folder_by_folder(tmp_path):
    for folder in ("c", "d"):
        pictures(tmp_path / f"Images/{folder}", *NAMES)
        coco(tmp_path / f"Annotation/{folder}/instances.json", *NAMES)
    assert folders(tmp_path) == {"c": "Images/c", "d": "Images/d"}


def test_images_that_only_the_content_of_xml_names_are_found(tmp_path):
    pictures(tmp_path / "pictures", "holiday.jpg", "2.jpg")
    for name, filename in (("a", "C:\\x\\holiday.jpg"), ("2", "other.jpg"), ("b", "gone.jpg")):
        file = tmp_path / f"xml/{name}.xml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(XML.replace("<object>", f"<filename>{filename}</filename><object>"))
    found = recognise(tmp_path)
    assert found.entry["layout"] == {"all": ["xml", "pictures"]}
    assert "1 of 3 images that xml names are not in pictures" in found.notes

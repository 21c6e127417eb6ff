"""Formats of datasets that are recognised, and files that are refused."""

import json
from pathlib import Path

import pytest
from PIL import Image
from tests.projects.files import coco, picture

from farther.errors import DataError
from farther.projects import recognise


def test_coco_files_are_found_in_any_folder_with_their_images(pets):
    found = recognise(pets)
    assert found.entry["layout"] == {
        "train": ["train/_annotations.coco.json", "train"],
        "val": ["valid/_annotations.coco.json", "valid"],
    }
    assert found.categories == ["cat", "dog"]
    assert found.numbers == {3: "cat", 4: "dog"}


def test_annotations_of_the_same_images_are_one_subset(tmp_path):
    for number in range(2):
        picture(tmp_path / f"images/{number}.jpg")
    coco(tmp_path / "coco_v1.json", "0.jpg")
    coco(tmp_path / "coco_v2.json", "0.jpg", ("cat", "dog", "owl"))
    coco(tmp_path / "more.json", "1.jpg")
    found = recognise(tmp_path)
    assert (found.subsets, found.repeats) == (["coco_v1", "more"], {"coco_v2": "coco_v1"})
    assert found.categories == ["cat", "dog"]


def test_boxes_with_scores_beside_annotations_are_detections(tmp_path):
    picture(tmp_path / "0.jpg")
    for name in ("train", "boxes"):
        coco(tmp_path / f"{name}.json", "0.jpg")
    content = json.loads((tmp_path / "boxes.json").read_text())
    content["annotations"][0]["score"] = 0.5
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    assert recognise(tmp_path).entry["layout"] == {"train": ["train.json", "."]}
    (tmp_path / "train.json").unlink()
    assert recognise(tmp_path).entry["layout"] == {"boxes": ["boxes.json", "."]}


def test_one_coco_file_without_a_name_of_a_subset_is_all(tmp_path):
    picture(tmp_path / "a.jpg")
    coco(tmp_path / "_annotations.coco.json", "a.jpg")
    assert recognise(tmp_path).entry["layout"] == {"all": ["_annotations.coco.json", "."]}


def test_xml_files_are_found_beside_and_below_their_images(tmp_path):
    xml = (
        "<annotation><object><name>fox</name>"
        "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    )
    for subset in ("train", "test"):
        picture(tmp_path / subset / "images" / "a.png")
        (tmp_path / subset / "annots").mkdir()
        (tmp_path / subset / "annots/a.xml").write_text(f"{xml}</object></annotation>")
    found = recognise(tmp_path)
    assert found.entry["layout"] == {
        "test": ["test/annots", "test/images"],
        "train": ["train/annots", "train/images"],
    }
    assert found.categories == ["fox"]
    assert found.unlisted == 0


@pytest.mark.parametrize(("kit", "image_set"), [("VOC2012/", "VOC2012/train"), ("", "train")])
def test_image_sets_of_voc_have_the_folder_of_their_kit_in_front(tmp_path, kit, image_set):
    root = tmp_path / "VOCdevkit"
    picture(root / f"{kit}JPEGImages/2008_a.jpg")
    box = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    xml = f"<annotation><object><name>dog</name>{box}</object></annotation>"
    texts = {"Annotations/2008_a.xml": xml, "ImageSets/Main/train.txt": "2008_a\n"}
    for name, text in texts.items():
        (root / kit / name).parent.mkdir(parents=True)
        (root / kit / name).write_text(text)
    found = recognise(root)
    assert found.entry["image_sets"] == {"train": [image_set]}
    assert found.images == 1


@pytest.mark.parametrize("folder", ["images", "JPEGImages"])
def test_xml_files_beside_their_folder_of_images_are_read(tmp_path, folder):
    picture(tmp_path / folder / "a.jpg")
    box = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    (tmp_path / "a.xml").write_text(
        f"<annotation><object><name>dog</name>{box}</object></annotation>"
    )
    dataset = recognise(tmp_path)
    assert dataset.entry["layout"] == {"all": [".", folder]}
    assert dataset.images == 1


def test_folders_of_classes_are_labelled_images(tmp_path):
    picture(tmp_path / "train/cat/1.jpg")
    picture(tmp_path / "test/dog/1.jpg")
    found = recognise(tmp_path)
    assert (found.entry["format"], found.subsets) == ("image_folder", ["test", "train"])


def test_a_folder_without_images_is_refused_with_what_was_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("lynx")
    with pytest.raises(
        DataError, match=r"unknown format; looked for data\.yaml \(YOLO\), JSON with images"
    ):
        recognise(tmp_path)


@pytest.mark.parametrize(
    "files", [("trip/a/1.jpg", "2.jpg"), ("images/train/1.jpg", "images/val/2.jpg")]
)
def test_photographs_in_folders_are_no_classes(tmp_path, files):
    for file in files:
        picture(tmp_path / file)
    assert recognise(tmp_path).entry["format"] == "images"


def test_images_that_a_coco_file_does_not_name_are_counted(tmp_path):
    for number in range(3):
        picture(tmp_path / f"{number}.jpg")
    coco(tmp_path / "boxes.json", "0.jpg")
    assert recognise(tmp_path).unlisted == 2


REPLACED = {
    "NaN": (b"[1, 2, 8, 6]", b"[NaN, 2, 8, 6]"),
    "Latin-1": (b'"cat"', '"K\u00e4tzchen"'.encode("latin-1")),
    "without categories": (b'"categories"', b'"kinds"'),
    "without images": (b'"images"', b'"pictures"'),
}
DAMAGES = (
    "cut off",
    "cut off in its first list",
    *REPLACED,
    "UTF-16, cut off",
    "another list",
    "empty",
)


def damaged(content: bytes, damage: str) -> bytes:
    """The content of a COCO file with one of the damages."""
    if damage == "cut off":
        return content[:-30]
    if damage == "cut off in its first list":
        return content[:20]
    if damage == "UTF-16, cut off":
        return content.decode().encode("utf-16")[:-41]
    if damage == "another list":
        return b'{"items": []}'
    if damage == "empty":
        return b""
    return content.replace(*REPLACED[damage])


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a whole one"])
def test_damaged_annotations_are_refused_and_never_taken_for_absent(tmp_path, damage, beside):
    picture(tmp_path / "a.jpg")
    coco(tmp_path / "labels.json", "a.jpg")
    file = tmp_path / "labels.json"
    file.write_bytes(damaged(file.read_bytes(), damage))
    if beside:
        coco(tmp_path / "train.json", "a.jpg")
    if beside and damage == "another list":  # whatever it is, it is whole
        found = recognise(tmp_path)
        assert list(found.entry["layout"]) == ["train"]
        assert found.notes == (
            "1 files that are annotations by their names are not read, such as labels.json",
        )
        return
    with pytest.raises(DataError, match=r"labels\.json: .*(damaged|COCO file without|not read)"):
        recognise(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_annotations_of_programs_of_windows_are_recognised(tmp_path, encoding):
    picture(tmp_path / "images/a.jpg")
    coco(tmp_path / "labels.json", "images\\a.jpg")
    file = tmp_path / "labels.json"
    file.write_bytes(file.read_text().encode(encoding))
    found = recognise(tmp_path)
    assert found.entry["layout"] == {"all": ["labels.json", "."]}
    assert found.categories == ["cat", "dog"]
    assert any(note.startswith("image files that are spelt otherwise") for note in found.notes)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("labels/a.txt", "0 0.5 0.5 0.2 0.2\n", "no data.yaml or classes.txt names classes"),
        (
            "annotations.csv",
            "file,xmin\n",
            "a file of annotations by its name, in a form that is not read",
        ),
        (
            "gt/a.json",
            '{"shapes_of_mine": []}',
            "a file of annotations by its name, in a form that is not read",
        ),
        ("metadata.jsonl", '{"file_na', "metadata.jsonl: a damaged file of annotations"),
    ],
)
def test_annotations_that_are_not_read_are_refused_beside_images(tmp_path, name, content, problem):
    picture(tmp_path / "a.jpg")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=problem):
        recognise(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", "taken in June\n"),
        ("camera.json", '{"lens": 50}'),
        ("annotations/image_info.json", '{"images": [], "categories": []}'),
        ("captions.json", '{"images": [], "annotations": [{"image_id": 1, "caption": "a fox"}]}'),
        ("prices.csv", "a,b\n"),
    ],
)
def test_other_files_beside_images_are_no_annotations(tmp_path, name, content):
    picture(tmp_path / "a.jpg")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    assert recognise(tmp_path).entry["format"] == "images"


def sideways(path: Path) -> None:
    """A picture of 60 × 40 pixels as it is displayed, stored on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 60)).save(path, exif=exif)


def test_init_writes_which_picture_boxes_refer_to_where_ingest_would_ask(tmp_path):
    for folder in ("train", "test"):
        sideways(tmp_path / folder / "a.jpg")
        coco(tmp_path / folder / "labels.json", "a.jpg")
    found = recognise(tmp_path)
    assert found.entry["orientation"] == "displayed"
    assert found.notes[0].startswith(
        "2 images are turned by a quarter by their EXIF orientation, and nothing tells"
    )
    assert (
        "test/a.jpg is displayed as 60×40 and stored as 40×60 (orientation 6), and its boxes"
        in found.notes[0]
    )
    file = tmp_path / "train/labels.json"
    file.write_text(
        file.read_text().replace("[1, 2, 8, 6]", "[1, 2, 8, 57]")
    )  # leaves the displayed picture
    found = recognise(tmp_path)
    assert found.entry["orientation"] == "stored"
    assert found.notes == (
        "1 images are turned by a quarter by their EXIF orientation; "
        "boxes of other images fit the stored picture only: orientation: stored",
    )
    (tmp_path / "test/labels.json").unlink()
    (tmp_path / "test/a.jpg").unlink()
    assert "orientation" not in recognise(tmp_path).entry  # `ingest` decides by the boxes


@pytest.mark.parametrize(
    ("key", "other"),
    [("names", "names: [cat, fox]\ntrain: images\n"), ("train", "names: [cat]\ntrain: a.txt\n")],
)
def test_two_descriptions_of_one_yolo_folder_that_differ_are_both_named(tmp_path, key, other):
    first = "names: [cat]\ntrain: images\n"
    if key == "names":
        first = "names: [cat, dog]\ntrain: images\n"
    (tmp_path / "data.yaml").write_text(first)
    (tmp_path / "old.yaml").write_text(other)
    with pytest.raises(DataError, match=f"old.yaml.*{key}.*data.yaml describes the same folder"):
        recognise(tmp_path)


def test_two_descriptions_of_one_yolo_folder_that_agree_are_one(tmp_path):
    picture(tmp_path / "images/a.jpg")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/a.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (tmp_path / "coco.yaml").write_text("names: [cat]\ntrain: images\n")
    (tmp_path / "data.yaml").write_text("names: {0: cat}\ntrain: images\n")
    assert "file" not in recognise(tmp_path).entry

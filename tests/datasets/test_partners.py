"""Annotation files and images that belong together, matched where only the spelling differs."""

import json
import re
import unicodedata
from urllib.parse import quote

import pytest

from farther import datasets
from farther.datasets.file_names import RESPELLED, comparable
from farther.datasets.ingest import ingest
from farther.datasets.presence import check_subset
from farther.datasets.tidying import REPEATED
from farther.datasets.yolo_labels import BESIDE, OTHER_NAME, UNMATCHED, WITHOUT_LABELS
from farther.errors import DataError
from farther.tables import Images, Objects

ROW = "0 0.5 0.5 0.5 0.5\n"
NAMES = {"data.yaml": "train: images\nnames: [cat, dog]\n"}
#: A name in the form that a Mac writes: the accent is a letter of its own.
ACCENT = "caf\u00e9 1"
TAKEN_APART = unicodedata.normalize("NFD", ACCENT)


def yolo(lay, labels, images=("images/a.jpg",), **params):
    """A reader of images of 40 × 20 pixels and label files."""
    root = lay({**NAMES, **dict.fromkeys(images, (40, 20)), **labels})
    return datasets.create("yolo", root=root, **params)


def tables(reader, out, subset="train"):
    """Images, objects and warnings by kind after `ingest`."""
    ingest(reader, "pets", out)
    images = Images.read(out / subset / "images.parquet")
    objects = Objects.read(out / subset / "objects.parquet")
    warnings = json.loads((out / "warnings.json").read_text())["warnings"]
    return images, objects, {warning["kind"]: warning["found"] for warning in warnings}


@pytest.mark.parametrize(
    ("image", "label"),
    [
        (f"{ACCENT}.jpg", f"{quote(ACCENT)}.txt"),
        (f"{ACCENT}.jpg", f"{TAKEN_APART}.txt"),
        (f"{TAKEN_APART}.jpg", f"{ACCENT}.txt"),
        ("a.jpg", "a.jpg.txt"),
        ("a b.jpg", "a%20b.jpg.txt"),
        ("IMG_1.JPG", "img_1.txt"),
    ],
)
def test_a_label_file_in_another_spelling_is_read_and_listed_once(lay, tmp_path, image, label):
    images = (f"images/{image}", "images/z.jpg")
    reader = yolo(lay, {f"labels/{label}": ROW, "labels/z.txt": ROW}, images)
    _, objects, kinds = tables(reader, tmp_path / "out")
    assert objects.box.tolist() == [[10, 5, 30, 15]] * 2
    assert kinds == {OTHER_NAME: f"1 files, such as labels/{label} of images/{image}"}


def test_a_label_file_that_may_belong_to_two_images_belongs_to_none(lay):
    images = ("images/a.jpg", "images/A.jpg", "images/z.jpg")
    reader = yolo(lay, {"labels/%61.txt": ROW, "labels/z.txt": ROW}, images, max_warnings=1.0)
    read = reader.read("train")
    assert read.objects.image.tolist() == [2]
    assert [warning.kind for warning in read.warnings] == [WITHOUT_LABELS]


def test_label_files_of_no_image_are_counted_and_refused_above_the_limit(lay, tmp_path):
    images = [f"images/{number}.jpg" for number in range(20)]
    labels = {f"labels/{number}.txt": ROW for number in range(20)}
    one = yolo(lay, {**labels, "labels/x.txt": ROW}, images)
    _, objects, kinds = tables(one, tmp_path / "out")
    assert len(objects) == 20
    assert kinds == {UNMATCHED: "no image belongs to 'labels/x.txt', whose objects are lost: "
                     "rename it as its image, or delete it"}  # fmt: skip
    two = yolo(lay, {**labels, "labels/x.txt": ROW, "labels/y.txt": ROW}, images)
    with pytest.raises(
        DataError,
        match=r"2 warnings about 20 images, more than max_warnings: 0.05 .*'labels/x.txt'",
    ):
        ingest(two, "pets", tmp_path / "refused")
    assert (
        "2 warnings about 20 images" in check_subset(two, "train").problem
    )  # and `farther doctor` says so


def test_label_files_beside_images_whose_labels_are_expected_elsewhere_are_counted(lay):
    labels = {"labels/a.txt": ROW, "images/b.txt": ROW, "images/notes.txt": "b is blurred\n"}
    read = yolo(lay, labels, ("images/a.jpg", "images/b.jpg")).read("train")
    found = {warning.kind: warning.found for warning in read.warnings}
    assert (
        found[BESIDE]
        == "'images/b.txt' is beside its image, and is expected at labels/b.txt: move it"
    )
    assert found[WITHOUT_LABELS] == "1 of 2, such as images/b.jpg"


def test_text_files_that_are_no_labels_and_labels_of_other_subsets_are_not_counted(lay):
    others = {
        "data.yaml": "train: train.txt\nval: val.txt\nnames: [cat]\n",
        "train.txt": "images/a.jpg\n",
        "val.txt": "images/b.jpg\n",
        "labels/b.txt": ROW,
        "labels/classes.txt": "cat\n",
        "labels/empty.txt": "",
        "labels/a.json": "{}",
    }
    read = yolo(lay, {"labels/a.txt": ROW, **others}, ("images/a.jpg", "images/b.jpg")).read(
        "train"
    )
    assert read.warnings == []


def test_the_error_about_images_without_any_label_file_names_those_that_belong_to_none(lay):
    reader = yolo(lay, {"labels/x.txt": ROW, "labels/y.txt": ROW})
    with pytest.raises(
        DataError,
        match=r"2 label files belong to no image, such as labels/x.txt: rename or move them",
    ):
        reader.read("train")


def test_a_list_written_on_windows_leads_to_the_images_and_their_labels(lay, tmp_path):
    lines = "images\\a.jpg\r\nimages/b.jpg\r\n"
    others = {
        "data.yaml": "train: train.txt\nnames: [cat]\n",
        "train.txt": lines,
        "labels/b.txt": ROW,
    }
    reader = yolo(lay, {"labels/a.txt": ROW, **others}, ("images/a.jpg", "images/b.jpg"))
    images, objects, kinds = tables(reader, tmp_path / "out")
    assert images.image_id.tolist() == ["a", "b"]
    assert len(objects) == 2
    assert kinds == {RESPELLED: r"'images\\a.jpg' is 'images/a.jpg'"}


def test_pixels_in_a_label_file_are_said_to_be_no_fractions(lay, tmp_path):
    reader = yolo(lay, {"labels/a.txt": "0 20 10 20 10\n"})
    problem = (
        r"edges 10, 5, 30, 15 in widths and heights of the image "
        r"\(this format has fractions; are these pixels\?"
    )
    with pytest.raises(DataError, match=problem):
        ingest(reader, "pets", tmp_path / "out")


def test_a_subset_that_is_named_and_not_there_is_listed_and_the_others_are_read(lay, tmp_path):
    text = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnames: [cat]\n"
    files = {f"{folder}/labels/{folder}.txt": ROW for folder in ("train", "valid")}
    images = [f"{folder}/images/{folder}.jpg" for folder in ("train", "valid")]
    reader = yolo(lay, {"data.yaml": text, **files}, images)
    assert reader.subsets() == ["train", "val"]
    _, _, kinds = tables(reader, tmp_path / "out")
    assert kinds == {"subset that is not there": "test: test/images does not exist, or is empty"}
    (reader.root / "test/images").mkdir(parents=True)  # as empty as absent
    assert reader.subsets() == ["train", "val"]
    (reader.root / "test/images").rmdir()
    with pytest.raises(DataError, match="test/images: the folder of images does not exist"):
        datasets.create("yolo", root=reader.root, subset_names=["test"]).read("test")


def test_nothing_is_left_out_where_no_subset_is_there(lay):
    reader = yolo(lay, {"data.yaml": "train: ../a/images\nval: ../b/images\nnames: [cat]\n"}, ())
    assert reader.subsets() == ["train", "val"]
    with pytest.raises(DataError, match="a/images: the folder of images does not exist"):
        reader.read("train")


def coco(lay, names, files, annotations=None, **params):
    """A reader of images with these names in the annotations, one box each, and these files."""
    boxes = annotations or [
        {"id": k, "image_id": k, "category_id": 1, "bbox": [1, 2, 8, 6]}
        for k, _ in enumerate(names)
    ]
    content = {
        "images": [{"id": k, "file_name": name} for k, name in enumerate(names)],
        "annotations": boxes,
        "categories": [{"id": 1, "name": "fox"}],
    }
    root = lay({"a.json": content, **dict.fromkeys(files, (40, 20))})
    return datasets.create("coco", root=root, layout={"train": ("a.json", ".")}, **params)


@pytest.mark.parametrize(
    ("written", "file"),
    [
        ("images\\\\x.jpg".replace("\\\\", "\\"), "images/x.jpg"),
        (f"images/{TAKEN_APART}.jpg", f"images/{ACCENT}.jpg"),
        (f"images/{ACCENT}.jpg", f"images/{TAKEN_APART}.jpg"),
        ("images/a%20b.jpg", "images/a b.jpg"),
        ("Images/X.JPG", "images/x.jpg"),
    ],
)
def test_an_image_in_another_spelling_is_found_and_listed_once(lay, tmp_path, written, file):
    reader = coco(lay, [written, "z.jpg"], [file, "z.jpg"])
    images, objects, kinds = tables(reader, tmp_path / "out")
    assert images.file.tolist() == [file, "z.jpg"]
    assert len(objects) == 2
    assert kinds == {RESPELLED: f"{written!r} is {file!r}"}
    checked = check_subset(reader, "train")
    assert checked.problem == ""


def test_a_name_that_two_files_have_in_other_spellings_is_not_guessed(lay, tmp_path):
    reader = coco(lay, ["X.jpg"], ["x.jpg", "x.JPG"])
    with pytest.raises(DataError, match="its file does not exist"):
        ingest(reader, "pets", tmp_path / "out")


def test_an_exact_name_is_always_the_file(lay, tmp_path):
    images, _, kinds = tables(coco(lay, ["a%20b.jpg"], ["a%20b.jpg", "a b.jpg"]), tmp_path / "out")
    assert images.file.tolist() == ["a%20b.jpg"]
    assert kinds == {}


@pytest.mark.parametrize("name", ["..\\x.jpg", "%2e%2e/x.jpg", "a\\..\\..\\x.jpg"])
def test_no_spelling_leads_out_of_the_folder(lay, tmp_path, name):
    (tmp_path / "x.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="its file does not exist"):
        ingest(coco(lay, [name], []), "pets", tmp_path / "out")


def test_names_that_differ_in_more_than_spelling_differ():
    assert comparable("a_b.jpg") != comparable("a b.jpg")
    assert comparable("a.jpg") != comparable("a.jpeg")


def test_rows_that_are_equal_to_the_last_digit_are_one_object(lay, tmp_path):
    box = {"image_id": 0, "category_id": 1, "bbox": [1, 2, 8, 6]}
    rows = [box, box, {**box, "bbox": [1, 2, 8, 6.000001]}, {**box, "iscrowd": 1}]
    annotations = [{"id": 10 + number, **row} for number, row in enumerate(rows)]
    _, objects, kinds = tables(coco(lay, ["a.jpg"], ["a.jpg"], annotations), tmp_path / "out")
    assert objects.object_id.tolist() == [10, 12, 13]
    assert kinds == {REPEATED: "1 of 4 equal an earlier one of their image in box and class"}


def test_every_label_twice_is_every_label_once(lay, tmp_path):
    rows = "0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.5 0.5\n"
    _, objects, kinds = tables(yolo(lay, {"labels/a.txt": rows * 2}), tmp_path / "out")
    assert objects.category.tolist() == ["cat", "dog"]
    assert kinds == {REPEATED: "2 of 4 equal an earlier one of their image in box and class"}


XML = (
    "<annotation><filename>{}</filename><object><name>fox</name>"
    "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>"
)


def voc(lay, xml, images):
    """A reader of XML files (name: `filename`) and images."""
    files = {f"xml/{name}": XML.format(written) for name, written in xml.items()}
    root = lay({**files, **{f"images/{name}": (40, 20) for name in images}})
    return datasets.create("voc", root=root, layout={"train": ("xml", "images")})


@pytest.mark.parametrize("written", ["x.jpg", "x.png"])
def test_of_two_images_of_one_name_the_file_name_in_the_xml_counts(lay, tmp_path, written):
    images, _, kinds = tables(voc(lay, {"x.xml": written}, ["x.jpg", "x.png"]), tmp_path / "out")
    assert images.file.tolist() == [f"images/{written}"]
    assert kinds == {}


@pytest.mark.parametrize("written", ["", "x", "y.jpg", "x.jpeg"])
def test_two_images_of_one_name_are_refused_where_the_xml_names_neither(lay, written):
    with pytest.raises(
        DataError, match=r"x.xml: field 'filename': x.jpg and x.png have the name of this file"
    ):
        voc(lay, {"x.xml": written}, ["x.jpg", "x.png"]).read("train")


@pytest.mark.parametrize(
    ("xml", "written", "image"),
    [
        (f"{quote(ACCENT)}.xml", "", f"{ACCENT}.jpg"),
        (f"{TAKEN_APART}.xml", f"{ACCENT}.png", f"{ACCENT}.png"),
        ("a.jpg.xml", "a.jpg", "a.jpg"),
        ("0001.xml", "photo 7.png", "photo 7.png"),
    ],
)
def test_an_xml_file_in_another_spelling_is_read_and_listed_once(
    lay, tmp_path, xml, written, image
):
    images, objects, kinds = tables(
        voc(lay, {xml: written, "z.xml": "z.jpg"}, [image, "z.jpg"]), tmp_path / "out"
    )
    assert sorted(images.file) == sorted([f"images/{image}", "images/z.jpg"])
    assert len(objects) == 2
    assert kinds == {
        "XML files called otherwise than their images": f"1 files, such as {xml} of images/{image}"
    }


def test_images_without_an_xml_file_are_listed_and_xml_files_without_image_refused(lay, tmp_path):
    reader = voc(lay, {"a.xml": "a.jpg"}, ["a.jpg", "b.jpg", "c.png"])
    _, _, kinds = tables(reader, tmp_path / "out")
    assert kinds == {"images without an XML file": "2, such as 'b.jpg'"}
    (reader.root / "xml/x.xml").write_text(XML.format("x.jpg"))
    with pytest.raises(
        DataError,
        match=re.escape("'x' is annotated, but its file does not exist (1 of 2 are missing)"),
    ):
        ingest(reader, "pets", tmp_path / "refused")


def test_a_subset_of_a_layout_that_is_not_there_is_listed(lay, tmp_path):
    reader = coco(lay, ["a.jpg"], ["a.jpg"])
    reader = datasets.create(
        "coco", root=reader.root, layout={"train": ("a.json", "."), "test": ("b.json", ".")}
    )
    assert reader.subsets() == ["train"]
    _, _, kinds = tables(reader, tmp_path / "out")
    assert kinds == {"subset that is not there": "test: b.json does not exist, or is empty"}
    published = datasets.create("objects365", root=reader.root)  # whose layout nobody wrote
    assert published.absent_subsets() == {}


def test_names_to_rename_that_no_class_has_are_listed(lay):
    reader = voc(lay, {"a.xml": "a.jpg"}, ["a.jpg"])
    renamed = datasets.create(
        "voc", root=reader.root, layout=reader.layout, renamed={"fox": "vulpes", "owl": "strix"}
    )
    read = renamed.read("train")
    assert read.categories == ["vulpes"]
    assert [(warning.kind, warning.found) for warning in read.warnings] == [
        ("no category to rename", "none called 'owl'")
    ]
    root = lay({"train/cat/a.jpg": (4, 4)})
    read = datasets.create(
        "image_folder", root=root, folders={"train": "train"}, renamed={"dog": "hound"}
    ).read("train")
    assert [warning.found for warning in read.warnings] == ["none called 'dog'"]


def test_annotation_files_beside_images_without_boxes_are_named(lay):
    root = lay({"a.jpg": (4, 4), "labels.json": {}, "notes.txt": ""})
    read = datasets.create("images", root=root).read("all")
    assert {warning.kind: warning.found for warning in read.warnings} == {
        "annotation files beside images without boxes": "1 files, such as 'labels.json'",
        "neither images nor videos": "1 files, such as 'notes.txt'",
    }

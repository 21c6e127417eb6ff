"""Label files of a YOLO folder that match its images, or do not."""

from urllib.parse import quote

import pytest
from tests.datasets.conftest import ACCENT, DECOMPOSED, tables

from farther import datasets
from farther.datasets.file_names import RESPELLED
from farther.datasets.ingest import ingest
from farther.datasets.presence import check_subset
from farther.datasets.tidying import REPEATED
from farther.datasets.yolo_labels import BESIDE, OTHER_NAME, UNMATCHED, WITHOUT_LABELS
from farther.errors import DataError

ROW = "0 0.5 0.5 0.5 0.5\n"
NAMES = {"data.yaml": "train: images\nnames: [cat, dog]\n"}


def yolo(lay, labels, images=("images/a.jpg",), **params):
    """A reader of images of 40 × 20 pixels and label files."""
    root = lay({**NAMES, **dict.fromkeys(images, (40, 20)), **labels})
    return datasets.create("yolo", root=root, **params)


@pytest.mark.parametrize(
    ("image", "label"),
    [
        (f"{ACCENT}.jpg", f"{quote(ACCENT)}.txt"),
        (f"{ACCENT}.jpg", f"{DECOMPOSED}.txt"),
        (f"{DECOMPOSED}.jpg", f"{ACCENT}.txt"),
        ("a.jpg", "a.jpg.txt"),
        ("a b.jpg", "a%20b.jpg.txt"),
        ("IMG_1.JPG", "img_1.txt"),
    ],
)
def test_a_label_file_in_another_spelling_is_read_and_listed_once(lay, tmp_path, image, label):
    images = (f"images/{image}", "images/z.jpg")
    reader = yolo(lay, {f"labels/{label}": ROW, "labels/z.txt": ROW}, images)
    _, objects, kinds = tables(reader, tmp_path / "out", "train")
    assert objects.box.tolist() == [[10, 5, 30, 15]] * 2
    assert kinds == {OTHER_NAME: f"1 files, such as labels/{label} of images/{image}"}


@pytest.mark.parametrize(
    ("images", "labels"),
    [("Images", "Labels"), ("IMAGES", "LABELS"), ("Images", "labels"), ("images", "Labels")],
)
@pytest.mark.parametrize("names", ["names: [cat, dog]\n", NAMES["data.yaml"]])
def test_folders_of_images_and_labels_are_found_in_any_case(lay, tmp_path, images, labels, names):
    root = lay({"data.yaml": names, f"{images}/a.jpg": (40, 20), f"{labels}/a.txt": ROW})
    reader = datasets.create("yolo", root=root)
    (subset,) = reader.subsets()
    assert datasets.missing({"mine": {"format": "yolo", "root": str(root)}}) == []
    _, objects, kinds = tables(reader, tmp_path / "out", subset)
    assert objects.box.tolist() == [[10, 5, 30, 15]]
    assert kinds.keys() <= {OTHER_NAME}


def test_subsets_in_capitalised_folders_are_told_apart(lay):
    files = {"classes.txt": "cat\n"}
    for subset in ("Train", "Test"):
        files |= {f"Images/{subset}/a.jpg": (40, 20), f"Labels/{subset}/a.txt": ROW}
        files |= {f"Images/{subset}/b.jpg": (40, 20)}
    reader = datasets.create("yolo", root=lay(files), file="classes.txt")
    assert reader.subsets() == ["train", "test"]
    assert [len(reader.read(subset).objects) for subset in reader.subsets()] == [1, 1]


def test_a_label_file_that_may_belong_to_two_images_belongs_to_none(lay):
    images = ("images/a.jpg", "images/A.jpg", "images/z.jpg")
    reader = yolo(lay, {"labels/%61.txt": ROW, "labels/z.txt": ROW}, images, max_warnings=1.0)
    read = reader.read("train")
    assert read.objects.image.tolist() == [2]
    assert [warning.kind for warning in read.warnings] == [WITHOUT_LABELS]


def test_label_files_of_no_image_are_counted_and_refused_above_the_limit(lay, tmp_path):
    images = [f"images/{number}.jpg" for number in range(20)]
    labels = {f"labels/{number}.txt": ROW for number in range(20)}
    with_one = yolo(lay, {**labels, "labels/x.txt": ROW}, images)
    _, objects, kinds = tables(with_one, tmp_path / "out", "train")
    assert len(objects) == 20
    assert kinds == {
        UNMATCHED: (
            "no image belongs to 'labels/x.txt', whose objects are lost: "
            "rename it as its image, or delete it"
        )
    }
    with_two = yolo(lay, {**labels, "labels/x.txt": ROW, "labels/y.txt": ROW}, images)
    with pytest.raises(
        DataError,
        match=r"2 warnings about 20 images, more than max_warnings: 0.05 .*'labels/x.txt'",
    ):
        ingest(with_two, "pets", tmp_path / "refused")
    # `farther doctor` says so, too.
    assert "2 warnings about 20 images" in check_subset(with_two, "train").problem


def test_label_files_beside_images_whose_labels_are_expected_elsewhere_are_counted(lay):
    labels = {"labels/a.txt": ROW, "images/b.txt": ROW, "images/notes.txt": "b is blurred\n"}
    read = yolo(lay, labels, ("images/a.jpg", "images/b.jpg")).read("train")
    text_by_kind = {warning.kind: warning.found for warning in read.warnings}
    assert text_by_kind[BESIDE] == (
        "'images/b.txt' is beside its image, and is expected at labels/b.txt: move it"
    )
    assert text_by_kind[WITHOUT_LABELS] == "1 of 2, such as images/b.jpg"


def test_text_files_that_are_no_labels_and_labels_of_other_subsets_are_not_counted(lay):
    files = {
        "labels/a.txt": ROW,
        "data.yaml": "train: train.txt\nval: val.txt\nnames: [cat]\n",
        "train.txt": "images/a.jpg\n",
        "val.txt": "images/b.jpg\n",
        "labels/b.txt": ROW,
        "labels/classes.txt": "cat\n",
        "labels/empty.txt": "",
        "labels/a.json": "{}",
    }
    reader = yolo(lay, files, ("images/a.jpg", "images/b.jpg"))
    assert reader.read("train").warnings == []


def test_the_error_about_images_without_any_label_file_names_those_that_belong_to_none(lay):
    reader = yolo(lay, {"labels/x.txt": ROW, "labels/y.txt": ROW})
    with pytest.raises(
        DataError,
        match=r"2 label files belong to no image, such as labels/x.txt: rename or move them",
    ):
        reader.read("train")


def test_a_list_written_on_windows_leads_to_the_images_and_their_labels(lay, tmp_path):
    lines = "images\\a.jpg\r\nimages/b.jpg\r\n"
    files = {
        "labels/a.txt": ROW,
        "data.yaml": "train: train.txt\nnames: [cat]\n",
        "train.txt": lines,
        "labels/b.txt": ROW,
    }
    reader = yolo(lay, files, ("images/a.jpg", "images/b.jpg"))
    images, objects, kinds = tables(reader, tmp_path / "out", "train")
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
    _, _, kinds = tables(reader, tmp_path / "out", "train")
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


def test_every_label_twice_is_every_label_once(lay, tmp_path):
    rows = "0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.5 0.5\n"
    reader = yolo(lay, {"labels/a.txt": rows * 2})
    _, objects, kinds = tables(reader, tmp_path / "out", "train")
    assert objects.category.tolist() == ["cat", "dog"]
    assert kinds == {REPEATED: "2 of 4 equal an earlier one of their image in box and class"}

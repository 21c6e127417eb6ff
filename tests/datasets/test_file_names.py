"""Image files whose names are spelt differently in the annotations."""

import pytest
from tests.datasets.conftest import ACCENT, DECOMPOSED, coco_reader, tables
from tests.support.messages import ABSENT

from farther.datasets.file_names import RESPELLED, canonical_name
from farther.datasets.ingest import ingest
from farther.datasets.presence import check_subset
from farther.errors import DataError


@pytest.mark.parametrize(
    ("annotated", "file"),
    [
        (r"images\x.jpg", "images/x.jpg"),
        (f"images/{DECOMPOSED}.jpg", f"images/{ACCENT}.jpg"),
        (f"images/{ACCENT}.jpg", f"images/{DECOMPOSED}.jpg"),
        ("images/a%20b.jpg", "images/a b.jpg"),
        ("Images/X.JPG", "images/x.jpg"),
    ],
)
def test_an_image_in_another_spelling_is_found_and_listed_once(lay, tmp_path, annotated, file):
    reader = coco_reader(lay, [annotated, "z.jpg"], [file, "z.jpg"])
    images, objects, kinds = tables(reader, tmp_path / "out", "train")
    assert images.file.tolist() == [file, "z.jpg"]
    assert len(objects) == 2
    assert kinds == {RESPELLED: f"{annotated!r} is {file!r}"}
    checked = check_subset(reader, "train")
    assert checked.problem == ""


def test_a_name_that_two_files_have_in_other_spellings_is_not_guessed(lay, tmp_path):
    reader = coco_reader(lay, ["X.jpg"], ["x.jpg", "x.JPG"])
    with pytest.raises(DataError, match=ABSENT):
        ingest(reader, "pets", tmp_path / "out")


def test_an_exact_name_is_always_the_file(lay, tmp_path):
    reader = coco_reader(lay, ["a%20b.jpg"], ["a%20b.jpg", "a b.jpg"])
    images, _, kinds = tables(reader, tmp_path / "out", "train")
    assert images.file.tolist() == ["a%20b.jpg"]
    assert kinds == {}


@pytest.mark.parametrize("name", ["..\\x.jpg", "%2e%2e/x.jpg", "a\\..\\..\\x.jpg"])
def test_no_spelling_leads_out_of_the_folder(lay, tmp_path, name):
    (tmp_path / "x.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=ABSENT):
        ingest(coco_reader(lay, [name], []), "pets", tmp_path / "out")


def test_names_that_differ_in_more_than_spelling_differ():
    assert canonical_name("a_b.jpg") != canonical_name("a b.jpg")
    assert canonical_name("a.jpg") != canonical_name("a.jpeg")

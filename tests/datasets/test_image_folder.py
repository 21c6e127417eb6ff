"""Folders of labelled images in miniature, compared with torchvision's reader."""

import pytest
from torchvision import datasets as torchvision

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import Images, Objects


def test_class_folders_are_read_as_torchvision_reads_them(lay, tmp_path):
    root = lay({
        "train/dog/b.png": (8, 6), "train/dog/deeper/a.JPG": (9, 5), "train/cat/1.webp": (7, 7),
        "train/cat/notes.txt": "no image", "test/cat/1.png": (5, 4),
    })  # fmt: skip
    reader = datasets.create("image_folder", root=root)
    assert reader.subsets() == ["test", "train"]
    annotations = reader.read("train")
    expected = torchvision.ImageFolder(root / "train")
    assert annotations.categories == expected.classes
    paths = [str(root / file) for file in annotations.images.file]
    assert list(zip(paths, annotations.objects.category.tolist(), strict=True)) == expected.samples
    counts = {"images": 3, "objects": 3, "categories": 2, "warnings": 0}
    assert ingest(reader, "pets", tmp_path / "out")["train"] == counts


def test_a_label_is_one_object_as_large_as_its_image(lay, tmp_path):
    root = lay({"val/cat/1.png": (70, 50), "val/cat/2.png": (33, 21)})
    ingest(datasets.create("image_folder", root=root), "pets", tmp_path)
    images = Images.read(tmp_path / "val/images.parquet")
    objects = Objects.read(tmp_path / "val/objects.parquet")
    assert images.image_id.tolist() == objects.image_id.tolist() == ["cat/1.png", "cat/2.png"]
    assert objects.box.tolist() == [[0, 0, 70, 50], [0, 0, 33, 21]]


def test_a_set_of_images_without_classes_has_one_category(lay):
    root = lay({"images/banded/1.jpg": (8, 8), "images/2.jpg": (8, 8)})
    reader = datasets.create(
        "image_folder", root=root, folders={"all": "images"}, category="texture"
    )
    annotations = reader.read("all")
    assert reader.subsets() == ["all"]
    assert annotations.categories == ["texture"]
    assert sorted(annotations.images.file) == ["images/2.jpg", "images/banded/1.jpg"]
    flat = datasets.create(
        "image_folder", root=root / "images/banded", folders={"test": "."}, category="texture"
    )
    assert flat.read("test").images.file.tolist() == ["1.jpg"]


def test_class_folders_may_be_renamed_and_merged(lay):
    root = lay(
        {
            "val/n02123045/1.png": (4, 4),
            "val/n02123159/2.png": (4, 4),
            "val/n02084071/3.png": (4, 4),
        }
    )
    names = {"n02123045": "cat", "n02123159": "cat"}
    annotations = datasets.create("image_folder", root=root, renamed=names).read("val")
    assert annotations.categories == ["n02084071", "cat"]
    assert annotations.objects.category.tolist() == [0, 1, 1]


def test_images_beside_class_folders_are_listed(lay):
    annotations = datasets.create(
        "image_folder", root=lay({"val/cat/1.png": (4, 4), "val/2.png": (4, 4)})
    ).read("val")
    assert [(w.kind, w.file, w.found) for w in annotations.warnings] == [
        ("images without a class", "val", "1 images")
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"val/1.png": (4, 4)},
            "root/val: no folder of a class; for images of one class write: category: <its name>",
        ),
        ({"val/cat/1.txt": "x"}, "root/val/cat: no images here; known extensions: .jpg"),
        ({"other/cat/1.png": (4, 4)}, "root/val: the folder does not exist; parameter 'folders'"),
    ],
)
def test_a_folder_without_images_of_classes_is_named(lay, files, message):
    with pytest.raises(DataError, match=message):
        datasets.create("image_folder", root=lay(files)).read("val")


def test_names_to_rename_that_no_folder_has_are_listed(lay):
    root = lay({"train/cat/a.jpg": (4, 4)})
    reader = datasets.create(
        "image_folder", root=root, folders={"train": "train"}, renamed={"dog": "hound"}
    )
    (warning,) = reader.read("train").warnings
    assert warning.found == "none called 'dog'"

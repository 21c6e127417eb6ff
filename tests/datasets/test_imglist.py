"""OpenOOD's lists of images, in miniature."""

import pytest

from farther import datasets
from farther.datasets.ingest import ingest
from farther.datasets.presence import missing
from farther.errors import DataError
from farther.tables import Objects

OPENOOD = {
    "benchmark_imglist/cifar10/test_cifar10.txt": (
        "cifar10/test/airplane/0298.png 0\ncifar10/test/cat/1.png 2\n"
    ),
    "benchmark_imglist/cifar10/test_texture.txt": "texture/banded/a b.jpg -1\n\n",
    "benchmark_imglist/cifar10/test_tin.txt": "tin/val/n1.jpg 17\ntin/val/n2.jpg 3\n",
    "images_classic/cifar10/test/airplane/0298.png": (32, 32),
    "images_classic/cifar10/test/cat/1.png": (32, 32),
    "images_classic/texture/banded/a b.jpg": (70, 50),
    "images_classic/tin/val/n1.jpg": (64, 64),
    "images_classic/tin/val/n2.jpg": (64, 64),
}


def imglist(root, **params):
    lists = "benchmark_imglist/cifar10/{subset}.txt"
    return datasets.create("imglist", root=root, lists=lists, images="images_classic", **params)


def test_lists_of_openood_are_read_from_its_folders(lay, tmp_path):
    reader = imglist(lay(OPENOOD), categories=["airplane", "automobile", "cat"])
    assert reader.subsets() == ["test_cifar10", "test_texture", "test_tin"]
    annotations = reader.read("test_cifar10")
    assert annotations.images.image_id.tolist() == [
        "cifar10/test/airplane/0298.png",
        "cifar10/test/cat/1.png",
    ]
    assert annotations.images.file[0] == "images_classic/cifar10/test/airplane/0298.png"
    assert [annotations.categories[c] for c in annotations.objects.category] == ["airplane", "cat"]
    texture = imglist(reader.root, subset_names=["test_texture"])
    assert ingest(texture, "ood", tmp_path)["test_texture"] == {
        "images": 1,
        "objects": 1,
        "categories": 1,
        "warnings": 0,
    }
    assert Objects.read(tmp_path / "test_texture/objects.parquet").box.tolist() == [[0, 0, 70, 50]]


@pytest.mark.parametrize(
    ("params", "subset", "classes"),
    [
        ({"categories": ["airplane", "automobile", "cat"]}, "test_texture", ["unknown"]),
        ({"category": "outlier"}, "test_tin", ["outlier", "outlier"]),
        ({}, "test_tin", ["17", "3"]),
    ],
    ids=["-1 is unknown", "labels are ignored", "labels are names"],
)
def test_labels_are_classes_unless_a_category_is_given(lay, params, subset, classes):
    annotations = imglist(lay(OPENOOD), **params).read(subset)
    assert [annotations.categories[c] for c in annotations.objects.category] == classes


def test_the_folders_of_a_list_are_expected(lay):
    files = {name: content for name, content in OPENOOD.items() if "tin/" not in name}
    root = lay(files)
    params = {
        "format": "imglist",
        "root": root,
        "images": "images_classic",
        "lists": "benchmark_imglist/cifar10/{subset}.txt",
    }
    lacking = missing({"ood": params}, {"ood": ["test_tin", "test_texture", "val_tin"]})
    assert [
        (entry.what, entry.paths[0].relative_to(root).as_posix(), entry.subsets)
        for entry in lacking
    ] == [
        ("images", "images_classic/tin", ("test_tin",)),
        ("list of images", "benchmark_imglist/cifar10/val_tin.txt", ("val_tin",)),
    ]
    assert lacking[0].source.endswith("the archive tin.zip")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a.png 0\nb.png\n",
            r"test.txt: row 2: field 'label': expected a path, a space and an integer, .*'b.png'",
        ),
        ("a.png 1.5\n", r"test.txt: row 1: field 'label': expected a path, a space and an integer"),
        (
            "a.png 2\n",
            r"test.txt: row 1: field 'label': expected -1 to 1, the labels of 'categories', "
            r"found 2",
        ),
        ("a.png 0\na.png 1\n", r"test.txt: row 2: field 'path': image 'a.png' occurs twice"),
        ("../a.png 0\n", r"test.txt: row 1: field 'path': file name '../a.png' leaves its folder"),
        ("\n", r"test.txt: the list is empty; expected lines: path label"),
    ],
)
def test_a_damaged_line_of_a_list_is_named(lay, content, message):
    with pytest.raises(DataError, match=message):
        datasets.create("imglist", root=lay({"test.txt": content}), categories=["cat", "dog"]).read(
            "test"
        )

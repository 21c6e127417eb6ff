"""Tiny ImageNet in the folders of its archive, in miniature."""

import pytest

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import Objects

ARCHIVE = {
    "wnids.txt": "n02\nn01\n",
    "words.txt": "n01\tgoldfish\nn02\tcat\n",
    "train/n01/images/n01_0.JPEG": (8, 8),
    "train/n01/images/n01_1.JPEG": (8, 8),
    "train/n01/n01_boxes.txt": "n01_0.JPEG\t0\t0\t5\t5\n",
    "train/n02/images/n02_0.JPEG": (8, 8),
    "val/val_annotations.txt": "val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t1\t1\t4\t5\n",
    "val/images/val_0.JPEG": (8, 8),
    "val/images/val_1.JPEG": (8, 8),
    "test/images/test_0.JPEG": (8, 8),
}


def archive(lay, **changed):
    return datasets.create("tiny_imagenet", root=lay({**ARCHIVE, **changed}))


def test_training_images_have_the_class_of_their_folder_and_validation_images_that_of_the_list(
    lay, tmp_path
):
    reader = archive(lay)
    assert reader.subsets() == ["train", "val"]
    ingest(reader, "tin", tmp_path / "tables")
    train = Objects.read(tmp_path / "tables/train/objects.parquet")
    assert list(zip(train.image_id, train.category, strict=True)) == [
        ("train/n01/images/n01_0.JPEG", "n01"),
        ("train/n01/images/n01_1.JPEG", "n01"),
        ("train/n02/images/n02_0.JPEG", "n02"),
    ]
    val = Objects.read(tmp_path / "tables/val/objects.parquet")
    assert list(zip(val.image_id, val.category, strict=True)) == [
        ("val/images/val_0.JPEG", "n02"),
        ("val/images/val_1.JPEG", "n01"),
    ]
    assert val.box.tolist() == [[0, 0, 8, 8]] * 2


@pytest.mark.parametrize(
    ("changed", "subset", "message"),
    [
        (
            {"wnids.txt": "n01\nn02\nn03\n"},
            "train",
            "root/train/n03/images: no images of this class of wnids.txt",
        ),
        (
            {"wnids.txt": "n01\n"},
            "val",
            "val_annotations.txt: row 1: field 'class': expected a class of wnids.txt",
        ),
        (
            {"val/val_annotations.txt": "val_0.JPEG n01\n"},
            "val",
            "row 1: field 'class': expected a file, a tab and",
        ),
        (
            {"val/val_annotations.txt": "../a.JPEG\tn01\n"},
            "val",
            "row 1: field 'class': file name '../a.JPEG' leaves",
        ),
        (
            {"val/val_annotations.txt": "v.JPEG\tn01\nv.JPEG\tn02\n"},
            "val",
            "row 2: field 'class': image",
        ),
        ({}, "test", "no subset is called 'test'. Known: train, val"),
    ],
)
def test_a_damaged_archive_is_named(lay, changed, subset, message):
    with pytest.raises(DataError) as error:
        archive(lay, **changed).read(subset)
    assert message in str(error.value)


def test_another_folder_is_refused_with_the_folder_to_give(lay):
    root = lay({"tiny-imagenet-200/wnids.txt": "n01\n"})
    with pytest.raises(DataError, match="`root` is the folder tiny-imagenet-200 of the archive"):
        datasets.create("tiny_imagenet", root=root).read("train")

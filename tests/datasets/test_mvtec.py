"""MVTec AD in its folders, in miniature."""

import pytest

from farther import datasets
from farther.datasets.ingest import ingest
from farther.datasets.presence import missing
from farther.errors import DataError
from farther.tables import Objects

BOTTLE = {
    "bottle/train/good/000.png": (9, 9),
    "bottle/train/good/001.png": (9, 9),
    "bottle/test/good/000.png": (9, 7),
    "bottle/test/broken_large/000.png": (9, 9),
    "bottle/test/broken_large/001.png": (9, 9),
    "bottle/test/contamination/000.png": (9, 9),
    "bottle/ground_truth/broken_large/000_mask.png": (9, 9),
    "bottle/ground_truth/broken_large/001_mask.png": (9, 9),
    "license.txt": "CC BY-NC-SA 4.0",
}


def bottle(lay, without=(), **more):
    """A reader of the files of `BOTTLE`, without some folders and with further files."""
    excluded = tuple(f"bottle/{folder}" for folder in without)
    files = {name: BOTTLE[name] for name in BOTTLE if not name.startswith(excluded)}
    return datasets.create("mvtec", root=lay(files | more), category="bottle")


def test_images_without_a_defect_and_those_of_each_defect_are_subsets_of_their_own(lay, tmp_path):
    reader = bottle(lay)
    assert reader.subsets() == ["train", "test_good", "test_defect"]
    counts = ingest(reader, "bottle", tmp_path / "tables")
    assert {subset: counts[subset]["images"] for subset in reader.subsets()} == {
        "train": 2,
        "test_good": 1,
        "test_defect": 3,
    }
    defects = Objects.read(tmp_path / "tables/test_defect/objects.parquet")
    assert defects.category.tolist() == ["broken_large", "broken_large", "contamination"]
    good = Objects.read(tmp_path / "tables/test_good/objects.parquet")
    assert good.image_id.tolist() == ["bottle/test/good/000.png"]
    assert good.category.tolist() == ["good"]
    assert good.box.tolist() == [[0, 0, 9, 7]]


def test_masks_and_files_that_are_not_images_are_ignored_and_counted(lay):
    annotations = bottle(lay, **{"bottle/test/contamination/notes.txt": "x"}).read("test_defect")
    assert [
        (warning.kind, warning.file, warning.found, warning.action)
        for warning in annotations.warnings
    ] == [
        ("files that are not images", "bottle/test", "1 files", "ignored"),
        ("masks of defects", "bottle/ground_truth", "2 files", "ignored"),
    ]
    assert not [name for name in annotations.images.file if "ground_truth" in name]
    assert bottle(lay).read("train").warnings == []


@pytest.mark.parametrize(
    ("without", "more", "subset", "message"),
    [
        (
            (),
            {"bottle/train/crack/1.png": (3, 3)},
            "train",
            "root/bottle/train/crack: expected training images in 'good' only",
        ),
        (("test/good",), {}, "test_good", "root/bottle/test: no folder 'good'"),
        (
            ("test/broken", "test/cont"),
            {},
            "test_defect",
            "root/bottle/test: no folder of a kind of defect",
        ),
        (
            ("train",),
            {},
            "train",
            "root/bottle/train: the folder does not exist; 'category' is a folder of",
        ),
        (
            ("test/cont",),
            {"bottle/test/contamination/a.txt": "x"},
            "test_defect",
            "root/bottle/test/contamination: no images here",
        ),
        ((), {}, "val", "no subset is called 'val'. Known: train, test_good, test_defect"),
    ],
)
def test_a_folder_that_is_not_as_the_dataset_has_it_is_named(lay, without, more, subset, message):
    with pytest.raises(DataError) as error:
        bottle(lay, without, **more).read(subset)
    assert message in str(error.value)


def test_what_is_missing_is_named_with_its_archive(lay):
    root = lay({name: content for name, content in BOTTLE.items() if "test/good" not in name})
    entry = {"format": "mvtec", "root": root, "category": "bottle"}
    (absent,) = missing({"bottle": entry}, {"bottle": ["train", "test_good", "test_defect"]})
    assert [path.relative_to(root).as_posix() for path in absent.paths] == ["bottle/test/good"]
    assert "bottle.tar.xz" in absent.source

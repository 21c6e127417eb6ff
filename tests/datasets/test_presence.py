import pytest

from farther import datasets
from farther.datasets.presence import check_subset
from farther.errors import ParameterError

FORMATS = sorted(datasets.names())

#: Parameters that a format needs besides its root.
NEEDED = {"mvtec": {"category": "bottle"}}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_what_it_needs_and_where_that_comes_from(tmp_path, name):
    params = {"format": name, "root": str(tmp_path), **NEEDED.get(name, {})}
    lacking = datasets.missing({"mine": params}, {"mine": {"val"}})
    assert lacking
    for entry in lacking:
        assert (entry.dataset, entry.subsets) == ("mine", ("val",))
        assert entry.what
        assert entry.source
        assert all(path.is_relative_to(tmp_path) for path in entry.paths)


@pytest.mark.parametrize("name", FORMATS)
def test_a_root_that_does_not_exist_is_missing_and_no_error(tmp_path, name):
    params = {"format": name, "root": str(tmp_path / "nowhere"), **NEEDED.get(name, {})}
    (lacking,) = datasets.missing({"mine": params})
    assert "the folder does not exist" in lacking.what
    assert str(tmp_path / "nowhere") in str(lacking)


def test_only_what_is_absent_or_empty_is_missing(lay):
    root = lay({"annotations/instances_val2017.json": "{}", "train2017/1.jpg": (4, 4)})
    (root / "val2017").mkdir()
    params = {"coco": {"format": "coco", "root": str(root)}}
    (images,) = datasets.missing(params)
    assert images.paths == (root / "val2017",)
    assert str(images).startswith("coco (val2017): images\n    belongs at   ")
    assert "cocodataset.org" in str(images)
    (root / "val2017/1.jpg").touch()
    assert datasets.missing(params) == []


def test_one_of_several_places_is_enough(lay):
    root = lay({"labels/100k/val/a.json": "{}", "images/100k/val/a.jpg": (4, 4)})
    assert datasets.missing({"bdd": {"format": "bdd", "root": str(root)}}) == []


def test_what_several_subsets_need_is_named_once(tmp_path):
    needed = {"voc": {"train", "val", "test"}}
    lacking = datasets.missing({"voc": {"format": "voc", "root": str(tmp_path)}}, needed)
    assert [lacking.subsets for lacking in lacking if lacking.what == "images"] == [
        ("test", "train", "val")
    ]


@pytest.mark.parametrize(
    ("text", "what", "path"),
    [
        ("val: images/val\nnames: [cat]\n", "labels", "labels/val"),
        ("val: [", "an intact file (not YAML", "data.yaml"),
    ],
)
def test_a_folder_that_yaml_names_is_looked_for_and_damaged_yaml_counts_as_missing(
    lay, text, what, path
):
    root = lay({"data.yaml": text, "images/val/a.jpg": (4, 4)})
    (lacking,) = datasets.missing(
        {"mine": {"format": "yolo", "root": str(root)}}, {"mine": {"val"}}
    )
    assert lacking.what.startswith(what)
    assert lacking.paths == (root / path,)


def test_a_wrong_parameter_is_an_error():
    with pytest.raises(ParameterError, match="unknown dataset format 'coko'"):
        datasets.missing({"mine": {"format": "coko", "root": "."}})


def test_extracted_images_are_found_where_ingest_puts_them(tmp_path):
    (tmp_path / "tables/b/extracted-images").mkdir(parents=True)
    roots = datasets.image_roots(
        {"a": {"root": "data/a"}, "b": {"root": "data/b"}}, tmp_path / "tables", tmp_path
    )
    assert roots == {"a": tmp_path / "data/a", "b": tmp_path / "tables/b/extracted-images"}


@pytest.mark.parametrize("missing_images", ["error", "drop"])
def test_a_check_names_a_folder_of_images_that_is_missing(lay, missing_images):
    images = [{"id": 1, "file_name": "disk/part/1.jpg"}]
    content = {"images": images, "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
    root = lay({"a.json": content})
    layout = {"train": ["a.json", "."]}
    reader = datasets.create("coco", root=root, layout=layout, missing_images=missing_images)
    problem = check_subset(reader, "train").problem
    assert problem.startswith(f"{root / 'disk'}: the folder does not exist")

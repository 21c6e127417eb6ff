"""The annotations of the demo world describe its images exactly."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.demo.conftest import WORLD, extent, read_rows

from farther import datasets
from farther_demo.scene import scene
from farther_demo.writers import FORMATS, coco_id


@pytest.mark.parametrize(
    ("name", "subset", "count"),
    [
        ("voc", "train", 5),
        ("voc", "val", 2),
        ("voc", "test", 8),
        ("bdd", "test", 110),
        ("coco", "val", 130),
        ("openimages", "validation", 130),
    ],
)
def test_the_annotated_boxes_are_the_extents_of_the_masks(folders, name, subset, count):
    reader = datasets.create(name, root=folders[name])
    annotations = reader.read("val2017" if name == "coco" else subset)
    objects = annotations.objects
    row_by_id = {image_id: row for row, image_id in enumerate(annotations.images.image_id)}
    assert len(row_by_id) == count
    for index in range(count):
        file = Path(FORMATS[name].image_file(subset, index))
        row = row_by_id[FORMATS[name].image_id(file)]
        is_of_image = objects.image == row
        box = objects.box[is_of_image]
        if objects.unit == "image":
            with Image.open(annotations.image_path(row)) as image:
                box = box * (*image.size, *image.size)
        extents = np.round(box).astype(int) - [0, 0, 1, 1]
        categories = [annotations.categories[k] for k in objects.category[is_of_image]]

        composed = scene(WORLD, name, subset, index)
        expected = [thing for thing in composed.objects if thing.annotated]
        assert categories == [thing.category for thing in expected]
        expected_extents = [extent(composed.owner, thing.sprites) for thing in expected]
        np.testing.assert_array_equal(extents, np.reshape(expected_extents, (-1, 4)))
    if name != "voc":
        assert len(set(objects.image.tolist())) < count  # some images have no objects
        assert objects.is_crowd.any() == (name != "bdd")


def test_pycocotools_reads_coco_and_sees_the_same_masks(folders, capsys):
    coco_tools = pytest.importorskip("pycocotools.coco")
    coco = coco_tools.COCO(str(folders["coco"] / "annotations/instances_val2017.json"))
    assert len(coco.getCatIds()) == 80
    assert coco.cats[90]["name"] == "toothbrush"
    crowd_count = 0
    for index in range(130):
        composed = scene(WORLD, "coco", "val", index)
        annotations = coco.loadAnns(coco.getAnnIds(imgIds=[coco_id(index)]))
        things = [thing for thing in composed.objects if thing.annotated]
        for annotation, thing in zip(annotations, things, strict=True):
            expected = np.isin(composed.owner, thing.sprites)
            mask = coco.annToMask(annotation).astype(bool)
            assert annotation["area"] == expected.sum()
            if annotation["iscrowd"]:
                crowd_count += 1
                assert (mask == expected).all()
            else:
                # The polygon includes all pixels between the first and the last one of a row.
                assert (mask & expected).sum() > 0.7 * expected.sum()
    assert crowd_count > 0


def test_every_openimages_category_is_in_the_hierarchy(folders):
    descriptions = read_rows(folders["openimages"] / "class-descriptions-boxable.csv")
    root = json.loads((folders["openimages"] / "bbox_labels_600_hierarchy.json").read_text())
    assert root["LabelName"] == "/m/0bl9f"

    labels = set()
    open_nodes = [root]
    while open_nodes:
        node = open_nodes.pop()
        labels.add(node["LabelName"])
        open_nodes += [*node.get("Subcategory", []), *node.get("Part", [])]
    assert labels - {"/m/0bl9f"} == {label for label, _ in descriptions}


def annotated_categories(folder: Path, source: str) -> dict[str, set[str]]:
    """Categories annotated in each image, read without farther's readers."""
    categories_by_image: dict[str, set[str]] = defaultdict(set)
    if source == "coco":
        table = json.loads((folder / "annotations/instances_val2017.json").read_text())
        names = {category["id"]: category["name"] for category in table["categories"]}
        for annotation in table["annotations"]:
            image_id = f"{annotation['image_id']:012d}"
            categories_by_image[image_id].add(names[annotation["category_id"]])
    else:
        names = dict(read_rows(folder / "class-descriptions-boxable.csv"))
        _, *rows = read_rows(folder / "validation-annotations-bbox.csv")
        for image_id, _, label, *_ in rows:
            categories_by_image[image_id].add(names[label])
    return categories_by_image


PARTS = ("face", "hand", "arm", "ear", "nose", "mouth", "eye")
PEOPLE = {"person", "Person", "Man", "Woman", *(f"Human {part}" for part in PARTS)}
TABLES = {"dining table", "Kitchen & dining room table"}
DOGS = {"dog", "Dog"}


@pytest.mark.parametrize("source", ["coco", "openimages"])
def test_planted_overlaps_agree_with_the_annotations(folders, source):
    annotated = annotated_categories(folders[source], source)
    header, *rows = read_rows(folders[source] / "planted.csv")
    assert header == ["image_id", "category", "labelled"]
    assert len({(image, category) for image, category, _ in rows}) == len(rows)

    labelled: dict[str, set[str]] = defaultdict(set)
    unlabelled: dict[str, set[str]] = defaultdict(set)
    for image, category, is_labelled in rows:
        images_by_category = labelled if is_labelled == "1" else unlabelled
        images_by_category[category].add(image)
    categories_of_class = {
        "person": PEOPLE,
        "pedestrian": PEOPLE,
        "diningtable": TABLES,
        "dog": DOGS,
    }
    for id_class, categories in categories_of_class.items():
        expected = {image for image, names in annotated.items() if names & categories}
        assert labelled[id_class] == expected
    assert unlabelled["person"]
    assert unlabelled["diningtable"]


def test_tableware_lies_on_tables_that_nobody_labelled(folders):
    annotated = annotated_categories(folders["coco"], "coco")
    on_unlabelled_tables = set()
    for image, category, is_labelled in read_rows(folders["coco"] / "planted.csv"):
        if (category, is_labelled) == ("diningtable", "0"):
            on_unlabelled_tables |= annotated[image]
    assert on_unlabelled_tables & {"spoon", "fork", "pizza", "sandwich", "cake", "hot dog"}


def test_crops_are_labelled_by_their_folder_with_equally_many_per_class(folders):
    for subset, count in (("train", 2), ("unknown", 1)):
        for folder in (folders["drawings"] / subset).iterdir():
            files = list(folder.iterdir())
            assert len(files) == count
            assert Image.open(files[0]).size == (64, 64)
            (thing,) = scene(WORLD, "drawings", subset, int(files[0].stem)).objects
            assert thing.category == folder.name
            assert thing.visible > 0.3

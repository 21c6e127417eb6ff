import json
import re

import numpy as np
import pytest

from farther import datasets
from farther.datasets import openimages
from farther.errors import DataError

BOXES = "validation-annotations-bbox.csv"
CLASSES = "class-descriptions-boxable.csv"
EDGES = "XMin, YMin, XMax, YMax"
HIERARCHY = "bbox_labels_600_hierarchy.json"

V4 = """\
ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,\
IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside
0001eeaf4aed83f9,xclick,/m/0bt9lr,1,0.25,0.75,0.125,0.5,0,0,0,0,0
000595fe6fee6369,xclick,/m/01g317,1,0,1,0,1,-1,-1,1,-1,-1
0001eeaf4aed83f9,activemil,/m/0dzct,1,0.5,0.625,0.25,1,-1,-1,-1,-1,-1
"""

DESCRIPTIONS = """\
/m/01g317,Person
/m/0dzct,Human face
/m/0bt9lr,Dog
/m/0jbk,Animal
/m/0l515,"Sandwich, open"
"""

TREE = {
    "LabelName": "/m/0bl9f",
    "Subcategory": [
        {
            "LabelName": "/m/01g317",
            "Part": [{"LabelName": "/m/04hgtk", "Part": [{"LabelName": "/m/0dzct"}]}],
        },
        {"LabelName": "/m/0jbk", "Subcategory": [{"LabelName": "/m/0bt9lr"}]},
    ],
}


def files(boxes=V4, **others):
    present = {
        "validation/0001eeaf4aed83f9.jpg": (40, 20),
        "validation/000595fe6fee6369.jpg": (10, 10),
        BOXES: boxes,
        CLASSES: DESCRIPTIONS,
        HIERARCHY: TREE,
    }
    return present | others


def read(root, subset="validation", **params):
    return datasets.create("openimages", root=root, **params).read(subset)


def test_boxes_are_read_as_fractions_of_the_image_and_all_images_are_there(lay):
    annotations = read(lay(files(**{"validation/000000000000000a.jpg": (5, 5)})))
    images, objects = annotations.images, annotations.objects
    assert objects.unit == "image"
    assert objects.box.tolist() == [[0.25, 0.125, 0.75, 0.5], [0, 0, 1, 1], [0.5, 0.25, 0.625, 1]]
    ids = [
        "000000000000000a",
        "0001eeaf4aed83f9",
        "000595fe6fee6369",
    ]  # sorted; the first has no box
    assert images.image_id.tolist() == ids
    assert images.file.tolist() == [f"validation/{i}.jpg" for i in ids]
    assert objects.image.tolist() == [1, 2, 1]
    assert annotations.categories == ["Person", "Human face", "Dog", "Animal", "Sandwich, open"]
    assert [annotations.categories[k] for k in objects.category] == ["Dog", "Person", "Human face"]
    assert objects.is_crowd.tolist() == [False, True, False]  # -1 is unknown


SEVERAL = {
    **TREE,
    "Subcategory": [
        *TREE["Subcategory"],
        {"LabelName": "/m/0l515", "Part": [{"LabelName": "/m/0dzct"}]},
    ],
}
LOOP = {
    "LabelName": "/m/0jbk",
    "Subcategory": [{"LabelName": "/m/0bt9lr", "Part": [{"LabelName": "/m/0jbk"}]}],
}


@pytest.mark.parametrize(
    ("tree", "parents"),
    [
        # The head (/m/04hgtk) and the root have no description; the face is still a part of a
        # person.
        (TREE, {"Human face": {"Person"}, "Dog": {"Animal"}}),
        (SEVERAL, {"Human face": {"Person", "Sandwich, open"}, "Dog": {"Animal"}}),
        (LOOP, {"Dog": {"Animal"}, "Animal": {"Dog"}}),
    ],
    ids=["kinds and parts", "several places", "a loop"],
)
def test_ancestors_follow_kinds_and_parts_up_to_what_has_a_name(lay, tree, parents):
    annotated_parents = read(lay(files(**{HIERARCHY: tree}))).parents
    assert {name: set(above) for name, above in annotated_parents.items()} == parents


def test_an_absent_hierarchy_is_listed(lay):
    present = files()
    del present[HIERARCHY]
    annotations = read(lay(present))
    assert annotations.parents == {}
    assert [(w.kind, w.about, w.file) for w in annotations.warnings] == [
        ("no class hierarchy", "dataset", HIERARCHY)
    ]


def test_columns_of_later_versions_may_come_in_any_order(lay):
    header = "XClick1X,YMax,YMin,XMax,XMin,LabelName,ImageID,Confidence\n"
    objects = read(
        lay(files(header + "0.1,0.5,0.125,0.75,0.25,/m/0bt9lr,0001eeaf4aed83f9,1\n"))
    ).objects
    assert objects.box.tolist() == [[0.25, 0.125, 0.75, 0.5]]
    assert objects.is_crowd.tolist() == [False]


def test_the_training_set_of_later_versions_is_found_in_its_several_folders(lay):
    root = lay(
        {
            "oidv6-train-annotations-bbox.csv": V4,
            "oidv7-class-descriptions-boxable.csv": "LabelName,DisplayName\n" + DESCRIPTIONS,
            HIERARCHY: TREE,
            "train_0/0001eeaf4aed83f9.jpg": (4, 4),
            "train_f/000595fe6fee6369.jpg": (4, 4),
            "train_f/.hidden.jpg": "",
            "train_f/notes.txt": "",
        }
    )
    reader = datasets.create("openimages", root=root, images=["{subset}_0", "{subset}_f"])
    assert reader.subsets() == ["train"]
    annotations = reader.read("train")
    assert annotations.images.file.tolist() == [
        "train_0/0001eeaf4aed83f9.jpg",
        "train_f/000595fe6fee6369.jpg",
    ]
    assert annotations.categories[0] == "Person"


def test_a_part_of_the_images_is_read_with_its_boxes_and_the_rest_is_counted(lay):
    present = files(
        V4.replace("/m/01g317", "/m/99")
    )  # a box of the absent image has a class that nothing describes
    del present["validation/000595fe6fee6369.jpg"]
    annotations = read(lay(present), select="present")
    assert annotations.images.image_id.tolist() == ["0001eeaf4aed83f9"]
    assert annotations.objects.image.tolist() == [0, 0]
    assert [annotations.location(k) for k in range(2)] == [(BOXES, "2"), (BOXES, "4")]
    (warning,) = annotations.warnings
    assert (warning.kind, warning.found) == ("boxes of images that are not there", "1 boxes")


def test_images_of_another_subset_than_the_boxes_are_refused(lay):
    present = files(**{"validation/x.jpg": (4, 4)})
    for name in ("0001eeaf4aed83f9", "000595fe6fee6369"):
        del present[f"validation/{name}.jpg"]
    with pytest.raises(
        DataError, match=r"none of the 3 boxes is of one of the 1 images in validation, such as 'x'"
    ):
        read(lay(present), select="present")


def test_an_image_that_only_a_box_names_is_an_image(lay):
    present = files()
    del present["validation/000595fe6fee6369.jpg"]
    assert read(lay(present)).images.file.tolist()[1] == "validation/000595fe6fee6369.jpg"


def test_a_box_of_a_class_without_description_is_dropped_and_listed(lay):
    annotations = read(lay(files(V4.replace("/m/01g317", "/m/99"))))
    (warning,) = annotations.warnings
    assert (warning.kind, warning.row, warning.field) == (
        "object of an unknown category",
        "3",
        "LabelName",
    )
    assert (warning.found, warning.action) == ("/m/99", "dropped")
    assert len(annotations.objects) == 2
    assert len(annotations.images) == 2


def test_a_file_is_read_alike_however_it_is_cut_into_blocks(lay, monkeypatch):
    rows = V4.splitlines(keepends=True)
    root = lay(files("".join([rows[0], *(rows[1:] * 40)])))
    annotations = read(root)
    monkeypatch.setattr(openimages, "BLOCK", 256)
    cut = read(root)
    for column in ("image", "box", "category", "object_id", "row", "is_crowd"):
        np.testing.assert_array_equal(
            getattr(annotations.objects, column), getattr(cut.objects, column)
        )
    assert cut.location(119) == (BOXES, "121")


def test_an_error_beyond_the_first_block_names_its_line(lay, monkeypatch):
    monkeypatch.setattr(openimages, "BLOCK", 256)
    rows = V4.splitlines(keepends=True)
    text = "".join([rows[0], *(rows[1:] * 40), rows[1].replace("0.25", "left")])
    with pytest.raises(DataError, match=r"bbox.csv: row 122: field 'XMin': .*'left'"):
        read(lay(files(text)))


@pytest.mark.parametrize(
    ("old", "new", "row", "field", "problem"),
    [
        ("0.25,0.75", "left,0.75", "2", "XMin", "invalid value 'left'"),
        ("0.25,0.75", ",0.75", "2", "XMin", "invalid value ''"),
        (
            "0.25,0.75",
            "nan,0.75",
            "2",
            EDGES,
            "expected finite numbers, found nan, 0.125, 0.75, 0.5",
        ),
        ("0.25,0.75", "0.75,0.25", "2", EDGES, "the size is negative"),
        (
            "0,1,0,1,-1,-1,1",
            "0,1,0,1,-1,-1,2",
            3,
            "IsGroupOf",
            "expected 1, 0 or -1 (unknown), found 2",
        ),
        ("0,1,0,1,-1,-1,1", "0,1,0,1,-1,-1,yes", "3", "IsGroupOf", "invalid value 'yes'"),
        ("0.5,0.625,0.25,1,-1,-1,-1,-1,-1\n", "0.5,0.6", "4", None, "Expected 13 columns, got 6"),
        ("LabelName", "Label", 1, "LabelName", "expected one such column, found 0 among ImageID"),
        ("Source", "ImageID", 1, "ImageID", "expected one such column, found 2 among ImageID"),
        ("000595fe6fee6369", "../../secret", "3", "ImageID", "leaves its folder"),
    ],
)
def test_a_wrong_row_is_an_error_that_names_file_line_and_field(lay, old, new, row, field, problem):
    root = lay(files(V4.replace(old, new)))
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(root)
    assert (error.value.file, error.value.row, error.value.field) == (str(root / BOXES), row, field)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (BOXES, "", "row 1: field 'ImageID': expected one such column, found 0 among none"),
        (BOXES, V4.encode("utf-16"), "not UTF-8 at byte 0"),
        (CLASSES, "/m/1\n", "row 1: expected a label and a name, found '/m/1'"),
        (
            CLASSES,
            "/m/1,Cat\n/m/2,Cat\n",
            "row 2: field 'DisplayName': 'Cat' is in an earlier row too",
        ),
        (
            CLASSES,
            "/m/1,Cat\n/m/1,Dog\n",
            "row 2: field 'LabelName': '/m/1' is in an earlier row too",
        ),
        (CLASSES, "/m/1,Chât\n".encode("latin-1"), "not UTF-8 at byte 7"),
        (HIERARCHY, json.dumps(TREE)[:-5], "row 1: not JSON"),
        (HIERARCHY, "[]", r"expected an object, found \[\]"),
        (
            HIERARCHY,
            '{"LabelName": "a", "Part": [{}]}',
            r"row Part\[0\]: field 'LabelName': the field is missing",
        ),
        (HIERARCHY, '{"Subcategory": {}}', "field 'Subcategory': expected a list, found {}"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(lay, name, content, problem):
    with pytest.raises(DataError, match=f"{name}: {problem}"):
        read(lay(files(**{name: content})))


def test_an_image_in_two_folders_or_in_none_is_an_error(lay):
    root = lay(files(**{"more/0001eeaf4aed83f9.jpg": (4, 4)}))
    with pytest.raises(
        DataError,
        match=r"0001eeaf4aed83f9.jpg: the image is also in validation/0001eeaf4aed83f9.jpg",
    ):
        read(root, images=["{subset}", "more"])
    with pytest.raises(
        DataError, match="pictures: the folder of images does not exist; parameter 'images'"
    ):
        read(root, images=["pictures"])


@pytest.mark.parametrize("name", [BOXES, CLASSES])
def test_an_absent_file_is_an_error_that_names_the_parameter(lay, name):
    root = lay(files())
    (root / name).unlink()
    with pytest.raises(
        DataError, match=rf"{name}: the file does not exist \(nor does oidv.*\); parameter"
    ):
        read(root)


def test_a_file_without_boxes_gives_images_without_objects(lay):
    annotations = read(lay(files(V4.splitlines(keepends=True)[0])))
    assert (len(annotations.images), len(annotations.objects)) == (2, 0)

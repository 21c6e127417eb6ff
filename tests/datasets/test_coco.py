import contextlib
import io
import json
import re
import tracemalloc

import numpy as np
import pytest
from pycocotools.coco import COCO

from farther import datasets
from farther.errors import DataError
from farther.tables import json_stream

FILE = "annotations/instances_val2017.json"


def instances():
    return {
        "info": {"year": 2017},
        "licenses": [],
        "images": [
            {"id": 139, "file_name": "000000000139.jpg", "width": 640, "height": 426, "license": 2},
            {"id": 632, "file_name": "000000000632.jpg", "width": 640, "height": 483},
            {"id": 7, "file_name": "000000000007.jpg"},
        ],
        "categories": [
            {"supercategory": "person", "id": 1, "name": "person"},
            {"supercategory": "furniture", "id": 90, "name": "toothbrush"},
            {"id": 13, "name": "stop sign"},
        ],
        "annotations": [
            {"id": 1768, "image_id": 632, "category_id": 90, "bbox": [10.5, 20, 30.25, 40],
             "iscrowd": 0, "area": 700.5, "segmentation": [[10.5, 20, 40.75, 20, 40.75, 60]]},
            {"id": 900100000139, "image_id": 139, "category_id": 1, "bbox": [0, 0, 640, 426],
             "iscrowd": 1, "area": 9, "segmentation": {"counts": [9, 1], "size": [426, 640]}},
            {"id": 3, "image_id": 632, "category_id": 13, "bbox": [1, 2, 3, 4]},
        ],
    }  # fmt: skip


def read(root, subset="val2017", **params):
    return datasets.create("coco", root=root, **params).read(subset)


def test_ids_with_gaps_lead_to_the_right_image_and_category(lay):
    annotations = read(lay({FILE: instances()}))
    images, objects = annotations.images, annotations.objects
    assert objects.box.tolist() == [[10.5, 20, 40.75, 60], [0, 0, 640, 426], [1, 2, 4, 6]]
    assert objects.object_id.tolist() == [1768, 900100000139, 3]
    assert objects.is_crowd.tolist() == [False, True, False]
    assert annotations.categories == ["person", "toothbrush", "stop sign"]
    assert [annotations.categories[k] for k in objects.category] == [
        "toothbrush",
        "person",
        "stop sign",
    ]
    assert images.image_id[objects.image].tolist() == [
        "000000000632",
        "000000000139",
        "000000000632",
    ]
    # an image may have neither objects nor a size
    assert images.image_id.tolist() == ["000000000139", "000000000632", "000000000007"]
    assert images.file.tolist()[2] == "val2017/000000000007.jpg"
    assert images.width.tolist() == [640, 640, 0]


def test_pycocotools_reads_the_same_boxes(lay):
    root = lay({FILE: instances()})
    with contextlib.redirect_stdout(io.StringIO()):
        reference = COCO(str(root / FILE))
    annotations = read(root)
    for index, object_id in enumerate(annotations.objects.object_id.tolist()):
        annotation = reference.anns[object_id]
        box = annotations.objects.box[index]
        assert [box[0], box[1], box[2] - box[0], box[3] - box[1]] == annotation["bbox"]
        assert (
            f"{annotation['image_id']:012d}"
            == annotations.images.image_id[annotations.objects.image[index]]
        )
        category = reference.cats[annotation["category_id"]]["name"]
        assert category == annotations.categories[annotations.objects.category[index]]


def test_the_originals_that_are_present_are_read_by_default(lay):
    root = lay({FILE: instances(), "annotations/instances_train2017.json": {}})
    assert datasets.create("coco", root=root).subsets() == ["train2017", "val2017"]


def test_other_layouts_are_parameters(lay):
    content = instances()
    content["images"][0]["id"] = "street/1"
    content["images"][0]["file_name"] = "street/a.png"
    content["annotations"] = [
        {"id": 1, "image_id": "street/1", "category_id": 1, "bbox": [0, 0, 1, 1]}
    ]
    params = {"subset_names": ["dev"], "annotations": "{subset}.json", "images": "pictures"}
    reader = datasets.create("coco", root=lay({"dev.json": content}), **params)
    assert reader.subsets() == ["dev"]
    assert reader.read("dev").images.image_id[0] == "street/1"
    assert reader.read("dev").images.file[0] == "pictures/street/a.png"
    assert reader.read("dev").objects.image.tolist() == [0]


def test_subsets_that_follow_no_pattern_are_laid_out_one_by_one(lay):
    layout = {
        "street": ["labels/a.json", "."],
        "night": ["labels/b.json", "night/pictures"],
        "fog": ["c.json", "fog"],
    }
    reader = datasets.create(
        "coco",
        root=lay({"labels/a.json": instances(), "labels/b.json": instances()}),
        layout=layout,
    )
    assert reader.subsets() == ["street", "night"]
    assert reader.read("street").images.file[0] == "000000000139.jpg"
    assert reader.read("night").images.file[0] == "night/pictures/000000000139.jpg"


def test_categories_take_the_names_that_one_gives_them(lay):
    renamed = {"stop sign": "sign", "toothbrush": "sign", "zebra": "horse"}
    annotations = read(lay({FILE: instances()}), renamed=renamed)
    assert annotations.categories == ["person", "sign"]
    assert [annotations.categories[k] for k in annotations.objects.category] == [
        "sign",
        "person",
        "sign",
    ]
    (warning,) = annotations.warnings
    assert (warning.kind, warning.field) == ("no category to rename", "categories")
    assert "zebra" in warning.found


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("image_id", 5, "object of an unknown image"),
        ("category_id", 12, "object of an unknown category"),
    ],
)
def test_what_refers_to_nothing_is_dropped_and_listed(lay, field, value, kind):
    content = instances()
    content["annotations"][1][field] = value
    annotations = read(lay({FILE: content}))
    (warning,) = annotations.warnings
    assert (warning.kind, warning.about, warning.action) == (kind, "object", "dropped")
    assert (warning.file, warning.row, warning.field, warning.found) == (
        FILE,
        "annotations[1]",
        field,
        str(value),
    )
    assert annotations.objects.object_id.tolist() == [1768, 3]


@pytest.mark.parametrize(
    ("path", "value", "row", "field", "problem"),
    [
        (
            "images.1.id",
            139,
            "images[1]",
            "id",
            "image '000000000139' occurs twice, first with the file val2017/0",
        ),
        ("images.1.id", None, "images[1]", "id", "expected an integer, found None"),
        ("images.1.file_name", "../../secret.jpg", "images[1]", "file_name", "leaves its folder"),
        ("images.1.file_name", "/etc/passwd", "images[1]", "file_name", "leaves its folder"),
        ("images.1.file_name", 7, "images[1]", "file_name", "expected text, found 7"),
        ("images.1.width", "640", "images[1]", "width", "expected an integer, found '640'"),
        ("images.1.width", 640.5, "images[1]", "width", "expected an integer, found 640.5"),
        (
            "images.1.height",
            -1,
            "images[1]",
            "height",
            "expected a positive number of pixels, found -1",
        ),
        ("images.1", 632, "images[1]", None, "expected an object, found 632"),
        ("categories.1.id", 1, "categories[1]", "id", "id 1 occurs twice"),
        ("categories.1.name", "", "categories[1]", "name", "expected text, found ''"),
        ("annotations.2.id", 1768, "annotations[2]", "id", "id 1768 occurs twice"),
        (
            "annotations.2.id",
            2**63,
            "annotations[2]",
            "id",
            "expected an integer, found 9223372036854775808",
        ),
        (
            "annotations.2.image_id",
            632.0,
            "annotations[2]",
            "image_id",
            "expected an integer, found 632.0",
        ),
        (
            "annotations.2.image_id",
            True,
            "annotations[2]",
            "image_id",
            "expected an integer, found True",
        ),
        (
            "annotations.2.bbox",
            [1, 2, 3],
            "annotations[2]",
            "bbox",
            "expected 4 numbers, found [1, 2, 3]",
        ),
        (
            "annotations.2.bbox",
            [1, 2, "3", 4],
            "annotations[2]",
            "bbox",
            "expected a finite number, found [1, 2, '3', 4]",
        ),
        (
            "annotations.2.bbox",
            [1, 2, 3, 10**400],
            "images[3] or later",
            None,
            "not JSON: parse error",
        ),
        (
            "annotations.2.bbox",
            [1, 2, 3, float("nan")],
            "images[3] or later",
            None,
            "not JSON: lexical error",
        ),
        ("annotations.2.bbox", [9, 2, -3, 4], "annotations[2]", "bbox", "the size is negative"),
        ("annotations.2.bbox", [9, 2, 3, -4], "annotations[2]", "bbox", "the size is negative"),
        (
            "annotations.2.bbox",
            [9, 2, 3, True],
            "annotations[2]",
            "bbox",
            "expected a finite number",
        ),
        ("annotations.2.iscrowd", "no", "annotations[2]", "iscrowd", "expected 0 or 1, found 'no'"),
        ("annotations", {}, None, "annotations", "expected a list of objects"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_file_row_and_field(
    lay, path, value, row, field, problem
):
    content = instances()
    *parents, last = path.split(".")
    place = content
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[int(last) if isinstance(place, list) else last] = value
    root = lay({FILE: content})
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(root)
    assert (error.value.file, error.value.row, error.value.field) == (str(root / FILE), row, field)


@pytest.mark.parametrize("field", ["id", "image_id", "category_id", "bbox"])
def test_a_missing_field_is_an_error_that_names_it(lay, field):
    content = instances()
    del content["annotations"][0][field]
    with pytest.raises(
        DataError, match=rf"row annotations\[0\]: field '{field}': the field is missing"
    ):
        read(lay({FILE: content}))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            json.dumps(instances())[:-200],
            r"row images\[3\] or later: not JSON: parse error: premature EOF.*"
            r" Is the file complete\?",
        ),
        ("", "expected an object, found '' at its start"),
        (
            json.dumps(instances()).encode("utf-16")[:-200],
            r"row images\[3\] or later: not JSON: .*Is the file complete",
        ),
        (b"\xff\xfe{\x00\xd8\xd8", r"row images\[0\] or later: not JSON: not UTF-16-LE at byte \d"),
        ("[]", r"expected an object, found '\[' at its start"),
        (
            '{"images": ' + "[" * 100_000,
            r"row images\[0\] or later: not JSON: nested more than 201 levels deep",
        ),
        ("{}", "field 'images': the field is missing; expected a list"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(lay, content, problem):
    with pytest.raises(DataError, match=f"instances_val2017.json: {problem}"):
        read(lay({FILE: content}))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_of_a_program_of_windows_is_read_as_any_other(lay, encoding):
    content = instances()
    content["categories"][0]["name"] = "Bär"
    plain = read(lay({FILE: content}))
    respelled = read(lay({FILE: json.dumps(content, ensure_ascii=False).encode(encoding)}))
    assert respelled.categories == plain.categories
    assert "Bär" in respelled.categories
    np.testing.assert_array_equal(respelled.objects.box, plain.objects.box)


@pytest.mark.slow
def test_a_large_file_is_read_as_a_stream_in_little_memory(lay, monkeypatch):
    monkeypatch.setattr(json_stream, "ELEMENT_BYTES", 1_000_000)
    outline = [[0.5] * 2000]
    content = instances()
    outlined = {"image_id": 632, "category_id": 13, "bbox": [1, 2, 3, 4], "segmentation": outline}
    content["annotations"] = [{"id": k, **outlined} for k in range(1200)]
    root = lay({FILE: content})
    tracemalloc.start()
    assert len(read(root).objects) == 1200
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (root / FILE).stat().st_size / 4


def test_an_absent_file_is_an_error_that_names_the_parameter(lay):
    with pytest.raises(
        DataError, match=r"instances_dev.json: the file does not exist; parameter 'annotations'"
    ):
        read(lay({FILE: instances()}), "dev")


def test_a_byte_order_mark_is_no_error(lay):
    assert len(read(lay({FILE: "\ufeff" + json.dumps(instances())})).images) == 3


def test_two_categories_of_one_name_are_read_as_one(lay):
    content = instances()
    content["categories"][1]["name"] = "person"
    annotations = read(lay({FILE: content}))
    assert annotations.categories == ["person", "stop sign"]
    assert annotations.objects.category.tolist() == [0, 0, 1]
    assert [(w.kind, w.about, w.found) for w in annotations.warnings] == [
        ("two categories with the same name", "dataset", "'person'")
    ]


def test_a_width_may_be_a_whole_float(lay):
    content = instances()
    content["images"][0]["width"] = 640.0
    assert read(lay({FILE: content})).images.width.tolist() == [640, 640, 0]

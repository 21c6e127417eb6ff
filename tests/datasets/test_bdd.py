import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farther import datasets
from farther.errors import DataError

FILE = "labels/det_20/det_val.json"


def box(x1, y1, x2, y2):
    return {"x1": x1, "y1": y1, "x2": x2, "y2": y2}


def frames():
    """Frames as the labels of 2020 have them."""
    return [
        {
            "name": "b1c66a42-6f7d68ca.jpg",
            "attributes": {"weather": "overcast", "scene": "city street", "timeofday": "daytime"},
            "timestamp": 10000,
            "labels": [
                {
                    "id": "0",
                    "category": "traffic sign",
                    "attributes": {"occluded": False, "truncated": False, "trafficLightColor": "NA"},
                    "box2d": box(1000.5, 281.25, 1040, 326),
                },
                {"id": "1", "category": "other vehicle", "box2d": box(0, 0, 9, 19)},
                {"category": "rider", "attributes": {"crowd": True}, "box2d": box(7, 7, 7, 7)},
                {"category": "bus", "attributes": {"ignored": True}, "box2d": box(1, 2, 3, 4)},
            ],
        },
        {"name": "b1c81faa-3df17267.jpg", "labels": None},
        {"name": "b1c9c847-3bda4659.jpg"},
    ]


def read(root, subset="val", **params):
    return datasets.create("bdd", root=root, **params).read(subset)


def categories(annotations):
    return [annotations.categories[k] for k in annotations.objects.category]


def test_the_last_pixel_belongs_to_a_box(lay):
    # Scalabel's toolkit turns x1, y1, x2, y2 into x1, y1, x2 + 1, y2 + 1, so that (7, 7, 7, 7) is one pixel.
    objects = read(lay({FILE: frames()})).objects
    assert objects.box.tolist() == [[1000.5, 281.25, 1041, 327], [0, 0, 10, 20], [7, 7, 8, 8], [1, 2, 4, 5]]


def test_frames_without_labels_are_images_without_objects(lay):
    annotations = read(lay({FILE: frames()}))
    assert annotations.images.image_id.tolist() == [f["name"] for f in frames()]
    assert annotations.images.file[1] == "images/100k/val/b1c81faa-3df17267.jpg"
    assert annotations.objects.image.tolist() == [0, 0, 0, 0]


def test_crowds_and_what_the_toolkit_ignores_are_no_single_objects(lay):
    annotations = read(lay({FILE: frames()}))
    assert categories(annotations) == ["traffic sign", "car", "rider", "bus"]
    assert annotations.objects.is_crowd.tolist() == [False, True, True, True]


def test_the_labels_of_2018_give_the_classes_of_2020(lay):
    old = [
        {
            "name": "0000f77c-6257be58.jpg",
            "attributes": {"weather": "clear"},
            "labels": [
                {"category": "bike", "box2d": box(1, 2, 3, 4), "manualShape": True, "id": 0},
                {"category": "motor", "box2d": box(1, 2, 3, 4), "id": 1},
                {"category": "person", "box2d": box(1, 2, 3, 4), "id": 2},
                {
                    "category": "drivable area",
                    "attributes": {"areaType": "direct"},
                    "poly2d": [{"vertices": [[1, 2]]}],
                    "id": 3,
                },
                {"category": "lane", "poly2d": [{"vertices": [[1, 2]]}], "box2d": None, "id": 4},
            ],
        }
    ]
    annotations = read(lay({"labels/bdd100k_labels_images_val.json": old}))
    assert categories(annotations) == ["bicycle", "motorcycle", "pedestrian"]
    assert annotations.warnings == []


def test_a_folder_of_one_file_an_image_is_read_in_the_order_of_names(lay):
    def still(name, category):
        frame = {"timestamp": 10000, "objects": [{"category": category, "id": 0, "box2d": box(1, 2, 3, 4)}]}
        return {"name": name, "frames": [frame], "attributes": {"weather": "clear"}}

    root = lay({"labels/100k/val/b.json": still("b", "car"), "labels/100k/val/a.json": still("a", "bus")})
    annotations = read(root)
    assert annotations.images.image_id.tolist() == ["a.jpg", "b.jpg"]
    assert categories(annotations) == ["bus", "car"]
    assert annotations.location(1) == ("labels/100k/val/b.json", "b.jpg labels[0]")


def test_an_object_with_frames_is_read_as_the_list_of_them(lay):
    annotations = read(lay({FILE: {"frames": frames(), "config": None}}))
    assert (len(annotations.images), len(annotations.objects)) == (3, 4)


def test_an_annotated_size_is_kept(lay):
    content = frames()
    content[1]["size"] = {"width": 1280, "height": 720}
    images = read(lay({FILE: content})).images
    assert (images.width.tolist(), images.height.tolist()) == ([0, 1280, 0], [0, 720, 0])


def test_the_newer_labels_win_where_both_are_present(lay):
    root = lay({FILE: frames(), "labels/bdd100k_labels_images_val.json": [], "labels/det_20/det_train.json": []})
    assert datasets.create("bdd", root=root).subsets() == ["train", "val"]
    assert len(read(root).images) == 3


def test_names_of_ones_own_are_parameters(lay):
    content = [
        {"name": "a.jpg", "labels": [{"category": c, "box2d": box(1, 2, 3, 4)} for c in ("lorry", "tram", "dust")]}
    ]
    params = {"categories": ["truck", "tram"], "renamed": {"lorry": "truck"}, "ignored": {"dust": "tram"}}
    annotations = read(lay({FILE: content}), **params)
    assert categories(annotations) == ["truck", "tram", "tram"]
    assert annotations.objects.is_crowd.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("change", "row", "field", "problem"),
    [
        ({"category": None}, "labels[1]", "category", "expected text, found None"),
        ({"category": "moose"}, "labels[1]", "category", "unknown class 'moose'; known: pedestrian, rider"),
        (
            {"box2d": {"x1": 1, "y1": 2, "x2": 3}},
            "labels[1]",
            "box2d.y2",
            "the field is missing; expected a finite number",
        ),
        ({"box2d": box(1, 2, "3", 4)}, "labels[1]", "box2d.x2", "expected a finite number, found '3'"),
        ({"box2d": [1, 2, 3, 4]}, "labels[1]", "box2d", "expected an object, found [1, 2, 3, 4]"),
        ({"box2d": box(9, 2, 3, 4)}, "labels[1]", "box2d", "the size is negative"),
        ({"box2d": box(1, 9, 3, 4)}, "labels[1]", "box2d", "the size is negative"),
        ({"attributes": {"crowd": "yes"}}, "labels[1]", "attributes.crowd", "expected 0 or 1, found 'yes'"),
        ({"attributes": []}, "labels[1]", "attributes", "expected an object, found []"),
    ],
)
def test_a_wrong_label_is_an_error_that_names_image_label_and_field(lay, change, row, field, problem):
    content = frames()
    content[0]["labels"][1].update(change)
    root = lay({FILE: content})
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(root)
    place = (error.value.file, error.value.row, error.value.field)
    assert place == (str(root / FILE), f"b1c66a42-6f7d68ca.jpg {row}", field)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "expected text, found None"),
        ("b1c66a42-6f7d68ca.jpg", "image 'b1c66a42-6f7d68ca.jpg' occurs twice"),
        ("../secret.jpg", "leaves its folder"),
    ],
)
def test_a_wrong_name_is_an_error_that_names_the_frame(lay, name, problem):
    content = frames()
    content[2]["name"] = name
    with pytest.raises(DataError, match=rf"det_val.json: row \[2\]: field 'name': .*{problem}"):
        read(lay({FILE: content}))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (json.dumps(frames())[:-100], "row 1: not JSON"),
        ("7", "expected a list, found 7"),
        ("[7]", r"row \[0\]: expected an object, found 7"),
        ('[{"name": "a.jpg", "labels": {}}]', r"row \[0\]: field 'labels': expected a list"),
        ('[{"name": "a.jpg", "labels": [3]}]', r"row \[0\] labels\[0\]: expected an object, found 3"),
        ("{}", "field 'frames': the field is missing"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(lay, content, problem):
    with pytest.raises(DataError, match=f"det_val.json: {problem}"):
        read(lay({FILE: content}))


def test_a_video_is_no_still_image(lay):
    with pytest.raises(DataError, match=r"a.json: field 'frames': expected the one frame of a still image, found 2"):
        read(lay({"labels/100k/val/a.json": {"name": "a", "frames": [{}, {}]}}))
    with pytest.raises(DataError, match=r"a.json: expected an object, found"):
        read(lay({"labels/100k/val/a.json": []}))


def ridden(lay, *images: list[tuple], join: bool = True):
    """Images with (class, x1, y1, x2, y2), whose last pixels belong to the box."""
    frames = [
        {"name": f"{n}.jpg", "labels": [{"category": name, "box2d": box(*edges)} for name, *edges in labels]}
        for n, labels in enumerate(images)
    ]
    return datasets.create("bdd", root=lay({FILE: frames}), join_riders=join).read("val")


def test_a_rider_is_joined_with_what_it_rides(lay):
    bike, rider, other, car = (
        ("bicycle", 10, 20, 29, 39),
        ("rider", 12, 5, 27, 34),
        ("motorcycle", 60, 20, 89, 39),
        ("car", 0, 0, 5, 5),
    )
    found = ridden(lay, [car, other, bike, rider])
    assert "rider" not in found.categories
    assert [found.categories[c] for c in found.objects.category] == ["car", "motorcycle", "bicycle"]
    assert found.objects.box.tolist() == [[0, 0, 6, 6], [60, 20, 90, 40], [10, 5, 30, 40]]
    apart = ridden(lay, [car, other, bike, rider], join=False)
    assert [apart.categories[c] for c in apart.objects.category] == ["car", "motorcycle", "bicycle", "rider"]


def test_riders_are_assigned_so_that_the_sum_of_overlaps_is_largest(lay):
    # The first rider overlaps the first bicycle most, but so does the second, which overlaps no other.
    bikes = [("bicycle", 0, 0, 19, 19), ("bicycle", 10, 0, 29, 19)]
    riders = [("rider", 4, 0, 23, 19), ("rider", 0, 0, 11, 19)]
    found = ridden(lay, [*bikes, *riders])
    assert found.objects.box.tolist() == [[0, 0, 20, 20], [4, 0, 30, 20]]


@pytest.mark.parametrize("vehicle", [[], [("bicycle", 50, 50, 69, 69)], [("bicycle", 10, 0, 109, 9)]])
def test_an_image_whose_rider_rides_nothing_is_left_out_and_listed(lay, vehicle):
    found = ridden(lay, [("rider", 0, 0, 19, 9), *vehicle], [("car", 0, 0, 9, 9)])
    assert found.images.image_id.tolist() == ["1.jpg"]
    assert found.objects.image.tolist() == [0]
    (warning,) = found.warnings
    assert (warning.row, warning.field, warning.action) == ("0.jpg", "box2d", "image dropped")


def test_absent_labels_are_an_error_that_says_where_they_were_looked_for(lay):
    with pytest.raises(
        DataError, match=r"det_test.json: the file does not exist \(nor does bdd100k_labels_images_test"
    ):
        read(lay({FILE: []}), "test")


corner = st.floats(0, 1279, width=32)


@settings(deadline=None, max_examples=50)
@given(boxes=st.lists(st.tuples(corner, corner, corner, corner), max_size=8))
def test_boxes_that_are_written_as_bdd_are_read_as_they_were(tmp_path_factory, boxes):
    root = tmp_path_factory.mktemp("bdd")
    edges = np.array([(min(a, c), min(b, d), max(a, c) + 1, max(b, d) + 1) for a, b, c, d in boxes]).reshape(-1, 4)
    labels = [{"category": "car", "box2d": box(x1, y1, x2 - 1, y2 - 1)} for x1, y1, x2, y2 in edges.tolist()]
    (root / FILE).parent.mkdir(parents=True)
    (root / FILE).write_text(json.dumps([{"name": "a.jpg", "labels": labels}]), encoding="utf-8")
    np.testing.assert_allclose(read(root).objects.box, edges, rtol=0, atol=1e-9)

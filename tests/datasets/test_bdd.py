import json
import re

import pytest
from PIL import Image

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import ImageAttributes

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
                    "attributes": {
                        "occluded": False,
                        "truncated": False,
                        "trafficLightColor": "NA",
                    },
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


@pytest.mark.parametrize(
    "wrapped", [False, True], ids=["a list of frames", "an object with frames"]
)
def test_frames_are_read_as_scalabel_means_them(lay, wrapped):
    content = frames()
    content[1]["size"] = {"width": 1280, "height": 720}
    annotations = read(lay({FILE: {"frames": content, "config": None} if wrapped else content}))
    images, objects = annotations.images, annotations.objects
    # Scalabel's toolkit turns x1, y1, x2, y2 into x1, y1, x2 + 1, y2 + 1, so that (7, 7, 7, 7) is
    # one pixel.
    assert objects.box.tolist() == [
        [1000.5, 281.25, 1041, 327],
        [0, 0, 10, 20],
        [7, 7, 8, 8],
        [1, 2, 4, 5],
    ]
    assert categories(annotations) == ["traffic sign", "car", "rider", "bus"]
    assert objects.is_crowd.tolist() == [
        False,
        True,
        True,
        True,
    ]  # what the toolkit ignores is no single object
    assert objects.image.tolist() == [0, 0, 0, 0]
    assert images.image_id.tolist() == [f["name"] for f in frames()]  # those without labels too
    assert images.file[1] == "images/100k/val/b1c81faa-3df17267.jpg"
    assert (images.width.tolist(), images.height.tolist()) == ([0, 1280, 0], [0, 720, 0])


def test_the_labels_of_2018_give_the_classes_of_2020(lay):
    outline = [{"vertices": [[1, 2]]}]
    labels = [
        {"category": "bike", "box2d": box(1, 2, 3, 4), "manualShape": True, "id": 0},
        {"category": "motor", "box2d": box(1, 2, 3, 4), "id": 1},
        {"category": "person", "box2d": box(1, 2, 3, 4), "id": 2},
        {
            "category": "drivable area",
            "attributes": {"areaType": "direct"},
            "poly2d": outline,
            "id": 3,
        },
        {"category": "lane", "poly2d": outline, "box2d": None, "id": 4},
    ]
    old = {"name": "0000f77c-6257be58.jpg", "attributes": {"weather": "clear"}, "labels": labels}
    annotations = read(lay({"labels/bdd100k_labels_images_val.json": [old]}))
    assert categories(annotations) == ["bicycle", "motorcycle", "pedestrian"]
    assert annotations.warnings == []


def test_weather_scene_and_time_of_day_of_images_are_kept_for_the_images_in_the_tables(
    lay, tmp_path
):
    content = frames()
    content[1]["attributes"] = {"weather": "rainy", "timeofday": None}
    root = lay({FILE: content})
    folder = root / "images/100k/val"
    folder.mkdir(parents=True)
    for frame in content[1:]:
        Image.new("RGB", (8, 8)).save(folder / frame["name"])
    reader = datasets.create(
        "bdd", root=root, subset_names=["val"], missing_images="drop", max_warnings=1.0
    )
    first, second = content[0]["name"], content[1]["name"]
    assert reader.read("val").attributes == [
        (first, "weather", "overcast"),
        (first, "scene", "city street"),
        (first, "timeofday", "daytime"),
        (second, "weather", "rainy"),
    ]
    ingest(reader, "bdd", tmp_path / "tables")
    attributes = ImageAttributes.read(tmp_path / "tables/val/attributes.parquet")
    # The first image has no file, so it is not in the tables.
    assert attributes.frame.rows() == [(second, "weather", "rainy")]


def test_a_folder_of_one_file_an_image_is_read_in_the_order_of_names(lay):
    def still(name, category):
        frame = {
            "timestamp": 10000,
            "objects": [{"category": category, "id": 0, "box2d": box(1, 2, 3, 4)}],
        }
        return {"name": name, "frames": [frame], "attributes": {"weather": "clear"}}

    root = lay(
        {"labels/100k/val/b.json": still("b", "car"), "labels/100k/val/a.json": still("a", "bus")}
    )
    annotations = read(root)
    assert annotations.images.image_id.tolist() == ["a.jpg", "b.jpg"]
    assert categories(annotations) == ["bus", "car"]
    assert annotations.attributes == [("a.jpg", "weather", "clear"), ("b.jpg", "weather", "clear")]
    assert annotations.location(1) == ("labels/100k/val/b.json", "b.jpg labels[0]")


def test_the_newer_labels_win_where_both_are_present(lay):
    root = lay(
        {
            FILE: frames(),
            "labels/bdd100k_labels_images_val.json": [],
            "labels/det_20/det_train.json": [],
        }
    )
    assert datasets.create("bdd", root=root).subsets() == ["train", "val"]
    assert len(read(root).images) == 3


def test_names_of_ones_own_are_parameters(lay):
    content = [
        {
            "name": "a.jpg",
            "labels": [
                {"category": c, "box2d": box(1, 2, 3, 4)} for c in ("lorry", "tram", "dust")
            ],
        }
    ]
    params = {
        "categories": ["truck", "tram"],
        "renamed": {"lorry": "truck"},
        "ignored": {"dust": "tram"},
    }
    annotations = read(lay({FILE: content}), **params)
    assert categories(annotations) == ["truck", "tram", "tram"]
    assert annotations.objects.is_crowd.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"category": None}, "category", "expected text, found None"),
        ({"category": "moose"}, "category", "unknown class 'moose'; known: pedestrian, rider"),
        (
            {"box2d": {"x1": 1, "y1": 2, "x2": 3}},
            "box2d.y2",
            "the field is missing; expected a finite number",
        ),
        ({"box2d": box(1, 2, "3", 4)}, "box2d.x2", "expected a finite number, found '3'"),
        ({"box2d": [1, 2, 3, 4]}, "box2d", "expected an object, found [1, 2, 3, 4]"),
        ({"box2d": box(9, 2, 3, 4)}, "box2d", "the size is negative"),
        ({"box2d": box(1, 9, 3, 4)}, "box2d", "the size is negative"),
        ({"attributes": {"crowd": "yes"}}, "attributes.crowd", "expected 0 or 1, found 'yes'"),
        ({"attributes": []}, "attributes", "expected an object, found []"),
    ],
)
def test_a_wrong_label_is_an_error_that_names_image_label_and_field(lay, change, field, problem):
    content = frames()
    content[0]["labels"][1].update(change)
    root = lay({FILE: content})
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(root)
    place = (error.value.file, error.value.row, error.value.field)
    assert place == (str(root / FILE), "b1c66a42-6f7d68ca.jpg labels[1]", field)


def named(name):
    """Frames of which the last has this name."""
    return [*frames()[:2], {"name": name}]


VIDEO = "labels/100k/val/a.json"


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        (FILE, json.dumps(frames())[:-100], "row 1: not JSON"),
        (FILE, "7", "expected a list, found 7"),
        (FILE, "[7]", r"row \[0\]: expected an object, found 7"),
        (FILE, [{"name": "a.jpg", "labels": {}}], r"row \[0\]: field 'labels': expected a list"),
        (
            FILE,
            [{"name": "a.jpg", "labels": [3]}],
            r"row \[0\] labels\[0\]: expected an object, found 3",
        ),
        (FILE, "{}", "field 'frames': the field is missing"),
        (FILE, named(None), r"row \[2\]: field 'name': expected text, found None"),
        (
            FILE,
            named(frames()[0]["name"]),
            r"row \[2\]: field 'name': image 'b1c66a42-6f7d68ca.jpg' occurs twice",
        ),
        (FILE, named("../secret.jpg"), r"row \[2\]: field 'name': .*leaves its folder"),
        (
            VIDEO,
            {"name": "a", "frames": [{}, {}]},
            "field 'frames': expected the one frame of a still image, found 2",
        ),
        (VIDEO, [], "expected an object, found"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it_and_the_frame(lay, file, content, problem):
    with pytest.raises(DataError, match=f"{file}: {problem}"):
        read(lay({file: content}))


def ridden(lay, *images: list[tuple], join: bool = True):
    """Images with (class, x1, y1, x2, y2), whose last pixels belong to the box."""
    frames = []
    for number, objects in enumerate(images):
        labels = [{"category": name, "box2d": box(*edges)} for name, *edges in objects]
        frames.append({"name": f"{number}.jpg", "labels": labels})
    return datasets.create("bdd", root=lay({FILE: frames}), join_riders=join).read("val")


def test_a_rider_is_joined_with_what_it_rides(lay):
    car = ("car", 0, 0, 5, 5)
    motorcycle = ("motorcycle", 60, 20, 89, 39)
    bicycle = ("bicycle", 10, 20, 29, 39)
    rider = ("rider", 12, 5, 27, 34)
    objects = [car, motorcycle, bicycle, rider]
    joined = ridden(lay, objects)
    assert "rider" not in joined.categories
    categories = [joined.categories[index] for index in joined.objects.category]
    assert categories == ["car", "motorcycle", "bicycle"]
    assert joined.objects.box.tolist() == [[0, 0, 6, 6], [60, 20, 90, 40], [10, 5, 30, 40]]

    separate = ridden(lay, objects, join=False)
    categories = [separate.categories[index] for index in separate.objects.category]
    assert categories == ["car", "motorcycle", "bicycle", "rider"]


def test_riders_are_assigned_so_that_the_sum_of_overlaps_is_largest(lay):
    # The first rider overlaps the first bicycle most, but so does the second, which overlaps no
    # other.
    bikes = [("bicycle", 0, 0, 19, 19), ("bicycle", 10, 0, 29, 19)]
    riders = [("rider", 4, 0, 23, 19), ("rider", 0, 0, 11, 19)]
    annotations = ridden(lay, [*bikes, *riders])
    assert annotations.objects.box.tolist() == [[0, 0, 20, 20], [4, 0, 30, 20]]


@pytest.mark.parametrize(
    "vehicle", [[], [("bicycle", 50, 50, 69, 69)], [("bicycle", 10, 0, 109, 9)]]
)
def test_an_image_whose_rider_rides_nothing_is_left_out_and_listed(lay, vehicle):
    annotations = ridden(lay, [("rider", 0, 0, 19, 9), *vehicle], [("car", 0, 0, 9, 9)])
    assert annotations.images.image_id.tolist() == ["1.jpg"]
    assert annotations.objects.image.tolist() == [0]
    (warning,) = annotations.warnings
    assert (warning.row, warning.field, warning.action) == ("0.jpg", "box2d", "image dropped")


def test_absent_labels_are_an_error_that_says_where_they_were_looked_for(lay):
    with pytest.raises(
        DataError,
        match=r"det_test.json: the file does not exist \(nor does bdd100k_labels_images_test",
    ):
        read(lay({FILE: []}), "test")

"""Oriented boxes, outlines and other columns that change what a box means, of each format."""

import json
import math

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

from farther import detectors
from farther.detectors.imported.spool import spooled
from farther.errors import DataError
from farther.tables.oriented import angle_unit, envelope_of_rotated

CLASSES = ("cat", "dog")
CENTRED = "file,cx,cy,width,height,{},class,score\n"


@pytest.fixture
def read(tmp_path):
    """Reads a file with a content; returns the boxes and the notes."""

    def boxes_and_notes(name, content, adapter="detections", **params):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text)
        options = {"classes": CLASSES, "categories": {0: "cat", 1: "dog"}, **params}
        reader = detectors.create(adapter, weights=path, **options)
        with spooled(reader, reader.header(), tmp_path / "rows") as spool:
            return np.array(spool.columns["box"]), spool.notes()

    return boxes_and_notes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("angle_degrees", 90),
        ("Rotation (deg)", -90),
        ("theta_rad", math.pi / 2),
        ("rotation radians", -math.pi / 2),
        ("rangledeg", 270),
    ],
)
def test_a_box_with_a_centre_and_an_angle_becomes_the_one_around_it(read, name, value):
    boxes, notes = read("a.csv", CENTRED.format(name) + f"a.jpg,10,20,6,2,{value},cat,0.5\n")
    assert_allclose(boxes, [[9, 17, 11, 23]], atol=1e-5)
    assert notes == ["upright boxes around oriented boxes or outlines: 1"]


def test_the_envelope_has_the_extremes_of_the_turned_corners():
    rng = np.random.default_rng(0)
    for cx, cy, width, height, radians in rng.uniform(0.1, 9, (50, 5)):
        corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [width / 2, height / 2]
        turn = [[math.cos(radians), math.sin(radians)], [-math.sin(radians), math.cos(radians)]]
        turned = corners @ np.array(turn) + [cx, cy]
        expected = [*turned.min(axis=0), *turned.max(axis=0)]
        assert_allclose(envelope_of_rotated(cx, cy, width, height, radians), expected)


@pytest.mark.parametrize("name", ["angle", "theta", "rotation", "bbox_angle", "Rot."])
def test_an_angle_of_an_unknown_unit_is_refused(read, name):
    with pytest.raises(DataError, match=r"row 2: field .*degrees or radians.*angle_degrees"):
        read("a.csv", CENTRED.format(name) + "a.jpg,10,20,6,2,30,cat,0.5\n")


@pytest.mark.parametrize(
    "head",
    [
        "file,x,y,width,height,angle_degrees,class,score\n",
        "file,xmin,ymin,xmax,ymax,angle_degrees,class,score\n",
    ],
)
def test_an_angle_about_an_unknown_point_is_refused(read, head):
    with pytest.raises(DataError, match=r"field 'angle_degrees': '30'.*about which point"):
        read("a.csv", head + "a.jpg,10,20,60,40,30,cat,0.5\n")


def test_an_angle_of_a_box_in_fractions_is_refused(read):
    with pytest.raises(DataError, match="fractions of width and height"):
        read("a.csv", CENTRED.format("angle_degrees") + "a.jpg,0.5,0.5,0.3,0.2,30,cat,0.5\n")


def test_angles_of_0_leave_the_boxes_as_they_are(read):
    rows = "a.jpg,10,20,6,2,0,cat,0.5\na.jpg,10,20,6,2,,cat,0.5\n"
    boxes, notes = read("a.csv", CENTRED.format("angle") + rows)
    assert_allclose(boxes, [[7, 19, 13, 21]] * 2)
    assert notes == []


@pytest.mark.parametrize("first", [0, 1])
def test_four_corners_are_not_taken_for_two(read, first):
    names = ",".join(f"x{number},y{number}" for number in range(first, first + 4))
    boxes, notes = read("a.csv", f"file,{names},class,score\na.jpg,5,0,10,5,5,10,0,5,cat,0.5\n")
    assert_allclose(boxes, [[0, 0, 10, 10]])
    assert "oriented boxes" in notes[0]


def test_an_angle_that_only_a_later_object_has_is_seen(read):
    row = {"file": "a", "cx": 9, "cy": 9, "width": 6, "height": 2, "class": "cat", "score": 0.5}
    rows = [row, {**row, "theta_radians": math.pi / 2}]
    boxes, _ = read("a.json", rows)
    assert_allclose(boxes, [[6, 8, 12, 10], [8, 6, 10, 12]], atol=1e-6)


RECORD = {"image_id": "a", "category_id": 0, "score": 0.5}


@pytest.mark.parametrize("adapter", ["coco_results", "detections"])
class TestCOCOResults:
    def test_four_corners_become_the_box_around_them(self, read, adapter):
        records = [{**RECORD, "bbox": [5, 0, 10, 5, 5, 10, 0, 5]}]
        boxes, notes = read("a.json", records, adapter)
        assert_allclose(boxes, [[0, 0, 10, 10]])
        assert notes == ["upright boxes around oriented boxes or outlines: 1"]

    def test_five_numbers_are_refused(self, read, adapter):
        records = [
            {**RECORD, "bbox": [0, 0, 5, 5]},
            {**RECORD, "bbox": [5, 5, 6, 2, 30]},
        ]
        with pytest.raises(DataError, match=r"row 1: field 'bbox': 5 numbers, as of an oriented"):
            read("a.json", records, adapter)

    @pytest.mark.parametrize("name", ["rotation", "angle", "theta", "angle_degrees"])
    def test_an_angle_beside_the_box_is_refused(self, read, adapter, name):
        records = [{**RECORD, "bbox": [0, 0, 5, 5]}]
        records.append({**RECORD, "bbox": [0, 0, 5, 5], name: 12.5})
        with pytest.raises(DataError, match=rf"row 1: field '{name}': 12.5, an oriented box"):
            read("a.json", records, adapter)

    def test_other_fields_are_named_once(self, read, adapter):
        fields = {"bbox": [0, 0, 5, 5], "track": 3, "iscrowd": 0, "segmentation": []}
        records = [{**RECORD, **fields}] * 3 + [{**RECORD, **fields, "colour": "red"}]
        _, notes = read("a.json", records, adapter)
        assert notes == ["not read: 'colour', 'track'"]


def test_columns_that_are_not_read_are_named(read):
    head = "file,xmin,ymin,xmax,ymax,class,score,frame,is_group\n"
    _, notes = read("a.csv", head + "a.jpg,0,0,5,5,cat,0.5,3,0\n" * 2)
    assert notes == ["not read: 'frame', 'is_group'"]


def test_a_column_that_contradicts_the_names_of_the_box_is_refused(read):
    head = "file,x,y,width,height,class,score,box_format\n"
    assert_allclose(read("a.csv", head + "a.jpg,1,1,5,5,cat,0.5,xywh\n")[0], [[1, 1, 6, 6]])
    with pytest.raises(DataError, match=r"field 'box_format': 'cxcywh', but the columns of"):
        read("a.csv", head + "a.jpg,1,1,5,5,cat,0.5,cxcywh\n")


def test_angles_in_parquet_are_refused(tmp_path):
    frame = pl.DataFrame(
        {
            "image_id": ["a", "b"],
            "box": [[0.0, 0, 5, 5]] * 2,
            "score": [0.5, 0.5],
            "label": [0, 1],
            "angle": [0.0, 0.3],
            "track": [1, 2],
        }
    )
    frame.write_parquet(tmp_path / "a.parquet")
    reader = detectors.create("parquet", weights=tmp_path / "a.parquet", classes=CLASSES)
    with pytest.raises(DataError, match=r"row 1: field 'angle': 0.3, an oriented box"):
        list(reader.batches(reader.sources()[0]))
    frame.with_columns(angle=0.0).write_parquet(tmp_path / "b.parquet")
    reader = detectors.create("parquet", weights=tmp_path / "b.parquet", classes=CLASSES)
    assert "track" in next(reader.batches(reader.sources()[0])).unread


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ([10, 20, 6, 2, math.pi / 2], [9, 17, 11, 23]),
        ([5, 0, 10, 5, 5, 10, 0, 5], [0, 0, 10, 10]),
    ],
)
def test_boxes_of_mmrotate_become_the_ones_around_them(read, box, expected):
    boxes, notes = read("a.json", {"labels": [0], "scores": [0.5], "bboxes": [box]})
    assert_allclose(boxes, [expected], atol=1e-5)
    assert "oriented boxes" in notes[0]


def test_oriented_boxes_of_ultralytics_json_become_the_ones_around_them(read):
    box = {"x1": 5, "y1": 0, "x2": 10, "y2": 5, "x3": 5, "y3": 10, "x4": 0, "y4": 5}
    boxes, notes = read("a.json", [{"name": "cat", "class": 0, "confidence": 0.5, "box": box}])
    assert_allclose(boxes, [[0, 0, 10, 10]])
    assert "oriented boxes" in notes[0]


def test_key_points_in_ultralytics_json_are_named_and_the_box_is_read(read):
    box = {"x1": 1, "y1": 2, "x2": 3, "y2": 4}
    row = {"name": "cat", "class": 0, "confidence": 0.5, "box": box, "keypoints": {"x": [1]}}
    boxes, notes = read("a.json", [row])
    assert_allclose(boxes, [[1, 2, 3, 4]])
    assert notes == ["not read: 'class', 'keypoints'"]


def test_an_angle_of_a_detection_of_fiftyone_is_refused(read):
    detection = {"label": "cat", "confidence": 0.5, "bounding_box": [0.1, 0.1, 0.2, 0.2]}
    detections = {"detections": [{**detection, "rotation": 30.0}]}
    sample = {"filepath": "data/a.jpg", "predictions": detections}
    with pytest.raises(DataError, match="field 'rotation': 30, an oriented box"):
        read("samples.json", {"samples": [sample]}, fractions=True)


OUTLINE = "0 0.5 0.1 0.9 0.5 0.5 0.9 0.2 0.5"
AROUND = [0.2, 0.1, 0.9, 0.9]


class TestLinesOfUltralytics:
    def test_an_outline_with_a_confidence_becomes_the_box_around_it(self, read):
        lines = f"{OUTLINE} 0.75\n1 0.5 0.5 0.2 0.4 0.25\n0 0.1 0.1 0.2 0.1 0.2 0.3 0.5\n"
        boxes, notes = read("a.txt", lines)
        assert_allclose(boxes, [AROUND, [0.4, 0.3, 0.6, 0.7], [0.1, 0.1, 0.2, 0.3]], rtol=1e-6)
        assert notes == ["upright boxes around oriented boxes or outlines: 2"]

    def test_ids_of_tracks_after_the_confidence_are_left_out(self, read):
        lines = f"{OUTLINE} 0.75 1\n{OUTLINE} 0.5 12\n0 0.5 0.5 0.2 0.4 0.25 3\n"
        boxes, _ = read("a.txt", lines)
        assert_allclose(boxes, [AROUND, AROUND, [0.4, 0.3, 0.6, 0.7]], rtol=1e-6)

    @pytest.mark.parametrize(
        "lines",
        [OUTLINE, f"{OUTLINE} 0.3 0.25", f"{OUTLINE} 0.3 1\n", "0 0.1 0.1 0.2 0.1 0.2 0.3"],
    )
    def test_a_missing_confidence_is_said(self, read, lines):
        with pytest.raises(DataError, match=r"row 1: .*without a confidence.*save_conf=True"):
            read("a.txt", lines)

    @pytest.mark.parametrize("visible", [False, True])
    @pytest.mark.parametrize("count", [3, 4, 17, 18])
    def test_key_points_are_not_taken_for_an_outline(self, read, visible, count):
        rng = np.random.default_rng(count)
        lines = []
        for _ in range(3):
            points = rng.uniform(0.3, 0.7, (count, 2))
            points[:2] = [[0.31, 0.33], [0.69, 0.66]]
            if visible:
                points = np.column_stack([points, rng.uniform(0, 1, count)])
            numbers = [0.5, 0.5, 0.4, 0.4, *points.ravel(), 0.9]
            lines.append("0 " + " ".join(f"{number:.4f}" for number in numbers))
        with pytest.raises(DataError, match="key points, as of a pose network"):
            read("a.txt", "\n".join(lines))

    def test_outlines_that_look_like_key_points_are_read_where_a_parameter_says_so(self, read):
        # The second of four corners lies in the middle, and those after it around it.
        line = "0 0.5 0.5 0.9 0.9 0.2 0.2 0.8 0.9 0.1 0.7 0.6"
        with pytest.raises(DataError, match=r"'columns' to \[class, points, score\]"):
            read("a.txt", line)
        boxes, _ = read("a.txt", line, columns=("class", "points", "score"))
        assert_allclose(boxes, [[0.1, 0.2, 0.9, 0.9]], rtol=1e-6)

    def test_a_real_outline_of_many_points_is_read(self, read):
        angle = np.linspace(-math.pi / 2, 1.4 * math.pi, 61)
        points = np.column_stack([0.5 + 0.3 * np.cos(angle), 0.5 + 0.2 * np.sin(angle)])
        line = "1 " + " ".join(f"{value:.6f}" for value in points.ravel()) + " 0.875"
        boxes, _ = read("a.txt", line)
        assert_allclose(boxes, [[0.2, 0.3, 0.8, 0.7]], atol=2e-3)


def test_names_of_angles_are_told_from_other_names():
    assert angle_unit("ANGLE-DEG") == "degrees"
    assert angle_unit("rtheta") == "unknown"
    for name in ("class", "rotation_y", "triangle", "tangle", "angular", "gradients", "radius"):
        assert angle_unit(name) is None

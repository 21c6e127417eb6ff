"""Boxes that are written in a format are read as they were."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farther import datasets

WIDTH, HEIGHT = 512, 256


def voc(edges):
    shown = "".join(
        f"<object><name>dog</name><bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax>"
        f"<ymax>{bottom}</ymax></bndbox></object>"
        for left, top, right, bottom in edges
    )
    annotations = {"VOC2012/Annotations/a.xml": f"<annotation>{shown}</annotation>"}
    return "val", {"VOC2012/ImageSets/Main/val.txt": "a\n", **annotations}


def bdd(edges):
    boxes = [{"x1": x1, "y1": y1, "x2": x2 - 1, "y2": y2 - 1} for x1, y1, x2, y2 in edges]
    frame = {"name": "a.jpg", "labels": [{"category": "car", "box2d": box} for box in boxes]}
    return "val", {"labels/det_20/det_val.json": [frame]}


def coco(edges):
    objects = [
        {"id": k, "image_id": 7, "category_id": 1, "bbox": [x1, y1, x2 - x1, y2 - y1]}
        for k, (x1, y1, x2, y2) in enumerate(edges)
    ]
    content = {
        "images": [{"id": 7, "file_name": "a.jpg"}],
        "categories": [{"id": 1, "name": "car"}],
    }
    return "val2017", {"annotations/instances_val2017.json": {**content, "annotations": objects}}


def openimages(edges):
    rows = [
        f"a,/m/1,{x1 / WIDTH!r},{x2 / WIDTH!r},{y1 / HEIGHT!r},{y2 / HEIGHT!r}\n"
        for x1, y1, x2, y2 in edges
    ]
    boxes = "ImageID,LabelName,XMin,XMax,YMin,YMax\n" + "".join(rows)
    classes = {"class-descriptions-boxable.csv": "/m/1,Car\n"}
    return "validation", {
        "validation-annotations-bbox.csv": boxes,
        **classes,
        "validation/a.jpg": "",
    }


def yolo(edges):
    rows = [
        f"0 {(x1 + x2) / 2 / WIDTH!r} {(y1 + y2) / 2 / HEIGHT!r} {(x2 - x1) / WIDTH!r} {(y2 - y1) / HEIGHT!r}\n"
        for x1, y1, x2, y2 in edges
    ]
    return "val", {
        "data.yaml": "val: images\nnames: [car]\n",
        "images/a.jpg": "",
        "labels/a.txt": "".join(rows),
    }


x, y = st.floats(0, WIDTH - 1, width=32), st.floats(0, HEIGHT - 1, width=32)


@pytest.mark.parametrize("write", [voc, bdd, coco, openimages, yolo])
@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(corners=st.lists(st.tuples(x, y, x, y), max_size=6))
def test_boxes_that_are_written_in_a_format_are_read_as_they_were(lay, write, corners):
    edges = [(min(a, c), min(b, d), max(a, c) + 1, max(b, d) + 1) for a, b, c, d in corners]
    subset, files = write(edges)
    objects = datasets.create(write.__name__, root=lay(files)).read(subset).objects
    scale = [WIDTH, HEIGHT] * 2 if objects.unit == "image" else 1
    np.testing.assert_allclose(
        objects.box * scale, np.array(edges).reshape(-1, 4), rtol=0, atol=1e-9
    )

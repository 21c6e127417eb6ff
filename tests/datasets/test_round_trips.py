"""Boxes that are written in a format are read as they were."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.drawn import drawn

from farther import datasets

WIDTH = 512
HEIGHT = 256


def voc(edges):
    objects = ""
    for left, top, right, bottom in edges:
        box = (
            f"<xmin>{left + 1}</xmin><ymin>{top + 1}</ymin>"
            f"<xmax>{right}</xmax><ymax>{bottom}</ymax>"
        )
        objects += f"<object><name>dog</name><bndbox>{box}</bndbox></object>"
    return "val", {
        "VOC2012/ImageSets/Main/val.txt": "a\n",
        "VOC2012/Annotations/a.xml": f"<annotation>{objects}</annotation>",
    }


def bdd(edges):
    labels = []
    for x1, y1, x2, y2 in edges:
        box = {"x1": x1, "y1": y1, "x2": x2 - 1, "y2": y2 - 1}
        labels.append({"category": "car", "box2d": box})
    frame = {"name": "a.jpg", "labels": labels}
    return "val", {"labels/det_20/det_val.json": [frame]}


def coco(edges):
    annotations = []
    for object_id, (x1, y1, x2, y2) in enumerate(edges):
        box = [x1, y1, x2 - x1, y2 - y1]
        annotations.append({"id": object_id, "image_id": 7, "category_id": 1, "bbox": box})
    content = {
        "images": [{"id": 7, "file_name": "a.jpg"}],
        "categories": [{"id": 1, "name": "car"}],
        "annotations": annotations,
    }
    return "val2017", {"annotations/instances_val2017.json": content}


def openimages(edges):
    rows = [
        f"a,/m/1,{x1 / WIDTH!r},{x2 / WIDTH!r},{y1 / HEIGHT!r},{y2 / HEIGHT!r}\n"
        for x1, y1, x2, y2 in edges
    ]
    header = "ImageID,LabelName,XMin,XMax,YMin,YMax\n"
    return "validation", {
        "validation-annotations-bbox.csv": header + "".join(rows),
        "class-descriptions-boxable.csv": "/m/1,Car\n",
        "validation/a.jpg": "",
    }


def yolo(edges):
    rows = []
    for x1, y1, x2, y2 in edges:
        centre = f"{(x1 + x2) / 2 / WIDTH!r} {(y1 + y2) / 2 / HEIGHT!r}"
        size = f"{(x2 - x1) / WIDTH!r} {(y2 - y1) / HEIGHT!r}"
        rows.append(f"0 {centre} {size}\n")
    return "val", {
        "data.yaml": "val: images\nnames: [car]\n",
        "images/a.jpg": "",
        "labels/a.txt": "".join(rows),
    }


x = st.floats(0, WIDTH - 1, width=32)
y = st.floats(0, HEIGHT - 1, width=32)


@pytest.mark.parametrize("write", [voc, bdd, coco, openimages, yolo])
@settings(
    drawn,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
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

"""Oriented boxes in datasets: the upright boxes around them are read, or they are refused."""

import math

import pytest
from numpy.testing import assert_allclose

from farther import datasets
from farther.errors import DataError
from farther.projects.exports import refuse_export

COCO = "annotations/instances_val2017.json"


def coco(*annotations):
    """A file of COCO with these objects."""
    objects = []
    for number, annotation in enumerate(annotations):
        objects.append({"id": number, "image_id": 1, "category_id": 1, **annotation})
    return {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "categories": [{"id": 1, "name": "ship"}],
        "annotations": objects,
    }


def read_coco(root):
    return datasets.create("coco", root=root).read("val2017")


def warned(annotations):
    """Kind and count of the warnings."""
    return [(warning.kind, warning.found) for warning in annotations.warnings]


def test_four_corners_and_rotations_of_cvat_become_the_boxes_around_them(lay):
    annotations = read_coco(
        lay(
            {
                COCO: coco(
                    {"bbox": [0, 0, 4, 2], "attributes": {"occluded": False, "rotation": 0.0}},
                    {"bbox": [5, 0, 10, 5, 5, 10, 0, 5]},
                    {"bbox": [7, 19, 6, 2], "attributes": {"rotation": 90.0}},
                )
            }
        )
    )
    assert_allclose(annotations.objects.box, [[0, 0, 4, 2], [0, 0, 10, 10], [9, 17, 11, 23]])
    assert warned(annotations) == [("oriented boxes", "2")]


@pytest.mark.parametrize("field", ["rotation", "theta", "angle", "angle_deg"])
def test_an_angle_beside_a_box_of_coco_is_refused(lay, field):
    root = lay({COCO: coco({"bbox": [0, 0, 4, 2], field: 0}, {"bbox": [0, 0, 4, 2], field: 1.5})})
    with pytest.raises(DataError, match=rf"annotations\[1\].*field '{field}': 1.5, an oriented"):
        read_coco(root)


def test_a_box_of_five_numbers_is_refused(lay):
    with pytest.raises(DataError, match="expected 4 numbers, an upright box; not an oriented"):
        read_coco(lay({COCO: coco({"bbox": [5, 5, 6, 2, 30]})}))


def voc(objects):
    """One image of VOC with these objects."""
    text = f"<annotation><filename>a.jpg</filename>{objects}</annotation>"
    return {
        "VOC2012/ImageSets/Main/train.txt": "a\n",
        "VOC2012/Annotations/a.xml": text,
        "VOC2012/JPEGImages/a.jpg": (40, 40),
    }


ROTATED = (
    "<object><type>robndbox</type><name>ship</name><robndbox><cx>10</cx><cy>20</cy><w>6</w>"
    f"<h>2</h><angle>{math.pi / 2}</angle></robndbox></object>"
)
OF_CVAT = (
    "<object><name>ship</name><bndbox><xmin>8</xmin><ymin>20</ymin><xmax>13</xmax><ymax>21</ymax>"
    "</bndbox><attributes><attribute><name>keyframe</name><value>x</value></attribute>"
    "<attribute><name>rotation</name><value>{}</value></attribute></attributes></object>"
)


def test_oriented_boxes_of_rolabelimg_and_cvat_become_the_boxes_around_them(lay):
    root = lay(voc(ROTATED + OF_CVAT.format("90.0") + OF_CVAT.format("0.0")))
    annotations = datasets.create("voc", root=root, categories=("ship",)).read("train")
    expected = [[9, 17, 11, 23], [9, 17, 11, 23], [7, 19, 13, 21]]
    assert_allclose(annotations.objects.box, expected)
    assert ("oriented boxes", "2") in warned(annotations)


def test_labels_of_dota_come_with_what_to_write(lay):
    lines = "imagesource:GoogleEarth\ngsd:0.14\n5.0 0.0 10.0 5.0 5.0 10.0 0.0 5.0 large-vehicle 0\n"
    root = lay({"images/a.jpg": (40, 40), "labelTxt/a.txt": lines})
    with pytest.raises(DataError, match="labels of DOTA, which is not read: write YOLO's labels"):
        refuse_export(root)


def test_four_corners_in_labels_of_yolo_become_the_box_around_them(lay):
    root = lay(
        {
            "data.yaml": "train: images/train\nnames: [ship]\n",
            "images/train/a.jpg": (40, 40),
            "labels/train/a.txt": "0 0.5 0.1 0.9 0.5 0.5 0.9 0.2 0.5\n",
        }
    )
    box = datasets.create("yolo", root=root).read("train").objects.box
    assert_allclose(box, [[0.2, 0.1, 0.9, 0.9]])

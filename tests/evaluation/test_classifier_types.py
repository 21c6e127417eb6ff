"""Section 2 of The Overlooked Elephant: each detector's kind of classifier."""

import pytest

from farther.evaluation.classifier_types import classifier_type
from farther.tables import Header

NAMES = ("cat", "dog", "no object")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"background_index": 2}, "multi-class with background"),  # Faster R-CNN, SSD, DETR
        ({"whole_images": True}, "multi-class without background"),  # an image classifier
        ({"activation": "sigmoid"}, "one vs. rest"),  # RetinaNet, YOLOv8
        # torchvision's RetinaNet has a column of the background, which no object trains, and no
        # softmax over it.
        ({"activation": "sigmoid", "background_index": 0}, "one vs. rest"),
        ({"activation": "exp"}, "one vs. rest"),
        (
            {"activation": "sigmoid", "detector": {"name": "onnx", "objectness": True}},
            "objectness-based",
        ),
    ],
)
def test_detectors_are_divided_by_their_logits_as_in_the_elephant_paper(facts, expected):
    header = Header(classes=NAMES, **facts)
    assert classifier_type(header, has_logits=True) == expected
    assert classifier_type(header, has_logits=False) == ""

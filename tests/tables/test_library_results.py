"""Results of other tasks than detection, labels in words, and last layers in their forms."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import supervision
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn
from ultralytics.engine.results import Results

from farther.errors import DataError
from farther.tables import Regions

NAMES = {0: "plane", 1: "ship"}
PICTURE = np.zeros((30, 40, 3), np.uint8)
BOXES = torch.tensor([[1.0, 2.0, 11.0, 22.0, 0.9, 1]])


def test_oriented_boxes_of_ultralytics_become_the_upright_ones_around_them():
    # Centre, size, and an angle in radians: a box of 12 × 4 that stands upright.
    oriented = torch.tensor([[20.0, 15.0, 12.0, 4.0, math.pi / 2, 0.75, 1]])
    regions = Regions.from_ultralytics([Results(PICTURE, "a.jpg", NAMES, obb=oriented)])
    assert_allclose(regions.box, [[18, 9, 22, 21]], atol=1e-4)
    assert (regions.score.tolist(), regions.label.tolist()) == ([0.75], [1])


def test_corners_of_oriented_boxes_are_enough():
    corners = torch.tensor([[[5.0, 0.0], [10.0, 5.0], [5.0, 10.0], [0.0, 5.0]]])
    oriented = SimpleNamespace(xyxyxyxy=corners, conf=torch.tensor([0.5]), cls=torch.tensor([0.0]))
    result = SimpleNamespace(boxes=None, obb=oriented, names=NAMES, path="a.jpg")
    assert Regions.from_ultralytics(result).box.tolist() == [[0, 0, 10, 10]]


@pytest.mark.parametrize("more", ["masks", "keypoints"])
def test_masks_and_key_points_leave_the_boxes_as_they_are(more):
    values = {"masks": torch.ones(1, 30, 40), "keypoints": torch.rand(1, 17, 3)}
    result = Results(PICTURE, "a.jpg", NAMES, boxes=BOXES, **{more: values[more]})
    assert_allclose(Regions.from_ultralytics([result]).box, BOXES[:, :4])


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (Results(PICTURE, "a.jpg", NAMES, probs=torch.tensor([0.2, 0.8])), "of classification"),
        (Results(PICTURE, "a.jpg", NAMES), "expected results with boxes of Ultralytics, found Res"),
        (SimpleNamespace(boxes=torch.zeros(2, 6), names=NAMES), r"field 'xyxy': .*\(Tensor\)"),
        ({"boxes": []}, "found dict"),
        (None, "found NoneType"),
    ],
)
def test_results_without_boxes_are_refused_with_what_they_are(result, reason):
    with pytest.raises(DataError, match=reason):
        Regions.from_ultralytics([result])


@pytest.mark.parametrize("labels", [["ship", "plane"], np.array(["ship", "plane"]), ("ship",) * 2])
def test_labels_may_be_words(labels):
    output = {"boxes": torch.rand(2, 4).cumsum(1), "scores": torch.rand(2), "labels": labels}
    regions = Regions.from_transformers([output], ["a"], NAMES)
    assert [regions.classes[label] for label in regions.label] == list(labels)
    regions = Regions.from_torchvision([output], ["a"], ["__background__", "plane", "ship"])
    assert [regions.classes[label] for label in regions.label] == list(labels)


def test_a_word_that_is_no_class_is_named():
    output = {"boxes": torch.rand(1, 4).cumsum(1), "scores": [0.5], "labels": ["a red ship"]}
    with pytest.raises(DataError, match="label 'a red ship' is not among the classes: 'plane'"):
        Regions.from_transformers([output], ["a"], NAMES)


def test_detections_of_supervision_with_masks_and_corners_keep_their_boxes():
    detections = supervision.Detections(
        xyxy=BOXES[:, :4].numpy(),
        confidence=np.array([0.5]),
        class_id=np.array([1]),
        mask=np.ones((1, 30, 40), bool),
        data={"xyxyxyxy": np.zeros((1, 4, 2))},
    )
    regions = Regions.from_supervision([detections], ["a"], ["plane", "ship"])
    assert_allclose(regions.box, BOXES[:, :4])


LAYER = nn.Linear(4, 3, bias=False)
BIASED = nn.Linear(4, 3)


@pytest.mark.parametrize(
    "last_layer",
    [
        LAYER,
        (LAYER.weight, LAYER.bias),
        (LAYER.weight, None),
        [LAYER.weight.detach().numpy(), torch.zeros(3)],
        LAYER.state_dict(),
    ],
)
def test_a_last_layer_without_a_bias_has_zeros(last_layer):
    regions = Regions.from_arrays(torch.rand(5, 3), torch.rand(5, 4), last_layer=last_layer)
    assert_array_equal(regions.weight, LAYER.weight.detach())
    assert_array_equal(regions.bias, np.zeros(3))


def test_a_last_layer_with_a_bias_keeps_it():
    regions = Regions.from_arrays(torch.rand(5, 3), torch.rand(5, 4), last_layer=BIASED)
    assert_array_equal(regions.bias, BIASED.bias.detach())


@pytest.mark.parametrize("last_layer", [nn.ReLU(), LAYER.weight, (LAYER.weight,), "fc", {}])
def test_what_is_no_last_layer_is_refused(last_layer):
    with pytest.raises(DataError, match="expected a linear layer, or its weight and bias, found"):
        Regions.from_arrays(torch.rand(5, 3), torch.rand(5, 4), last_layer=last_layer)

"""Weights that training starts from."""

import pytest
import torch
from torchvision.models import resnet50

from farther.detectors.networks.architectures import Blueprint, build_network
from farther.errors import DataError, ParameterError
from farther_training.trainers.faster_rcnn import initial_weights

CLASSES = ("square", "disc")
RESNET = Blueprint("resnet50_fpn", CLASSES, 64, 64)


def test_a_classifiers_weights_become_the_backbone(tmp_path):
    torch.manual_seed(3)
    classifier = resnet50().state_dict()
    torch.save(classifier, tmp_path / "resnet50.pth")
    found = initial_weights(tmp_path / "resnet50.pth", RESNET)
    torch.testing.assert_close(found["backbone.body.layer4.2.conv3.weight"], classifier["layer4.2.conv3.weight"])
    assert not any(name.startswith(("rpn.", "roi_heads.", "backbone.fpn.")) for name in found)


def test_a_detector_for_other_classes_gives_all_but_its_last_layers(tmp_path):
    other = build_network(Blueprint("small", ("a", "b", "c"), 64, 64)).state_dict()
    torch.save(other, tmp_path / "other.pt")
    found = initial_weights(tmp_path / "other.pt", Blueprint("small", CLASSES, 64, 64))
    assert set(other) - set(found) == {
        f"roi_heads.box_predictor.{layer}.{part}" for layer in ("cls_score", "bbox_pred") for part in ("weight", "bias")
    }


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save({"layer.weight": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(DataError, match="does not contain the backbone of 'resnet50_fpn'"):
        initial_weights(tmp_path / "other.pt", RESNET)


def test_a_network_with_frozen_layers_must_start_from_weights():
    with pytest.raises(ParameterError, match="parameter 'initial_weights': its first layers are frozen"):
        initial_weights(None, RESNET)

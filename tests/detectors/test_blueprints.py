"""Descriptions of networks in the metadata of farther's checkpoints."""

from dataclasses import replace

import pytest
import torch

from farther.detectors.networks.architectures import FasterRCNNBlueprint, save_checkpoint
from farther.detectors.networks.retinanet import RetinaNetBlueprint, save_retinanet
from farther.errors import DataError

FASTER_RCNN = FasterRCNNBlueprint("small", ("cat", "dog"), 96, 128)
RETINANET = RetinaNetBlueprint("small", ("cat", "dog"), 96, 128)
STATE = {"weight": torch.zeros(1)}


@pytest.mark.parametrize(
    ("blueprint", "save"), [(FASTER_RCNN, save_checkpoint), (RETINANET, save_retinanet)]
)
def test_a_blueprint_is_read_as_it_was_written(blueprint, save, tmp_path):
    save(tmp_path / "a.safetensors", STATE, blueprint, {"recipe": "none"})
    assert type(blueprint).read(tmp_path / "a.safetensors") == blueprint


def test_a_checkpoint_of_another_kind_of_network_is_refused(tmp_path):
    save_checkpoint(tmp_path / "a.safetensors", STATE, FASTER_RCNN)
    with pytest.raises(DataError, match=r"expected 'farther\.retinanet', found"):
        RetinaNetBlueprint.read(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("classes", (), "expected a list of names"),
        ("classes", ("cat", "cat"), "a class is listed twice"),
        ("min_size", 0, "expected a number of pixels"),
        ("max_size", True, "expected a number of pixels"),
    ],
)
def test_a_wrong_field_is_named(name, value, message, tmp_path):
    save_checkpoint(tmp_path / "a.safetensors", STATE, replace(FASTER_RCNN, **{name: value}))
    with pytest.raises(DataError, match=message) as error:
        FasterRCNNBlueprint.read(tmp_path / "a.safetensors")
    assert error.value.field == name

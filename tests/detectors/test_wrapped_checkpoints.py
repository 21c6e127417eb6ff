"""Checkpoints of networks within DataParallel, torch.compile, Lightning's modules and averages."""

import copy
import shutil

import pytest
import torch
from numpy.testing import assert_array_equal
from safetensors.torch import load_file, save_file
from tests.detectors.test_detectron2 import without_values
from tests.detectors.test_detr import save_folder
from tests.detectors.test_open_vocabulary import CLASSES as PROMPTS
from tests.detectors.test_open_vocabulary import write_folder
from tests.detectors.test_torchvision_builders import create, without_memory
from tests.detectors.test_transformers_classifier import save
from tests.detectors.test_yolo import ultralytics_file, untrained
from tests.detectors.torchvision_models import model
from tests.projects.files import coco, picture
from tests.support.rfdetr import content, state_of_rfdetr
from torch import nn
from torchvision import models

from farther import detectors
from farther.detectors.networks.architectures import layout_of
from farther.detectors.networks.rfdetr_import import read_rfdetr
from farther.detectors.networks.torchvision_recognition import recognise_state_dict
from farther.detectors.networks.weights import read_weights, unwrapped
from farther.errors import DataError
from farther.projects import recognise

PREFIXES = ("module.", "_orig_mod.", "model.", "module._orig_mod.model.", "my.detector.")
MOBILE = "fasterrcnn_mobilenet_v3_large_320_fpn"


def within(prefix, state):
    """A state dict with a prefix before each name."""
    return {prefix + name: tensor for name, tensor in state.items()}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_prefix_of_a_wrapper_is_removed(prefix):
    state = {"body.weight": 1, "head.weight": 2}
    assert unwrapped("a.pth", within(prefix, state), state) == state
    assert unwrapped("a.pth", within(prefix, state), ["head.weight"]) == state


def test_a_prefix_that_the_network_itself_has_stays():
    state = {"model.body.weight": 1, "model.head.weight": 2, "class_head.weight": 3}
    assert unwrapped("a.pth", state, state) == state
    assert unwrapped("a.pth", within("model.", state), state) == state


def test_a_submodule_that_was_compiled_has_its_own_name():
    stored = {"backbone._orig_mod.weight": 1, "head._fsdp_wrapped_module.weight": 2}
    own = {"backbone.weight": 1, "head.weight": 2}
    assert unwrapped("a.pth", stored, own) == own


def test_weights_beside_the_network_are_left_out():
    stored = {"model.head.weight": 1, "criterion.head_weight": 2, "n_averaged": 3}
    assert unwrapped("a.pth", stored, ["head.weight"]) == {"head.weight": 1}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_weights_beside_a_wrapped_network_are_left_out_whatever_the_wrapper(prefix):
    state = {"body.weight": 1, "head.weight": 2}
    beside = {"ema_decay": 3, "optimizer.head.step": 4, "n_averaged": 5}
    assert unwrapped("a.pth", {**beside, **within(prefix, state)}, state) == state


@pytest.mark.parametrize("prefix", PREFIXES)
def test_weights_of_the_wrapped_network_that_are_not_expected_stay_to_be_named(prefix):
    state = {"body.weight": 1, "head.weight": 2, "ema_head.weight": 3}
    assert unwrapped("a.pth", within(prefix, state), ["body.weight", "head.weight"]) == state


def test_an_average_beside_a_compiled_network_is_not_taken_for_it():
    state = {"body.weight": 1, "head.weight": 2}
    with pytest.raises(DataError, match=r"several networks: under '_orig_mod\.', 'ema\.'"):
        unwrapped("a.pth", {**within("_orig_mod.", state), **within("ema.", state)}, state)
    with pytest.raises(DataError, match=r"'body\.weight' twice, with and without .* a wrapper"):
        unwrapped("a.pth", {**within("_orig_mod.", state), **state}, state)


def test_weights_of_another_network_keep_their_names():
    stored = {"module.other.weight": 1}
    assert unwrapped("a.pth", stored, ["head.weight"]) == stored


def test_two_copies_of_a_network_are_refused():
    stored = {"model.head.weight": 1, "ema.head.weight": 2}
    with pytest.raises(DataError, match=r"several networks: under 'ema\.', 'model\.'"):
        unwrapped("a.pth", stored, ["head.weight"])


@pytest.mark.parametrize(
    "around",
    [
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"ema": {"module": state, "updates": 7}, "epoch": 3},
        lambda state: {"model_ema": {**within("module.", state), "n_averaged": torch.tensor(1)}},
        lambda state: {"model": {"state_dict": state}},
        lambda state: {"model": state, "model_ema": {"a": torch.ones(1)}},
    ],
)
def test_a_state_dict_within_dictionaries_is_found(around, tmp_path):
    torch.save(around({"head.weight": torch.tensor([5.0])}), tmp_path / "a.pth")
    assert read_weights(tmp_path / "a.pth", ["head.weight"])["head.weight"].tolist() == [5]


@pytest.fixture
def pets(tmp_path):
    """An ID dataset of two classes."""
    root = tmp_path / "pets"
    picture(root / "train/a.jpg")
    coco(root / "train/_annotations.coco.json", "a.jpg")
    return recognise(root)


@pytest.fixture(scope="module")
def mobile():
    return model(MOBILE).state_dict()


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_detector_of_torchvision_is_read(prefix, mobile, tmp_path):
    torch.save({"state_dict": within(prefix, mobile)}, tmp_path / "wrapped.ckpt")
    torch.save(mobile, tmp_path / "plain.pth")
    header = create(MOBILE, tmp_path / "wrapped.ckpt").header()
    assert_array_equal(header.weight, create(MOBILE, tmp_path / "plain.pth").header().weight)


@pytest.mark.parametrize(
    ("case", "adapter"),
    [
        ("retinanet_resnet50_fpn", "retinanet"),
        ("fcos_resnet50_fpn", "fcos"),
        ("ssd300_vgg16", "ssd"),
        ("ssdlite320_mobilenet_v3_large", "ssd"),
        ("maskrcnn_resnet50_fpn", "mask_rcnn"),
    ],
)
def test_init_recognises_each_family_of_torchvision(case, adapter, pets, tmp_path):
    stored = within("module._orig_mod.model.", without_memory(case, 3))
    torch.save(stored, tmp_path / "wrapped.pth")
    recognised = recognise_state_dict(tmp_path / "wrapped.pth", pets)
    assert recognised.adapter == adapter
    assert recognised.params["classes"] == ["cat", "dog"]
    assert "left out" not in recognised.assumed


def test_init_counts_what_is_not_of_the_network(pets, tmp_path):
    state = without_memory(MOBILE, 3)
    stored = {**within("model.", state), "criterion.bias": torch.ones(1)}
    torch.save({"state_dict": stored}, tmp_path / "last.ckpt")
    recognised = recognise_state_dict(tmp_path / "last.ckpt", pets)
    assert f"1 of {len(state) + 1} tensors are not of the network" in recognised.assumed


def test_init_recognises_a_classifier(pets, tmp_path):
    state = models.resnet18(num_classes=2).state_dict()
    stored = {**within("module.backbone.", state), "loss.weight": torch.ones(2)}
    torch.save({"state_dict": stored}, tmp_path / "last.ckpt")
    recognised = recognise_state_dict(tmp_path / "last.ckpt", pets)
    assert recognised.params["architecture"] == "resnet18"
    detector = detectors.create(
        "classifier", weights=tmp_path / "last.ckpt", device="cpu", **recognised.params
    )
    assert_array_equal(detector.header().weight, state["fc.weight"])


@pytest.mark.slow
def test_init_refuses_a_classifier_and_its_average_in_one_state_dict(pets, tmp_path):
    state = models.resnet18(num_classes=2).state_dict()
    torch.save({**within("model.", state), **within("ema.", state)}, tmp_path / "both.pth")
    with pytest.raises(DataError, match="several networks"):
        recognise_state_dict(tmp_path / "both.pth", pets)


@pytest.mark.parametrize("prefix", ["module.", "model._orig_mod."])
def test_the_layout_of_detectron2_is_recognised(prefix, tmp_path):
    state = {name: torch.zeros(tensor.shape) for name, tensor in without_values(4).items()}
    small = {name: tensor[:1] for name, tensor in state.items()}
    torch.save({"model": within(prefix, small)}, tmp_path / "model_final.pth")
    assert layout_of(tmp_path / "model_final.pth") == "detectron2"


@pytest.mark.parametrize("prefix", ["model.", "module.model."])
def test_a_network_of_transformers_keeps_its_own_prefix(prefix, tmp_path):
    folder = save_folder(tmp_path / "plain", "rt_detr")
    state = load_file(folder / "model.safetensors")
    assert any(name.startswith("model.") for name in state)
    torch.save({"state_dict": within(prefix, state)}, tmp_path / "last.ckpt")
    options = {"weights": tmp_path / "last.ckpt", "config": folder, "device": "cpu"}
    expected = detectors.create("detr", weights=folder, device="cpu").header()
    assert_array_equal(detectors.create("detr", **options).header().weight, expected.weight)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module.", "model.", "lit.model."])
def test_a_checkpoint_of_rfdetr_is_read(prefix, tmp_path):
    state = state_of_rfdetr()
    torch.save(content(state, model=within(prefix, state)), tmp_path / "checkpoint.pth")
    assert read_rfdetr(tmp_path / "checkpoint.pth").weights.keys() <= state.keys()


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module."])
def test_a_folder_of_transformers_that_was_saved_compiled_is_read(prefix, tmp_path):
    network = save(tmp_path / "vit", "vit")
    wrap_safetensors(tmp_path / "vit", prefix)
    detector = detectors.create("transformers_classifier", weights=tmp_path / "vit", device="cpu")
    assert_array_equal(detector.header().weight, network.classifier.weight.detach())


def test_an_open_vocabulary_that_was_saved_compiled_is_read(tmp_path):
    folder = write_folder(tmp_path / "plain", "owlv2")
    wrapped = shutil.copytree(folder, tmp_path / "wrapped")
    wrap_safetensors(wrapped, "_orig_mod.")
    states = []
    for path in (folder, wrapped):
        detector = detectors.create("open_vocabulary", weights=path, classes=PROMPTS, device="cpu")
        states.append(detector.load_network() or detector.network)
    first, second = (state_of(network) for network in states)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def state_of(network):
    """The state dict of a detector's network."""
    return getattr(network, "network", network).state_dict()


def wrap_safetensors(folder, prefix):
    """Writes the weights of a folder again, with a prefix."""
    file = folder / "model.safetensors"
    save_file(within(prefix, load_file(file)), file, {"format": "pt"})


def test_a_network_of_ultralytics_within_dataparallel_is_read(tmp_path):
    network = untrained("yolov8n")
    plain = ultralytics_file(network, tmp_path / "plain.pt")
    wrapped = tmp_path / "wrapped.pt"
    stored = {"model": nn.DataParallel(copy.deepcopy(network).half()), "ema": None}
    torch.save(stored | {"train_args": {"imgsz": 96}}, wrapped)
    first, second = (
        detectors.create("yolo", weights=path, device="cpu").header() for path in (plain, wrapped)
    )
    assert first.classes == second.classes

"""The pass `rankfeat`, compared with pytorch-ood's and with a singular value decomposition."""

import numpy as np
import pytest
import torch
import torchvision
from numpy.testing import assert_allclose, assert_array_equal
from pytorch_ood.detector import RankFeat as Peer
from tests.detectors.demo import DEMO, IDS, passed
from torch import nn

from farther import detectors, methods
from farther.detectors.classifier import ClassifierBlueprint, OpenOODResNet, save_checkpoint
from farther.detectors.passes.rankfeat import last_blocks, without_rank_one
from farther.errors import ParameterError

NORM = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}


def by_decomposition(maps):
    u, s, v = torch.linalg.svd(maps.flatten(2).double(), full_matrices=False)
    s[:, 0] = 0
    return (u @ torch.diag_embed(s) @ v).reshape(maps.shape).float()


def removed(detector, images, **params):
    return passed("rankfeat", detector, images, **params)


@pytest.mark.parametrize("shape", [(2, 5, 3, 3), (2, 20, 4, 3), (1, 4, 1, 1)])
def test_the_part_of_the_largest_singular_value_is_removed(shape):
    maps = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert_allclose(without_rank_one(maps), by_decomposition(maps), atol=1e-6)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    torch.manual_seed(3)
    network = OpenOODResNet((6, 8, 10, 12), (1, 1, 1, 1), 4).eval()
    nn.init.normal_(network.fc.weight, std=20)
    path = tmp_path_factory.mktemp("classifier") / "network.safetensors"
    preprocessing = {"resize": 32, "crop": 32, "interpolation": "bilinear", **NORM}
    blueprint = ClassifierBlueprint("openood_resnet", ("a", "b", "c", "d"), preprocessing)
    save_checkpoint(path, network.state_dict(), blueprint)
    return detectors.create("classifier", weights=path, device="cpu")


@pytest.fixture(scope="module")
def images():
    return list(np.random.default_rng(0).integers(0, 256, (3, 32, 40, 3), np.uint8))


@torch.inference_mode()
def halves(detector, images, stage):
    """Maps of a stage, and the function from maps of that stage to logits."""
    network = detector.network.network
    outputs = []
    module = network.get_submodule(f"layer{stage}")
    hook = module.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    network(detector.network.inputs([detector.prepare(image) for image in images]))
    hook.remove()
    later_stages = [network.get_submodule(f"layer{number}") for number in range(stage + 1, 5)]

    def head(maps):
        for later_stage in later_stages:
            maps = later_stage(maps)
        return network.fc(maps.mean((2, 3)))

    return outputs[0], head


@pytest.mark.parametrize("stage", [4, 3])
def test_the_energy_after_it_is_pytorch_oods_rankfeat(classifier, images, stage):
    maps, head = halves(classifier, images, stage)
    expected = -Peer(lambda x: x, head).predict_feature_maps(maps)
    regions = removed(classifier, images, layers=[f"layer{stage}"])
    assert_allclose(methods.create("energy").score(regions), expected, rtol=1e-4)


def test_logits_and_features_of_several_blocks_are_averaged(classifier, images):
    logits = []
    with torch.inference_mode():
        for stage in (4, 3):
            maps, head = halves(classifier, images, stage)
            logits.append(head(by_decomposition(maps)))
    own = classifier.detect(images, IDS)
    regions = removed(classifier, images, layers=["layer4", "layer3"])
    assert_allclose(regions.logits, sum(logits) / 2, rtol=1e-4, atol=1e-5)
    assert_allclose(
        regions.features @ regions.weight.T + regions.bias, regions.logits, rtol=1e-4, atol=1e-4
    )
    assert_array_equal(regions.label, own.label)
    assert np.abs(regions.logits - own.logits).max() > 0.1
    # The network is unchanged afterwards.
    assert_array_equal(classifier.detect(images, IDS).logits, own.logits)
    # These layers are the default.
    assert_array_equal(removed(classifier, images).logits, regions.logits)


def test_boxes_of_faster_rcnn_lose_the_rank_one_part_of_their_pooled_maps():
    detector = detectors.create(
        "faster_rcnn",
        weights=DEMO / "voc-faster_rcnn.safetensors",
        score_threshold=0.02,
        device="cpu",
    )
    scenes = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        scenes.append(rng.integers(0, 256, (120, 160, 3), np.uint8))
    heads = detector.network.roi_heads
    calls = []
    hook = heads.box_head.register_forward_hook(
        lambda _module, inputs, output: calls.append((inputs[0], output))
    )
    own = detector.detect(scenes, IDS[:2])
    hook.remove()
    ((pooled, features),) = calls
    proposals = np.abs(own.features[:, None] - features.numpy()).max(axis=2).argmin(axis=1)
    with torch.inference_mode():
        logits, _ = heads.box_predictor(heads.box_head(by_decomposition(pooled)))
    expected = logits.numpy()[proposals]
    regions = removed(detector, scenes)
    assert len(own) > 3
    assert_array_equal(regions.box, own.box)
    assert_allclose(regions.logits, expected, rtol=1e-3, atol=1e-4)
    assert np.abs(regions.logits - own.logits).max() > 0.1


def test_modules_that_cannot_be_changed_are_refused_by_name(classifier, images):
    with pytest.raises(
        ParameterError, match="parameter 'layers': the network has no module 'layer9'"
    ):
        removed(classifier, images, layers=["layer9"])
    with pytest.raises(ParameterError, match=r"parameter 'layers': the output of 'fc' is \(3, 4\)"):
        removed(classifier, images, layers=["fc"])
    with pytest.raises(
        ParameterError, match=r"no module 'roi_heads\.box_roi_pool'\. Some are conv1"
    ):
        removed(classifier, images, layers=["roi_heads.box_roi_pool"])


@pytest.mark.parametrize(
    ("name", "params", "blocks"),
    [
        ("resnet18", {}, ("layer4", "layer3")),
        ("densenet121", {}, ("features.denseblock4", "features.transition3")),
        ("mobilenet_v3_small", {}, ("features.12", "features.11")),
        ("googlenet", {"init_weights": False}, ("inception5b", "inception5a")),
    ],
)
def test_the_last_two_blocks_are_those_before_the_head(name, params, blocks):
    with torch.device("meta"):
        assert last_blocks(torchvision.models.get_model(name, **params)) == blocks


def test_a_network_without_blocks_asks_for_modules():
    with pytest.raises(
        ParameterError, match=r"parameter 'layers': Sequential has no two blocks.* name modules"
    ):
        last_blocks(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)))

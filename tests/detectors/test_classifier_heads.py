"""Classifiers with a head of their own: OpenOOD's checkpoints, columns, and steps of the image."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import expit, softmax
from torch import nn
from torchvision import models

from farther import methods
from farther.detectors.classifier import (
    Classifier,
    ClassifierBlueprint,
    OpenOODResNet,
    save_checkpoint,
)
from farther.detectors.networks.classifier_heads import ConfidenceHead, GOdinHead
from farther.detectors.passes.perturb import Perturb
from farther.errors import DataError, ParameterError

CLASSES = ("red", "green", "blue")
SHAPE = ((6, 8, 10), (1, 1, 1))
STD = (0.2, 0.3, 0.4)
PREPROCESSING = {
    "resize": 16,
    "crop": 16,
    "interpolation": "bilinear",
    "mean": (0.5, 0.4, 0.3),
    "std": STD,
}
#: What a PyTorch file does not say.
PARAMS = {"architecture": "openood_resnet", "classes": CLASSES, "device": "cpu", **PREPROCESSING}


def images(count=3):
    return list(np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), np.uint8))


def openood_checkpoint(kind, path, similarity="cosine"):
    """Writes a state dict with OpenOOD's names; returns the backbone and the head's layers."""
    torch.manual_seed(2)
    backbone = OpenOODResNet(*SHAPE, len(CLASSES))
    width = backbone.fc.in_features
    state = {f"backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
    if kind == "ConfBranchNet":
        head = nn.ModuleDict(
            {"fc": nn.Linear(width, len(CLASSES)), "confidence": nn.Linear(width, 1)}
        )
    else:
        state = {
            name: tensor for name, tensor in state.items() if not name.startswith("backbone.fc.")
        }
        g = nn.Sequential(nn.Linear(width, 1), nn.BatchNorm1d(1), nn.Sigmoid())
        h = nn.Linear(width, len(CLASSES), bias=similarity == "inner")
        head = nn.ModuleDict({"h": nn.ModuleDict({"h": h}), "g": g})
    torch.save({**state, **head.state_dict()}, path)
    backbone.fc = nn.Identity()
    return backbone.eval(), head.eval()


def inputs(detector):
    return detector.network.inputs([detector.prepare(image) for image in images()])


def test_a_confidence_branch_of_openood_is_read(tmp_path):
    backbone, head = openood_checkpoint("ConfBranchNet", tmp_path / "best.ckpt")
    detector = Classifier(weights=tmp_path / "best.ckpt", **PARAMS)
    regions = detector.detect(images())
    with torch.no_grad():
        features = backbone(inputs(detector))
        logits, confidence = head["fc"](features), head["confidence"](features)
    assert_allclose(regions.logits, logits.numpy(), atol=1e-5)
    assert_allclose(regions.array("latent.confidence"), confidence.numpy(), atol=1e-5)
    assert_allclose(
        methods.create("conf_branch").score(regions), expit(confidence[:, 0].numpy()), rtol=1e-5
    )
    assert_allclose(
        regions.features @ regions.header.weight.T + regions.header.bias, regions.logits, atol=1e-5
    )


@pytest.mark.parametrize("similarity", ["inner", "euclidean", "cosine"])
def test_g_odin_of_openood_is_read(tmp_path, similarity):
    backbone, head = openood_checkpoint("GodinNet", tmp_path / "best.ckpt", similarity)
    detector = Classifier(weights=tmp_path / "best.ckpt", similarity=similarity, **PARAMS)
    regions = detector.detect(images())
    with torch.no_grad():
        features = backbone(inputs(detector))
        g = head["g"](features).numpy()
        weight = head["h"]["h"].weight.numpy()
    x = features.numpy()
    if similarity == "inner":
        h = x @ weight.T + head["h"]["h"].bias.detach().numpy()
    elif similarity == "euclidean":
        h = -((x[:, None] - weight) ** 2).mean(axis=2)
    else:
        unit = [v / (np.linalg.norm(v, axis=1, keepdims=True) + 1e-4) for v in (x, weight)]
        h = unit[0] @ unit[1].T
    assert_allclose(regions.array("latent.numerator"), h, rtol=1e-4, atol=1e-6)
    assert_allclose(regions.array("latent.denominator"), g, rtol=1e-4)
    assert_allclose(regions.logits, h / g, rtol=1e-4, atol=1e-6)
    assert regions.features is None
    published = methods.create("g_odin", protocol="published-code").score(regions)
    assert_allclose(published, softmax(h, axis=1).max(axis=1), rtol=1e-4)


def test_a_network_of_torchvision_may_have_a_confidence_branch(tmp_path):
    network = models.resnet18(num_classes=3)
    width = network.fc.in_features
    network.fc = nn.Identity()
    state = {f"backbone.{name}": tensor for name, tensor in network.state_dict().items()}
    head = nn.ModuleDict({"fc": nn.Linear(width, 3), "confidence": nn.Linear(width, 1)})
    torch.save({**state, **head.state_dict()}, tmp_path / "best.ckpt")
    params = {**PARAMS, "architecture": "ResNet18_224x224", "resize": 32, "crop": 32}
    regions = Classifier(weights=tmp_path / "best.ckpt", **params).detect(images(1))
    assert regions.array("latent.confidence").shape == (1, 1)


def test_a_similarity_that_the_file_does_not_tell_is_asked_for(tmp_path):
    openood_checkpoint("GodinNet", tmp_path / "best.ckpt", "euclidean")
    with pytest.raises(
        ParameterError,
        match=r"give the parameter 'similarity'; .*best\.ckpt: .*: euclidean, cosine",
    ):
        Classifier(weights=tmp_path / "best.ckpt", **PARAMS).header()


def test_a_similarity_that_contradicts_the_file_is_refused(tmp_path):
    openood_checkpoint("GodinNet", tmp_path / "best.ckpt", "inner")
    with pytest.raises(
        DataError, match="field 'similarity': a numerator with a bias is not that of 'cosine'"
    ):
        Classifier(weights=tmp_path / "best.ckpt", similarity="cosine", **PARAMS).header()
    openood_checkpoint("GodinNet", tmp_path / "other.ckpt", "cosine")
    with pytest.raises(
        DataError, match="field 'similarity': a numerator without a bias is not that of 'inner'"
    ):
        Classifier(weights=tmp_path / "other.ckpt", similarity="inner", **PARAMS).header()


def test_a_method_says_what_a_usual_classifier_lacks(tmp_path):
    network = OpenOODResNet(*SHAPE, len(CLASSES))
    plan = ClassifierBlueprint("openood_resnet", CLASSES, PREPROCESSING)
    save_checkpoint(tmp_path / "it.safetensors", network.state_dict(), plan)
    regions = Classifier(weights=tmp_path / "it.safetensors", device="cpu").detect(images())
    assert methods.create("conf_branch").missing(regions) == ["latent.confidence"]
    assert methods.create("g_odin").missing(regions) == ["latent.numerator"]
    assert methods.create("g_odin", output="denominator").missing(regions) == ["latent.denominator"]


# ------------------------------------------------------------------------------------------- steps
# of the image


def saved(head, folder, similarity=None):
    """A detector whose network has this head, in farther's own layout."""
    torch.manual_seed(4)
    network = OpenOODResNet(*SHAPE, len(CLASSES))
    network.fc = head(network.fc.in_features, len(CLASSES), *([similarity] if similarity else []))
    plan = ClassifierBlueprint("openood_resnet", CLASSES, PREPROCESSING, similarity)
    save_checkpoint(folder / "it.safetensors", network.state_dict(), plan)
    return Classifier(weights=folder / "it.safetensors", device="cpu")


def after_step(detector, **params):
    prepared = [detector.prepare(image) for image in images()]
    return Perturb(**params).forward(detector, prepared, ["a", "b", "c"])


def test_the_step_of_g_odin_climbs_the_largest_numerator(tmp_path):
    """x' = x + ε sign(∇ max_c h_c(x)) / σ, computed here from the network itself."""
    detector = saved(GOdinHead, tmp_path, "cosine")
    after = after_step(detector, loss="numerator", epsilon=0.002)
    network, captured = detector.network.network, []
    hook = network.fc.numerator.register_forward_hook(
        lambda _m, _x, output: captured.append(output)
    )
    pixels = inputs(detector).requires_grad_()
    network(pixels)
    (gradient,) = torch.autograd.grad(captured[0].amax(1).sum(), pixels)
    with torch.no_grad():
        network(pixels + 0.002 / torch.tensor(STD)[:, None, None] * gradient.sign())
    hook.remove()
    assert_allclose(after.array("latent.numerator"), captured[1].numpy(), rtol=1e-4, atol=1e-6)
    before = methods.create("g_odin").score(detector.detect(images()))
    assert (methods.create("g_odin").score(after) > before).all()


def test_the_step_of_a_confidence_branch_raises_the_confidence(tmp_path):
    detector = saved(ConfidenceHead, tmp_path)
    method = methods.create("conf_branch")
    before = method.score(detector.detect(images()))
    assert (method.score(after_step(detector, loss="confidence", epsilon=0.001)) > before).all()


def test_a_step_towards_an_output_that_is_not_there_is_refused(tmp_path):
    detector = saved(ConfidenceHead, tmp_path)
    with pytest.raises(
        ParameterError, match=r"loss 'numerator' needs the output `latent\.numerator`, which"
    ):
        after_step(detector, loss="numerator")

"""Training of RetinaNet: what is learned, its losses, and the checkpoint that the adapter opens."""

import numpy as np
import pytest
import torch
from tests.training.tiny import CLASSES, CPU, assert_log_adds_up, task
from torchvision.models import resnet50
from torchvision.models.detection import retinanet_resnet50_fpn

from farther import methods
from farther.detectors.dense import RetinaNet
from farther.detectors.networks.retinanet import RetinaNetBlueprint, build_retinanet
from farther.errors import DataError, ParameterError
from farther_training.detection import fitting_weights
from farther_training.recipe import RetinaNetRecipe
from farther_training.trainers.retinanet import RetinaNetJob, evaluate, losses, train

PLAN = RetinaNetBlueprint("small", CLASSES, 64, 64)
RESNET = RetinaNetBlueprint("resnet50_fpn", CLASSES, 64, 64)


def recipe(**changes):
    short = {
        "epochs": 2,
        "batch_size": 4,
        "optimizer": "adamw",
        "learning_rate": 0.003,
        "warmup_steps": 2,
    }
    return RetinaNetRecipe(
        **{**short, "workers": 0, "cache_images": True, "checkpoint_steps": 1, **changes}
    )


def job(folder, **changes):
    named = {
        "dataset": "shapes",
        "weights": folder / "net.safetensors",
        "architecture": "small",
        "device": "cpu",
    }
    return RetinaNetJob(**{**named, "min_size": 64, "max_size": 64, "recipe": recipe(), **changes})


@pytest.mark.slow
def test_shapes_on_noise_are_learned(tmp_path, samples):
    how = recipe(epochs=10, batch_size=8, average=0.8, evaluate_epochs=10)
    network = train(PLAN, task(tmp_path, samples), how)
    assert evaluate(network, samples, how)["ap50"] > 0.6


def test_the_log_adds_up(tmp_path, samples):
    train(PLAN, task(tmp_path, samples), recipe(epochs=3, evaluate_epochs=2))
    assert_log_adds_up(tmp_path, ("loss_classifier", "loss_boxes"))


def test_losses_are_those_of_torchvision(samples):
    torch.manual_seed(0)
    network = build_retinanet(PLAN).train()
    batch = [samples[row] for row in range(2)]
    found = losses(network, batch, recipe())
    images = [torch.from_numpy(sample.pixels).permute(2, 0, 1).float() / 255 for sample in batch]
    targets = [
        {"boxes": torch.from_numpy(s.boxes), "labels": torch.from_numpy(s.labels)} for s in batch
    ]
    expected = network(images, targets)
    # Normalisations over the batch give the same output twice in training mode.
    assert found["loss_classifier"].item() == pytest.approx(
        expected["classification"].item(), rel=1e-4
    )
    assert found["loss_boxes"].item() == pytest.approx(expected["bbox_regression"].item(), rel=1e-4)


def test_the_checkpoint_opens_in_the_adapter_and_methods_score(tmp_path, samples):
    learner = job(tmp_path)
    learner.learn(task(tmp_path / "work", samples))
    detector = RetinaNet(weights=learner.weights, device="cpu", score_threshold=0.0)
    header = detector.header()
    assert (header.classes, header.background_index, header.activation) == (
        CLASSES,
        None,
        "sigmoid",
    )
    regions = detector.detect([samples.pixels(0)])
    assert len(regions)
    assert np.isfinite(methods.create("msp").score(regions)).all()
    network = detector.network
    with torch.inference_mode():
        (expected,) = network(
            [torch.from_numpy(samples.pixels(0).copy()).permute(2, 0, 1).float().to(CPU) / 255]
        )
    most = min(5, len(expected["scores"]))
    np.testing.assert_allclose(regions.score[:most], expected["scores"][:most].numpy(), rtol=1e-4)


def test_weights_have_the_names_of_torchvision():
    """So that torchvision's function reads what is trained here."""
    own = {
        name
        for name in build_retinanet(RESNET).state_dict()
        if not name.endswith("num_batches_tracked")
    }
    with torch.device("meta"):
        network = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=2)
    assert own == {
        name for name in network.state_dict() if not name.endswith("num_batches_tracked")
    }


def test_training_starts_from_a_classifier_of_imagenet(tmp_path):
    torch.manual_seed(3)
    classifier = resnet50().state_dict()
    torch.save(classifier, tmp_path / "resnet50.pth")
    network = build_retinanet(RESNET)
    found = fitting_weights(tmp_path / "resnet50.pth", network, "resnet50_fpn", is_frozen=True)
    torch.testing.assert_close(
        found["backbone.body.layer4.2.conv3.weight"], classifier["layer4.2.conv3.weight"]
    )
    assert not any(name.startswith(("head.", "backbone.fpn.")) for name in found)


def test_frozen_layers_need_weights(tmp_path, samples):
    with pytest.raises(
        ParameterError,
        match="'resnet50_fpn': parameter 'initial_weights': its first layers are froz",
    ):
        job(tmp_path, architecture="resnet50_fpn").learn(task(tmp_path, samples))


def test_an_unknown_architecture_is_named(tmp_path, samples):
    with pytest.raises(
        ParameterError, match=r"unknown architecture 'tiny'. Known: resnet50_fpn, small"
    ):
        job(tmp_path, architecture="tiny").learn(task(tmp_path, samples))


def test_a_checkpoint_says_what_parameters_must_not(tmp_path, samples):
    learner = job(tmp_path, recipe=recipe(epochs=1))
    learner.learn(task(tmp_path / "work", samples))
    with pytest.raises(
        ParameterError, match=r"parameter .classes.: the checkpoint .* says so itself; remove"
    ):
        RetinaNet(weights=learner.weights, classes=CLASSES)
    with pytest.raises(
        ParameterError,
        match="parameter 'classes': a state dict does not name its classes: list them",
    ):
        RetinaNet(weights=tmp_path / "net.pth")
    with pytest.raises(DataError, match=r"the file does not exist|does not exist"):
        RetinaNet(weights=tmp_path / "other.safetensors").header()

"""The confidence branch: its loss, the weight of hints, and its scores."""

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from tests.training.tiny import KilledError, assert_same, classifier_job, task

from farther import methods
from farther.detectors.classifier import Classifier
from farther.detectors.networks.classifier_heads import ConfidenceHead
from farther_training.confidence_branch import ConfidenceBranch, interpolated_loss, price_of_hints
from farther_training.trainers.classifier import ClassifierRun


def test_hints_move_probabilities_towards_the_label():
    logits = np.array([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0]])
    confidence = np.array([0.4, -1.0, 3.0])
    labels = [1, 0, 0]
    hinted = [True, True, False]
    p = softmax(logits, axis=1)[[0, 1, 2], labels]
    c = expit(confidence)
    expected = [c[0] * p[0] + 1 - c[0], c[1] * p[1] + 1 - c[1], p[2]]
    loss = interpolated_loss(
        torch.tensor(logits), torch.tensor(confidence), torch.tensor(labels), torch.tensor(hinted)
    )
    assert loss.item() == pytest.approx(-np.log(expected).mean())
    assert price_of_hints(torch.from_numpy(confidence)).item() == pytest.approx(-np.log(c).mean())


def test_the_weight_of_hints_follows_the_budget():
    branch = ConfidenceBranch(budget=0.3)
    assert branch.adjusted(0.1, price=0.5) == pytest.approx(0.1 / 0.99)
    assert branch.adjusted(0.1, price=0.3) == pytest.approx(0.1 / 0.99)
    assert branch.adjusted(0.1, price=0.2) == pytest.approx(0.1 / 1.01)


def test_half_of_the_images_get_a_hint():
    torch.manual_seed(0)
    assert ConfidenceBranch().hinted(10_000).float().mean().item() == pytest.approx(0.5, abs=0.03)


def test_a_killed_run_goes_on_with_its_weight_of_hints(tmp_path, samples, monkeypatch):
    recipe = {"confidence_branch": ConfidenceBranch(weight=0.4)}
    classifier_job(tmp_path / "whole", **recipe).learn(task(tmp_path / "whole", samples))
    learn = ClassifierRun.learn
    weight_by_step = []

    def until_killed(run, batch):
        if len(weight_by_step) == 3:
            raise KilledError
        weight_by_step.append(run.weight_of_hints)
        learn(run, batch)

    with monkeypatch.context() as patch:
        patch.setattr(ClassifierRun, "learn", until_killed)
        with pytest.raises(KilledError):
            classifier_job(tmp_path / "killed", **recipe).learn(task(tmp_path / "killed", samples))
    assert weight_by_step[0] == 0.4
    assert weight_by_step[1] in (pytest.approx(0.4 / 0.99), pytest.approx(0.4 / 1.01))
    classifier_job(tmp_path / "killed", **recipe).learn(task(tmp_path / "killed", samples))
    expected = Classifier(weights=tmp_path / "whole/net.safetensors", device="cpu")
    resumed = Classifier(weights=tmp_path / "killed/net.safetensors", device="cpu")
    assert_same(resumed.network.network, expected.network.network)


def test_the_confidence_of_the_regions_is_that_of_the_network(tmp_path, samples):
    learner = classifier_job(tmp_path, confidence_branch=ConfidenceBranch())
    learner.learn(task(tmp_path, samples))
    detector = Classifier(weights=learner.weights, device="cpu")
    images = [samples.pixels(row) for row in range(3)]
    regions = detector.detect(images)
    network = detector.network.network
    assert isinstance(network.fc, ConfidenceHead)
    with torch.no_grad():
        logits, confidence = network.fc.both(torch.tensor(regions.features))
    np.testing.assert_allclose(regions.logits, logits.numpy(), atol=1e-5)
    np.testing.assert_allclose(
        methods.create("conf_branch").score(regions), expit(confidence.numpy()), rtol=1e-4
    )

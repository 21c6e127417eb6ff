"""G-ODIN: its quotients, its weight decay, and its scores."""

import numpy as np
import pytest
import torch
from scipy.special import expit
from tests.training.tiny import CPU, classifier_job, task

from farther import methods
from farther.detectors.classifier import Classifier
from farther.detectors.networks.classifier_heads import GOdinHead
from farther_training.g_odin import GOdin
from farther_training.trainers.classifier import ClassifierRun, build_network, to_tensor

SIMILARITIES = ("inner", "euclidean", "cosine")


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_logits_are_similarities_over_the_probability_of_the_distribution(similarity):
    torch.manual_seed(0)
    head = GOdinHead(4, 3, similarity)
    with torch.no_grad():
        head.denominator[1].running_mean.fill_(0.2)
        head.denominator[1].running_var.fill_(2.0)
        head.denominator[1].weight.fill_(1.5)
    head.eval()
    x = np.array([[1.0, -2.0, 0.5, 3.0], [0.0, 1.0, 1.0, -1.0]], np.float32)
    w = head.numerator.weight.detach().numpy()
    h = {
        "inner": x @ w.T,
        "euclidean": -((x[:, None] - w) ** 2).mean(axis=2),
        "cosine": x @ w.T / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(w, axis=1),
    }[similarity]
    linear = head.denominator[0]
    t = x @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()
    g = expit(1.5 * (t - 0.2) / np.sqrt(2.0 + 1e-5))
    with torch.no_grad():
        logits = head(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(logits, h / g, rtol=1e-3)  # lengths have 1e-4 added


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_only_the_similarity_has_no_weight_decay(similarity, samples, tmp_path):
    learner = classifier_job(tmp_path, g_odin=GOdin(similarity=similarity), weight_decay=0.5)
    network = build_network("openood_resnet", learner.recipe, ((8, 8), (1, 1)), 2)
    run = ClassifierRun(network, learner.recipe, task(tmp_path, samples), "", None)
    decay = {}
    for group in run.optimizer.param_groups:
        for parameter in group["params"]:
            decay[id(parameter)] = group["weight_decay"]
    assert len(decay) == len(list(network.parameters()))
    assert decay[id(network.fc.numerator.weight)] == 0
    assert decay[id(network.fc.denominator[0].weight)] == decay[id(network.conv1.weight)] == 0.5


def test_numerator_over_denominator_are_the_logits(tmp_path, samples):
    learner = classifier_job(tmp_path, g_odin=GOdin())
    learner.learn(task(tmp_path, samples))
    detector = Classifier(weights=learner.weights, device="cpu")
    regions = detector.detect([samples.pixels(row) for row in range(3)])
    numerator = regions.array("latent.numerator")
    denominator = regions.array("latent.denominator")
    np.testing.assert_allclose(numerator / denominator, regions.logits, rtol=1e-4)
    with torch.no_grad():
        seen = detector.network.network(
            to_tensor(
                [samples.pixels(row) for row in range(3)], detector.blueprint, CPU
            ).contiguous()
        )
    np.testing.assert_allclose(regions.logits, seen.numpy(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        methods.create("g_odin").score(regions), numerator.max(axis=1), rtol=1e-6
    )
    only = detector.only(["latent.denominator"]).detect([samples.pixels(0)])
    assert only.has("latent.denominator") and not only.has("latent.numerator")

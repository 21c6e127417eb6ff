"""Variances of boxes: their losses, and their way from training into the regions table."""

import numpy as np
import pytest
import torch
from scipy.special import gamma, hyp1f1
from scipy.stats import multivariate_normal
from tests.support.cases import slow_but
from tests.training.tiny import recipe, run, task
from torchvision.models.detection._utils import BoxCoder

from farther.detectors.faster_rcnn import FasterRCNN
from farther.detectors.networks.architectures import build_network
from farther.detectors.networks.heads import (
    VARIANCE_HEAD,
    VarianceHead,
    corner_variances,
    resize_variances,
)
from farther.detectors.networks.weights import read_metadata
from farther.methods import METHODS
from farther_training.box_losses import LOSSES, energy_score, negative_log_likelihood, variance_loss
from farther_training.trainers.faster_rcnn import FasterRCNNJob, losses


def rows(*values):
    return torch.tensor([values], dtype=torch.float32)


# --------------------------------------------------------------------------------------------------
# losses


def test_small_errors_cost_the_gaussians_negative_log_likelihood():
    means, goals = rows(0.1, -0.4, 0.0, 0.7), rows(0.3, 0.5, 0.0, -0.2)
    log_variances = rows(-1.0, 0.5, 2.0, 0.0)
    density = multivariate_normal(means[0].numpy(), np.diag(log_variances[0].exp().numpy()))
    expected = -density.logpdf(goals[0].numpy()) - 2 * np.log(2 * np.pi)
    assert negative_log_likelihood(means, log_variances, goals).item() == pytest.approx(
        expected, rel=1e-5
    )


def test_large_errors_cost_linearly():
    found = negative_log_likelihood(rows(0, 0, 0, 0), rows(np.log(2), 0, 0, 0), rows(3, 0, 0, 0))
    assert found.item() == pytest.approx(
        (3 - 0.5) / 2 + np.log(2) / 2
    )  # exp(−α) (|t − μ| − ½) + α / 2


@pytest.mark.parametrize("away", [0.0, 1.0, 5.0])
def test_energy_score_is_that_of_the_isotropic_gaussian(away):
    """E‖z − t‖ / σ is the mean of a noncentral χ₄ distribution, E‖z − z'‖ = √2 σ E χ₄."""
    torch.manual_seed(0)
    sigma = 1.5
    to_object = np.sqrt(2) * gamma(2.5) / gamma(2) * hyp1f1(-0.5, 2, -((away / sigma) ** 2) / 2)
    pairs = np.sqrt(2) * np.sqrt(2) * gamma(2.5) / gamma(2)
    log_variances = torch.full((1, 4), 2 * np.log(sigma))
    found = energy_score(rows(0, 0, 0, 0), log_variances, rows(0, away, 0, 0), samples=200_000)
    assert found.item() == pytest.approx(sigma * (to_object - pairs / 2), abs=0.01)


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_only_objects_cost_and_each_by_the_box_of_its_class(kind):
    deltas, log_variances = (
        torch.zeros(3, 3 * 4, requires_grad=True),
        torch.zeros(3, 3, 4, requires_grad=True),
    )
    labels, goals = (
        [torch.tensor([0, 2]), torch.tensor([1])],
        [torch.full((n, 4), 3.0) for n in (2, 1)],
    )
    variance_loss(kind, deltas, log_variances, labels, goals).backward()
    for gradient in (deltas.grad.unflatten(1, (3, 4)), log_variances.grad):
        assert torch.nonzero(gradient.abs().sum(dim=2)).tolist() == [[1, 2], [2, 1]]


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_without_objects_the_loss_is_zero(kind):
    found = variance_loss(
        kind, torch.zeros(2, 8), torch.zeros(2, 2, 4), [torch.zeros(2).long()], [torch.ones(2, 4)]
    )
    assert found.item() == 0


@pytest.mark.parametrize("kind", slow_but(("nll",), sorted(LOSSES)))
def test_noise_that_grows_with_size_is_learned_as_variance(kind):
    torch.manual_seed(1)
    size = torch.rand(2000, 1)
    goals = (1.5 * size - 2).exp() * torch.randn(2000, 4)
    head, place = VarianceHead(1, 1), torch.nn.Linear(1, 4)
    optimizer = torch.optim.Adam([*head.parameters(), *place.parameters()], lr=0.15)
    for _ in range(300):
        batch = torch.randint(len(size), (64,))
        loss = LOSSES[kind](place(size[batch]), head(size[batch])[:, 0], goals[batch]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    small, large = head(torch.tensor([[0.1], [0.9]]))[:, 0].exp().sqrt().detach()
    assert small.mean() == pytest.approx(np.exp(1.5 * 0.1 - 2), rel=0.2)
    assert large.mean() == pytest.approx(np.exp(1.5 * 0.9 - 2), rel=0.2)


# --------------------------------------------------------------------------------------------------
# corners


def test_variances_of_corners_are_those_of_decoded_samples():
    torch.manual_seed(0)
    coder = BoxCoder((10.0, 10.0, 5.0, 5.0))
    proposals = torch.tensor([[10.0, 20.0, 50.0, 140.0], [0.0, 0.0, 30.0, 20.0]])
    deltas = torch.tensor([[0.5, -1.0, 1.0, -2.0], [0.0, 2.0, 0.5, 3.0]])
    log_variances = torch.tensor([[0.0, 1.0, -1.0, 2.5], [3.0, -2.0, 1.0, 0.0]])
    drawn = deltas + (log_variances / 2).exp() * torch.randn(400_000, 2, 4)
    boxes = coder.decode(
        drawn.transpose(0, 1).reshape(-1, 4), [proposals.repeat_interleave(400_000, 0)]
    )
    expected = boxes.reshape(2, 400_000, 4).var(dim=1)
    found = corner_variances(coder, deltas, log_variances, proposals)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0)


def test_variances_grow_with_the_square_of_the_image():
    found = resize_variances(torch.ones(1, 4), (100, 200), (200, 600))
    assert found.tolist() == [[9.0, 4.0, 9.0, 4.0]]


# --------------------------------------------------------------------------------------------------
# networks


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_a_step_lowers_the_loss_of_the_boxes(samples, blueprint, kind):
    torch.manual_seed(0)
    network = build_network(blueprint).train()
    last = network.roi_heads.box_predictor
    network.add_module(
        VARIANCE_HEAD, VarianceHead(last.cls_score.in_features, last.cls_score.out_features)
    )
    batch = [samples[row] for row in range(4)]

    def loss():
        torch.manual_seed(1)
        return losses(network, batch, recipe(box_loss=kind))["loss_boxes"]

    before = loss()
    before.backward()
    learned = [*network.get_submodule(VARIANCE_HEAD).parameters(), *last.bbox_pred.parameters()]
    assert all(weight.grad.abs().sum() > 0 for weight in learned)
    torch.optim.SGD(learned, lr=1e-3).step()
    assert loss() < before


@pytest.mark.parametrize("kind", slow_but(("nll",), sorted(LOSSES)))
def test_variances_travel_from_training_to_the_regions_table(tmp_path, blueprint, samples, kind):
    named = {"dataset": "shapes", "weights": tmp_path / "box.safetensors", "architecture": "small"}
    job = FasterRCNNJob(**named, min_size=64, max_size=64, recipe=recipe(epochs=1, box_loss=kind))
    trained = job.learn(task(tmp_path, samples))
    assert read_metadata(job.weights)["box_loss"] == kind
    assert kind in trained.kind
    detector = FasterRCNN(weights=job.weights, device="cpu", score_threshold=0.0)
    image = samples.pixels(0)
    found = detector.detect([image])
    assert found.box_variance.shape == (len(found), 4)
    for method in ("box_uncertainty", "joint_entropy"):
        assert np.isfinite(METHODS.create(method).fit(found).score(found)).all()
    # Twice the image, the same input of the network: boxes of twice the size, variances of four
    # times.
    large = detector.detect([image.repeat(2, axis=0).repeat(2, axis=1)])
    np.testing.assert_allclose(large.box_variance.mean() / found.box_variance.mean(), 4, rtol=0.05)


def test_a_detector_without_the_head_has_no_variances(tmp_path, blueprint, samples):
    network = run(tmp_path, blueprint, samples, recipe(epochs=1, box_loss="smooth_l1"))
    assert not hasattr(network, VARIANCE_HEAD)

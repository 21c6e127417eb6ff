import json

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from tests.training.tiny import KilledError, assert_same, killed_at, log_rows, recipe, run

from farther.detectors.faster_rcnn import FasterRCNN
from farther.detectors.networks.architectures import load_network, save_checkpoint
from farther.detectors.networks.heads import EnergyHead
from farther.errors import ParameterError
from farther.methods import METHODS
from farther.naming.registry import build
from farther_training.recipe import VirtualOutliers
from farther_training.run import TrainingError
from farther_training.virtual_outliers import OutlierQueue, outlier_loss


def filled(params, means, spread, rows=400, seed=0):
    """A queue of Gaussian features around `means`, shape (C, D)."""
    torch.manual_seed(seed)
    queue = OutlierQueue(params, *means.shape)
    for known_class, mean in enumerate(means):
        features = mean + spread * torch.randn(rows, means.shape[1])
        queue.push(features, torch.full((rows,), known_class))
    return queue


# --------------------------------------------------------------------------------------------------
# the queue


def test_a_queue_keeps_the_newest_features_of_each_class():
    queue = OutlierQueue(VirtualOutliers(queue=3), 2, 1)
    queue.push(torch.tensor([[1.0], [9.0], [2.0]]), torch.tensor([0, 1, 0]))
    assert queue.full.tolist() == []
    queue.push(torch.tensor([[3.0], [4.0]]), torch.tensor([0, 0]))
    assert queue.full.tolist() == [0]
    assert sorted(queue.features[0, :, 0].tolist()) == [2.0, 3.0, 4.0]
    queue.push(torch.arange(10.0)[:, None], torch.ones(10, dtype=torch.int64))
    assert sorted(queue.features[1, :, 0].tolist()) == [7.0, 8.0, 9.0]


def test_only_full_classes_give_outliers():
    params = VirtualOutliers(queue=50, candidates=100, kept=2)
    queue = filled(params, torch.tensor([[0.0, 0.0], [50.0, 0.0]]), 1.0, rows=50)
    queue.seen[1] = 49
    assert queue.outliers().shape == (2, 2)
    assert (queue.outliers()[:, 0] < 25).all()


# --------------------------------------------------------------------------------------------------
# virtual outliers


def test_outliers_are_as_unlikely_as_the_least_likely_of_all_candidates():
    """Their Mahalanobis distances follow the distribution of the largest of n χ² numbers."""
    params = VirtualOutliers(queue=2000, candidates=1000, kept=1)
    means = torch.tensor([[3.0, -1.0, 0.0], [-4.0, 2.0, 1.0]])
    spread = torch.tensor([1.0, 2.0, 0.5])
    queue = filled(params, means, spread, rows=2000)
    centred = (queue.features - queue.features.mean(1, keepdim=True)).flatten(0, 1)
    precision = torch.linalg.inv(centred.T @ centred / len(centred) + 1e-4 * torch.eye(3))
    offsets = torch.stack([queue.outliers() - queue.features.mean(1) for _ in range(300)])
    distances = torch.einsum("nkd,de,nke->nk", offsets, precision, offsets)
    # P(largest < x) = F(x)^n: these levels must be uniform.
    levels = chi2.cdf(distances.flatten().double().numpy(), 3) ** 1000
    assert levels.mean() == pytest.approx(0.5, abs=0.05)
    assert np.quantile(levels, 0.1) == pytest.approx(0.1, abs=0.05)
    directions = (offsets @ torch.linalg.cholesky(precision)).flatten(0, 1)
    assert (directions / directions.norm(dim=1, keepdim=True)).mean(0).abs().max() < 0.1


def test_the_loss_is_the_cross_entropy_of_a_hand_written_head():
    params = VirtualOutliers(queue=20, candidates=50, kept=3, weight=0.25)
    queue = filled(params, torch.tensor([[0.0, 1.0], [4.0, 0.0]]), 0.3, rows=20)
    head = EnergyHead(2)
    with torch.no_grad():
        head.energy_weight.copy_(torch.tensor([0.5, 2.0]))
        head.bias.copy_(torch.tensor([0.3, -0.2]))
    layer = torch.nn.Linear(2, 3)
    logits = torch.tensor([[9.0, 1.0, -2.0], [0.0, 0.0, 3.0]])
    torch.manual_seed(5)
    virtual = layer(queue.outliers()).detach()
    torch.manual_seed(5)
    loss = outlier_loss(queue, head, lambda features: layer(features)[:, 1:], logits[:, 1:])

    rows = np.concatenate([virtual.numpy(), logits.numpy()])
    energy = np.log(0.5 * np.exp(rows[:, 1]) + 2.0 * np.exp(rows[:, 2]))
    unknown = -0.1 * energy + 0.3
    known = 0.1 * energy - 0.2
    label_logits = np.concatenate([unknown[: len(virtual)], known[len(virtual) :]])
    losses = np.log(np.exp(unknown) + np.exp(known)) - label_logits
    assert loss.item() == pytest.approx(0.25 * losses.mean(), rel=1e-5)
    loss.backward()
    assert layer.weight.grad.abs().sum() > 0


def test_an_energy_head_without_positive_weights_stays_finite():
    head = EnergyHead(2)
    with torch.no_grad():
        head.energy_weight.fill_(-1.0)
    assert torch.isfinite(head(torch.tensor([[3.0, -200.0]]))).all()


def test_more_outliers_than_candidates_are_refused():
    with pytest.raises(ParameterError, match="kept = 5 of 4 candidates"):
        build(VirtualOutliers, "virtual_outliers", {"kept": 5, "candidates": 4})


# --------------------------------------------------------------------------------------------------
# training


def outliers(**changes):
    """A short recipe with virtual outliers."""
    params = {"queue": 12, "candidates": 50, "start": 0.5, **changes}
    return recipe(epochs=4, virtual_outliers=VirtualOutliers(**params))


@pytest.mark.slow
def test_a_killed_run_with_virtual_outliers_goes_on_to_the_same_weights(
    tmp_path, blueprint, samples
):
    whole = run(tmp_path / "whole", blueprint, samples, outliers())
    with pytest.raises(KilledError):
        run(tmp_path / "killed", blueprint, samples, outliers(), extra_losses=[killed_at(6)])
    assert_same(whole, run(tmp_path / "killed", blueprint, samples, outliers()))
    values = [row["loss_virtual_outliers"] for row in log_rows(tmp_path / "whole")]
    assert values[0] == values[1] == ""
    assert float(values[3]) > 0


@pytest.mark.slow
def test_the_head_travels_from_training_to_the_logistic_score(tmp_path, blueprint, samples):
    network = run(tmp_path, blueprint, samples, outliers())
    assert not torch.equal(network.vos.weight, EnergyHead(2).weight)
    path = tmp_path / "vos.safetensors"
    save_checkpoint(path, network.state_dict(), blueprint)
    torch.testing.assert_close(
        load_network(path, blueprint).vos.bias, network.vos.bias.detach(), rtol=1e-3, atol=1e-5
    )
    detector = FasterRCNN(weights=path, device="cpu", score_threshold=0.0)
    found = detector.detect([samples.pixels(row) for row in range(4)])
    assert json.loads(json.dumps(found.header.detector))["vos_head"].keys() == {
        "energy_weight",
        "weight",
        "bias",
    }
    scores = METHODS.create("vos", output="logistic").fit(found).score(found)
    with torch.no_grad():
        unknown, known = detector.network.vos(torch.from_numpy(found.logits[:, 1:])).T
    np.testing.assert_allclose(scores, (known - unknown).numpy(), rtol=1e-4, atol=1e-6)


def test_a_queue_that_never_fills_is_an_error(tmp_path, blueprint, samples):
    with pytest.raises(
        TrainingError, match=r"no class ever filled its queue of 3000 features: at most \d+ were"
    ):
        run(tmp_path, blueprint, samples, outliers(queue=3000))

"""Training runs: errors, resuming, the order of images, and the optimizer."""

import numpy as np
import pytest
import torch
from tests.training.tiny import KilledError, assert_same, killed_at, recipe, run

from farther_training.run import TrainingError, batches_of_epoch, make_optimizer


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path, blueprint, samples):
    def broken(features, labels, logits):
        return {"loss_broken": features.sum() * float("nan")}

    with pytest.raises(
        TrainingError, match=r"step 0: the loss is not finite: .*'loss_broken': nan"
    ):
        run(tmp_path, blueprint, samples, recipe(), extra_losses=[broken])


def test_a_state_of_another_recipe_is_not_continued(tmp_path, blueprint, samples):
    with pytest.raises(KilledError):
        run(tmp_path, blueprint, samples, recipe(epochs=1), extra_losses=[killed_at(1)])
    other_recipe = recipe(epochs=1, learning_rate=0.001)
    restarted = run(tmp_path, blueprint, samples, other_recipe)
    fresh = run(tmp_path / "fresh", blueprint, samples, other_recipe)
    assert_same(fresh, restarted)


@pytest.mark.slow
def test_workers_change_nothing(tmp_path, blueprint, samples):
    expected = run(tmp_path / "alone", blueprint, samples, recipe(epochs=1))
    with_worker = run(tmp_path / "helped", blueprint, samples, recipe(epochs=1, workers=1))
    assert_same(with_worker, expected)


def test_an_epoch_shows_each_image_once_in_batches_of_similar_shape():
    rng = np.random.default_rng(0)
    sizes = np.where(rng.random((400, 1)) < 0.5, [[224, 170]], [[170, 224]])
    batches = batches_of_epoch(sizes, 16, seed=1, epoch=0)
    rows = np.concatenate(batches)
    assert len(batches) == 25
    assert len(set(rows)) == 400
    mixed = sum(len(np.unique(sizes[batch, 0])) == 2 for batch in batches)
    assert mixed <= 4  # one where the shapes meet in each pool of eight batches, instead of all 25


def test_the_order_follows_seed_and_epoch_alone():
    sizes = np.full((40, 2), 64)
    batches = batches_of_epoch(sizes, 8, seed=1, epoch=3)
    assert batches == batches_of_epoch(sizes, 8, seed=1, epoch=3)
    assert batches != batches_of_epoch(sizes, 8, seed=1, epoch=4)
    assert batches != batches_of_epoch(sizes, 8, seed=2, epoch=3)


def test_fewer_images_than_a_batch_make_one_batch():
    assert sorted(batches_of_epoch(np.full((3, 2), 64), 8, seed=0, epoch=0)[0]) == [0, 1, 2]


def test_biases_and_normalisations_do_not_decay():
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    groups = [(1.0, list(network.parameters()))]
    matrices, vectors = make_optimizer(recipe(weight_decay=0.1), groups).param_groups
    assert len(matrices["params"]) == 1
    assert matrices["weight_decay"] == 0.1
    assert len(vectors["params"]) == 3
    assert vectors["weight_decay"] == 0.0
    assert isinstance(make_optimizer(recipe(optimizer="sgd"), groups), torch.optim.SGD)

import csv

import numpy as np
import pytest
import torch

from farther_training.recipe import Augmentation, FasterRCNNRecipe
from farther_training.run import TrainingError, batches_of_epoch, make_optimizer
from farther_training.trainers import Task
from farther_training.trainers.faster_rcnn import evaluate, train

CPU = torch.device("cpu")


def recipe(**changes):
    return FasterRCNNRecipe(
        **{
            "epochs": 2,
            "batch_size": 4,
            "optimizer": "adamw",
            "learning_rate": 0.003,
            "warmup_steps": 2,
            "average": 0.5,
            "workers": 0,
            "cache_images": True,
            "checkpoint_steps": 1,
            "augmentation": Augmentation(scale=(0.9, 1.1)),
            **changes,
        }
    )


def run(folder, blueprint, samples, how, **more):
    return train(blueprint, Task(samples, samples, CPU, folder, folder / "log.csv", {}), how, **more)


# ------------------------------------------------------------------------------------------- learning


def test_shapes_on_noise_are_learned(tmp_path, blueprint, samples):
    how = recipe(epochs=24, batch_size=8, average=0.8, evaluate_epochs=24)
    network = run(tmp_path, blueprint, samples, how)
    assert evaluate(network, samples, how)["ap50"] > 0.8
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert float(rows[-1]["loss"]) < 0.5 * float(rows[0]["loss"])


def test_the_log_has_a_row_an_epoch_and_the_map_where_it_was_measured(tmp_path, blueprint, samples):
    run(tmp_path, blueprint, samples, recipe(epochs=3, evaluate_epochs=2))
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert [(row["epoch"], row["step"]) for row in rows] == [("1", "2"), ("2", "4"), ("3", "6")]
    assert [row["val_map50"] != "" for row in rows] == [False, True, True]
    parts = ("loss_classifier", "loss_boxes", "loss_objectness", "loss_rpn_boxes")
    assert float(rows[0]["loss"]) == pytest.approx(sum(float(rows[0][part]) for part in parts), rel=1e-4)


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path, blueprint, samples):
    def broken(features, labels, logits):
        return {"loss_broken": features.sum() * float("nan")}

    with pytest.raises(TrainingError, match=r"step 0: the loss is not finite: .*'loss_broken': nan"):
        run(tmp_path, blueprint, samples, recipe(), extra_losses=[broken])


# ------------------------------------------------------------------------------------------- resuming


class KilledError(Exception):
    pass


def killed_at(step):
    """An extra loss that ends the run within a step, as a kill would."""
    steps = iter(range(step))

    def count(features, labels, logits):
        if next(steps, None) is None:
            raise KilledError
        return {}

    return count


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_killed_run_goes_on_to_the_same_weights_bit_for_bit(tmp_path, blueprint, samples, step):
    whole = run(tmp_path / "whole", blueprint, samples, recipe())
    with pytest.raises(KilledError):
        run(tmp_path / "killed", blueprint, samples, recipe(), extra_losses=[killed_at(step)])
    (tmp_path / "killed" / ".123.state.pt").write_bytes(b"half a file of the killed process")
    resumed = run(tmp_path / "killed", blueprint, samples, recipe())
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert (tmp_path / "whole" / "log.csv").read_text() == (tmp_path / "killed" / "log.csv").read_text()


def test_a_state_of_another_recipe_is_not_continued(tmp_path, blueprint, samples):
    with pytest.raises(KilledError):
        run(tmp_path, blueprint, samples, recipe(), extra_losses=[killed_at(3)])
    other = recipe(learning_rate=0.001)
    restarted = run(tmp_path, blueprint, samples, other)
    fresh = run(tmp_path / "fresh", blueprint, samples, other)
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, restarted.state_dict()[name]), name


def test_workers_change_nothing(tmp_path, blueprint, samples):
    alone = run(tmp_path / "alone", blueprint, samples, recipe(epochs=1))
    helped = run(tmp_path / "helped", blueprint, samples, recipe(epochs=1, workers=1))
    for name, value in alone.state_dict().items():
        assert torch.equal(value, helped.state_dict()[name]), name


# ------------------------------------------------------------------------------------------- order and optimizer


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
    one = batches_of_epoch(sizes, 8, seed=1, epoch=3)
    assert one == batches_of_epoch(sizes, 8, seed=1, epoch=3)
    assert one != batches_of_epoch(sizes, 8, seed=1, epoch=4)
    assert one != batches_of_epoch(sizes, 8, seed=2, epoch=3)


def test_fewer_images_than_a_batch_make_one_batch():
    assert sorted(batches_of_epoch(np.full((3, 2), 64), 8, seed=0, epoch=0)[0]) == [0, 1, 2]


def test_biases_and_normalisations_do_not_decay():
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    groups = [(1.0, list(network.parameters()))]
    decayed, free = make_optimizer(recipe(weight_decay=0.1), groups).param_groups
    assert [(len(g["params"]), g["weight_decay"]) for g in (decayed, free)] == [(1, 0.1), (3, 0.0)]
    assert isinstance(make_optimizer(recipe(optimizer="sgd"), groups), torch.optim.SGD)

"""Ultralytics' trainer, driven by farther's tables."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.training.tiny import (
    CLASSES,
    KilledError,
    assert_log_adds_up,
    assert_same,
    log_rows,
    task,
)

from farther.detectors.networks.yolo import YoloBlueprint, build_network
from farther.errors import DataError
from farther.tables.files import digest
from farther_training.job import run_job
from farther_training.recipe import YoloRecipe
from farther_training.samples import Samples
from farther_training.trainers import yolo
from farther_training.trainers.yolo import Plan, Run, TableDataset, YoloJob, train


def recipe(**changes):
    """A short recipe."""
    params = {
        "epochs": 3,
        "batch_size": 4,
        "nominal_batch": 4,
        "warmup_epochs": 1,
        "warmup_bias_learning_rate": 0.0,
        "close_mosaic": 1,
        "workers": 0,
        "evaluate_epochs": 3,
        **changes,
    }
    return YoloRecipe(**params)


def shipped(architecture, classes):
    """An architecture of Ultralytics; YOLOv8n with half of its channels, which learns as well."""
    changes = {"scales": {"n": [0.33, 0.125, 1024]}} if architecture == "yolov8n" else {}
    return YoloBlueprint.shipped(architecture, classes, 64, changes)


@pytest.fixture
def plan(samples, tmp_path):
    def make(folder="run", architecture="yolov8n", initial_weights=None, **changes):
        work = tmp_path / folder
        blueprint = shipped(architecture, CLASSES)
        return Plan(blueprint, task(work, samples), recipe(**changes), initial_weights)

    return make


def dataset(samples, **params):
    """The samples as a dataset of Ultralytics."""
    from ultralytics.cfg import get_cfg

    data = {"names": dict(enumerate(CLASSES))}
    return TableDataset(samples, data=data, imgsz=64, hyp=get_cfg(), **params)


def kill(monkeypatch, epoch):
    """Ends the next run within an epoch (from 1), as a kill would: its state is not written."""

    def validate(run):
        if run.epoch + 1 == epoch:
            raise KilledError
        return {}, None

    with monkeypatch.context() as patched:
        patched.setattr(Run, "validate", validate)
        yield patched


# --------------------------------------------------------------------------------------------------
# learning


@pytest.mark.slow
def test_losses_fall(plan, tmp_path):
    how = {
        "epochs": 16,
        "batch_size": 8,
        "nominal_batch": 8,
        "learning_rate": 0.003,
        "mosaic": 0.0,
        "scale": 0.1,
    }
    train(plan(**how, evaluate_epochs=16, cache_images=True))
    rows = log_rows(tmp_path / "run")
    for loss in ("box_loss", "cls_loss", "dfl_loss"):
        assert float(rows[-1][loss]) < 0.7 * float(rows[0][loss])


def test_the_log_has_a_row_an_epoch_and_the_map_where_it_was_measured(plan, tmp_path):
    train(plan(evaluate_epochs=2))
    assert_log_adds_up(tmp_path / "run", ("box_loss", "cls_loss", "dfl_loss"))


def test_defaults_are_ultralytics_own_but_for_what_the_paper_changed():
    from ultralytics.utils import DEFAULT_CFG_DICT

    told = YoloRecipe().to_ultralytics()
    assert {name for name, value in told.items() if value != DEFAULT_CFG_DICT[name]} == {
        "optimizer",
        "lr0",
        "cos_lr",
    }
    # FMIYC, Appendix G.1
    assert (told["epochs"], told["batch"], told["optimizer"], told["lr0"]) == (
        100,
        16,
        "AdamW",
        0.001,
    )
    assert (told["momentum"], told["weight_decay"], told["cos_lr"]) == (0.937, 0.0005, True)


def test_training_can_start_from_weights_of_a_network_for_other_classes(plan):
    torch.manual_seed(4)
    given = build_network(shipped("yolov8n", ("a", "b", "c"))).state_dict()
    begun = plan(initial_weights=given).network().state_dict()
    same = {name for name, value in begun.items() if torch.equal(value, given[name])}
    assert "model.0.conv.weight" in same
    # The last convolution of each level's classes has another shape: it starts anew.
    anew = {f"model.22.cv3.{level}.2.{part}" for level in range(3) for part in ("weight", "bias")}
    assert anew.isdisjoint(same)
    assert all(begun[name].shape[0] == 2 for name in anew)


@pytest.mark.slow
def test_half_precision_learns_about_the_same(plan):
    # One step only: its losses are those of the same weights.
    losses = []
    for name in ("float32", "bfloat16"):
        planned = plan(name, epochs=1, batch_size=8, precision=name)
        train(planned)
        (row,) = log_rows(planned.task.work)
        losses.append([float(row[part]) for part in ("box_loss", "cls_loss", "dfl_loss")])
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.1)


def test_a_loss_that_is_not_finite_ends_the_run(plan):
    planned = plan(epochs=1)
    nan = {
        name: torch.full_like(value, torch.nan)
        for name, value in planned.network().named_parameters()
    }
    with pytest.raises(yolo.TrainingError, match="epoch 1: the loss is not finite"):
        train(dataclasses.replace(planned, initial_weights=nan))


# --------------------------------------------------------------------------------------------------
# resuming


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epoch", "changes"),
    [(3, {"cache_images": True}), (3, {"architecture": "yolo26n"})],
    ids=["before the last, without mosaic", "a head of two branches"],
)
def test_a_killed_run_goes_on_to_the_same_weights_bit_for_bit(
    plan, tmp_path, monkeypatch, epoch, changes
):
    whole = train(plan("whole", **changes))
    for _ in kill(monkeypatch, epoch):
        with pytest.raises(KilledError):
            train(plan("killed", **changes))
    (tmp_path / "killed" / ".123.state.pt").write_bytes(b"half a file of the killed process")
    resumed = train(plan("killed", **changes))
    assert_same(whole, resumed)
    assert (tmp_path / "whole" / "log.csv").read_text() == (
        tmp_path / "killed" / "log.csv"
    ).read_text()


def test_a_finished_run_is_not_trained_further(plan, monkeypatch, tmp_path):
    first = train(plan(epochs=1))
    (tmp_path / "run" / "log.csv").unlink()
    monkeypatch.delattr(yolo, "Run")
    assert_same(first, train(plan(epochs=1)))
    assert (tmp_path / "run" / "log.csv").exists()


@pytest.mark.slow
def test_a_state_of_another_recipe_is_not_continued(plan):
    train(plan(epochs=1))
    restarted = train(plan(epochs=1, seed=1))
    assert_same(train(plan("fresh", epochs=1, seed=1)), restarted)


def test_all_that_decides_the_outcome_is_in_the_identity(plan, tables, tmp_path):
    images, objects = tables
    fewer = Samples(images, objects[: len(objects) - 1], tmp_path / "pictures", CLASSES)
    weights = {"model.0.conv.weight": torch.zeros(16, 3, 3, 3)}
    plans = [
        plan(),
        plan(seed=1),
        plan(architecture="yolo11n"),
        plan(initial_weights=weights),
        plan(initial_weights={name: value + 1 for name, value in weights.items()}),
        dataclasses.replace(plan(), task=dataclasses.replace(plan().task, training=fewer)),
    ]
    assert len({planned.identity() for planned in plans}) == len(plans)
    assert plan("elsewhere").identity() == plan().identity()


# --------------------------------------------------------------------------------------------------
# images and boxes


def test_boxes_are_centres_and_sizes_as_fractions_of_the_image(samples, tables):
    images, objects = tables
    label = dataset(samples).labels[1]
    x0, y0, x1, y1 = objects.box[1]
    width, height = images.width[1], images.height[1]
    worked = [(x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height]
    np.testing.assert_allclose(label["bboxes"], [worked], rtol=1e-6)
    assert label["cls"].tolist() == [[1.0]]


def test_images_come_scaled_and_in_ultralytics_order_of_colours(samples):
    image, before, after = dataset(samples).load_image(0)
    assert (before, after) == ((48, 64), (48, 64))
    np.testing.assert_array_equal(image, samples.pixels(0)[..., ::-1])
    image, before, after = dataset(samples, augment=False).load_image(1)
    assert (before, after) == ((64, 48), (64, 48))


def test_an_image_that_changed_since_it_was_ingested_ends_the_run(plan, samples, tmp_path):
    (tmp_path / "pictures" / "0.png").write_bytes((tmp_path / "pictures" / "1.png").read_bytes())
    with pytest.raises(DataError, match=r"0\.png"):
        train(plan(epochs=1))


def test_only_so_many_images_are_kept_for_mosaics_as_ultralytics_would_keep(samples):
    made = dataset(samples, batch_size=16, augment=True)
    made.max_buffer_length = 3
    for row in (0, 1, 2, 1, 3, 4):
        made.load_image(row)
    assert list(made.buffer) == [2, 3, 4]


# --------------------------------------------------------------------------------------------------
# jobs


def job(folder, **changes):
    params = {
        "dataset": "shapes",
        "weights": folder / "out" / "demo.safetensors",
        "image_size": 64,
        "device": "cpu",
    }
    return YoloJob(**{**params, "recipe": recipe(epochs=1, evaluate_epochs=1), **changes})


@pytest.mark.slow
def test_a_job_can_start_from_another_one_s_checkpoint_and_names_it(ingested, tmp_path):
    artifacts, root = ingested
    run_job("first", job(tmp_path), root, artifacts)
    start = tmp_path / "out" / "demo.safetensors"
    second = job(
        tmp_path, weights=tmp_path / "second.safetensors", initial_weights=start, classes=("disc",)
    )
    card = run_job("second", second, root, artifacts)
    assert card["initial_weights"] == digest(start)
    assert (card["classes"], card["left_out"]) == (["disc"], {"square": 4})
    assert "left out: 4 square" in (tmp_path / "second.md").read_text()

"""Small networks and recipes that the tests of all trainers share."""

import csv

import pytest
import torch

from farther_training.recipe import ClassifierRecipe, FasterRCNNRecipe
from farther_training.trainers import Task
from farther_training.trainers.classifier import ClassifierJob
from farther_training.trainers.faster_rcnn import train

CPU = torch.device("cpu")
CLASSES = ("square", "disc")

#: Configuration of a small RT-DETR, and of a processor of images for it.
RT_DETR = {
    "model_type": "rt_detr",
    "backbone_config": {
        "model_type": "rt_detr_resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "layer_type": "basic",
        "out_features": ["stage2", "stage3", "stage4"],
    },
    "freeze_backbone_batch_norms": False,
    "encoder_in_channels": [16, 24, 32],
    "decoder_in_channels": [32, 32, 32],
    **dict.fromkeys(("encoder_hidden_dim", "d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 32),
    **dict.fromkeys(
        (
            "encoder_attention_heads",
            "decoder_attention_heads",
            "decoder_layers",
            "decoder_n_points",
        ),
        2,
    ),
    "num_queries": 10,
    "num_denoising": 10,
}
SQUARE = {
    "image_processor_type": "RTDetrImageProcessor",
    "size": {"height": 64, "width": 64},
    "do_pad": False,
}


class KilledError(Exception):
    """Ends a run as a kill would."""


def task(folder, samples):
    """A task that learns from and validates on the same samples."""
    return Task(samples, samples, CPU, folder, folder / "log.csv", {})


def recipe(**changes):
    """A short recipe of a Faster R-CNN."""
    params = {
        "epochs": 2,
        "batch_size": 4,
        "optimizer": "adamw",
        "learning_rate": 0.003,
        "warmup_steps": 2,
        "average": 0.5,
        "workers": 0,
        "cache_images": True,
        "checkpoint_steps": 1,
        **changes,
    }
    return FasterRCNNRecipe(**params)


def classifier_job(folder, **recipe):
    """A job of a tiny classifier: two epochs of two steps."""
    params = {
        "epochs": 2,
        "batch_size": 4,
        "optimizer": "adamw",
        "learning_rate": 0.005,
        "workers": 0,
        "cache_images": True,
        "checkpoint_steps": 1,
        **recipe,
    }
    return ClassifierJob(
        dataset="shapes",
        weights=folder / "net.safetensors",
        image_size=32,
        widths=(8, 8, 16),
        blocks=(1, 1, 1),
        recipe=ClassifierRecipe(**params),
    )


def run(folder, blueprint, samples, how, **more):
    """Trains a Faster R-CNN."""
    return train(blueprint, task(folder, samples), how, **more)


def killed_at(step):
    """An extra loss that ends the run within a step, as a kill would."""
    steps = iter(range(step))

    def count(features, labels, logits):
        if next(steps, None) is None:
            raise KilledError
        return {}

    return count


def log_rows(folder):
    """The rows of a run's log."""
    with (folder / "log.csv").open() as file:
        return list(csv.DictReader(file))


def assert_same(network, expected):
    """Two networks have the same weights, bit for bit."""
    weights = network.state_dict()
    expected_weights = expected.state_dict()
    assert weights.keys() == expected_weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor, expected_weights[name]), name


def assert_log_adds_up(folder, parts):
    """The loss of each epoch is the sum of its parts; mAP is measured in all but the first."""
    rows = log_rows(folder)
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [row["val_map50"] != "" for row in rows] == [False, True, True]
    for row in rows:
        total = sum(float(row[part]) for part in parts)
        assert float(row["loss"]) == pytest.approx(total, rel=1e-4)

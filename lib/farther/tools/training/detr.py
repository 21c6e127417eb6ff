"""Trains a detection transformer."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from farther.detectors.networks.detection import Selection
from farther.detectors.networks.detr import DetrBlueprint, build_network, in_float32, keep_exact
from farther.detectors.networks.detr_inference import detect_regions, make_processor, prepare
from farther.tables import Header, Regions
from farther.tables.files import digest
from farther.tools.training.detr_losses import losses, make_batch
from farther.tools.training.run import Run, evaluate_on, make_optimizer, write_state
from farther.tools.training.samples import Sample, Samples
from farther.tools.training.trainers.base import Task
from farther.tools.training.trainers.detr import DetrRecipe


class DetrRun(Run[PreTrainedModel, DetrRecipe]):
    """A training run of a detection transformer; see `Run`."""

    def __init__(
        self, network: PreTrainedModel, blueprint: DetrBlueprint, recipe: DetrRecipe, task: Task, identity: str
    ):
        # The backbone has a separate learning rate.
        backbone = {name: p for name, p in network.named_parameters() if name.startswith("model.backbone")}
        others = [p for name, p in network.named_parameters() if name not in backbone]
        slow = recipe.backbone_learning_rate / recipe.learning_rate
        optimizer = make_optimizer(recipe, [(1.0, others), (slow, list(backbone.values()))])
        super().__init__(network, optimizer, recipe, task, identity)
        self.blueprint = blueprint
        self.device = next(network.parameters()).device
        for one in (self.network, self.averaged):
            keep_exact(one)
        # Matching needs costs that NumPy can read, and boxes need full precision.
        self.network.loss_function = in_float32(self.network.loss_function, self.device.type)
        self.processor = make_processor(blueprint.processor)

    def compute_losses(self, batch: list[Sample]) -> dict[str, Tensor]:
        """See `farther.tools.training.detr_losses.losses`."""
        prepared = make_batch(self.processor, batch, self.device)
        one_to_many = self.recipe.one_to_many_at(self.step / self.steps)
        return losses(self.network, prepared, self.recipe.precision, one_to_many)

    def evaluate(self, samples: Samples) -> dict[str, Any]:
        """See `evaluate`."""
        return evaluate(self.averaged, self.blueprint, samples, self.recipe)

    @property
    def best_file(self) -> Path:
        """File of the weights of the best epoch, for a recipe with patience."""
        return self.state_file.with_name("best.pt")

    def after_epoch(self) -> None:
        """Saves the averaged weights if the last epoch is the best so far."""
        value = self.log[-1].get("val_map50")
        if self.recipe.patience is None or value is None:
            return
        if all(value > row.get("val_map50", -1) for row in self.log[:-1]):
            write_state(self.best_file, self.averaged.state_dict())

    def has_ended(self) -> bool:
        """Whether mAP50 has not increased for `patience` epochs."""
        values = {row["epoch"]: row["val_map50"] for row in self.log if "val_map50" in row}
        if self.recipe.patience is None or not values:
            return False
        return self.log[-1]["epoch"] - max(values, key=lambda epoch: values[epoch]) >= self.recipe.patience


def untrained(blueprint: DetrBlueprint, seed: int) -> PreTrainedModel:
    """A network with random weights that are suitable to start training from.

    transformers' initial weights are meant to be replaced by a checkpoint: normalisations start near 0 and block the
    signal. Here they start at 1, convolutions as in He et al. (arXiv:1502.01852) and linear layers as in Glorot and
    Bengio (2010). Layers that must start at 0 (offsets of boxes and of sampling points) and biases do not change.
    """
    torch.manual_seed(seed)
    network = build_network(blueprint, attention="eager")
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear) and module.weight.any():
            nn.init.xavier_uniform_(module.weight)
    proposals = getattr(network.model, "enc_bbox_head", None)
    if proposals is not None:
        # A proposal's first box is its anchor, as in the authors' code.
        nn.init.zeros_(proposals.layers[-1].weight)
        nn.init.zeros_(proposals.layers[-1].bias)
    return network


def train(network: PreTrainedModel, blueprint: DetrBlueprint, task: Task, recipe: DetrRecipe) -> PreTrainedModel:
    """Trains a network from its present weights, or resumes a killed run; returns the averaged network.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image cannot be read.
        ParameterError: the image processor is unknown, or the recipe does not fit the network.
    """
    start = [t.cpu().numpy().tobytes() for t in network.state_dict().values()]
    identity = digest(json.dumps([asdict(recipe), asdict(blueprint)]), task.training.digest(), *start)
    run = DetrRun(network, blueprint, recipe, task, identity)
    averaged = run.go()
    if recipe.patience is not None:
        averaged.load_state_dict(torch.load(run.best_file, map_location="cpu", weights_only=True))
    return averaged


def evaluate(
    network: PreTrainedModel, blueprint: DetrBlueprint, samples: Samples, recipe: DetrRecipe
) -> dict[str, Any]:
    """Metrics of a network in evaluation mode; see `farther.metrics.closed_set.evaluate`."""
    columns, background = blueprint.columns()
    header = Header(classes=columns, background_index=background, activation=blueprint.family.activation)
    processor = make_processor(blueprint.processor)
    selection = Selection(score_threshold=0.01, iou=1.0, max_detections=100, per_query=blueprint.family.per_query)

    def detect(images: list[np.ndarray], names: list[str]) -> Regions:
        prepared = [prepare(processor, image) for image in images]
        return detect_regions(network, header, prepared, names, selection, recipe.precision)

    return evaluate_on(samples, recipe.batch_size, recipe.workers, detect)

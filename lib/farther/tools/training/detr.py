"""Training a detection transformer: seeded, and resumed where a killed run stopped."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from farther.detectors.networks.detr import DetrBlueprint, build_network, in_float32, keep_exact
from farther.detectors.networks.detr_inference import Selection, detect_regions, make_processor, prepare
from farther.metrics import closed_set
from farther.tables import Header, Regions
from farther.tables.files import digest, write_aside
from farther.tools.training.detr_losses import losses, make_batch
from farther.tools.training.detr_recipe import DetrRecipe
from farther.tools.training.run import Run, make_optimizer
from farther.tools.training.samples import Sample, Samples


class DetrRun(Run[PreTrainedModel, DetrRecipe]):
    """A training run of a detection transformer.

    Args:
        network: What is trained, on its device, with the weights it starts from.
        blueprint: How it was built.
        recipe: How it is trained.
        training: What it learns from.
        state_file, identity: See `Run`.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        blueprint: DetrBlueprint,
        recipe: DetrRecipe,
        training: Samples,
        state_file: Path,
        identity: str,
    ):
        # The backbone learns at its own rate.
        backbone = {name: p for name, p in network.named_parameters() if name.startswith("model.backbone")}
        others = [p for name, p in network.named_parameters() if name not in backbone]
        slow = recipe.backbone_learning_rate / recipe.learning_rate
        optimizer = make_optimizer(recipe, [(1.0, others), (slow, list(backbone.values()))])
        super().__init__(network, optimizer, recipe, training, state_file, identity)
        self.blueprint = blueprint
        self.device = next(network.parameters()).device
        for one in (self.network, self.averaged):
            keep_exact(one)
        # Matching needs costs that NumPy can read, and boxes all their digits.
        self.network.loss_function = in_float32(self.network.loss_function, self.device.type)
        self.processor = make_processor(blueprint.processor)

    def compute_losses(self, batch: list[Sample]) -> dict[str, Tensor]:
        """See `farther.tools.training.detr_losses.losses`."""
        made = make_batch(self.processor, batch, self.device)
        one_to_many = self.recipe.one_to_many_at(self.step / self.steps)
        return losses(self.network, made, self.recipe.precision, one_to_many)

    def evaluate(self, samples: Samples) -> dict[str, Any]:
        """See `evaluate`."""
        return evaluate(self.averaged, self.blueprint, samples, self.recipe)

    @property
    def best_file(self) -> Path:
        """Where the weights of the best epoch are kept, for a recipe with patience."""
        return self.state_file.with_name("best.pt")

    def after_epoch(self) -> None:
        """Keeps the averaged weights if the epoch that was logged last is the best so far."""
        figure = self.log[-1].get("val_map50")
        if self.recipe.patience is None or figure is None:
            return
        if all(figure > row.get("val_map50", -1) for row in self.log[:-1]):
            with write_aside(self.best_file) as aside:
                torch.save(self.averaged.state_dict(), aside)

    def has_ended(self) -> bool:
        """Whether the figures have not risen for too long."""
        figures = {row["epoch"]: row["val_map50"] for row in self.log if "val_map50" in row}
        if self.recipe.patience is None or not figures:
            return False
        return self.log[-1]["epoch"] - max(figures, key=lambda epoch: figures[epoch]) >= self.recipe.patience


def untrained(blueprint: DetrBlueprint, seed: int) -> PreTrainedModel:
    """A network whose random weights training can start from.

    transformers draws weights for networks that a checkpoint fills in at once: normalisations start near 0 there, and
    no signal gets through. Here they start at 1, convolutions as He et al. (2015) and linear layers as Glorot and
    Bengio (2010) draw them. Layers that must start at 0 (offsets of boxes and of sampling points) and biases stay as
    they are.
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
        # A proposal's first box is its anchor, as in the authors' own code.
        nn.init.zeros_(proposals.layers[-1].weight)
        nn.init.zeros_(proposals.layers[-1].bias)
    return network


def train(
    network: PreTrainedModel,
    blueprint: DetrBlueprint,
    training: Samples,
    validation: Samples,
    recipe: DetrRecipe,
    state_file: Path,
    log_file: Path,
) -> PreTrainedModel:
    """Trains a network, or goes on with a run that was killed.

    Args:
        network: What to train, on its device, with the weights to start from.
        blueprint: How it was built.
        training: What it learns from.
        validation: What its mAP is watched on.
        recipe: How.
        state_file: Where the state of an unfinished run is kept, and beside it the best weights.
        log_file: See `Run.go`.

    Returns:
        The averaged network, in evaluation mode.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image cannot be read.
        ParameterError: the image processor is unknown, or the recipe does not fit the network.
    """
    start = [t.cpu().numpy().tobytes() for t in network.state_dict().values()]
    identity = digest(json.dumps([asdict(recipe), asdict(blueprint)]), training.digest(), *start)
    run = DetrRun(network, blueprint, recipe, training, state_file, identity)
    averaged = run.go(validation, log_file)
    if recipe.patience is not None:
        averaged.load_state_dict(torch.load(run.best_file, map_location="cpu", weights_only=True))
    return averaged


def evaluate(
    network: PreTrainedModel, blueprint: DetrBlueprint, samples: Samples, recipe: DetrRecipe
) -> dict[str, Any]:
    """Figures of a network on the images of a subset; see `farther.metrics.closed_set.evaluate`.

    Args:
        network: In evaluation mode.
        recipe: Batch size and precision are used.
    """
    columns, background = blueprint.columns()
    header = Header(classes=columns, background_index=background, activation=blueprint.family.activation)
    processor = make_processor(blueprint.processor)
    chosen = Selection(score_threshold=0.01, iou=1.0, max_detections=100, per_query=blueprint.family.per_query)
    found = [Regions.empty(header)]
    for first in range(0, len(samples), recipe.batch_size):
        rows = range(first, min(first + recipe.batch_size, len(samples)))
        names = [samples.images.image_id[row] for row in rows]
        images = [prepare(processor, samples.pixels(row)) for row in rows]
        found.append(detect_regions(network, header, images, names, chosen, recipe.precision))
    return closed_set.evaluate(samples.objects, Regions.concatenate(found[1:]), samples.classes)

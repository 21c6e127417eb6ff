"""Training a Faster R-CNN, as it is or with virtual outliers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.models.detection import FasterRCNN

from farther.detectors.networks.architectures import BACKGROUND, Blueprint, build_network
from farther.detectors.networks.detection import detect_regions
from farther.detectors.networks.energy_head import ENERGY_HEAD, EnergyHead
from farther.metrics import closed_set
from farther.tables import Header, Regions
from farther.tables.files import digest
from farther.tools.training.losses import ExtraLosses, losses
from farther.tools.training.recipe import Recipe
from farther.tools.training.run import Run, TrainingError, make_optimizer
from farther.tools.training.samples import Sample, Samples
from farther.tools.training.virtual_outliers import FasterRCNNRecipe, OutlierQueue, outlier_loss


class FasterRCNNRun(Run[FasterRCNN, FasterRCNNRecipe]):
    """A training run of a Faster R-CNN.

    Args:
        network: What is trained, on its device; with the head `EnergyHead`, where the recipe has virtual outliers.
        recipe: How it is trained.
        training: What it learns from.
        state_file, identity: See `Run`.
        extra_losses: See `farther.tools.training.losses.ExtraLosses`.
    """

    def __init__(
        self,
        network: FasterRCNN,
        recipe: FasterRCNNRecipe,
        training: Samples,
        state_file: Path,
        identity: str,
        extra_losses: Sequence[ExtraLosses],
    ):
        optimizer = make_optimizer(recipe, [(1.0, list(network.parameters()))])
        super().__init__(network, optimizer, recipe, training, state_file, identity)
        self.extra_losses = (self.virtual_outlier_losses, *extra_losses)
        self.queue: OutlierQueue | None = None
        if recipe.virtual_outliers is not None:
            last = network.roi_heads.box_predictor.cls_score
            self.queue = OutlierQueue(recipe.virtual_outliers, last.out_features - 1, last.in_features)
            self.queue.to(last.weight.device)

    def compute_losses(self, batch: list[Sample]) -> dict[str, Tensor]:
        """See `farther.tools.training.losses.losses`."""
        found = losses(self.network, batch, self.recipe.precision, self.extra_losses)
        return {"loss": torch.stack(list(found.values())).sum(), **found}

    def virtual_outlier_losses(self, features: Tensor, labels: Tensor, logits: Tensor) -> dict[str, Tensor]:
        """VOS's loss, as `ExtraLosses`; nothing before its start, or while no class has filled its queue."""
        known = labels > 0
        if self.queue is None or not known.any():
            return {}
        self.queue.push(features.detach()[known], labels[known] - 1)
        if self.step < self.queue.how.start * self.steps or not len(self.queue.full):
            return {}
        head: EnergyHead = self.network.get_submodule(ENERGY_HEAD)
        classify = self.network.roi_heads.box_predictor.cls_score
        return {"loss_virtual_outliers": outlier_loss(self.queue, head, classify, logits[known])}

    def evaluate(self, samples: Samples) -> dict[str, Any]:
        """See `evaluate`."""
        return evaluate(self.averaged, samples, self.recipe)

    def extra_state(self) -> dict[str, Any]:
        """The queue of features."""
        return {} if self.queue is None else dict(self.queue.state_dict())

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """See `Run.load_extra_state`."""
        if self.queue is not None:
            self.queue.load_state_dict(state)

    def check_queue(self) -> None:
        """Tells whether virtual outliers were learned at all.

        Raises:
            TrainingError: no class had enough objects.
        """
        if self.queue is not None and not len(self.queue.full):
            most = int(self.queue.seen.max())
            problem = f"no class ever filled its queue of {self.queue.how.queue} features: at most {most} were seen"
            raise TrainingError(f"virtual_outliers: {problem}. Lower 'queue' or train for more epochs")


def train(
    blueprint: Blueprint,
    training: Samples,
    validation: Samples,
    recipe: FasterRCNNRecipe,
    state_file: Path,
    log_file: Path,
    device: torch.device,
    initial: Mapping[str, Tensor] | None = None,
    extra_losses: Sequence[ExtraLosses] = (),
) -> FasterRCNN:
    """Trains a network, or goes on with a run that was killed.

    Args:
        blueprint: The network to build.
        training: What it learns from.
        validation: What its mAP is watched on; no decision depends on it.
        recipe: How.
        state_file: Where the state of an unfinished run is kept.
        log_file: See `Run.go`.
        device: Where to train.
        initial: Weights to start from, by name; see `farther.tools.training.initial`.
        extra_losses: See `farther.tools.training.losses.ExtraLosses`.

    Returns:
        The averaged network, in evaluation mode.

    Raises:
        TrainingError: the loss is not finite, or virtual outliers are wanted and no class has objects enough.
        DataError: an image cannot be read.
    """
    described = json.dumps([asdict(recipe), asdict(blueprint)])
    identity = digest(described, training.digest(), *(t.numpy().tobytes() for t in (initial or {}).values()))
    torch.manual_seed(recipe.seed)
    network = build_network(blueprint).to(device, memory_format=torch.channels_last)
    if initial is not None:
        network.load_state_dict(initial, strict=False)
    if recipe.virtual_outliers is not None:
        network.add_module(ENERGY_HEAD, EnergyHead(len(blueprint.classes)).to(device))
    run = FasterRCNNRun(network, recipe, training, state_file, identity, extra_losses)
    averaged = run.go(validation, log_file)
    run.check_queue()
    return averaged


def evaluate(network: FasterRCNN, samples: Samples, recipe: Recipe) -> dict[str, Any]:
    """Figures of a network on the images of a subset; see `farther.metrics.closed_set.evaluate`.

    Args:
        network: In evaluation mode.
        recipe: Batch size and precision are used.
    """
    header = Header(classes=(BACKGROUND, *samples.classes), background_index=0)
    loader = DataLoader(_Pixels(samples), batch_size=recipe.batch_size, num_workers=recipe.workers, collate_fn=list)
    names = np.array_split(samples.images.image_id, range(recipe.batch_size, len(samples), recipe.batch_size))
    found = [
        detect_regions(network, header, images, list(ids), recipe.precision)
        for images, ids in zip(loader, names, strict=True)
    ]
    return closed_set.evaluate(samples.objects, Regions.concatenate(found), samples.classes)


class _Pixels(torch.utils.data.Dataset):
    def __init__(self, samples: Samples):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.samples.pixels(row)

"""Training a Faster R-CNN: seeded, and resumed where a killed run stopped."""

from __future__ import annotations

import copy
import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.models.detection import FasterRCNN
from tqdm import tqdm

from farther.detectors.networks.architectures import BACKGROUND, Blueprint, build_network
from farther.detectors.networks.detection import detect_regions
from farther.detectors.networks.energy_head import ENERGY_HEAD, EnergyHead
from farther.errors import FartherError
from farther.metrics import closed_set
from farther.tables import Header, Regions
from farther.tables.files import digest, write_aside
from farther.training.augmentation import augment
from farther.training.losses import ExtraLosses, losses
from farther.training.recipe import Augmentation, Recipe
from farther.training.samples import Sample, Samples
from farther.training.virtual_outliers import FasterRCNNRecipe, OutlierQueue, outlier_loss

#: Batches are formed among the images of so many consecutive batches, so that similar shapes meet.
POOLED_BATCHES = 8


class TrainingError(FartherError):
    """Training cannot go on."""


def batches_of_epoch(sizes: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Rows of each batch of an epoch: shuffled, with images of similar shape together, so that little is padded.

    Args:
        sizes: ndarray of shape (N, 2), widths and heights.

    Returns:
        N // batch_size lists of `batch_size` rows (or one of N, when there are fewer), decided by seed and epoch alone.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(sizes))
    batch_size = min(batch_size, len(sizes))
    order = order[: len(order) - len(order) % batch_size]
    batches = []
    for start in range(0, len(order), batch_size * POOLED_BATCHES):
        pool = order[start : start + batch_size * POOLED_BATCHES]
        pool = pool[np.lexsort((sizes[pool].sum(axis=1), sizes[pool, 0] < sizes[pool, 1]))]
        batches += pool.reshape(-1, batch_size).tolist()
    return [batches[k] for k in random.permutation(len(batches))]


class AugmentedSamples(torch.utils.data.Dataset):
    """Samples of one epoch; each depends on seed, epoch and row alone, whatever process makes it."""

    def __init__(self, samples: Samples, how: Augmentation, seed: int, epoch: int):
        self.samples, self.how, self.seed, self.epoch = samples, how, seed, epoch

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> Sample:
        return augment(self.samples[row], self.how, np.random.default_rng([self.seed, self.epoch, row]))


class Run:
    """The state of a training run: network, optimizer, moving average, losses, and how far it came.

    Args:
        blueprint: The network.
        recipe: How it is trained.
        steps: Of the whole run.
        state_file: Where the state is kept while the run is unfinished.
        identity: What the run depends on; a state of another identity is not continued.
        device: Where to train.
        initial: Weights to start from, by name; the rest is random.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        recipe: FasterRCNNRecipe,
        steps: int,
        state_file: Path,
        identity: str,
        device: torch.device,
        initial: Mapping[str, Tensor] | None = None,
    ):
        torch.manual_seed(recipe.seed)
        self.recipe, self.steps, self.state_file, self.identity = recipe, steps, state_file, identity
        self.network: FasterRCNN = build_network(blueprint).to(device, memory_format=torch.channels_last)
        if initial is not None:
            self.network.load_state_dict(initial, strict=False)
        self.queue: OutlierQueue | None = None
        if recipe.virtual_outliers is not None:
            classes, dimensions = len(blueprint.classes), self.network.roi_heads.box_predictor.cls_score.in_features
            self.network.add_module(ENERGY_HEAD, EnergyHead(classes).to(device))
            self.queue = OutlierQueue(recipe.virtual_outliers, classes, dimensions).to(device)
        self.averaged = copy.deepcopy(self.network).eval()
        self.optimizer = make_optimizer(self.network, recipe)
        self.step = 0
        self.losses: dict[str, list[float]] = defaultdict(list)
        self.log: list[dict[str, float]] = []

    def save(self) -> None:
        """Writes the state aside and renames it: a kill leaves the last whole one."""
        state = {
            "identity": self.identity,
            "step": self.step,
            "losses": dict(self.losses),
            "log": self.log,
            "network": self.network.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "queue": None if self.queue is None else self.queue.state_dict(),
        }
        with write_aside(self.state_file) as aside:
            torch.save(state, aside)

    def resume(self) -> None:
        """Goes on where an earlier run of the same identity stopped, if one did."""
        if not self.state_file.exists():
            return
        state = torch.load(self.state_file, map_location="cpu", weights_only=True)
        if state["identity"] != self.identity:
            return
        self.network.load_state_dict(state["network"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.queue is not None:
            self.queue.load_state_dict(state["queue"])
        self.step, self.log = state["step"], state["log"]
        self.losses.update(state["losses"])

    def learn(self, batch: list[Sample], extra_losses: Sequence[ExtraLosses]) -> None:
        """One step, its losses noted; all that is random in it depends on the seed and the step's number alone.

        Raises:
            TrainingError: the loss is not finite.
        """
        torch.manual_seed((self.recipe.seed << 32) + self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate_at(self.step, self.steps)
        self.network.train()
        more = (self.virtual_outlier_losses, *extra_losses)
        found = losses(self.network, batch, self.recipe.precision, more)
        total = torch.stack(list(found.values())).sum()
        if not torch.isfinite(total):
            values = {name: loss.item() for name, loss in found.items()}
            problem = f"step {self.step}: the loss is not finite: {values}"
            raise TrainingError(f"{problem}. Lower learning_rate or set clip_norm")
        self.optimizer.zero_grad()
        total.backward()
        if self.recipe.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        self.step += 1
        self._average()
        for name, loss in {"loss": total, **found}.items():
            self.losses[name].append(loss.item())

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

    def check_queue(self) -> None:
        """Tells whether virtual outliers were learned at all.

        Raises:
            TrainingError: no class had enough objects.
        """
        if self.queue is not None and not len(self.queue.full):
            most = int(self.queue.seen.max())
            problem = f"no class ever filled its queue of {self.queue.how.queue} features: at most {most} were seen"
            raise TrainingError(f"virtual_outliers: {problem}. Lower 'queue' or train for more epochs")

    def end_epoch(self, epoch: int, figures: dict[str, Any]) -> None:
        """Notes an epoch's mean losses, and its figures on the validation images where they were looked at."""
        row = {"epoch": epoch, "step": self.step, "learning_rate": self.optimizer.param_groups[0]["lr"]}
        row |= {name: float(np.mean(values)) for name, values in self.losses.items()}
        self.log.append(row | ({"val_map50": figures["ap50"]} if figures else {}))
        self.losses.clear()

    def _average(self) -> None:
        """Moves the average towards the weights; faster at first, so that it soon forgets the untrained ones."""
        decay = min(self.recipe.average, self.step / (self.step + 10)) if self.recipe.average else 0.0
        with torch.no_grad():
            for mean, value in zip(
                self.averaged.state_dict().values(), self.network.state_dict().values(), strict=True
            ):
                if mean.is_floating_point():
                    mean.lerp_(value, 1 - decay)
                else:
                    mean.copy_(value)


def make_optimizer(network: torch.nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum, or AdamW; only matrices and kernels decay."""
    learned = [p for p in network.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learned if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in learned if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.learning_rate)
    return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.momentum > 0)


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
        state_file: Where the state of an unfinished run is kept; removed at the end.
        log_file: CSV to write: epoch, step, learning rate, mean losses, mAP50 on the validation images.
        device: Where to train.
        initial: Weights to start from, by name; see `farther.training.initial`.
        extra_losses: See `farther.training.losses.ExtraLosses`.

    Returns:
        The averaged network, in evaluation mode.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image cannot be read.
    """
    sizes = np.stack([training.images.width, training.images.height], axis=1)
    per_epoch = len(batches_of_epoch(sizes, recipe.batch_size, recipe.seed, 0))
    described = json.dumps([asdict(recipe), asdict(blueprint)])
    identity = digest(described, training.digest(), *(t.numpy().tobytes() for t in (initial or {}).values()))
    run = Run(blueprint, recipe, per_epoch * recipe.epochs, state_file, identity, device, initial)
    run.resume()
    if recipe.cache_images:
        training.cache()
        validation.cache()
    size = min(recipe.batch_size, len(training))
    with tqdm(total=run.steps * size, initial=run.step * size, unit="image", smoothing=0.05) as bar:
        for epoch in range(run.step // per_epoch, recipe.epochs):
            batches = batches_of_epoch(sizes, recipe.batch_size, recipe.seed, epoch)
            for batch in _load(training, recipe, epoch, batches[run.step - epoch * per_epoch :]):
                run.learn(batch, extra_losses)
                bar.update(len(batch))
                bar.set_postfix(epoch=epoch + 1, loss=f"{np.mean(run.losses['loss'][-50:]):.3f}", refresh=False)
                if run.step % recipe.checkpoint_steps == 0 and run.step % per_epoch:
                    run.save()
            is_looked_at = (epoch + 1) % recipe.evaluate_epochs == 0 or epoch + 1 == recipe.epochs
            figures = evaluate(run.averaged, validation, recipe) if is_looked_at else {}
            run.end_epoch(epoch + 1, figures)
            write_log(log_file, run.log)
            run.save()
    run.check_queue()
    return run.averaged


def _load(training: Samples, recipe: Recipe, epoch: int, batches: Sequence[list[int]]) -> Iterator[list[Sample]]:
    made = AugmentedSamples(training, recipe.augmentation, recipe.seed, epoch)
    yield from DataLoader(made, batch_sampler=batches, num_workers=recipe.workers, collate_fn=list)


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


def write_log(path: Path, rows: list[dict[str, float]]) -> None:
    """Writes the rows as CSV; what a row lacks stays empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: f"{value:.6g}" for name, value in row.items() if value is not None} for row in rows)
    with write_aside(path) as aside:
        aside.write_text(text.getvalue(), encoding="utf-8")

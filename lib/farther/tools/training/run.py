"""A training run that can be killed: its state, its steps and its log, whatever is trained."""

from __future__ import annotations

import copy
import csv
import io
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from farther.errors import FartherError
from farther.tables.files import write_aside
from farther.tools.training.augmentation import augment
from farther.tools.training.recipe import Augmentation, Recipe
from farther.tools.training.samples import Sample, Samples

#: Batches are formed among the images of so many consecutive batches, so that similar shapes meet.
POOLED_BATCHES = 8

Network = TypeVar("Network", bound=nn.Module)
How = TypeVar("How", bound=Recipe)


class TrainingError(FartherError):
    """Training cannot go on."""


class Run(ABC, Generic[Network, How]):
    """The state of a training run: network, optimizer, moving average, losses, and how far it came.

    Args:
        network: What is trained, on its device, with the weights it starts from.
        optimizer: Of that network. A group's "ratio" is its learning rate as a multiple of the recipe's.
        recipe: How it is trained.
        training: What it learns from.
        state_file: Where the state is kept while the run is unfinished.
        identity: What the run depends on; a state of another identity is not continued.
    """

    def __init__(
        self,
        network: Network,
        optimizer: torch.optim.Optimizer,
        recipe: How,
        training: Samples,
        state_file: Path,
        identity: str,
    ):
        self.network, self.optimizer, self.recipe = network, optimizer, recipe
        self.averaged: Network = copy.deepcopy(network).eval()
        self.training, self.state_file, self.identity = training, state_file, identity
        self.sizes = np.stack([training.images.width, training.images.height], axis=1)
        self.steps_per_epoch = len(batches_of_epoch(self.sizes, recipe.batch_size, recipe.seed, 0))
        self.steps = self.steps_per_epoch * recipe.epochs
        self.step = 0
        self.losses: dict[str, list[float]] = defaultdict(list)
        self.log: list[dict[str, float]] = []

    @abstractmethod
    def compute_losses(self, batch: list[Sample]) -> dict[str, Tensor]:
        """Losses of one batch; "loss" is what training makes small, the others say what it is made of."""

    @abstractmethod
    def evaluate(self, samples: Samples) -> dict[str, Any]:
        """Figures of the averaged network; see `farther.metrics.closed_set.evaluate`."""

    def extra_state(self) -> dict[str, Any]:
        """What the run must remember besides its network and optimizer: tensors and plain values."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Takes back what `extra_state` gave."""

    def has_ended(self) -> bool:
        """Whether the run ends before its last epoch."""
        return False

    def after_epoch(self) -> None:
        """Called when an epoch's figures are in the log."""

    def go(self, validation: Samples, log_file: Path) -> Network:
        """Trains to the end, from where a killed run of the same identity stopped.

        Args:
            validation: What the mAP is watched on.
            log_file: CSV to write: epoch, step, learning rate, mean losses, mAP50 on the validation images.

        Returns:
            The averaged network, in evaluation mode.

        Raises:
            TrainingError: the loss is not finite.
            DataError: an image cannot be read.
        """
        self.resume()
        if self.recipe.cache_images:
            self.training.cache()
            validation.cache()
        size = min(self.recipe.batch_size, len(self.training))
        with tqdm(total=self.steps * size, initial=self.step * size, unit="image", smoothing=0.05) as bar:
            for epoch in range(self.step // self.steps_per_epoch, self.recipe.epochs):
                if self.has_ended():
                    break
                for batch in self._batches(epoch):
                    self.learn(batch)
                    bar.update(len(batch))
                    bar.set_postfix(epoch=epoch + 1, loss=f"{np.mean(self.losses['loss'][-50:]):.3f}", refresh=False)
                    if self.step % self.recipe.checkpoint_steps == 0 and self.step % self.steps_per_epoch:
                        self.save()
                is_last = epoch + 1 == self.recipe.epochs
                is_looked_at = is_last or (epoch + 1) % self.recipe.evaluate_epochs == 0
                self.end_epoch(epoch + 1, self.evaluate(validation) if is_looked_at else {})
                self.after_epoch()
                write_log(log_file, self.log)
                self.save()
        return self.averaged

    def learn(self, batch: list[Sample]) -> None:
        """One step, its losses noted; all that is random in it depends on the seed and the step's number alone.

        Raises:
            TrainingError: the loss is not finite.
        """
        torch.manual_seed((self.recipe.seed << 32) + self.step)
        rate = self.recipe.learning_rate_at(self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("ratio", 1.0)
        self.network.train()
        found = self.compute_losses(batch)
        values = {name: loss.item() for name, loss in found.items()}
        if not np.isfinite(values["loss"]):
            problem = f"step {self.step}: the loss is not finite: {values}"
            raise TrainingError(f"{problem}. Lower learning_rate or clip_norm")
        self.optimizer.zero_grad()
        found["loss"].backward()
        if self.recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        self.step += 1
        self._average()
        for name, value in values.items():
            self.losses[name].append(value)

    def end_epoch(self, epoch: int, figures: dict[str, Any]) -> None:
        """Notes an epoch's mean losses, and its figures on the validation images where they were looked at."""
        row = {"epoch": epoch, "step": self.step, "learning_rate": self.optimizer.param_groups[0]["lr"]}
        row |= {name: float(np.mean(values)) for name, values in self.losses.items()}
        self.log.append(row | ({"val_map50": figures["ap50"]} if figures else {}))
        self.losses.clear()

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
            "extra": self.extra_state(),
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
        self.load_extra_state(state["extra"])
        self.step, self.log = state["step"], state["log"]
        self.losses.update(state["losses"])

    def _batches(self, epoch: int) -> Iterator[list[Sample]]:
        """The batches of an epoch that are still to be learned from."""
        batches = batches_of_epoch(self.sizes, self.recipe.batch_size, self.recipe.seed, epoch)
        made = AugmentedSamples(self.training, self.recipe.augmentation, self.recipe.seed, epoch)
        rest = batches[self.step - epoch * self.steps_per_epoch :]
        yield from DataLoader(made, batch_sampler=rest, num_workers=self.recipe.workers, collate_fn=list)

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


def make_optimizer(recipe: Recipe, groups: Sequence[tuple[float, Sequence[nn.Parameter]]]) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum, or AdamW; only matrices and kernels decay.

    Args:
        recipe: How to train.
        groups: Parameters, each group with its learning rate as a multiple of the recipe's.
    """
    made: list[dict[str, Any]] = []
    for ratio, parameters in groups:
        learned = [p for p in parameters if p.requires_grad]
        matrices, others = [p for p in learned if p.ndim > 1], [p for p in learned if p.ndim <= 1]
        made.append({"params": matrices, "weight_decay": recipe.weight_decay, "ratio": ratio})
        made.append({"params": others, "weight_decay": 0.0, "ratio": ratio})
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(made, lr=recipe.learning_rate)
    return torch.optim.SGD(made, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.momentum > 0)


def write_log(path: Path, rows: list[dict[str, float]]) -> None:
    """Writes the rows as CSV; what a row lacks stays empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: f"{value:.6g}" for name, value in row.items() if value is not None} for row in rows)
    with write_aside(path) as aside:
        aside.write_text(text.getvalue(), encoding="utf-8")

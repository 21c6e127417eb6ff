"""A resumable training run of any network: its state, its steps, its log and its evaluation."""

from __future__ import annotations

import copy
import csv
import io
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from farther.errors import DataError, FartherError, shorten
from farther.metrics import closed_set
from farther.tables import Regions
from farther.tables.files import regular_file
from farther.tables.writing import write_aside
from farther_training.recipe import Augmentation, Recipe
from farther_training.samples import Sample, Samples, augment
from farther_training.trainers import Task

#: Number of consecutive batches whose images are pooled to form batches of similar shapes.
POOLED_BATCHES = 8

#: A change of a sample, determined by a generator of random numbers. It is sent to the processes
#: that read.
Change = Callable[[Sample, np.random.Generator], Sample]

Network = TypeVar("Network", bound=nn.Module)
AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)
Batch = TypeVar("Batch")


class TrainingError(FartherError):
    """Training cannot continue."""


class State(ABC, Generic[Network, AnyRecipe, Batch]):
    """State of a resumable training run: network, optimizer, moving average, losses, progress.

    Args:
        network: The network to train, on its device, with its initial weights.
        optimizer: Optimizer of that network. A group's "ratio" is its learning rate as a multiple
            of the recipe's.
        recipe: Hyperparameters of the run.
        state_file: File of the state of the unfinished run.
        identity: Digest of everything the run depends on; a state with another identity is not
            resumed.

    Attributes:
        steps: Number of steps of the whole run.
    """

    steps: int

    def __init__(
        self,
        network: Network,
        optimizer: torch.optim.Optimizer,
        recipe: AnyRecipe,
        state_file: Path,
        identity: str,
    ):
        self.network = network
        self.optimizer = optimizer
        self.recipe = recipe
        self.averaged: Network = copy.deepcopy(network).eval()
        self.state_file = state_file
        self.identity = identity
        self.step = 0
        self.losses: dict[str, list[float]] = defaultdict(list)
        self.log: list[dict[str, float]] = []

    @abstractmethod
    def compute_losses(self, batch: Batch) -> dict[str, Tensor]:
        """Losses of a batch; "loss" is minimised, the others are its parts."""

    def after_step(self) -> None:
        """Called after each step of the optimizer, before the weights are averaged."""

    def extra_state(self) -> dict[str, Any]:
        """State besides that of network and optimizer: tensors and plain values."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the values of `extra_state`."""

    def learn(self, batch: Batch) -> None:
        """Takes one step and records its losses.

        Its random numbers depend only on the seed and the step's number.

        Raises:
            TrainingError: the loss is not finite.
        """
        torch.manual_seed((self.recipe.seed << 32) + self.step)
        rate = self.recipe.learning_rate_at(self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("ratio", 1.0)
        self.network.train()
        losses = self.compute_losses(batch)
        values = {name: loss.item() for name, loss in losses.items()}
        if not np.isfinite(values["loss"]):
            problem = f"step {self.step}: the loss is not finite: {values}"
            raise TrainingError(f"{problem}. Lower learning_rate or clip_norm")
        self.optimizer.zero_grad()
        losses["loss"].backward()
        if self.recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        self.after_step()
        self.step += 1
        self._average()
        for name, value in values.items():
            self.losses[name].append(value)

    def end_epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        """Adds a row to the log: mean losses of the epoch, and validation metrics if measured."""
        row = {
            "epoch": epoch,
            "step": self.step,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
        }
        row |= {name: float(np.mean(values)) for name, values in self.losses.items()}
        self.log.append(row | metrics)
        self.losses.clear()

    def save(self) -> None:
        """Writes the state aside and renames it: a killed run leaves the last complete state."""
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
        write_state(self.state_file, state)

    def resume(self) -> None:
        """Restores the state that an earlier run of the same identity saved, if there is one."""
        state = read_state(self.state_file, self.identity)
        if state is None:
            return
        self.network.load_state_dict(state["network"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.load_extra_state(state["extra"])
        self.step = state["step"]
        self.log = state["log"]
        self.losses.update(state["losses"])

    @torch.no_grad()
    def _average(self) -> None:
        """Updates the moving average; faster at first, to forget the untrained weights."""
        decay = 0.0
        if self.recipe.average:
            decay = min(self.recipe.average, self.step / (self.step + 10))
        means = self.averaged.state_dict().values()
        values = self.network.state_dict().values()
        for mean, value in zip(means, values, strict=True):
            if mean.is_floating_point():
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)


class Run(State[Network, AnyRecipe, list[Sample]]):
    """A training run of a detector on the images of a task; see `State` for the other arguments."""

    def __init__(
        self,
        network: Network,
        optimizer: torch.optim.Optimizer,
        recipe: AnyRecipe,
        task: Task,
        identity: str,
    ):
        super().__init__(network, optimizer, recipe, task.state_file, identity)
        self.task = task
        images = task.training.images
        self.sizes = np.stack([images.width, images.height], axis=1)
        self.steps_per_epoch = len(batches_of_epoch(self.sizes, recipe.batch_size, recipe.seed, 0))
        self.steps = self.steps_per_epoch * recipe.epochs

    @abstractmethod
    def evaluate(self, samples: Samples) -> dict[str, Any]:
        """Metrics of the averaged network; see `farther_training.trainers.Trained.evaluate`."""

    def validate(self) -> dict[str, float]:
        """Metrics on the validation images, for the log."""
        return {"val_map50": self.evaluate(self.task.validation)["ap50"]}

    def change(self) -> Change | None:
        """Change of each sample after its augmentation, in the process that reads it.

        None for no change.
        """
        return None

    def has_ended(self) -> bool:
        """True if the run ends before its last epoch."""
        return False

    def after_epoch(self) -> None:
        """Called when an epoch's metrics are in the log."""

    def go(self) -> Network:
        """Trains to the end, resuming a killed run of the same identity.

        Returns the averaged network.
        """
        self.resume()
        if self.recipe.cache_images:
            self.task.training.cache()
            self.task.validation.cache()
        first_epoch = self.step // self.steps_per_epoch
        size = min(self.recipe.batch_size, len(self.task.training))
        with tqdm(
            total=self.steps * size, initial=self.step * size, unit="image", smoothing=0.05
        ) as bar:
            for epoch in range(first_epoch, self.recipe.epochs):
                if self.has_ended():
                    break
                self._train_epoch(epoch, bar)
                metrics = {}
                if self._is_evaluated(epoch + 1):
                    metrics = self.validate()
                self.end_epoch(epoch + 1, metrics)
                self.after_epoch()
                write_log(self.task.log_file, self.log)
                self.save()
        return self.averaged

    def _train_epoch(self, epoch: int, bar: tqdm) -> None:
        """Takes the remaining steps of an epoch."""
        for batch in self._batches(epoch):
            self.learn(batch)
            bar.update(len(batch))
            mean_loss = np.mean(self.losses["loss"][-50:])
            bar.set_postfix(epoch=epoch + 1, loss=f"{mean_loss:.3f}", refresh=False)
            is_checkpoint = self.step % self.recipe.checkpoint_steps == 0
            is_end_of_epoch = self.step % self.steps_per_epoch == 0
            if is_checkpoint and not is_end_of_epoch:
                self.save()

    def _is_evaluated(self, number: int) -> bool:
        """Whether the network is evaluated after an epoch, counted from 1."""
        return number == self.recipe.epochs or number % self.recipe.evaluate_epochs == 0

    def _batches(self, epoch: int) -> Iterator[list[Sample]]:
        """The remaining batches of an epoch."""
        batches = batches_of_epoch(self.sizes, self.recipe.batch_size, self.recipe.seed, epoch)
        augmented = AugmentedSamples(
            self.task.training, self.recipe.augmentation, self.recipe.seed, epoch, self.change()
        )
        remaining_batches = batches[self.step - epoch * self.steps_per_epoch :]
        yield from DataLoader(
            augmented,
            batch_sampler=remaining_batches,
            num_workers=self.recipe.workers,
            collate_fn=list,
        )


def batches_of_epoch(sizes: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Rows of each batch of an epoch: shuffled, images of similar shape together.

    Such batches need little padding.

    Args:
        sizes: ndarray of shape (N, 2), widths and heights.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(sizes))
    batch_size = min(batch_size, len(sizes))
    order = order[: len(order) - len(order) % batch_size]
    batches = []
    for start in range(0, len(order), batch_size * POOLED_BATCHES):
        pool = order[start : start + batch_size * POOLED_BATCHES]
        is_upright = sizes[pool, 0] < sizes[pool, 1]
        by_shape = np.lexsort((sizes[pool].sum(axis=1), is_upright))
        batches += pool[by_shape].reshape(-1, batch_size).tolist()
    return [batches[index] for index in random.permutation(len(batches))]


class AugmentedSamples(Dataset):
    """Augmented samples of an epoch.

    Each depends only on seed, epoch and row, not on the process that reads it.

    Args:
        samples: The samples.
        augmentation: Their augmentation.
        seed, epoch: Determine the random numbers, with the row.
        change: What is done to each augmented sample; None for nothing.
    """

    def __init__(
        self,
        samples: Samples,
        augmentation: Augmentation,
        seed: int,
        epoch: int,
        change: Change | None = None,
    ):
        self.samples = samples
        self.augmentation = augmentation
        self.seed = seed
        self.epoch = epoch
        self.change = change

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> Sample:
        random = np.random.default_rng([self.seed, self.epoch, row])
        sample = augment(self.samples[row], self.augmentation, random)
        if self.change is not None:
            sample = self.change(sample, random)
        return sample


def evaluate_on(
    samples: Samples,
    batch_size: int,
    workers: int,
    detect: Callable[[list[np.ndarray], list[str]], Regions],
) -> dict[str, Any]:
    """Metrics of a detector on samples; see `farther.metrics.closed_set.evaluate`."""
    loader = DataLoader(samples, batch_size=batch_size, num_workers=workers, collate_fn=list)
    boundaries = range(batch_size, len(samples), batch_size)
    names_by_batch = np.array_split(samples.images.image_id, boundaries)
    detections = []
    for batch, names in zip(loader, names_by_batch, strict=True):
        images = [sample.pixels for sample in batch]
        detections.append(detect(images, list(names)))
    return closed_set.evaluate(samples.objects, Regions.concatenate(detections), samples.classes)


def make_optimizer(
    recipe: Recipe, groups: Sequence[tuple[float, Sequence[nn.Parameter]]]
) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum, or AdamW; weight decay applies to matrices and kernels only."""
    parameter_groups: list[dict[str, Any]] = []
    for ratio, parameters in groups:
        matrices = []
        vectors = []
        for parameter in parameters:
            if not parameter.requires_grad:
                continue
            if parameter.ndim > 1:
                matrices.append(parameter)
            else:
                vectors.append(parameter)
        parameter_groups.append(
            {"params": matrices, "weight_decay": recipe.weight_decay, "ratio": ratio}
        )
        parameter_groups.append({"params": vectors, "weight_decay": 0.0, "ratio": ratio})

    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameter_groups, lr=recipe.learning_rate)
    return torch.optim.SGD(
        parameter_groups,
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.momentum > 0,
    )


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Writes a state aside and renames it, so that a killed run leaves the last complete one."""
    with write_aside(path) as aside, aside.open("wb") as file:
        torch.save(state, file)


def read_state(path: Path, identity: str) -> dict[str, Any] | None:
    """The saved state of a run with this identity; None where there is none.

    Raises:
        DataError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(
            regular_file(path), map_location="cpu", weights_only=True
        )
        if state["identity"] != identity:
            return None
        return state
    except Exception as error:  # torch.load raises whatever its reader met
        problem = (
            "the state of an unfinished training is damaged: delete it and begin again; "
            f"{shorten(error)}"
        )
        raise DataError(problem, file=path) from error


def write_log(path: Path, rows: list[dict[str, float]]) -> None:
    """Writes the rows as CSV; missing values stay empty."""
    columns: dict[str, None] = {}
    for row in rows:
        columns.update(dict.fromkeys(row))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        formatted = {}
        for name, value in row.items():
            if value is not None:
                formatted[name] = f"{value:.6g}"
        writer.writerow(formatted)
    with write_aside(path) as aside:
        aside.write_text(text.getvalue(), encoding="utf-8")

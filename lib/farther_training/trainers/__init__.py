"""Trainers: one file per kind of detector, registered under the name that users write.

A trainer is a dataclass of a job's parameters: samples in, a checkpoint out. `farther_training.job`
runs it.

Example:
    >>> import farther_training.trainers
    >>> farther_training.trainers.names()
    ['classifier', 'detr', 'faster_rcnn', 'mask_rcnn', 'retinanet', 'yolo']
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from farther.curation import Division
from farther.naming.registry import STRICT, Parameters, Registry
from farther.tables.files import digest

if TYPE_CHECKING:
    import torch

    from farther_training.samples import Samples

registry: Registry[Job] = Registry("trainer", "farther_training.trainers")
create = registry.create
get = registry.get
names = registry.names
register = registry.register


def _check_safetensors(path: Path) -> Path:
    if path.suffix != ".safetensors":
        raise ValueError("a checkpoint's name ends in .safetensors")
    return path


def _check_distinct(classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if classes is None:
        return None
    if not classes or len(set(classes)) < len(classes):
        raise ValueError("expected one class or more, each once")
    return classes


@dataclass(config=STRICT, kw_only=True)
class TrainingDivision(Division):
    """Division of a benchmark: a detector learns known classes, from images without unknown ones.

    Args:
        rules: The benchmark's class mapping.
        known, seed: As in the benchmark; see `farther.curation.Division`.
    """

    rules: Path


@plain_dataclass(frozen=True)
class Task:
    """Images, device and files of a trainer.

    Args:
        training: The training images.
        validation: Images on which mAP50, or accuracy, is monitored.
        device: Device to train on.
        work: Folder of the state of the unfinished run; removed when the job is done.
        log_file: CSV to write, one row per epoch. All trainers have these columns: `epoch`; `step`,
            batches since the start; `learning_rate`; `loss`, the mean over the epoch's batches; and
            `val_map50` (of classifiers `val_accuracy`), empty in epochs without an evaluation.
        notes: Text to store in the checkpoint.
    """

    training: Samples
    validation: Samples
    device: torch.device
    work: Path
    log_file: Path
    notes: dict[str, str]

    @property
    def state_file(self) -> Path:
        """File of the state of the unfinished run."""
        return self.work / "state.pt"


@plain_dataclass(frozen=True)
class Trained:
    """Result of a task, for the checkpoint's card.

    Args:
        evaluate: Metrics of the written checkpoint on samples; see
            `farther.metrics.closed_set.evaluate`, and for classifiers
            `farther_training.trainers.classifier.evaluate`.
        parameters: Number of the network's parameters.
        origin: Digest of the initial weights; None where training started from scratch.
        kind: Kind of network, as text.
        facts: Configuration of the network.
        scaling: Sentence about the scaling of images.
        sections: Titles of further sections of the card → their keys in `facts`.
        packages: Packages besides PyTorch whose version affects the result.
    """

    evaluate: Callable[[Samples], dict[str, Any]]
    parameters: int
    origin: str | None
    kind: str
    facts: dict[str, Any]
    scaling: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


@dataclass(config=STRICT, kw_only=True)
class Job(Parameters, ABC):
    """Dataset, checkpoint and hyperparameters of a training job.

    Each trainer adds its network and its recipe.

    Args:
        dataset: Name of an ingested dataset.
        root: Folder of the images; that of the dataset's entry in params.yaml when None.
        weights: The safetensors file to write; its card is written beside it as `.json` and `.md`.
        classes: Classes to learn; all categories of the dataset when None.
        division: Gives the classes to learn instead; images that show an unknown class are left
            out.
        train, val, test: Subsets of the dataset for training, monitoring and reporting.
        initial_weights: Weights to start from.
        device: "cpu", "cuda", …; "auto" is the first GPU, or else the CPU.
        recipe: Hyperparameters.
    """

    name: ClassVar[str]

    dataset: str
    weights: Annotated[Path, AfterValidator(_check_safetensors)]
    root: Path | None = None
    classes: Annotated[tuple[str, ...] | None, AfterValidator(_check_distinct)] = None
    division: TrainingDivision | None = None
    train: str = "train"
    val: str = "val"
    test: str = "test"
    initial_weights: Path | None = None
    device: str = "auto"
    recipe: Any

    @abstractmethod
    def learn(self, task: Task) -> Trained:
        """Trains, or resumes a killed run to the same bytes, and writes the file `weights`.

        Raises:
            DataError: an image or the initial weights are absent or damaged.
            ParameterError: the network cannot be built, or cannot start from scratch.
            TrainingError: the loss is not finite.
        """


def count_parameters(network: torch.nn.Module) -> int:
    """Number of a network's parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def digest_of_weights(file: Path | None) -> str | None:
    """Digest of a file of initial weights; None without one."""
    if file is None:
        return None
    return digest(file)

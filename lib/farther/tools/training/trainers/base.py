"""What every trainer offers: a job's samples in, a checkpoint out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from farther.registry import STRICT, Registry

if TYPE_CHECKING:
    import torch

    from farther.tools.training.samples import Samples

registry: Registry[Job] = Registry("trainer", "farther.tools.training.trainers")
register = registry.register


def _is_safetensors(path: Path) -> Path:
    if path.suffix != ".safetensors":
        raise ValueError("a checkpoint's name ends in .safetensors")
    return path


def _are_distinct(classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if classes is not None and (not classes or len(set(classes)) < len(classes)):
        raise ValueError("expected one class or more, each once")
    return classes


@plain_dataclass(frozen=True)
class Task:
    """What a job's trainer works on.

    Args:
        training: What is learned from.
        validation: What the mAP is watched on.
        device: Where to train.
        work: Folder for the state of the unfinished run; it is removed when the job is done.
        log_file: CSV to write, one row an epoch. All trainers have these columns: `epoch`; `step`, batches since the
            start; `learning_rate`; `loss`, what is made small, the mean of the epoch's batches; and `val_map50`, empty
            in epochs without a look at the validation images.
        notes: Text to keep in the checkpoint.
    """

    training: Samples
    validation: Samples
    device: torch.device
    work: Path
    log_file: Path
    notes: dict[str, str]

    @property
    def classes(self) -> tuple[str, ...]:
        """What is learned, in the order of the labels."""
        return self.training.classes

    @property
    def state_file(self) -> Path:
        """Where the state of the unfinished run is kept."""
        return self.work / "state.pt"


@plain_dataclass(frozen=True)
class Trained:
    """What came of a task, and what its card says of it.

    Args:
        evaluate: Gives the figures of the checkpoint as it was written on the images of a subset; see
            `farther.metrics.closed_set.evaluate`.
        parameters: Numbers that the network learned.
        origin: Names the content of the weights that training started from; None where it started from nothing.
        kind: What was trained, in a few words.
        facts: How the network is built, for programs.
        scaling: What is done to images, in a sentence.
        sections: Facts that the card shows in sections of their own: their names, by the sections' titles.
        packages: The packages, besides PyTorch, whose release the outcome depends on.
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
class Job(ABC):
    """What is trained, on what, and where the checkpoint goes. Each trainer adds its network and its recipe.

    Args:
        dataset: Name of an ingested dataset.
        weights: The safetensors file to write; its card goes beside it as `.json` and `.md`.
        classes: What to learn; the dataset's own categories when None.
        train, val, test: The dataset's subsets to learn from, to watch, and to report on.
        initial_weights: What to start from.
        device: "cpu", "cuda", …; "auto" is the first GPU, or else the CPU.
        recipe: How it is trained.
    """

    name: ClassVar[str]

    dataset: str
    weights: Annotated[Path, AfterValidator(_is_safetensors)]
    classes: Annotated[tuple[str, ...] | None, AfterValidator(_are_distinct)] = None
    train: str = "train"
    val: str = "val"
    test: str = "test"
    initial_weights: Path | None = None
    device: str = "auto"
    recipe: Any

    @abstractmethod
    def learn(self, task: Task) -> Trained:
        """Trains, or goes on with a killed run, and writes the checkpoint to `weights`.

        A run that was killed and goes on ends in the same bytes as one that was not.

        Raises:
            DataError: an image or the initial weights are absent or damaged.
            ParameterError: the network cannot be built, or cannot start from nothing.
            TrainingError: the loss is not finite.
        """


def count_parameters(network: torch.nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(p.numel() for p in network.parameters())

"""One training job, from tables to a checkpoint with its card."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import torch_device
from farther.detectors.networks.architectures import Blueprint
from farther.detectors.networks.checkpoint import load_network, save_checkpoint
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables import Images, Objects
from farther.tables.files import digest, inside, read_json, write_json
from farther.training.card import write_card
from farther.training.faster_rcnn import evaluate, train
from farther.training.initial import initial_weights
from farther.training.recipe import Count, Recipe
from farther.training.samples import Samples


@dataclass(config=STRICT, kw_only=True)
class Job:
    """What is trained, on what, and where the checkpoint goes.

    Args:
        dataset: Name of an ingested dataset.
        weights: The safetensors file to write; its card goes beside it as `.json` and `.md`.
        architecture: See `farther.detectors.networks.architectures`.
        min_size, max_size: Images are scaled to so many pixels on the shorter side, unless the longer one would have
            more than `max_size`.
        classes: What to learn; the dataset's own categories when None.
        train, val, test: The dataset's subsets to learn from, to watch, and to report on.
        initial_weights: See `farther.training.initial`.
        device: "cpu", "cuda", …; "auto" is the first GPU, or else the CPU.
        recipe: How it is trained.
    """

    dataset: str
    weights: Path
    architecture: str = "resnet50_fpn"
    min_size: Count = 800
    max_size: Count = 1333
    classes: tuple[str, ...] | None = None
    train: str = "train"
    val: str = "val"
    test: str = "test"
    initial_weights: Path | None = None
    device: str = "auto"
    recipe: Annotated[Recipe, Field(default_factory=Recipe)]


def run_job(name: str, job: Job, root: Path, artifacts: Path) -> dict[str, Any]:
    """Trains, or goes on with a killed run, and writes the checkpoint, its card and the log.

    Args:
        name: The job's name: its log goes to `train/<name>/log.csv`, its unfinished state to `.work/train/<name>/`.
        job: What to do.
        root: Folder that the dataset's images lie in.
        artifacts: Folder that holds `tables/`, and that log and state go to.

    Returns:
        The card: what was trained, on what, how, and how well it does.

    Raises:
        DataError: a table, an image or the initial weights are absent or damaged, or nothing is left to learn.
        ParameterError: the architecture or the device is unknown, or the architecture must start from weights.
        TrainingError: the loss is not finite.
    """
    tables = inside(artifacts / "tables", job.dataset)
    classes = job.classes or tuple(_categories(tables / "categories.json"))
    samples = {key: _samples(inside(tables, getattr(job, key)), root, classes) for key in ("train", "val", "test")}
    blueprint = Blueprint(job.architecture, classes, job.min_size, job.max_size)
    state_file = inside(artifacts / ".work" / "train", name) / "state.pt"
    network = train(
        blueprint,
        samples["train"],
        samples["val"],
        job.recipe,
        state_file,
        inside(artifacts / "train", name) / "log.csv",
        torch_device(job.device),
        initial_weights(job.initial_weights, blueprint),
    )
    data_digest = samples["train"].digest()
    notes = {"name": name, "dataset": job.dataset, "data_digest": data_digest}
    save_checkpoint(job.weights, network.state_dict(), blueprint, notes)
    written = load_network(job.weights, blueprint).to(torch_device(job.device))
    card = {
        "name": name,
        **asdict(blueprint),
        "parameters": sum(p.numel() for p in written.parameters()),
        "dataset": job.dataset,
        "images": len(samples["train"]),
        "objects": samples["train"].learned,
        "left_out": samples["train"].left_out,
        "data_digest": data_digest,
        "initial_weights": None if job.initial_weights is None else digest(job.initial_weights),
        "recipe": asdict(job.recipe),
        "torch": torch.__version__,
        "figures": {key: _figures(evaluate(written, samples[key], job.recipe)) for key in ("val", "test")},
    }
    write_json(job.weights.with_suffix(".json"), card)
    write_card(job.weights.with_suffix(".md"), card)
    state_file.unlink(missing_ok=True)
    return card


def _samples(folder: Path, root: Path, classes: tuple[str, ...]) -> Samples:
    images, objects = Images.read(folder / "images.parquet"), Objects.read(folder / "objects.parquet")
    return Samples(images, objects, root, classes)


def _categories(path: Path) -> list[str]:
    known = read_json(path)
    names = known.get("categories") if isinstance(known, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError("expected a list of names", file=path, field="categories")
    return names


def _figures(found: dict[str, Any]) -> dict[str, Any]:
    per_class = {name: values["ap50"] for name, values in found["per_class"].items()}
    return {"map50": found["ap50"], "map": found["ap"], "map50_per_class": per_class}

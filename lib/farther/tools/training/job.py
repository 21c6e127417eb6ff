"""One training job, from tables to a checkpoint with its card: the same for every trainer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from farther.detectors.base import torch_device
from farther.errors import DataError, ParameterError
from farther.registry import build
from farther.tables import Images, Objects
from farther.tables.files import inside, read_json
from farther.tools.training import trainers
from farther.tools.training.card import write_card
from farther.tools.training.samples import Samples
from farther.tools.training.trainers.base import Job, Task, Trained

SUBSETS = ("train", "val", "test")


def make_job(name: str, entry: Mapping[str, Any]) -> Job:
    """The job that an entry of `train:` in `training/params.yaml` describes.

    Args:
        name: Its name, for messages.
        entry: `trainer`, a name of `farther.tools.training.trainers.names()`, and the parameters of that trainer's job.

    Raises:
        ParameterError: the trainer or a parameter is missing or unknown, or a value does not fit; names the job.
    """
    params = dict(entry)
    if "trainer" not in params:
        known = ", ".join(trainers.names())
        raise ParameterError(f"training job {name!r}: parameter 'trainer' is missing. Known: {known}")
    try:
        kind = trainers.get(params.pop("trainer"))
    except ParameterError as error:
        raise ParameterError(f"training job {name!r}: parameter 'trainer': {error}") from None
    return build(kind, f"training job {name!r}", params)


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
        ParameterError: the network or the device cannot be used, or a class is none of the dataset's; names the job.
        TrainingError: the loss is not finite.
    """
    try:
        samples = _samples(job, root, artifacts)
        task = _task(name, job, samples, artifacts)
        trained = job.learn(task)
    except ParameterError as error:
        raise ParameterError(f"training job {name!r}: {error}") from None
    card = _card(name, job, samples, trained)
    write_card(job.weights, card, trained.kind, trained.scaling, trained.sections)
    shutil.rmtree(task.work, ignore_errors=True)
    return card


def _task(name: str, job: Job, samples: Mapping[str, Samples], artifacts: Path) -> Task:
    return Task(
        training=samples["train"],
        validation=samples["val"],
        device=torch_device(job.device),
        work=inside(artifacts / ".work" / "train", name),
        log_file=inside(artifacts / "train", name) / "log.csv",
        notes={"name": name, "dataset": job.dataset, "data_digest": samples["train"].digest()},
    )


def _card(name: str, job: Job, samples: Mapping[str, Samples], trained: Trained) -> dict[str, Any]:
    training = samples["train"]
    return {
        "name": name,
        "trainer": job.name,
        **trained.facts,
        "parameters": trained.parameters,
        "dataset": job.dataset,
        "images": len(training),
        "objects": training.learned,
        "left_out": training.left_out,
        "data_digest": training.digest(),
        "initial_weights": trained.origin,
        "recipe": asdict(job.recipe),
        "torch": torch.__version__,
        **{package: version(package) for package in trained.packages},
        "figures": {getattr(job, subset): _figures(trained.evaluate(samples[subset])) for subset in SUBSETS[1:]},
    }


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    per_class = {name: values["ap50"] for name, values in found["per_class"].items()}
    return {"map50": found["ap50"], "map": found["ap"], "map50_per_class": per_class}


def _samples(job: Job, root: Path, artifacts: Path) -> dict[str, Samples]:
    """The samples of each subset, by what it is for."""
    tables = inside(artifacts / "tables", job.dataset)
    classes = _classes(job, tables / "categories.json")
    samples = {}
    for subset in SUBSETS:
        folder = inside(tables, getattr(job, subset))
        images, objects = Images.read(folder / "images.parquet"), Objects.read(folder / "objects.parquet")
        try:
            samples[subset] = Samples(images, objects, root, classes)
        except DataError as error:
            raise DataError(error.problem, file=folder, row=error.row, field=error.field) from None
    return samples


def _classes(job: Job, path: Path) -> tuple[str, ...]:
    """What a job learns: its own choice among the dataset's categories, or all of them."""
    known = read_json(path)
    names = known.get("categories") if isinstance(known, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError("expected a list of names", file=path, field="categories")
    if strange := [name for name in job.classes or () if name not in names]:
        problem = f"{', '.join(map(repr, strange))} is no category of {job.dataset!r}; {path} lists them"
        raise ParameterError(f"parameter 'classes': {problem}")
    return job.classes or tuple(names)

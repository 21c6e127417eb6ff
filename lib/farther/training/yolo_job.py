"""One training job of YOLO, from tables to a checkpoint with its card."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import torch_device
from farther.detectors.networks.yolo import YoloBlueprint
from farther.detectors.networks.yolo_checkpoint import load_network, read_checkpoint, save_checkpoint
from farther.registry import STRICT
from farther.tables.files import digest, inside, write_aside, write_json
from farther.training.card import _lines, _percent
from farther.training.job import _categories, _figures, _samples
from farther.training.recipe import Count
from farther.training.yolo import Plan, YoloRecipe, evaluate, train

CARD = """\
# {name}

YOLO, architecture `{architecture}` of Ultralytics, {millions:.1f} million parameters.
Images are scaled to {image_size} pixels on the longer side.

| | mAP50 | mAP |
| --- | --- | --- |
{figures}

Trained on {images} images of `{dataset}` with {objects} objects (data {data_digest}){left_out}.
Classes and their mAP50 on `test`: {classes}.

## Recipe

{recipe}

The same facts for programs: [{name}.json]({name}.json).
"""


@dataclass(config=STRICT, kw_only=True)
class YoloJob:
    """What is trained, on what, and where the checkpoint goes.

    Args:
        dataset: Name of an ingested dataset.
        weights: The safetensors file to write; its card goes beside it as `.json` and `.md`.
        architecture: The name of one that ships with Ultralytics.
        image_size: Images are scaled to so many pixels on the longer side. FMIYC took 512 for VOC and 736 for BDD100k.
        classes: What to learn; the dataset's own categories when None.
        train, val, test: The dataset's subsets to learn from, to watch, and to report on.
        initial_weights: A checkpoint to start from, farther's or Ultralytics' own; layers that do not fit start anew.
        device: "cpu", "cuda", …; "auto" is the first GPU, or else the CPU.
        recipe: How it is trained.
    """

    dataset: str
    weights: Path
    architecture: str = "yolov8n"
    image_size: Count = 512
    classes: tuple[str, ...] | None = None
    train: str = "train"
    val: str = "val"
    test: str = "test"
    initial_weights: Path | None = None
    device: str = "auto"
    recipe: Annotated[YoloRecipe, Field(default_factory=YoloRecipe)]


def run_job(name: str, job: YoloJob, root: Path, artifacts: Path) -> dict[str, Any]:
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
        ParameterError: the architecture or the device is unknown.
        TrainingError: the loss is not finite.
    """
    tables = inside(artifacts / "tables", job.dataset)
    classes = job.classes or tuple(_categories(tables / "categories.json"))
    samples = {key: _samples(inside(tables, getattr(job, key)), root, classes) for key in ("train", "val", "test")}
    blueprint = YoloBlueprint.shipped(job.architecture, classes, job.image_size)
    plan = Plan(
        blueprint,
        samples["train"],
        samples["val"],
        job.recipe,
        inside(artifacts / ".work" / "train", name),
        inside(artifacts / "train", name) / "log.csv",
        torch_device(job.device),
        None if job.initial_weights is None else read_checkpoint(job.initial_weights).weights,
    )
    network = train(plan)
    data_digest = samples["train"].digest()
    notes = {"name": name, "dataset": job.dataset, "data_digest": data_digest}
    save_checkpoint(job.weights, network, blueprint, notes)
    written = load_network(job.weights, read_checkpoint(job.weights)).to(plan.device)
    card = {
        "name": name,
        "architecture": job.architecture,
        "classes": list(classes),
        "image_size": job.image_size,
        "parameters": sum(p.numel() for p in network.parameters()),
        "dataset": job.dataset,
        "images": len(samples["train"]),
        "objects": samples["train"].learned,
        "left_out": samples["train"].left_out,
        "data_digest": data_digest,
        "initial_weights": None if job.initial_weights is None else digest(job.initial_weights),
        "recipe": asdict(job.recipe),
        "torch": torch.__version__,
        "ultralytics": version("ultralytics"),
        "figures": {key: _figures(evaluate(written, blueprint, samples[key])) for key in ("val", "test")},
    }
    write_json(job.weights.with_suffix(".json"), card)
    _write_card(job.weights.with_suffix(".md"), card)
    shutil.rmtree(plan.work, ignore_errors=True)
    return card


def _write_card(path: Path, card: dict[str, Any]) -> None:
    per_class = card["figures"]["test"]["map50_per_class"]
    rows = [
        f"| {key} | {_percent(found['map50'])} | {_percent(found['map'])} |" for key, found in card["figures"].items()
    ]
    left_out = ", ".join(f"{count} {name}" for name, count in card["left_out"].items())
    values = {
        **card,
        "millions": card["parameters"] / 1e6,
        "figures": "\n".join(rows),
        "left_out": f"; left out: {left_out}" if left_out else "",
        "classes": ", ".join(f"{name} {_percent(per_class.get(name))}" for name in card["classes"]),
        "recipe": "\n".join(_lines(card["recipe"])),
    }
    with write_aside(path) as aside:
        aside.write_text(CARD.format_map(values), encoding="utf-8")

"""The job of the demo's small CLIP: draws its images, trains it and writes a folder that open_clip can load."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.networks.weights import floats, read_tensors, write_tensors
from farther.images.device import torch_device
from farther.registry import STRICT
from farther.tables.files import inside, write_aside, write_json
from farther.tools.training.clip import ClipArchitecture, ClipRecipe, tokenizer, train, zero_shot
from farther.tools.training.clip_pictures import compose, compose_held_out, words
from farther.tools.training.recipe import Count

CARD = """\
# clip

A small CLIP, {millions:.1f} million parameters, for the demo world only: it was trained only on images of its drawings,
{size} pixels wide. open_clip loads this folder directly: `open_clip.create_model("local-dir:data/demo/clip")`.

Trained on {pictures} images of {concepts} concepts with the names of the four demo datasets, in-distribution and
unknown classes alike, as a CLIP trained on the web has seen both. No image is part of a dataset, and none contains a
drawing that is held out for test. Most unknown concepts have a single drawing, which CLIP has seen in other scenes.
Captions also contain the kind of each object (COCO's supercategories, OpenImages' hierarchy) and place half of all food
and tableware on a dining table, visible or not; these words partly determine which images it finds near.

For images with one object, the nearest of all {names} names is correct for {val:.1%}; with held-out drawings of the
in-distribution classes, for {held_out:.1%}.

Its training images are composed from drawings of OpenMoji (https://openmoji.org), licence CC BY-SA 4.0.

The same as JSON, including the recipe: [card.json](card.json).
"""


@dataclass(config=STRICT, kw_only=True)
class ClipJob:
    """Parameters of the job.

    Args:
        folder: The folder to write; an existing one is replaced.
        architecture: The network.
        recipe: Hyperparameters.
        validation_pictures: Number of validation images, and of test images with held-out drawings.
        device: "cpu", "cuda", …; "auto" is the first GPU, or else the CPU.
    """

    folder: Path
    architecture: Annotated[ClipArchitecture, Field(default_factory=ClipArchitecture)]
    recipe: Annotated[ClipRecipe, Field(default_factory=ClipRecipe)]
    validation_pictures: Count = 1000
    device: str = "auto"


def run_job(name: str, job: ClipJob, artifacts: Path) -> dict[str, Any]:
    """Draws images, trains or resumes a killed run, and writes the folder, its card and the log; returns the card.

    Raises:
        ParameterError: the device is unknown.
        TrainingError: the loss is not finite.
    """
    device = torch_device(job.device)
    work = inside(artifacts / ".work" / "train", name)
    size, seed, count = job.architecture.image_size, job.recipe.seed, job.validation_pictures
    # Validation images differ from training images by their seed.
    pictures, validation = compose(job.recipe.pictures, size, seed), compose(count, size, seed + 1)
    log_file = inside(artifacts / "train", name) / "log.csv"
    network = train(job.architecture, job.recipe, pictures, validation, work / "state.pt", log_file, device)
    with write_aside(job.folder) as aside:
        aside.mkdir()
        weights = aside / "open_clip_model.safetensors"
        write_tensors(weights, network.state_dict(), {"name": name})
        write_json(aside / "open_clip_config.json", job.architecture.config())
        network.load_state_dict(floats(read_tensors(weights)))
        tokenize = tokenizer(job.architecture)
        held_out = zero_shot(network, tokenize, compose_held_out(count, size, seed + 1))
        metrics = {"val": zero_shot(network, tokenize, validation), "held_out": held_out}
        card = _card(name, job, sum(p.numel() for p in network.parameters()), metrics)
        write_json(aside / "card.json", card)
        (aside / "README.md").write_text(_markdown(card), encoding="utf-8")
    shutil.rmtree(work, ignore_errors=True)
    return card


def _card(name: str, job: ClipJob, parameters: int, metrics: dict[str, float]) -> dict[str, Any]:
    return {
        "name": name,
        "architecture": {**asdict(job.architecture), "layers": list(job.architecture.layers)},
        "parameters": parameters,
        "pictures": job.recipe.pictures,
        "concepts": len(words()),
        "names": len({one for known in words().values() for one in known.names}),
        "recipe": asdict(job.recipe),
        "torch": torch.__version__,
        "open_clip_torch": version("open_clip_torch"),
        "metrics": {key: None if np.isnan(value) else round(value, 6) for key, value in metrics.items()},
    }


def _markdown(card: dict[str, Any]) -> str:
    metrics = {key: np.nan if value is None else value for key, value in card["metrics"].items()}
    size = card["architecture"]["image_size"]
    return CARD.format_map({**card, **metrics, "size": size, "millions": card["parameters"] / 1e6})

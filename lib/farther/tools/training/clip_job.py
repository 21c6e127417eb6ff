"""The job that makes the demo's small CLIP: draws its pictures, trains it, and writes a folder that open_clip loads."""

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

from farther.detectors.base import torch_device
from farther.detectors.networks.safetensors_file import floats, read_tensors, write_tensors
from farther.registry import STRICT
from farther.tables.files import inside, write_aside, write_json
from farther.tools.training.clip import ClipArchitecture, ClipRecipe, tokenizer, train, zero_shot
from farther.tools.training.clip_pictures import compose, compose_held_out, words
from farther.tools.training.recipe import Count

CARD = """\
# clip

A small CLIP, {millions:.1f} million parameters, for the demo world only: it has seen nothing but its drawings,
{size} pixels wide. open_clip loads this folder by itself: `open_clip.create_model("local-dir:data/demo/clip")`.

Trained on {pictures} pictures of {concepts} concepts, under the names that the four demo datasets give them,
in-distribution and unknown classes alike, as a CLIP that was trained on the web has seen both. None of the pictures
is a dataset's, and none shows a drawing that is held out for test. Most unknown concepts have one drawing only: CLIP
has seen it in other scenes. Captions also say what kind of thing each is (COCO's supercategories, OpenImages'
hierarchy), and that half of all food and tableware is on a dining table, seen or not: what it takes for near comes in
part from these words.

Of pictures with one object, the nearest of all {names} names is right for {val:.1%}; by held-out drawings of the
in-distribution classes, for {held_out:.1%}.

Its training pictures are composed from drawings of OpenMoji (https://openmoji.org), licence CC BY-SA 4.0.

The same facts for programs, the recipe among them: [card.json](card.json).
"""


@dataclass(config=STRICT, kw_only=True)
class ClipJob:
    """What is trained, how, and where it goes.

    Args:
        folder: The folder to write; what stands there is replaced.
        architecture: The network.
        recipe: How it is trained.
        validation_pictures: How many it is watched on, and how many by held-out drawings it is tested on.
        device: "cpu", "cuda", …; "auto" is the first GPU, or else the CPU.
    """

    folder: Path
    architecture: Annotated[ClipArchitecture, Field(default_factory=ClipArchitecture)]
    recipe: Annotated[ClipRecipe, Field(default_factory=ClipRecipe)]
    validation_pictures: Count = 1000
    device: str = "auto"


def run_job(name: str, job: ClipJob, artifacts: Path) -> dict[str, Any]:
    """Draws, trains, or goes on with a killed run, and writes the folder, its card and the log.

    Args:
        name: The job's name: its log goes to `train/<name>/log.csv`, its unfinished state to `.work/train/<name>/`.
        job: What to do.
        artifacts: Folder that log and state go to.

    Returns:
        The card: what was trained, how, and how well it does.

    Raises:
        ParameterError: the device is unknown.
        TrainingError: the loss is not finite.
    """
    device = torch_device(job.device)
    work = inside(artifacts / ".work" / "train", name)
    size, seed, count = job.architecture.image_size, job.recipe.seed, job.validation_pictures
    # Pictures are told apart by seed: those that are watched on are drawn from another one.
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
        figures = {"val": zero_shot(network, tokenize, validation), "held_out": held_out}
        card = _card(name, job, sum(p.numel() for p in network.parameters()), figures)
        write_json(aside / "card.json", card)
        (aside / "README.md").write_text(_markdown(card), encoding="utf-8")
    shutil.rmtree(work, ignore_errors=True)
    return card


def _card(name: str, job: ClipJob, parameters: int, figures: dict[str, float]) -> dict[str, Any]:
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
        "figures": {key: None if np.isnan(value) else round(value, 6) for key, value in figures.items()},
    }


def _markdown(card: dict[str, Any]) -> str:
    figures = {key: np.nan if value is None else value for key, value in card["figures"].items()}
    size = card["architecture"]["image_size"]
    return CARD.format_map({**card, **figures, "size": size, "millions": card["parameters"] / 1e6})

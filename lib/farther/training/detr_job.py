"""One training job for a detection transformer, from tables to a checkpoint with its card."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers
from pydantic import Field
from pydantic.dataclasses import dataclass
from transformers import PreTrainedModel

from farther.detectors.base import torch_device
from farther.detectors.networks.detr import DetrBlueprint, keep_exact
from farther.detectors.networks.detr_checkpoint import find_checkpoint, load_network, save_checkpoint
from farther.errors import ParameterError
from farther.registry import STRICT
from farther.tables.files import digest, inside, write_aside, write_json
from farther.training.card import _lines, _percent
from farther.training.detr import DetrRecipe, evaluate, train, untrained
from farther.training.job import _categories, _figures, _samples
from farther.training.recipe import Count


@dataclass(config=STRICT, kw_only=True)
class DetrJob:
    """What is trained, on what, and where the checkpoint goes.

    Args:
        dataset: Name of an ingested dataset.
        weights: The safetensors file to write; its card goes beside it as `.json` and `.md`.
        initial_weights: A checkpoint to fine-tune: a folder, a file or a model of the hub, as for the detector `detr`.
            Its configuration is taken over; what knows its classes (or another number of queries) starts anew.
        revision: Branch, tag or commit of a model on the hub.
        queries: Object queries, instead of the checkpoint's number.
        network: For a network that starts from nothing: its configuration, as transformers' `config.json` holds it.
        processor: For such a network: what is done to images, as `preprocessor_config.json` holds it.
        classes: What to learn; the dataset's own categories when None.
        train, val, test: The dataset's subsets to learn from, to watch, and to report on.
        device: "cpu", "cuda", …; "auto" is the first GPU, or else the CPU.
        recipe: How it is trained.

    Raises:
        ParameterError: neither a checkpoint nor a network is given, or both.
    """

    dataset: str
    weights: Path
    initial_weights: Path | None = None
    revision: str | None = None
    queries: Count | None = None
    network: dict[str, Any] | None = None
    processor: dict[str, Any] | None = None
    classes: tuple[str, ...] | None = None
    train: str = "train"
    val: str = "val"
    test: str = "test"
    device: str = "auto"
    recipe: Annotated[DetrRecipe, Field(default_factory=DetrRecipe)]

    def __post_init__(self) -> None:
        anew = self.network is not None and self.processor is not None
        if anew == (self.initial_weights is not None) or anew != (
            self.network is not None or self.processor is not None
        ):
            raise ParameterError("a training job needs either 'initial_weights', or 'network' and 'processor'")


def run_job(name: str, job: DetrJob, root: Path, artifacts: Path) -> dict[str, Any]:
    """Trains, or goes on with a killed run, and writes the checkpoint, its card and the log.

    Args:
        name: The job's name: its log goes to `train/<name>/log.csv`, its unfinished state to `.work/train/<name>/`.
        job: What to do.
        root: Folder that the dataset's images lie in.
        artifacts: Folder that holds `tables/`, and that log and state go to.

    Returns:
        The card: what was trained, on what, how, and how well it does.

    Raises:
        DataError: a table, an image or the checkpoint to start from is absent or damaged, or nothing is left to learn.
        ParameterError: the network, the image processor or the device cannot be used.
        TrainingError: the loss is not finite.
    """
    tables = inside(artifacts / "tables", job.dataset)
    classes = job.classes or tuple(_categories(tables / "categories.json"))
    samples = {key: _samples(inside(tables, getattr(job, key)), root, classes) for key in ("train", "val", "test")}
    network, blueprint, origin = _start(job, classes)
    network = network.to(torch_device(job.device), memory_format=torch.channels_last)
    work = inside(artifacts / ".work" / "train", name)
    log_file = inside(artifacts / "train", name) / "log.csv"
    trained = train(network, blueprint, samples["train"], samples["val"], job.recipe, work / "state.pt", log_file)
    data_digest = samples["train"].digest()
    notes = {"name": name, "dataset": job.dataset, "data_digest": data_digest}
    save_checkpoint(job.weights, trained.state_dict(), blueprint, notes)
    written = load_network(find_checkpoint(job.weights)).to(torch_device(job.device))
    keep_exact(written)
    card = {
        "name": name,
        "model_type": blueprint.config["model_type"],
        "classes": list(classes),
        "parameters": sum(p.numel() for p in written.parameters()),
        "network": blueprint.config,
        "processor": blueprint.processor,
        "dataset": job.dataset,
        "images": len(samples["train"]),
        "objects": samples["train"].learned,
        "left_out": samples["train"].left_out,
        "data_digest": data_digest,
        "initial_weights": origin,
        "recipe": asdict(job.recipe),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "figures": {key: _figures(evaluate(written, blueprint, samples[key], job.recipe)) for key in ("val", "test")},
    }
    write_json(job.weights.with_suffix(".json"), card)
    _write_card(job.weights.with_suffix(".md"), card)
    for file in (work / "state.pt", work / "best.pt"):
        file.unlink(missing_ok=True)
    return card


def _start(job: DetrJob, classes: tuple[str, ...]) -> tuple[PreTrainedModel, DetrBlueprint, str | None]:
    """The network to train, how it is built, and a name for the weights that it starts from."""
    if job.initial_weights is None:
        blueprint = DetrBlueprint(job.network or {}, job.processor or {}, classes)
        return untrained(blueprint, job.recipe.seed), blueprint, None
    found = find_checkpoint(job.initial_weights, revision=job.revision)
    config = {**found.blueprint.config, **({} if job.queries is None else {"num_queries": job.queries})}
    blueprint = DetrBlueprint(config, found.blueprint.processor, classes)
    torch.manual_seed(job.recipe.seed)
    network = load_network(replace(found, blueprint=blueprint), tolerated="class heads")
    return network, blueprint, digest(*found.files)


TEMPLATE = """\
# {name}

Detection transformer, `{model_type}`, {millions:.1f} million parameters.

| | mAP50 | mAP |
| --- | --- | --- |
{figures}

Trained on {images} images of `{dataset}` with {objects} objects (data {data_digest}){left_out}.
Classes and their mAP50 on `test`: {classes}.

## Recipe

{recipe}

## Network

{network}

## Images

{processor}

The same facts for programs: [{name}.json]({name}.json).
"""


def _write_card(path: Path, card: dict[str, Any]) -> None:
    figures = card["figures"].items()
    rows = [f"| {subset} | {_percent(found['map50'])} | {_percent(found['map'])} |" for subset, found in figures]
    per_class = card["figures"]["test"]["map50_per_class"]
    left_out = ", ".join(f"{count} {name}" for name, count in card["left_out"].items())
    values = {
        **card,
        "millions": card["parameters"] / 1e6,
        "figures": "\n".join(rows),
        "left_out": f"; left out: {left_out}" if left_out else "",
        "classes": ", ".join(f"{name} {_percent(per_class.get(name))}" for name in card["classes"]),
        **{part: "\n".join(_lines(card[part])) for part in ("recipe", "network", "processor")},
    }
    with write_aside(path) as aside:
        aside.write_text(TEMPLATE.format_map(values), encoding="utf-8")

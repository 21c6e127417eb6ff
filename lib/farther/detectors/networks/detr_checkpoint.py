"""Checkpoints of detection transformers: safetensors files of farther, folders of `transformers`, models of the hub,
and PyTorch files of weights beside such a folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModelForObjectDetection, PreTrainedModel

from farther.detectors.networks.detr import DetrBlueprint, family_of, make_config
from farther.detectors.networks.pretrained import Tolerated, load_pretrained
from farther.detectors.networks.transformers_files import (
    CONFIG,
    PROCESSOR,
    class_names,
    fetched,
    read_description,
    weight_files,
)
from farther.detectors.networks.weights import (
    as_names,
    floats,
    json_field,
    read_metadata,
    read_weights,
    write_checkpoint,
)
from farther.errors import DataError, ParameterError, shorten
from farther.images.bounds import MOST_PIXELS, check_description, refuse_larger

FORMAT = "farther.detr"

#: Name of the decoder, which some releases put before the names of its heads.
DECODER = "model.decoder."


@dataclass(frozen=True)
class DetrCheckpoint:
    """A checkpoint's blueprint, its files of weights, and the files that describe its network, if it has such."""

    blueprint: DetrBlueprint
    weights: tuple[Path, ...]
    described: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the network depends on."""
        return (*self.weights, *self.described)


def save_checkpoint(
    path: str | Path, state: Mapping[str, Tensor], blueprint: DetrBlueprint, notes: Mapping[str, str] | None = None
) -> None:
    """Writes a state dict in half precision, its blueprint and notes."""
    write_checkpoint(path, state, FORMAT, blueprint, notes)


def find_checkpoint(
    weights: Path,
    described_in: Path | None = None,
    classes: tuple[str, ...] | None = None,
    *,
    revision: str | None = None,
    local_files_only: bool = False,
) -> DetrCheckpoint:
    """Finds the parts of a checkpoint and reads its description; no weights are read.

    Args:
        weights: A folder with `config.json`, `preprocessor_config.json` and `model.safetensors` (or its shards); a file
            of weights in such a folder; farther's safetensors file; a PyTorch file; or, where no such file exists, the
            name of a model on the hub (`owner/name`).
        described_in: Folder of `config.json` and `preprocessor_config.json`, for a PyTorch file elsewhere.
        classes: Names for the classes, instead of the configuration's.
        revision: Branch, tag or commit of a model on the hub.
        local_files_only: Use a model on the hub only if it was fetched before.

    Raises:
        DataError: a part is absent or damaged.
    """
    weights = fetched(weights, revision, local_files_only=local_files_only)
    if weights.is_dir():
        return _in_folder(weights, weight_files(weights), classes)
    if not weights.is_file():
        raise DataError("the checkpoint does not exist", file=weights)
    metadata = read_metadata(weights) if weights.suffix == ".safetensors" else {}
    if metadata.get("format") == FORMAT:
        described = {name: json_field(weights, metadata, name) for name in ("config", "processor", "classes")}
        check_description(weights, described["config"], field="config")
        check_description(weights, described["processor"], MOST_PIXELS, "processor")
        described["classes"] = classes or described["classes"]
        return DetrCheckpoint(_blueprint(weights, **described), (weights,))
    return _in_folder(described_in or weights.parent, (weights,), classes)


def load_network(
    checkpoint: DetrCheckpoint, tolerated: Tolerated = "nothing", attention: Literal["eager"] | None = None
) -> PreTrainedModel:
    """The network of a checkpoint, in float32, in evaluation mode.

    Args:
        tolerated: "class heads" lets weights whose shape depends on the number of classes or queries start at random.
        attention: See `build_network`.

    Raises:
        DataError: a file is absent or damaged, the network cannot be built, or the weights do not fit it: says which
            are missing, unexpected, or of another shape.
    """
    first = checkpoint.weights[0]
    try:
        config = make_config(checkpoint.blueprint)
        network_class = AutoModelForObjectDetection._model_mapping[type(config)]
    except ParameterError as error:
        raise DataError(str(error), file=first) from None
    refuse_larger(first, checkpoint.weights, lambda: network_class(config))
    weights = floats({name: t for path in checkpoint.weights for name, t in read_weights(path).items()})
    state = _network_part(first, weights, checkpoint.blueprint)
    return load_pretrained(
        network_class,
        None,
        first,
        tolerated=tolerated,
        what=f"{checkpoint.blueprint.config['model_type']} with {len(checkpoint.blueprint.classes)} classes",
        config=config,
        state_dict=state,
        attn_implementation=attention,
    )


def _in_folder(folder: Path, weights: tuple[Path, ...], classes: tuple[str, ...] | None) -> DetrCheckpoint:
    described = (folder / CONFIG, folder / PROCESSOR)
    for path in (*weights, *described):
        if not path.is_file():
            advice = f"a checkpoint needs {CONFIG} and {PROCESSOR} beside it, or in the folder that 'config' names"
            raise DataError(f"the file does not exist: {advice}", file=path)
    config, processor = read_description(described[0]), read_description(described[1], MOST_PIXELS)
    blueprint = _blueprint(described[0], config, processor, classes or class_names(described[0], config))
    return DetrCheckpoint(blueprint, weights, described)


def _blueprint(path: Path, config: Any, processor: Any, classes: Any) -> DetrBlueprint:
    """A blueprint whose fields are of the right types, for a family that farther reads."""
    for name, value in (("config", config), ("processor", processor)):
        if not isinstance(value, dict):
            raise DataError(f"expected an object, found {shorten(value)}", file=path, field=name)
    names = as_names(path, classes)
    try:
        family_of(config.get("model_type"))
    except ParameterError as error:
        raise DataError(str(error), file=path, field="model_type") from None
    return DetrBlueprint(config, processor, names)


def _network_part(path: Path, weights: dict[str, Tensor], blueprint: DetrBlueprint) -> dict[str, Tensor]:
    """The network's weights under its names for them.

    PyTorch Lightning's module holds the network under a name ("model."), a prefix of each weight's name; whatever else
    it holds (a criterion's buffers) does not belong to the network.
    """
    pattern = re.compile(rf"(?P<prefix>.*?){re.escape(blueprint.family.head)}(\.\d+)?\.weight")
    matches = (match for match in map(pattern.fullmatch, weights) if match is not None)
    prefixes = {match["prefix"].removesuffix(DECODER) for match in matches}
    if not prefixes:
        kind = blueprint.config["model_type"]
        raise DataError(f"no weight is called …{blueprint.family.head}….weight: not a checkpoint of {kind}", file=path)
    if len(prefixes) > 1:
        raise DataError(f"holds several networks: under {', '.join(map(repr, sorted(prefixes)))}", file=path)
    (prefix,) = prefixes
    part = {name.removeprefix(prefix): t for name, t in weights.items() if name.startswith(prefix)}
    # Releases that shared the decoder's heads with the whole network wrote them twice.
    twice = [name for name, t in part.items() if DECODER + name in part and torch.equal(t, part[DECODER + name])]
    return {name: t for name, t in part.items() if name not in twice}

"""Families of detection transformers in the `transformers` library: building of their networks, and their checkpoints.

A checkpoint is a safetensors file of farther, a folder of `transformers`, a model of the hub, or a PyTorch file of
weights beside such a folder.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForObjectDetection, PreTrainedModel

from farther.detectors.hub import (
    CONFIG,
    PROCESSOR,
    Tolerated,
    class_names,
    fetched,
    load_pretrained,
    quiet,
    read_description,
    require,
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
from farther.detectors.settings import PerQuery
from farther.errors import DataError, ParameterError, shorten
from farther.images.bounds import MOST_PIXELS, check_description, refuse_larger
from farther.tables.files import regular_file
from farther.tables.header import Activation

LastLayer = Literal["linear", "with quality"]

FORMAT = "farther.detr"

#: Name of the decoder, which some releases put before the names of its heads.
DECODER = "model.decoder."


@dataclass(frozen=True)
class Family:
    """A kind of network: names of the modules whose inputs and outputs OOD methods read.

    Args:
        head: The class head; of a list of heads, the one of the last decoder layer.
        activation: Turns logits into scores; with "softmax" the last column is "no object".
        boxes: The heads that boxes come from, if they are outside the decoder.
        encoder: Its output is the latent map: the first encoder module, as in the published FMIYC code.
        maps: If that output is a sequence of tokens: the projections whose outputs were flattened into it.
        proposals: In networks whose queries are the best of many proposals: the module that scores these; of a list,
            its last item.
        last_layer: "linear" if logits are the head's output. D-FINE adds one number, the quality of the box, to all
            logits of a query.
    """

    head: str
    activation: Activation
    boxes: str | None = None
    encoder: str | None = None
    maps: str | None = None
    proposals: str | None = "model.enc_score_head"
    last_layer: LastLayer = "linear"

    @property
    def per_query(self) -> PerQuery:
        """Default of `BoxSelection.per_query`."""
        return "several" if self.activation == "sigmoid" else "one"


FAMILIES = {
    "rt_detr": Family("model.decoder.class_embed", "sigmoid", None, "model.encoder.aifi.0"),
    "rt_detr_v2": Family("model.decoder.class_embed", "sigmoid", None, "model.encoder.aifi.0"),
    "d_fine": Family("model.decoder.class_embed", "sigmoid", None, "model.encoder.aifi.0", last_layer="with quality"),
    "detr": Family(
        "class_labels_classifier", "softmax", "bbox_predictor", "model.encoder.layers.0", "model.input_projection"
    ),
    "table-transformer": Family(
        "class_labels_classifier", "softmax", "bbox_predictor", "model.encoder.layers.0", "model.input_projection"
    ),
    "conditional_detr": Family(
        "class_labels_classifier", "sigmoid", "bbox_predictor", "model.encoder.layers.0", "model.input_projection"
    ),
    "dab-detr": Family("class_embed", "sigmoid", "bbox_predictor", "model.encoder.layers.0", "model.input_projection"),
    "deformable_detr": Family(
        "class_embed",
        "sigmoid",
        "bbox_embed",
        "model.encoder.layers.0",
        "model.input_proj",
        "model.decoder.class_embed",
    ),
}


@dataclass(frozen=True)
class DetrBlueprint:
    """Description from which a network is built; its weights are stored beside it.

    Args:
        config: Content of `config.json`; `model_type` is the family.
        processor: Preprocessing of images, the content of `preprocessor_config.json`.
        classes: The known classes, without "no object", in the order of the logits.
    """

    config: dict[str, Any]
    processor: dict[str, Any]
    classes: tuple[str, ...]

    @property
    def family(self) -> Family:
        """The family; errors as in `family_of`."""
        return family_of(self.config.get("model_type"))

    def columns(self) -> tuple[tuple[str, ...], int | None]:
        """Name of each logits column, and which one is "no object" (None with a sigmoid)."""
        if self.family.activation == "sigmoid":
            return self.classes, None
        return (*self.classes, NO_OBJECT), len(self.classes)


NO_OBJECT = "no object"


def family_of(model_type: Any) -> Family:
    """The family of a model type of `transformers`.

    Raises:
        ParameterError: it is not in `FAMILIES`.
    """
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        why = "their class head is not one linear layer on the output of a DETR decoder, or they are untested"
        raise ParameterError(
            f"model type {shorten(model_type)} is none of {', '.join(FAMILIES)}. Others are refused: {why}"
        )
    return FAMILIES[model_type]


def make_config(blueprint: DetrBlueprint) -> Any:
    """The configuration object of a blueprint.

    Raises:
        ParameterError: the model type or a field is unknown, or a class occurs twice or is called "no object".
    """
    names, _ = blueprint.columns()
    if len(set(names)) != len(names):
        raise ParameterError(f"a class occurs twice in {list(names)}; name the classes with the parameter 'classes'")
    kept = {k: v for k, v in blueprint.config.items() if k not in ("model_type", "id2label", "label2id", "num_labels")}
    try:
        config = AutoConfig.for_model(blueprint.config["model_type"], **kept)
    except Exception as error:  # each configuration class raises different errors
        raise ParameterError(f"transformers refuses the configuration: {str(error).strip()[:400]}") from None
    config.id2label = dict(enumerate(blueprint.classes))
    config.label2id = {name: k for k, name in enumerate(blueprint.classes)}
    if getattr(config, "use_pretrained_backbone", None):
        config.use_pretrained_backbone = False  # its weights come with the checkpoint
    return config


def build_network(blueprint: DetrBlueprint, attention: Literal["eager"] | None = None) -> PreTrainedModel:
    """An untrained network in training mode, seeded by PyTorch's global generator.

    Args:
        attention: Implementation: None leaves it to transformers, "eager" is faster in training on a CPU.

    Raises:
        ParameterError: the configuration is unknown to transformers, or needs a package that is not installed.
    """
    config = make_config(blueprint)
    try:
        with quiet():
            network = AutoModelForObjectDetection.from_config(config, attn_implementation=attention)
    except (ImportError, ValueError, TypeError, RuntimeError) as error:
        raise ParameterError(f"transformers cannot build this network: {str(error).strip()[:400]}") from None
    return network.train()


def class_head(network: PreTrainedModel) -> nn.Linear:
    """The linear layer that makes the last decoder layer's logits."""
    head = network.get_submodule(family_of(network.config.model_type).head)
    if isinstance(head, nn.ModuleList):
        # A two-stage network has one more head, behind the decoder's: that of its proposals.
        head = head[network.config.decoder_layers - 1]
    assert isinstance(head, nn.Linear)
    return head


def keep_exact(network: PreTrainedModel) -> None:
    """Lets the decoder and the heads compute in float32 inside `torch.autocast`: boxes and logits need all digits."""
    family = family_of(network.config.model_type)
    boxes = [] if family.boxes is None else [network.get_submodule(family.boxes)]
    device = next(network.parameters()).device.type
    compute_exactly([network.get_submodule("model.decoder"), class_head(network), *boxes], device)


def compute_exactly(modules: Iterable[nn.Module], device: str) -> None:
    """Lets modules, or the items of lists of modules, compute in float32 inside `torch.autocast`; see `in_float32`."""
    for module in modules:
        for part in module if isinstance(module, nn.ModuleList) else [module]:
            part.forward = in_float32(part.forward, device)


def in_float32(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """The function with floating-point arguments in float32 and autocast off, on a type of device ("cpu", "cuda")."""

    @functools.wraps(function)
    def exact(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, enabled=False):
            return function(*_float32(args), **_float32(kwargs))

    return exact


def _float32(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _float32(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_float32(item) for item in value)
    return value


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
        local_files_only: Use a model on the hub only if it is already cached.

    Raises:
        DataError: a part is absent or damaged.
    """
    weights = fetched(weights, revision, local_files_only=local_files_only)
    if weights.is_dir():
        return _in_folder(weights, weight_files(weights), classes)
    regular_file(weights, "the checkpoint does not exist")
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
    needed = f"a checkpoint needs {CONFIG} and {PROCESSOR} beside it, or in the folder that 'config' names"
    require((*weights, *described), needed)
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

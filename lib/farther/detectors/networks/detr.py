"""Detection transformers of the `transformers` library: their families and checkpoints.

A checkpoint is a safetensors file of farther, a folder of `transformers`, a model of the hub, or a
PyTorch file of weights beside such a folder; or a PyTorch file of the package rfdetr.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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
    fetch_model,
    load_pretrained,
    read_description,
    require_files,
    silenced_transformers,
    weight_files,
)
from farther.detectors.networks.rfdetr_import import (
    ClassRows,
    RfDetrFile,
    describe,
    keep_rows,
    read_rfdetr,
    to_transformers,
)
from farther.detectors.networks.weights import (
    as_float32,
    as_names,
    json_field,
    read_metadata,
    read_weights,
    unwrapped,
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


#: Last parts of the names of modules in the decoder's layers behind which transformers puts
#: dropout.
DROPPED = ("self_attn", "cross_attn", "encoder_attn", "mlp", "fc2")


@dataclass(frozen=True)
class Family:
    """A kind of network: names of the modules whose inputs and outputs OOD methods read.

    Args:
        head: The class head; of a list of heads, the one of the decoder layer whose output is used.
        activation: Turns logits into scores; with "softmax" the last column is "no object".
        boxes: The heads that boxes come from, if they are outside the decoder.
        encoders: The output of the first of them that a network has is the latent map: the first
            encoder module, as in the published FMIYC code, or its replacement in a network
            without an encoder.
        maps: If that output is a sequence of tokens: the projections whose outputs were flattened
            into it.
        first_token: Number of tokens in front of those of the first map.
        proposals: In networks whose queries are the best of many proposals: the module that scores
            these; of a list, its last item.
        proposal_inputs: In networks with groups of queries (`group_detr`), which score their
            proposals twice: the layer, in front of the scoring module, whose input is 0 where a
            proposal cannot become a query, and the one whose output is scored. Of each the first
            item, which is the group that is used in inference.
        before: The modules that run before the decoder.
        decoder: The decoder, or its replacement.
        layers: Name of the decoder's list of layers.
        dropped: Endings of the names of modules in these layers behind which there is dropout.
        exact: Further modules that compute in float32 at any precision, besides the heads.
        has_mask: The network takes a mask of the pixels that are image.
        unused: Part of the names of weights that boxes do not need, as those of masks.
        stored_head: Name of the module whose weights are also the head's, if files hold them under
            that name only.
        last_layer: "linear" if logits are the head's output. D-FINE and DEIMv2 add one number, the
            quality of the box, to all logits of a query.
    """

    head: str
    activation: Activation
    boxes: str | None = None
    encoders: tuple[str, ...] = ()
    maps: str | None = None
    first_token: int = 0
    proposals: str | None = "model.enc_score_head"
    proposal_inputs: tuple[str, str] | None = None
    before: tuple[str, ...] = ("model.backbone", "model.encoder")
    decoder: str = "model.decoder"
    layers: str = "layers"
    dropped: tuple[str, ...] = DROPPED
    exact: tuple[str, ...] = ("model.decoder",)
    has_mask: bool = True
    unused: str | None = None
    stored_head: str | None = None
    last_layer: LastLayer = "linear"

    @property
    def per_query(self) -> PerQuery:
        """Default of `BoxSelection.per_query`."""
        return "several" if self.activation == "sigmoid" else "one"


#: The first module of RT-DETR's encoder, a transformer layer on the map of stride 32.
AIFI = "model.encoder.aifi.0"

RT_DETR = Family("model.decoder.class_embed", "sigmoid", encoders=(AIFI,))

DETR = Family(
    "class_labels_classifier",
    "softmax",
    boxes="bbox_predictor",
    encoders=("model.encoder.layers.0",),
    maps="model.input_projection",
)

#: Networks with groups of queries, of which inference uses the first, and with a projector in the
#: encoder's place.
GROUPED = Family(
    "class_embed",
    "sigmoid",
    boxes="bbox_embed",
    encoders=("model.backbone.projector",),
    proposals="model.enc_out_class_embed",
    proposal_inputs=("model.enc_output", "model.enc_output_norm"),
    before=("model.backbone",),
    exact=(
        "model.decoder",
        "model.enc_output",
        "model.enc_output_norm",
        "model.enc_out_class_embed",
        "model.enc_out_bbox_embed",
    ),
)

FAMILIES = {
    "rt_detr": RT_DETR,
    "rt_detr_v2": RT_DETR,
    "d_fine": replace(RT_DETR, last_layer="with quality"),
    "deimv2": replace(
        RT_DETR,
        encoders=(AIFI, "model.encoder.bi_fusion_conv"),
        before=("model.conv_encoder", "model.encoder"),
        last_layer="with quality",
    ),
    "pp_doclayout_v3": replace(RT_DETR, stored_head="model.enc_score_head"),
    "detr": DETR,
    "table-transformer": DETR,
    "conditional_detr": replace(DETR, activation="sigmoid"),
    "dab-detr": replace(DETR, head="class_embed", activation="sigmoid"),
    "deformable_detr": replace(
        DETR,
        head="class_embed",
        activation="sigmoid",
        boxes="bbox_embed",
        maps="model.input_proj",
        proposals="model.decoder.class_embed",
    ),
    "lw_detr": GROUPED,
    "rf_detr": replace(GROUPED, unused="segmentation_head."),
    "yolos": Family(
        "class_labels_classifier.layers.2",
        "softmax",
        boxes="bbox_predictor",
        encoders=("vit.encoder.layer.0",),
        maps="vit.embeddings.patch_embeddings.projection",
        first_token=1,
        proposals=None,
        before=("vit.embeddings",),
        decoder="vit.encoder",
        layers="layer",
        dropped=("output.dense",),
        exact=("class_labels_classifier",),
        has_mask=False,
    ),
}

#: Why the other detectors of transformers are refused, by how their model types begin.
REFUSED = {
    "pp_doclayout_v2": "it puts its queries into another order than its decoder's",
    "pp_doclayout_v4": "it gives quadrilaterals instead of boxes",
    "pp_ocr": "it gives a map of text, without classes, boxes and scores of objects",
    **dict.fromkeys(
        ("grounding-dino", "mm-grounding-dino", "omdet-turbo", "owlv2", "owlvit"),
        "its classes are prompts: take the adapter 'open_vocabulary'",
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
        raise ParameterError(
            f"model type {shorten(model_type)} is none of {', '.join(FAMILIES)}: "
            f"{_reason_of_refusal(model_type)}"
        )
    return FAMILIES[model_type]


def _reason_of_refusal(model_type: Any) -> str:
    """The reason why a model type is not in `FAMILIES`."""
    if isinstance(model_type, str):
        for beginning, reason in REFUSED.items():
            if model_type.startswith(beginning):
                return reason
    return (
        "others are refused: their class head is not a linear layer on a decoder's output, "
        "or they are untested"
    )


def make_config(blueprint: DetrBlueprint) -> Any:
    """The configuration object of a blueprint.

    Raises:
        ParameterError: the model type or a field is unknown, or a class occurs twice or is called
            "no object".
    """
    names, _ = blueprint.columns()
    if len(set(names)) != len(names):
        raise ParameterError(
            f"a class occurs twice in {list(names)}; name the classes with the parameter 'classes'"
        )
    fields = dict(blueprint.config)
    model_type = fields.pop("model_type")
    for name in ("id2label", "label2id", "num_labels"):
        fields.pop(name, None)
    try:
        config = AutoConfig.for_model(model_type, **fields)
    except Exception as error:  # each configuration class raises different errors
        raise ParameterError(
            f"transformers refuses the configuration: {str(error).strip()[:400]}"
        ) from None
    config.id2label = dict(enumerate(blueprint.classes))
    config.label2id = {name: number for number, name in enumerate(blueprint.classes)}
    if getattr(config, "use_pretrained_backbone", None):
        config.use_pretrained_backbone = False  # its weights come with the checkpoint
    return config


def build_network(
    blueprint: DetrBlueprint, attention: Literal["eager"] | None = None
) -> PreTrainedModel:
    """An untrained network in training mode, seeded by PyTorch's global generator.

    Args:
        attention: Implementation: None leaves it to transformers, "eager" is faster in training on
            a CPU.

    Raises:
        ParameterError: the configuration is unknown to transformers, or needs a package that is not
            installed.
    """
    config = make_config(blueprint)
    try:
        with silenced_transformers():
            network = AutoModelForObjectDetection.from_config(config, attn_implementation=attention)
    except (ImportError, ValueError, TypeError, RuntimeError) as error:
        raise ParameterError(
            f"transformers cannot build this network: {str(error).strip()[:400]}"
        ) from None
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
    """Lets the decoder and the heads compute in float32 inside `torch.autocast`.

    Boxes and logits need all digits.
    """
    family = family_of(network.config.model_type)
    modules = [network.get_submodule(name) for name in family.exact]
    modules.append(class_head(network))
    if family.boxes is not None:
        modules.append(network.get_submodule(family.boxes))
    compute_exactly(modules, next(network.parameters()).device.type)


def compute_exactly(modules: Iterable[nn.Module], device: str) -> None:
    """Lets modules, or the items of lists of modules, compute in float32 in `torch.autocast`.

    Args:
        modules: The modules.
        device: See `in_float32`.
    """
    for module in modules:
        items = module if isinstance(module, nn.ModuleList) else [module]
        for item in items:
            item.forward = in_float32(item.forward, device)


def in_float32(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """Wraps a function: its floating-point arguments become float32, and autocast is off.

    Args:
        function: The function.
        device: Type of its device, "cpu" or "cuda".
    """

    @functools.wraps(function)
    def exact(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, enabled=False):
            return function(*_float32(args), **_float32(kwargs))

    return exact


def _float32(value: Any) -> Any:
    """A value whose floating-point tensors, also those in containers, are in float32."""
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _float32(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_float32(item) for item in value)
    return value


@dataclass(frozen=True)
class DetrCheckpoint:
    """A checkpoint of a network of transformers.

    Args:
        blueprint: Of the network.
        weights: Its files of weights.
        described: The files that describe its network, if it has such.
        is_rfdetr: The package rfdetr wrote the one file of weights.
        class_rows: Rows of its class head that are classes; None for all.
        assumed: Assumptions about what the files do not say, in a sentence; empty if there are
            none.
    """

    blueprint: DetrBlueprint
    weights: tuple[Path, ...]
    described: tuple[Path, ...] = ()
    is_rfdetr: bool = False
    class_rows: ClassRows | None = None
    assumed: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the network depends on."""
        return (*self.weights, *self.described)


def save_checkpoint(
    path: str | Path,
    state: Mapping[str, Tensor],
    blueprint: DetrBlueprint,
    notes: Mapping[str, str] | None = None,
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
        weights: A folder with `config.json`, `preprocessor_config.json` and `model.safetensors` (or
            its shards); a file of weights in such a folder; farther's safetensors file; a PyTorch
            file, of which those of the package rfdetr describe themselves; or, where no such file
            exists, the name of a model on the hub (`owner/name`).
        described_in: Folder of `config.json` and `preprocessor_config.json`, for a PyTorch file
            elsewhere.
        classes: Names for the classes, instead of the configuration's.
        revision: Branch, tag or commit of a model on the hub.
        local_files_only: Use a model on the hub only if it is already cached.

    Raises:
        DataError: a part is absent or damaged.
    """
    weights = fetch_model(weights, revision, local_files_only=local_files_only)
    if weights.is_dir():
        return _in_folder(weights, weight_files(weights), classes)
    regular_file(weights, "the checkpoint does not exist")
    metadata = read_metadata(weights) if weights.suffix.lower() == ".safetensors" else {}
    if metadata.get("format") == FORMAT:
        blueprint = _stored_blueprint(weights, metadata, classes)
        return DetrCheckpoint(blueprint, (weights,))
    if described_in is None and weights.suffix.lower() != ".safetensors":
        file = read_rfdetr(weights)
        if file is not None:
            return _of_rfdetr(file, classes)
    return _in_folder(described_in or weights.parent, (weights,), classes)


def load_network(
    checkpoint: DetrCheckpoint,
    tolerated: Tolerated = "nothing",
    attention: Literal["eager"] | None = None,
) -> PreTrainedModel:
    """The network of a checkpoint, in float32, in evaluation mode.

    Args:
        tolerated: "class heads" lets weights whose shape depends on the number of classes or
            queries start at random.
        attention: See `build_network`.

    Raises:
        DataError: a file is absent or damaged, the network cannot be built, or the weights do not
            fit it; lists those that are missing, unexpected, or of another shape.
    """
    first = checkpoint.weights[0]
    blueprint = checkpoint.blueprint
    description = f"{blueprint.config['model_type']} with {len(blueprint.classes)} classes"
    try:
        config = make_config(blueprint)
        network_class = AutoModelForObjectDetection._model_mapping[type(config)]
    except ParameterError as error:
        raise DataError(str(error), file=first) from None
    if checkpoint.class_rows is not None:
        config.num_labels = checkpoint.class_rows.count
    built = refuse_larger(first, checkpoint.weights, functools.partial(network_class, config))
    if checkpoint.is_rfdetr:
        file = read_rfdetr(first)
        assert file is not None
        shapes = {name: tuple(tensor.shape) for name, tensor in built.state_dict().items()}
        state = to_transformers(
            file, shapes, description, accept_other_shapes=tolerated == "class heads"
        )
    else:
        weights: dict[str, Tensor] = {}
        for path in checkpoint.weights:
            weights |= read_weights(path)
        state = _network_part(first, as_float32(weights), blueprint, built.state_dict())
    network = load_pretrained(
        network_class,
        None,
        first,
        tolerated=tolerated,
        what=description,
        config=config,
        state_dict=state,
        attn_implementation=attention,
    )
    if checkpoint.class_rows is not None:
        network.class_embed = keep_rows(network.class_embed, checkpoint.class_rows)
    return network


def _of_rfdetr(file: RfDetrFile, classes: tuple[str, ...] | None) -> DetrCheckpoint:
    """The checkpoint of a file of the package rfdetr."""
    description = describe(file, classes)
    blueprint = DetrBlueprint(description.config, description.processor, description.classes)
    return DetrCheckpoint(
        blueprint,
        (file.path,),
        is_rfdetr=True,
        class_rows=description.class_rows,
        assumed=description.assumed,
    )


def _in_folder(
    folder: Path, weights: tuple[Path, ...], classes: tuple[str, ...] | None
) -> DetrCheckpoint:
    """The checkpoint of files of weights whose network the files of a folder describe."""
    config_file = folder / CONFIG
    processor_file = folder / PROCESSOR
    needed = (
        f"a checkpoint needs {CONFIG} and {PROCESSOR} beside it, "
        "or in the folder that 'config' names"
    )
    require_files((*weights, config_file, processor_file), needed)
    config = read_description(config_file)
    processor = read_description(processor_file, MOST_PIXELS)
    names = classes or class_names(config_file, config)
    blueprint = _blueprint(config_file, config, processor, names)
    return DetrCheckpoint(blueprint, weights, (config_file, processor_file))


def _stored_blueprint(
    path: Path, metadata: Mapping[str, str], classes: tuple[str, ...] | None
) -> DetrBlueprint:
    """The blueprint in the metadata of farther's file, with names for its classes if given."""
    config = json_field(path, metadata, "config")
    processor = json_field(path, metadata, "processor")
    stored_classes = json_field(path, metadata, "classes")
    check_description(path, config, field="config")
    check_description(path, processor, MOST_PIXELS, "processor")
    return _blueprint(path, config, processor, classes or stored_classes)


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


def _network_part(
    path: Path, weights: dict[str, Tensor], blueprint: DetrBlueprint, own: Iterable[str]
) -> dict[str, Tensor]:
    """The network's weights under its names for them.

    Args:
        path: The file, for messages.
        weights: All weights of the file.
        blueprint: Of the network.
        own: Names of all weights of the network.
    """
    stored = unwrapped(path, weights, own)
    head = blueprint.family.stored_head or blueprint.family.head
    if not any(f".{head}." in f".{name}" for name in stored):
        kind = blueprint.config["model_type"]
        raise DataError(
            f"no weight is called …{head}….weight: not a checkpoint of {kind}", file=path
        )

    unused = blueprint.family.unused
    state = {}
    for name, tensor in stored.items():
        # Releases that shared the decoder's heads with the whole network wrote them twice.
        in_decoder = stored.get(DECODER + name)
        is_copy = in_decoder is not None and torch.equal(tensor, in_decoder)
        is_unused = unused is not None and unused in name
        if not is_copy and not is_unused:
            state[name] = tensor
    return state

"""Checkpoints of the package `rfdetr` as the network that transformers has for them.

Its trainer writes `checkpoint_best_total.pth` and the like: a dictionary with the weights under
"model" (or, in Lightning's `last.ckpt`, under "state_dict"), the training's arguments under "args",
and since version 1.7 the network's settings under "model_config" and the version under
"rfdetr_version". Until version 1.5 "args" was a namespace that held the network's settings, too.
Weights that were published for COCO have less; missing settings follow from the shapes.

`RENAMES` turns rfdetr's names of weights into those of transformers. Besides names, this changes:

    transformer.decoder.layers.*.self_attn.in_proj_weight, _bias  (3 D rows)  Become q_proj, k_proj
                                                                              and v_proj.
    segmentation_head.*                                                       Is dropped: boxes do
                                                                              not need it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights

from farther.detectors.networks.square_resize import SquareResizeImageProcessor
from farther.detectors.networks.weights import (
    STATE_DICT_KEYS,
    read_torch_file,
    refuse_misfit,
    unwrapped,
)
from farther.errors import DataError, shorten
from farther.images.bounds import MOST_PIXELS, check_description

#: Beginnings of names of weights in rfdetr and in transformers, and replacements in the rest of
#: these names.
RENAMES: list[tuple[str, str, list[tuple[str, str]]]] = [
    (
        "backbone.0.encoder.encoder.",
        "model.backbone.backbone.",
        [
            ("attention.attention.query.", "attention.q_proj."),
            ("attention.attention.key.", "attention.k_proj."),
            ("attention.attention.value.", "attention.v_proj."),
            ("attention.output.dense.", "attention.o_proj."),
        ],
    ),
    (
        "backbone.0.projector.stages.0.0.",
        "model.backbone.projector.projector_layer.",
        [("m.", "bottlenecks."), ("cv1.", "conv1."), ("cv2.", "conv2."), ("bn.", "norm.")],
    ),
    ("backbone.0.projector.stages.0.1.", "model.backbone.projector.layer_norm.", []),
    (
        "transformer.decoder.layers.",
        "model.decoder.layers.",
        [
            ("self_attn.out_proj.", "self_attn.o_proj."),
            ("norm1.", "self_attn_layer_norm."),
            ("norm2.", "cross_attn_layer_norm."),
            ("norm3.", "layer_norm."),
            ("linear1.", "mlp.fc1."),
            ("linear2.", "mlp.fc2."),
        ],
    ),
    ("transformer.decoder.norm.", "model.decoder.layernorm.", []),
    ("transformer.decoder.ref_point_head.", "model.decoder.ref_point_head.", []),
    ("transformer.enc_out", "model.enc_out", []),
    ("refpoint_embed.", "model.reference_point_embed.", []),
    ("query_feat.", "model.query_feat.", []),
    ("class_embed.", "class_embed.", []),
    ("bbox_embed.", "bbox_embed.", []),
]

#: Weights of the attention between queries, whose three projections rfdetr stores in one tensor.
JOINED = re.compile(r"transformer\.decoder\.layers\.\d+\.self_attn\.in_proj_(weight|bias)")
PROJECTIONS = ("q_proj", "k_proj", "v_proj")
PROJECTION = re.compile(r"\.self_attn\.[qkv]_proj\.")

#: Beginnings of the names of weights that boxes and scores do not need.
UNUSED = ("segmentation_head.", "_kp_active_mask")

#: Beginnings of names, and values of settings, of networks that transformers does not have.
STRANGE_NAMES = {
    "backbone.0.encoder.base_model.": (
        "its backbone was trained with LoRA: merge it into the weights with rfdetr"
    ),
    "backbone.0.projector.stages.1.": (
        "its decoder reads feature maps of several sizes (RFDETRLarge before 2026)"
    ),
    "backbone.0.projector.stages_sampling.": (
        "its projector scales the backbone's maps (projector_scale is not P4)"
    ),
    "backbone.0.cross_attn_projector.": "it has two projectors",
    "backbone.0.encoder.encoder.embeddings.register_tokens": "its backbone has register tokens",
    "keypoint_embed.": "it finds keypoints, and its scores depend on them",
    "transformer.decoder.bbox_embed.": (
        "its decoder refines boxes in each layer (lite_refpoint_refine is off)"
    ),
}
STRANGE_SETTINGS = {
    "two_stage": True,
    "bbox_reparam": True,
    "lite_refpoint_refine": True,
    "layer_norm": True,
}

#: Weights without which a file is not one of rfdetr's.
MARKS = ("refpoint_embed.weight", "query_feat.weight", "class_embed.weight")
PATCHES = "backbone.0.encoder.encoder.embeddings.patch_embeddings.projection.weight"
POSITIONS = "backbone.0.encoder.encoder.embeddings.position_embeddings"

#: The first layer of the backbone.
BLOCK = "backbone.0.encoder.encoder.encoder.layer.0"

#: Mean of colours with which all networks of rfdetr were trained, that of ImageNet.
MEAN = (0.485, 0.456, 0.406)

#: Standard deviation of colours, likewise.
STD = (0.229, 0.224, 0.225)

#: Values per head of the backbone's attention, in each DINOv2.
HEAD_SIZE = 64

#: Rows of the class head of the networks for COCO, which has numbers up to 90.
COCO_ROWS = 91


@dataclass(frozen=True)
class Variant:
    """Settings of a published network that do not follow from the shapes of its weights.

    Args:
        resolution: Side of the input in pixels.
        num_windows: Windows of the backbone's attention along one side.
        out_feature_indexes: The backbone's layers whose outputs the projector reads, from 1.
    """

    resolution: int
    num_windows: int = 2
    out_feature_indexes: tuple[int, ...] = (3, 6, 9, 12)


#: The published networks, by the side of a patch in pixels and the number of positions along one
#: side of the image.
VARIANTS = {
    (14, 37): Variant(560, 4, (2, 5, 8, 11)),  # Base
    (16, 24): Variant(384),  # Nano
    (16, 32): Variant(512),  # Small
    (16, 36): Variant(576),  # Medium
    (16, 44): Variant(704),  # Large
    (12, 26): Variant(312, 1),  # SegNano
    (12, 32): Variant(384),  # SegSmall
    (12, 36): Variant(432),  # SegPreview and SegMedium
    (12, 42): Variant(504),  # SegLarge
    (12, 52): Variant(624),  # SegXLarge
    (12, 64): Variant(768),  # Seg2XLarge
}


@dataclass(frozen=True)
class RfDetrFile:
    """Content of a checkpoint of rfdetr.

    Args:
        path: The file.
        weights: By rfdetr's names; mapped from the file, not read.
        settings: Of the network, as far as they are stored.
        is_namespace: The arguments are a namespace, as until version 1.5.
        class_names: The classes, None if the file names none.
        version: Of the package that wrote it; empty if it is not stored.
    """

    path: Path
    weights: dict[str, Tensor]
    settings: dict[str, Any]
    is_namespace: bool
    class_names: tuple[str, ...] | None
    version: str

    @property
    def rows(self) -> int:
        """Number of rows of the class head: one per class, and others that mean no class."""
        return len(self.weights["class_embed.weight"])

    @property
    def writer(self) -> str:
        """The package that wrote the file, with its version if it is stored, for messages."""
        if self.version:
            return f"rfdetr {self.version}"
        return "an rfdetr that does not store its version"


@dataclass(frozen=True)
class ClassRows:
    """Rows of the class head that are classes.

    Args:
        count: Number of all rows.
        rows: Rows of the classes, in the classes' order.
    """

    count: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class RfDetrDescription:
    """A checkpoint's network in the terms of transformers.

    Args:
        config: Fields of `RfDetrConfig`.
        processor: Fields of `SquareResizeImageProcessor`.
        classes: The known classes, in the order of `class_rows`.
        class_rows: Their rows in the class head.
        assumed: Assumptions about what the file does not say, in a sentence; empty if there are
            none.
    """

    config: dict[str, Any]
    processor: dict[str, Any]
    classes: tuple[str, ...]
    class_rows: ClassRows
    assumed: str


def read_rfdetr(path: Path) -> RfDetrFile | None:
    """Content of a checkpoint of rfdetr; None if a file that PyTorch wrote is not one.

    Raises:
        DataError: the file cannot be read safely; see `read_torch_file`.
    """
    content = read_torch_file(path)
    if not isinstance(content, dict):
        return None
    weights = _weights(path, content)
    if not all(name in weights for name in MARKS):
        return None

    args = content.get("args")
    settings = content.get("model_config")
    is_namespace = args is not None and not isinstance(args, dict)
    arguments: dict[str, Any] = {}
    if isinstance(args, dict):
        arguments = args
    elif is_namespace:
        arguments = vars(args)
    if not isinstance(settings, dict):
        settings = arguments if is_namespace else {}
    version = content.get("rfdetr_version")
    return RfDetrFile(
        path=path,
        weights=weights,
        settings=settings,
        is_namespace=is_namespace,
        class_names=_class_names(path, arguments.get("class_names")),
        version=version if isinstance(version, str) else "",
    )


def describe(file: RfDetrFile, classes: tuple[str, ...] | None = None) -> RfDetrDescription:
    """The network of a checkpoint, as transformers describes it.

    Args:
        file: The checkpoint.
        classes: Names for the first rows of the class head, instead of the file's.

    Raises:
        DataError: transformers has no such network, a setting is wrong or missing, or the classes
            do not fit.
    """
    _refuse_strange(file)
    assumptions: list[str] = []
    patches = _weight(file, PATCHES, 4)
    positions = _weight(file, POSITIONS, 3)
    hidden_size, channels, patch_size, _ = patches.shape
    if channels != len(MEAN):
        problem = f"takes images of {channels} channels; only those of red, green and blue are read"
        raise DataError(problem, file=file.path, field="num_channels")
    side = round((positions.shape[1] - 1) ** 0.5)

    settings = _settings(file, VARIANTS.get((patch_size, side)), assumptions)
    resolution = _count(file, settings, "resolution")
    windows = _count(file, settings, "num_windows")
    multiple = patch_size * windows
    if resolution % multiple or resolution > MOST_PIXELS:
        problem = f"expected a multiple of {multiple} up to {MOST_PIXELS:,}, found {resolution}"
        raise DataError(problem, file=file.path, field="resolution")
    width = _weight(file, "query_feat.weight", 2).shape[1]
    heads = int(settings.get("sa_nheads") or max(width // 32, 1))
    points = _count(file, {"dec_n_points": 2, **settings}, "dec_n_points")
    samples = len(
        _weight(file, "transformer.decoder.layers.0.cross_attn.attention_weights.weight", 2)
    )
    groups = _numbered(file, "transformer.enc_output")
    config = {
        "model_type": "rf_detr",
        "backbone_config": {
            "model_type": "rf_detr_dinov2",
            "hidden_size": hidden_size,
            "num_hidden_layers": _numbered(file, "backbone.0.encoder.encoder.encoder.layer"),
            "num_attention_heads": max(hidden_size // HEAD_SIZE, 1),
            "mlp_ratio": len(_weight(file, f"{BLOCK}.mlp.fc1.weight", 2)) // hidden_size,
            "image_size": side * patch_size,
            "patch_size": patch_size,
            "num_windows": windows,
            "out_indices": list(settings["out_feature_indexes"]),
        },
        "d_model": width,
        "layer_norm_eps": 1e-6,
        "decoder_layers": _numbered(file, "transformer.decoder.layers"),
        "decoder_ffn_dim": len(_weight(file, "transformer.decoder.layers.0.linear1.weight", 2)),
        "decoder_self_attention_heads": heads,
        "decoder_cross_attention_heads": max(samples // points, 1),
        "decoder_n_points": points,
        "group_detr": groups,
        "num_queries": len(file.weights["query_feat.weight"]) // max(groups, 1),
        "c2f_num_blocks": _numbered(file, "backbone.0.projector.stages.0.0.m"),
    }
    processor = SquareResizeImageProcessor(
        size={"height": resolution, "width": resolution},
        antialias=file.is_namespace,
        image_mean=MEAN,
        image_std=STD,
    )
    names, rows = _classes(file, classes, assumptions)
    return RfDetrDescription(
        config, processor.to_dict(), names, ClassRows(file.rows, rows), "; ".join(assumptions)
    )


def _settings(file: RfDetrFile, variant: Variant | None, assumptions: list[str]) -> dict[str, Any]:
    """The settings of a checkpoint's network; adds to `assumptions` those of a published one.

    Args:
        file: The checkpoint.
        variant: The published network of the same shape; None if there is none.
        assumptions: See `RfDetrDescription.assumed`.
    """
    needed = ("resolution", "num_windows", "out_feature_indexes")
    settings = file.settings
    missing = [name for name in needed if name not in settings]
    if missing:
        if variant is None:
            raise DataError(
                f"the file holds no {', '.join(missing)}, and is none of the published networks "
                f"({file.writer}): take checkpoint_best_ema.pth or checkpoint_best_regular.pth, "
                "which hold 'model_config'",
                file=file.path,
                field="model_config",
            )
        assumptions.append(
            "it holds no settings of its network: assumed an input of "
            f"{variant.resolution} pixels, as the published network of this shape has"
        )
        settings = {**vars(variant), **settings}
    bounded = {name: settings[name] for name in ("num_windows", "out_feature_indexes")}
    check_description(file.path, bounded)
    return settings


def to_transformers(
    file: RfDetrFile,
    shapes: Mapping[str, tuple[int, ...]],
    description: str,
    *,
    accept_other_shapes: bool = False,
) -> dict[str, Tensor]:
    """The weights under transformers' names, in float32.

    Args:
        file: The checkpoint.
        shapes: Of the network's weights, by transformers' names.
        description: Of the network, for messages.
        accept_other_shapes: Leave weights of another shape to the caller, as for training with
            other classes.

    Raises:
        DataError: weights are missing, unexpected or of another shape; up to three of each are
            named as rfdetr does.
    """
    renamed: dict[str, Tensor] = {}
    unexpected = []
    for name, tensor in file.weights.items():
        if JOINED.fullmatch(name):
            stem, _, kind = renamed_to_transformers(name).rpartition("in_proj_")
            for projection, part in zip(PROJECTIONS, tensor.chunk(3), strict=False):
                renamed[f"{stem}{projection}.{kind}"] = part
            continue
        new_name = renamed_to_transformers(name)
        if new_name in shapes:
            renamed[new_name] = tensor
        else:
            unexpected.append(name)

    missing = []
    other_shapes = []
    for new_name, shape in shapes.items():
        if new_name not in renamed:
            missing.append(renamed_to_rfdetr(new_name))
        elif tuple(renamed[new_name].shape) != shape and not accept_other_shapes:
            stored = tuple(renamed[new_name].shape)
            other_shapes.append(f"{renamed_to_rfdetr(new_name)} {stored} instead of {shape}")
    problems = {
        "missing": sorted(set(missing)),
        "unexpected": sorted(unexpected),
        "of another shape": sorted(other_shapes),
    }
    refuse_misfit(file.path, f"{description}, written by {file.writer}", problems, limit=3)
    return {name: tensor.float() for name, tensor in renamed.items()}


def renamed_to_transformers(name: str) -> str:
    """transformers' name of a weight of rfdetr; the same name if transformers has none."""
    for theirs, ours, inner in RENAMES:
        if name.startswith(theirs):
            rest = name.removeprefix(theirs)
            for old, new in inner:
                rest = re.sub(rf"(^|\.){re.escape(old)}", rf"\g<1>{new}", rest)
            return ours + rest
    return name


def renamed_to_rfdetr(name: str) -> str:
    """rfdetr's name of a weight of transformers' network."""
    for theirs, ours, inner in RENAMES:
        if name.startswith(ours):
            rest = name.removeprefix(ours)
            for old, new in inner:
                rest = re.sub(rf"(^|\.){re.escape(new)}", rf"\g<1>{old}", rest)
            if theirs == "transformer.decoder.layers.":
                rest = PROJECTION.sub(".self_attn.in_proj_", f".{rest}")[1:]
            return theirs + rest
    return name


def _weights(path: Path, content: dict[str, Any]) -> dict[str, Tensor]:
    """The network's weights: under "model", or in a Lightning module under "state_dict"."""
    state = None
    for key in ("model", "state_dict", *STATE_DICT_KEYS):
        if isinstance(content.get(key), dict):
            state = content[key]
            break
    if state is None:
        return {}

    tensors = {}
    for name, tensor in state.items():
        if isinstance(name, str) and isinstance(tensor, Tensor):
            tensors[name] = tensor
    weights = {}
    for name, tensor in unwrapped(path, tensors, MARKS).items():
        if not name.startswith(UNUSED) and not name.endswith("_extra_state"):
            weights[name] = tensor
    return weights


def _class_names(path: Path, names: Any) -> tuple[str, ...] | None:
    """Names of classes in a training's arguments; None if there are none."""
    if not names:
        return None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"expected a list of names, found {shorten(names)}", file=path, field="args.class_names"
        )
    return tuple(names)


def _classes(
    file: RfDetrFile, named: tuple[str, ...] | None, assumptions: list[str]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The classes and their rows in the head; adds to `assumptions` what the file does not say."""
    names = named or file.class_names
    if names is None:
        if file.rows != COCO_ROWS:
            raise DataError(
                f"the file names no classes, and its class head has {file.rows} rows: "
                "the classes, and one more. Name them with the parameter 'classes'",
                file=file.path,
                field="args",
            )
        categories = FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
        unused = ("__background__", "N/A")
        rows = tuple(row for row, name in enumerate(categories) if name not in unused)
        assumptions.append("it names no classes: assumed to be COCO's")
        return tuple(categories[row] for row in rows), rows

    if len(set(names)) < len(names):
        raise DataError(
            f"a class is listed twice in {shorten(list(names))}",
            file=file.path,
            field="class_names",
        )
    if len(names) > file.rows:
        problem = f"{len(names)} classes do not fit a class head of {file.rows} rows"
        raise DataError(f"{problem} ({file.writer})", file=file.path, field="class_names")
    first = 0
    if named is None and file.is_namespace and file.rows > len(names):
        # Until version 1.5 labels were the numbers of a COCO file, and names were counted from 1.
        first = 1
        assumptions.append("its classes are assumed to be numbered from 1, as by rfdetr before 1.6")
    return names, tuple(range(first, first + len(names)))


def _refuse_strange(file: RfDetrFile) -> None:
    """Refuses networks that transformers does not have."""
    for beginning, reason in STRANGE_NAMES.items():
        if any(name.startswith(beginning) for name in file.weights):
            raise DataError(f"a network of rfdetr that is not read: {reason}", file=file.path)
    for name, value in STRANGE_SETTINGS.items():
        if file.settings.get(name, value) != value:
            problem = (
                "a network of rfdetr that is not read: "
                f"expected {value}, found {shorten(file.settings[name])}"
            )
            raise DataError(problem, file=file.path, field=name)


def _weight(file: RfDetrFile, name: str, dimensions: int) -> Tensor:
    """A weight, which must have this number of dimensions."""
    tensor = file.weights.get(name)
    if tensor is None:
        raise DataError(f"weight {name} is missing, written by {file.writer}", file=file.path)
    if tensor.ndim != dimensions:
        problem = f"expected {dimensions} dimensions, found {tensor.ndim}, written by {file.writer}"
        raise DataError(problem, file=file.path, field=name)
    return tensor


def _numbered(file: RfDetrFile, stem: str) -> int:
    """Number of the items of a list of modules."""
    prefix = f"{stem}."
    numbers = set()
    for name in file.weights:
        if name.startswith(prefix):
            numbers.add(name.removeprefix(prefix).partition(".")[0])
    return len(numbers)


def _count(file: RfDetrFile, settings: Mapping[str, Any], name: str) -> int:
    """A setting that is a number of 1 or more."""
    value = settings[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DataError(
            f"expected a number from 1, found {shorten(value)}", file=file.path, field=name
        )
    return value


def keep_rows(head: torch.nn.Linear, class_rows: ClassRows) -> torch.nn.Linear:
    """A class head with only the rows of the classes."""
    rows = torch.tensor(class_rows.rows, device=head.weight.device)
    smaller = torch.nn.Linear(head.in_features, len(rows), device=head.weight.device)
    with torch.no_grad():
        smaller.weight.copy_(head.weight[rows])
        smaller.bias.copy_(head.bias[rows])
    return smaller

"""Detection networks of Ultralytics (YOLOv8 and its relatives), and their checkpoints.

A checkpoint is farther's safetensors file or Ultralytics' `.pt` file.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from farther.detectors.networks.ultralytics_import import import_quietly
from farther.detectors.networks.weights import (
    as_float32,
    as_names,
    as_pixels,
    json_field,
    read_metadata,
    read_tensors,
    refuse_format,
    write_checkpoint,
)
from farther.detectors.networks.yolo_text import TEXT_MODELS, with_classes
from farther.detectors.scaling import Scaled
from farther.errors import DataError, ParameterError, first_line, shorten
from farther.images.bounds import check_description, network_errors, refuse_larger
from farther.tables.files import regular_file

import_quietly()

from ultralytics.data.augment import LetterBox  # noqa: E402
from ultralytics.nn import modules  # noqa: E402
from ultralytics.nn.tasks import DetectionModel, guess_model_scale, parse_model  # noqa: E402
from ultralytics.utils import ROOT, YAML  # noqa: E402

FORMAT = "farther.yolo"

#: Largest number in the description of a network, as of channels.
MOST_WIDTH = 2_048

#: Image size that Ultralytics uses if a checkpoint stores none.
USUAL_IMAGE_SIZE = 640

#: Names that a pickled network of Ultralytics may contain, besides those that PyTorch reads:
#: layers, losses and namespaces; paths and numbers among its notes. None of them is imported or
#: called: see `_StandIn`.
KNOWN_GLOBALS = (
    "ultralytics.",
    "torch.nn.",
    "pathlib.",
    "numpy.",
    "builtins.getattr",
    "builtins.set",
)

#: The layer of PyTorch that an architecture may name as its activation.
ACTIVATION = re.compile(r"(torch\.)?nn\.[A-Z]\w*\([\d.]*\)")

#: Folder of the descriptions of Ultralytics' networks.
MODELS = ROOT / "cfg" / "models"

#: Heads whose class logits belong to one anchor each; the masks of "Segment" are left out. Those of
#: `TEXT_MODELS` compare with text, and need its embeddings.
HEADS = ("Detect", "v10Detect", "Segment")

#: Advice for networks whose boxes Ultralytics can write.
BOXES = "let Ultralytics write its boxes (`yolo val save_json`) and import that JSON file"

#: Beginning of the message about a network of Ultralytics for another task.
WITHOUT_ADAPTER = "a network of Ultralytics"
#: Tasks of other heads, and advice.
OTHER_HEADS = {
    "Pose": f"estimates poses: {BOXES}",
    "OBB": f"finds rotated boxes: {BOXES}",
    "RTDETRDecoder": f"is an RT-DETR: {BOXES}, or export it to ONNX",
    "Classify": "classifies: classifiers are read from torchvision, transformers and open_clip",
}


@dataclass(frozen=True)
class YoloBlueprint:
    """Description from which a network is built; its weights are stored beside it.

    Args:
        architecture: The network's layers, as Ultralytics' model files describe them.
        classes: The known classes, in the order of the logits.
        image_size: Longest side, in pixels, that images are scaled to.
    """

    architecture: dict[str, Any]
    classes: tuple[str, ...]
    image_size: int

    @classmethod
    def shipped(
        cls,
        name: str,
        classes: Sequence[str],
        image_size: int,
        changes: Mapping[str, Any] | None = None,
    ) -> YoloBlueprint:
        """The blueprint of an architecture that ships with Ultralytics.

        Args:
            name: Such as "yolov8n".
            classes: The known classes.
            image_size: Longest side of images in pixels.
            changes: Replacements for keys of the architecture.

        Raises:
            ParameterError: Ultralytics has no such architecture.
        """
        family = re.sub(r"(?<=\d)[nslmx](?=-|$)", "", name)  # yolov8.yaml describes yolov8n, too
        known = {file.stem: file for file in MODELS.rglob("*.yaml")}
        file = known.get(name) or known.get(family)
        if file is None:
            raise ParameterError(f"Ultralytics has no architecture {name!r}; 'yolov8n' is one")
        architecture = {
            **YAML.load(file),
            "scale": guess_model_scale(name),
            "yaml_file": f"{name}.yaml",
        }
        architecture |= changes or {}
        return cls(architecture, tuple(classes), image_size)


def build_network(
    blueprint: YoloBlueprint, model: type[DetectionModel] = DetectionModel
) -> DetectionModel:
    """An untrained network in training mode, seeded by PyTorch's global generator.

    Args:
        blueprint: The network's description.
        model: Ultralytics' class, or one derived from it.

    Raises:
        ParameterError: the architecture names something else than layers, or does not end in a
            detection head.
    """
    check_architecture(blueprint.architecture)
    architecture = copy.deepcopy(blueprint.architecture)
    architecture["nc"] = len(blueprint.classes)
    try:
        network = model(architecture, ch=3, verbose=False)
    except Exception as error:  # Ultralytics' parser raises any error over a wrong description
        raise ParameterError(
            f"Ultralytics cannot build this architecture: {type(error).__name__}: {error}"
        ) from None
    # The boxes of heads that have both branches come from the one that needs suppression.
    network.model[-1].end2end = False
    network.names = dict(enumerate(blueprint.classes))
    return network


def check_architecture(architecture: dict[str, Any], heads: Sequence[str] = HEADS) -> None:
    """Refuses a description that is more than layers: Ultralytics' parser evaluates its text.

    Args:
        architecture: The description.
        heads: Names of the last layers that are read.

    Raises:
        ParameterError: a part is missing, a layer is not PyTorch's or Ultralytics', the last one is
            not a plain detection head, or `activation` is more than the name of a layer of PyTorch.
    """
    layers = [*_layer_names(architecture, "backbone"), *_layer_names(architecture, "head")]
    for name in layers:
        if not _is_layer(name):
            raise ParameterError(
                f"architecture: {name!r} is not a layer of PyTorch's or Ultralytics'"
            )

    last = layers[-1] if layers else None
    if last in OTHER_HEADS and last not in heads:
        raise ParameterError(f"{WITHOUT_ADAPTER} without an adapter: it {OTHER_HEADS[last]}")
    if last not in heads:
        raise ParameterError(
            f"architecture: the last layer is {last}, not one of {', '.join(heads)}"
        )

    activation = architecture.get("activation")
    if activation is not None and not ACTIVATION.fullmatch(str(activation)):
        raise ParameterError(f"architecture: activation {activation!r} is not like 'nn.SiLU()'")


def _layer_names(architecture: dict[str, Any], part: str) -> list[Any]:
    """Names of the layers of a part of an architecture, "backbone" or "head"."""
    rows = architecture.get(part)
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and len(row) == 4 for row in rows
    ):
        raise ParameterError(
            f"architecture: {part!r} is not a list of [from, number, module, arguments]"
        )
    return [row[2] for row in rows]


def _is_layer(name: Any) -> bool:
    """True for the name of a layer of PyTorch or Ultralytics that fetches nothing."""
    if not isinstance(name, str) or not re.fullmatch(r"(nn\.)?\w+", name):
        return False
    if name == "TorchVision":  # it would fetch weights
        return False
    if name.startswith("nn."):
        layer = getattr(nn, name[3:], None)
    else:
        layer = getattr(modules, name, None)
    return isinstance(layer, type) and issubclass(layer, nn.Module)


def letterbox(image: np.ndarray, image_size: int, stride: int) -> Scaled:
    """Scales an image to `image_size`, and pads its shorter side to a multiple of the stride.

    Ultralytics' `predict` does the same to one image (`rect=True`). It pads a batch of images of
    several shapes to squares, which would let an image's detections depend on its neighbours in the
    batch.

    Args:
        image: ndarray of shape (H, W, 3), uint8.
        image_size: Pixels of the longer side; rounded up to a multiple of the stride, as `predict`
            does.
        stride: See `padding_stride`.
    """
    size = math.ceil(image_size / stride) * stride
    scaled = LetterBox((size, size), auto=True, stride=stride)(image=image)
    return Scaled(np.ascontiguousarray(scaled), image.shape[:2])


def padding_stride(strides: Tensor) -> int:
    """Pixels that sides of images are multiples of, as in `predict`.

    The stride of the coarsest level, but at least 32.
    """
    return max(int(strides.max()), 32)


@dataclass(frozen=True)
class YoloCheckpoint:
    """Content of a checkpoint.

    Args:
        blueprint: The blueprint.
        stride: Pixels that sides of images are multiples of.
        weights: State dict as stored.
        text: Embeddings of the classes of YOLO-World or YOLOE, shape (1, K, E).
    """

    blueprint: YoloBlueprint
    stride: int
    weights: dict[str, Tensor]
    text: Tensor | None = None


def save_checkpoint(
    path: str | Path,
    network: DetectionModel,
    blueprint: YoloBlueprint,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Writes the weights of an unfused network in half precision, its blueprint and notes."""
    stride = padding_stride(network.stride)
    metadata = {**(notes or {}), "stride": str(stride)}
    write_checkpoint(path, network.state_dict(), FORMAT, blueprint, metadata)


def read_checkpoint(path: str | Path) -> YoloCheckpoint:
    """A checkpoint in a safetensors file (`.safetensors`) or a file of Ultralytics (other names).

    Raises:
        DataError: the file is absent or damaged, lacks a field, names code that no network needs,
            or holds no network.
    """
    path = regular_file(path, "the checkpoint does not exist")
    if path.suffix.lower() == ".safetensors":
        checkpoint = _read_safetensors(path)
    else:
        checkpoint = _read_pickle(path)
    heads = HEADS if checkpoint.text is None else tuple(TEXT_MODELS)
    try:
        check_architecture(checkpoint.blueprint.architecture, heads)
    except ParameterError as error:
        raise DataError(str(error), file=path) from None
    return checkpoint


def load_network(path: str | Path, checkpoint: YoloCheckpoint) -> DetectionModel:
    """The network of a checkpoint, in float32, in evaluation mode.

    Its normalisations are folded into its convolutions.

    Raises:
        DataError: the architecture cannot be built, or the weights do not fit it; names the file
            `path`.
    """
    text = checkpoint.text
    network = _build(path, checkpoint)
    try:
        network.load_state_dict(as_float32(checkpoint.weights))
    except RuntimeError as error:
        problems = " ".join(str(error).split())
        advice = "Checkpoints must be saved before fuse(), export or pruning changes the network"
        raise DataError(
            f"the weights do not fit their architecture: {problems[:600]}. {advice}", file=path
        ) from None
    if text is not None:
        with network_errors(path, "given its classes"):
            network = with_classes(network, text.float())
    return network.eval().fuse(verbose=False)


def _build(path: str | Path, checkpoint: YoloCheckpoint) -> DetectionModel:
    """The untrained network of a checkpoint; errors as in `load_network`."""
    architecture = dict(checkpoint.blueprint.architecture)
    if checkpoint.text is None:
        # With text, "nc" is the number of classes in training, on which a layer's width depends.
        architecture["nc"] = len(checkpoint.blueprint.classes)
    check_description(path, architecture, MOST_WIDTH, "architecture")

    def parse() -> nn.Module:
        layers, _ = parse_model(copy.deepcopy(architecture), 3, verbose=False)
        return layers

    try:
        refuse_larger(path, [path], parse)
        if checkpoint.text is None:
            return build_network(checkpoint.blueprint)
        model = TEXT_MODELS[architecture["head"][-1][2]]
        with network_errors(path, "built"):
            return model(copy.deepcopy(architecture), ch=3, verbose=False)
    except ParameterError as error:
        raise DataError(str(error), file=path) from None


def _read_safetensors(path: Path) -> YoloCheckpoint:
    """The content of a file that farther wrote."""
    metadata = read_metadata(path)
    refuse_format(path, metadata, FORMAT)
    blueprint = _blueprint(
        path,
        architecture=json_field(path, metadata, "architecture"),
        classes=json_field(path, metadata, "classes"),
        image_size=json_field(path, metadata, "image_size"),
    )
    stride = as_pixels(path, json_field(path, metadata, "stride"), "stride")
    return YoloCheckpoint(blueprint, stride, read_tensors(path))


def _blueprint(path: Path, architecture: Any, classes: Any, image_size: Any) -> YoloBlueprint:
    """A blueprint, whose fields have the right types."""
    if not isinstance(architecture, dict):
        raise DataError(
            f"expected a description of layers, found {shorten(architecture)}",
            file=path,
            field="architecture",
        )
    return YoloBlueprint(
        architecture, as_names(path, classes), as_pixels(path, image_size, "image_size")
    )


class _StandIn(nn.Module):
    """Replaces every class that a pickle names, so that no code of the file runs.

    It keeps attributes and weights.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            super().__setstate__(state)


def _read_pickle(path: Path) -> YoloCheckpoint:
    """The content of a `.pt` file: the averaged network if there is one, or else the network."""
    content = _unpickle(path)
    network = _stored_network(content)
    if network is None:
        raise DataError(
            "holds no network under 'ema' or 'model': not a checkpoint of Ultralytics", file=path
        )
    attributes = vars(network)
    for name in ("yaml", "names", "stride"):
        if name not in attributes:
            raise DataError("the network lacks the attribute", file=path, field=name)
    with network_errors(path, "read"):  # any of its parts may be of another type
        classes = attributes["names"]
        if isinstance(classes, dict):
            classes = [classes[number] for number in sorted(classes)]
        training = content.get("train_args") or {}
        image_size = training.get("imgsz", USUAL_IMAGE_SIZE)
        blueprint = _blueprint(path, attributes["yaml"], classes, image_size)
        stride = as_pixels(path, padding_stride(attributes["stride"]), "stride")
        text = _text(path, blueprint, attributes)
        return YoloCheckpoint(blueprint, stride, network.state_dict(), text)


def _stored_network(content: Any) -> _StandIn | None:
    """The network in the content of a `.pt` file; None where there is none."""
    if not isinstance(content, dict):
        return None
    for name in ("ema", "model"):
        network = content.get(name)
        if isinstance(network, _StandIn):
            return _without_wrappers(network)
    return None


def _without_wrappers(network: _StandIn) -> _StandIn:
    """The network within the modules of wrappers, such as DataParallel."""
    while "yaml" not in vars(network):
        children = [child for child in network.children() if isinstance(child, _StandIn)]
        if len(children) != 1:
            break
        network = children[0]
    return network


def _text(path: Path, blueprint: YoloBlueprint, attributes: Mapping[str, Any]) -> Tensor | None:
    """Text embeddings of the classes; None for a network that has no such head."""
    last = (blueprint.architecture.get("head") or [[None]])[-1]
    if not isinstance(last, list) or not any(name in last for name in TEXT_MODELS):
        return None
    count = len(blueprint.classes)
    text = attributes.get("pe", attributes.get("txt_feats"))
    if not isinstance(text, Tensor) or text.ndim != 3 or text.shape[:2] != (1, count):
        shape = f"of shape {tuple(text.shape)}" if isinstance(text, Tensor) else "not there"
        problem = f"expected the text embeddings of its {count} classes, which are {shape}"
        raise DataError(
            f"{problem}: set the classes with Ultralytics' set_classes(), and save() the network",
            file=path,
        )
    if not torch.isfinite(text).all():
        raise DataError("text embeddings are not finite", file=path)
    return text


def _is_known(name: str) -> bool:
    """True for the full name of a class or function that a network of Ultralytics may contain."""
    is_dotted = all(part.isidentifier() for part in name.split("."))
    return is_dotted and name.startswith(KNOWN_GLOBALS)


def _unpickle(path: Path) -> Any:
    """Content of a PyTorch file: tensors, numbers, text and containers; `_StandIn` for the rest."""
    try:
        needed = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception as error:  # whatever PyTorch's reader met
        raise DataError(f"not a PyTorch file: {first_line(error)}", file=path) from None
    unknown = [name for name in needed if not _is_known(name)]
    if unknown:
        names = ", ".join(shorten(name) for name in unknown[:5])
        problem = f"names {names}, which no network of Ultralytics needs; the file is not read"
        raise DataError(problem, file=path)

    stand_ins: list[Any] = []
    for name in needed:
        class_name = name.rpartition(".")[2]
        stand_ins.append((type(class_name, (_StandIn,), {}), name))
    try:
        with torch.serialization.safe_globals(stand_ins):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever PyTorch's reader met
        raise DataError(f"cannot be read: {first_line(error)}", file=path) from None

"""Detection networks of Ultralytics (YOLOv8 and its relatives), and inference that keeps each box's own logits."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from farther.detectors.networks.detection import StoredColumns, autocast
from farther.detectors.networks.pooling import channel_means
from farther.detectors.networks.ultralytics_import import import_quietly
from farther.errors import DataError, ParameterError
from farther.tables import Header, Regions

import_quietly()

from ultralytics.data.augment import LetterBox  # noqa: E402
from ultralytics.nn import modules  # noqa: E402
from ultralytics.nn.tasks import DetectionModel, guess_model_scale  # noqa: E402
from ultralytics.utils import ROOT, YAML  # noqa: E402
from ultralytics.utils.nms import non_max_suppression  # noqa: E402
from ultralytics.utils.ops import scale_boxes  # noqa: E402

#: Ultralytics drops the rest of a batch when suppression takes longer; no machine is that slow.
NO_TIME_LIMIT = 1e6

#: Where Ultralytics keeps the descriptions of its networks.
MODELS = ROOT / "cfg" / "models"

#: Heads whose class logits belong to one anchor each; others answer with masks, text, or after a decoder.
HEADS = ("Detect", "v10Detect")


@dataclass(frozen=True)
class YoloBlueprint:
    """All that is needed to build a network again, but its weights.

    Args:
        architecture: The network's layers, as Ultralytics' model files describe them.
        classes: The classes it knows, in the order of its logits.
        image_size: Longest side, in pixels, that images are scaled to.
    """

    architecture: dict[str, Any]
    classes: tuple[str, ...]
    image_size: int

    @classmethod
    def shipped(cls, name: str, classes: Sequence[str], image_size: int) -> YoloBlueprint:
        """The blueprint of an architecture that ships with Ultralytics, such as "yolov8n".

        Raises:
            ParameterError: Ultralytics has no such architecture.
        """
        family = re.sub(r"(?<=\d)[nslmx](?=-|$)", "", name)  # yolov8.yaml describes yolov8n, too
        known = {file.stem: file for file in MODELS.rglob("*.yaml")}
        file = known.get(name) or known.get(family)
        if file is None:
            raise ParameterError(f"Ultralytics has no architecture {name!r}; 'yolov8n' is one")
        architecture = {**YAML.load(file), "scale": guess_model_scale(name), "yaml_file": f"{name}.yaml"}
        return cls(architecture, tuple(classes), image_size)


def build_network(blueprint: YoloBlueprint, model: type[DetectionModel] = DetectionModel) -> DetectionModel:
    """An untrained network in training mode, seeded by PyTorch's global generator.

    Args:
        model: Ultralytics' class, or one derived from it.

    Raises:
        ParameterError: the architecture names what is no layer, or does not end in a detection head.
    """
    check_architecture(blueprint.architecture)
    architecture = copy.deepcopy(blueprint.architecture)
    architecture["nc"] = len(blueprint.classes)
    try:
        network = model(architecture, ch=3, verbose=False)
    except Exception as error:  # Ultralytics' parser trips over a wrong description in any way
        raise ParameterError(f"Ultralytics cannot build this architecture: {type(error).__name__}: {error}") from None
    head = network.model[-1]
    head.end2end = False  # the boxes of heads that have both branches come from the one that needs suppression
    network.names = dict(enumerate(blueprint.classes))
    return network


def check_architecture(architecture: dict[str, Any]) -> None:
    """Refuses a description that is more than layers: Ultralytics' parser evaluates what it finds.

    Raises:
        ParameterError: a part is missing, a layer is none of PyTorch's or Ultralytics', the last one is no plain
            detection head, or `activation` is more than the name of a layer of PyTorch's.
    """
    layers = []
    for part in ("backbone", "head"):
        rows = architecture.get(part)
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 4 for row in rows):
            raise ParameterError(f"architecture: {part!r} is no list of [from, number, module, arguments]")
        layers += [row[2] for row in rows]
    for name in layers:
        if not _is_layer(name):
            raise ParameterError(f"architecture: {name!r} is no layer of PyTorch's or Ultralytics'")
    if not layers or layers[-1] not in HEADS:
        raise ParameterError(f"architecture: the last layer is {layers[-1:]}, not one of {', '.join(HEADS)}")
    activation = architecture.get("activation")
    if activation is not None and not re.fullmatch(r"(torch\.)?nn\.[A-Z]\w*\([\d.]*\)", str(activation)):
        raise ParameterError(f"architecture: activation {activation!r} is not like 'nn.SiLU()'")


def _is_layer(name: Any) -> bool:
    if not isinstance(name, str) or not re.fullmatch(r"(nn\.)?\w+", name):
        return False
    if name == "TorchVision":  # it would fetch weights
        return False
    found = getattr(nn, name[3:], None) if name.startswith("nn.") else getattr(modules, name, None)
    return isinstance(found, type) and issubclass(found, nn.Module)


@dataclass(frozen=True)
class Letterboxed:
    """An image as the network takes it.

    Args:
        pixels: ndarray of shape (H, W, 3), uint8, red green blue: scaled, then padded with grey to multiples of the
            stride.
        original: Height and width of the image before.
    """

    pixels: np.ndarray
    original: tuple[int, int]


def letterbox(image: np.ndarray, image_size: int, stride: int) -> Letterboxed:
    """Scales an image so that its longer side has `image_size` pixels, and pads the other to a multiple of the stride.

    That is what Ultralytics' `predict` does to one image (`rect=True`). To a batch of images of several shapes it does
    another thing, padding all to squares, which would let an image's detections depend on its neighbours in the batch.

    Args:
        image: ndarray of shape (H, W, 3), uint8.
        image_size: Rounded up to a multiple of the stride, as `predict` does.
        stride: Of the network's coarsest level; see `padding_stride`.
    """
    size = math.ceil(image_size / stride) * stride
    made = LetterBox((size, size), auto=True, stride=stride)(image=image)
    return Letterboxed(np.ascontiguousarray(made), image.shape[:2])


def padding_stride(strides: Tensor) -> int:
    """Pixels that images' sides are multiples of: the coarsest level's stride, but at least 32, as in `predict`."""
    return max(int(strides.max()), 32)


@dataclass(frozen=True)
class Suppression:
    """Which boxes are detections.

    Args:
        score_threshold: Boxes whose best class scores no more than this are dropped.
        iou: Of two boxes of one class that overlap more than this, the better one stays.
        max_detections: At most so many an image.
    """

    score_threshold: float
    iou: float
    max_detections: int


@torch.inference_mode()
def detect_regions(
    network: DetectionModel,
    header: Header,
    images: Sequence[Letterboxed],
    image_ids: Sequence[str],
    suppression: Suppression,
    precision: str = "float32",
    stored: StoredColumns | None = None,
) -> Regions:
    """Detects objects in one batch of images; those of one shape go through the network together.

    Args:
        network: In evaluation mode.
        stored: The column `latent`; None leaves it out.

    Returns:
        The rows image by image, best score first; `region_id` counts from 0. Boxes in pixels of the original images.

    Raises:
        DataError: the network gives numbers that are not finite.
    """
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for number, image in enumerate(images):
        by_shape.setdefault(image.pixels.shape, []).append(number)
    found: dict[int, dict[str, np.ndarray]] = {}
    for numbers in by_shape.values():
        group = [images[number] for number in numbers]
        found.update(zip(numbers, _detect_group(network, group, suppression, precision, stored), strict=True))
    rows = [found[number] for number in range(len(images))]
    columns = {name: np.concatenate([one[name] for one in rows]) for name in rows[0]}
    counts = [len(one["score"]) for one in rows]
    image_id = np.repeat(np.array(image_ids, dtype=object), counts)
    return Regions(header=header, image_id=image_id, region_id=np.arange(len(image_id)), **columns)


def _detect_group(
    network: DetectionModel,
    images: Sequence[Letterboxed],
    suppression: Suppression,
    precision: str,
    stored: StoredColumns | None,
) -> list[dict[str, np.ndarray]]:
    """Columns of each image's detections; the images have one shape."""
    device = next(network.parameters()).device
    batch = torch.from_numpy(np.stack([image.pixels for image in images])).to(device)
    batch = batch.permute(0, 3, 1, 2).float().div_(255)
    decoded, logits, backbone = run(network, batch, precision)
    if not torch.isfinite(decoded).all():
        # Suppression would drop such boxes without a word.
        raise DataError("the network gives boxes or scores that are not finite: the checkpoint's weights are damaged")
    detections, anchors = non_max_suppression(
        decoded,
        suppression.score_threshold,
        suppression.iou,
        max_det=suppression.max_detections,
        max_time_img=NO_TIME_LIMIT,
        return_idxs=True,
    )
    rows = []
    for number, (kept, anchor) in enumerate(zip(detections, anchors, strict=True)):
        # Heads that give distances as they are (YOLO26) can turn a box inside out.
        proper = (kept[:, 2:4] >= kept[:, :2]).all(dim=1)
        found, chosen = kept[proper], anchor.view(-1).long()[proper]
        columns = {
            # The logits of the very anchor that the box came from.
            "logits": _numpy(logits[number].T[chosen]),
            "box": _numpy(scale_boxes(batch.shape[2:], found[:, :4].clone(), images[number].original)),
            "score": _numpy(found[:, 4]),
            "label": _numpy(found[:, 5]).astype(np.int16),
        }
        if stored is not None:
            pixels_per_cell = batch.shape[-1] // backbone.shape[-1]
            grid = stored.latent_size, stored.latent_sampling
            latent = channel_means([backbone[number : number + 1]], pixels_per_cell, [found[:, :4]], *grid)
            columns["latent"] = _numpy(latent).astype(stored.dtype)
        rows.append(columns)
    return rows


def run(network: DetectionModel, batch: Tensor, precision: str = "float32") -> tuple[Tensor, Tensor, Tensor]:
    """One pass, as Ultralytics' own, that keeps what it drops. The head computes in float32 in any case.

    Args:
        batch: Shape (B, 3, H, W), 0 to 1.

    Returns:
        Decoded boxes (centre, size, in pixels of the batch) and class scores, shape (B, 4 + K, A) for A anchors; class
        logits, shape (B, K, A); the last backbone layer's activations, shape (B, C, H / stride, W / stride).
    """
    last = len(network.yaml["backbone"]) - 1
    kept: list[Tensor | None] = []
    value: Any = batch
    backbone = batch
    with autocast(batch.device, precision):
        for layer in network.model[:-1]:
            value = layer(_input(layer, value, kept))
            kept.append(value if layer.i in network.save else None)
            if layer.i == last:
                backbone = value
    head = network.model[-1]
    levels = [level.float() for level in _input(head, value, kept)]
    decoded, raw = head(levels)
    return decoded, raw.get("one2many", raw)["scores"], backbone.float()


def _input(layer: nn.Module, previous: Any, kept: list[Tensor | None]) -> Any:
    """What a layer takes: the outcome of the one before it, or of those that `from` in its description names."""
    source: Any = layer.f
    if isinstance(source, int):
        return previous if source == -1 else kept[source]
    return [previous if number == -1 else kept[number] for number in source]


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()

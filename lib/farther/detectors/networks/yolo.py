"""Detection networks of Ultralytics (YOLOv8 and its relatives), and inference that keeps the logits of each box."""

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
from torch.nn.functional import logsigmoid

from farther.detectors.networks.detection import (
    Selection,
    StoredColumns,
    add_by_image,
    autocast,
    detect_by_shape,
    to_numpy,
)
from farther.detectors.networks.pooling import latent_means, pixels_to_cells, published_cells
from farther.detectors.networks.taps import NO_LAYERS, Taps
from farther.detectors.networks.ultralytics_import import import_quietly
from farther.detectors.scaling import Scaled
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

#: Heads whose class logits belong to one anchor each; others predict masks, compare with text, or follow a decoder.
HEADS = ("Detect", "v10Detect")


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
        ParameterError: the architecture names something else than layers, or does not end in a detection head.
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
        ParameterError: a part is missing, a layer is not PyTorch's or Ultralytics', the last one is not a plain
            detection head, or `activation` is more than the name of a layer of PyTorch.
    """
    layers = []
    for part in ("backbone", "head"):
        rows = architecture.get(part)
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 4 for row in rows):
            raise ParameterError(f"architecture: {part!r} is not a list of [from, number, module, arguments]")
        layers += [row[2] for row in rows]
    for name in layers:
        if not _is_layer(name):
            raise ParameterError(f"architecture: {name!r} is not a layer of PyTorch's or Ultralytics'")
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


def letterbox(image: np.ndarray, image_size: int, stride: int) -> Scaled:
    """Scales an image so that its longer side has `image_size` pixels, and pads the other to a multiple of the stride.

    Ultralytics' `predict` does the same to one image (`rect=True`). It pads a batch of images of several shapes to
    squares, which would let an image's detections depend on its neighbours in the batch.

    Args:
        image: ndarray of shape (H, W, 3), uint8.
        image_size: Rounded up to a multiple of the stride, as `predict` does.
        stride: See `padding_stride`.
    """
    size = math.ceil(image_size / stride) * stride
    made = LetterBox((size, size), auto=True, stride=stride)(image=image)
    return Scaled(np.ascontiguousarray(made), image.shape[:2])


def padding_stride(strides: Tensor) -> int:
    """Pixels that images' sides are multiples of: the coarsest level's stride, but at least 32, as in `predict`."""
    return max(int(strides.max()), 32)


@torch.inference_mode()
def detect_regions(
    network: DetectionModel,
    header: Header,
    images: Sequence[Scaled],
    image_ids: Sequence[str],
    selection: Selection,
    precision: str = "float32",
    stored: StoredColumns | None = None,
) -> Regions:
    """Detects objects in one batch of images; those of one shape go through the network together.

    Args:
        network: In evaluation mode.
        stored: Logits and the column `latent`; None leaves `latent` out.

    Returns:
        The rows image by image, best score first; `region_id` counts from 0. Boxes in pixels of the original images.

    Raises:
        DataError: the network gives numbers that are not finite.
    """

    def detect(numbers: list[int]) -> list[dict[str, np.ndarray]]:
        return _detect_group(network, [images[number] for number in numbers], selection, precision, stored)

    return detect_by_shape(header, image_ids, [image.pixels.shape for image in images], detect)


def _detect_group(
    network: DetectionModel,
    images: Sequence[Scaled],
    selection: Selection,
    precision: str,
    stored: StoredColumns | None,
) -> list[dict[str, np.ndarray]]:
    """Columns of each image's detections; the images have one shape."""
    device = next(network.parameters()).device
    batch = torch.from_numpy(np.stack([image.pixels for image in images])).to(device)
    batch = batch.permute(0, 3, 1, 2).float().div_(255)
    taps = Taps(network, NO_LAYERS) if stored is None else stored.taps(network)
    with taps:
        decoded, logits, backbone = run(network, batch, precision)
    if not torch.isfinite(decoded).all():
        # Selection would drop such boxes without a word.
        raise DataError("the network gives boxes or scores that are not finite: the checkpoint's weights are damaged")
    detections, anchors = non_max_suppression(
        decoded,
        selection.score_threshold,
        selection.iou,
        max_det=selection.max_detections,
        max_time_img=NO_TIME_LIMIT,
        return_idxs=True,
    )
    rows, shown = [], []
    for number, (kept, anchor) in enumerate(zip(detections, anchors, strict=True)):
        # Heads that give distances as they are (YOLO26) can turn a box inside out.
        proper = (kept[:, 2:4] >= kept[:, :2]).all(dim=1)
        found, chosen = kept[proper], anchor.view(-1).long()[proper]
        boxes = scale_boxes(batch.shape[2:], found[:, :4].clone(), images[number].original)
        of_anchor = logits[number].T[chosen]
        columns = {
            "logits": to_numpy(logsigmoid(of_anchor) if stored is not None and stored.log_scores else of_anchor),
            "box": to_numpy(boxes),
            "score": to_numpy(found[:, 4]),
            "label": to_numpy(found[:, 5]).astype(np.int16),
        }
        if stored is not None:
            pixels_per_cell = batch.shape[-1] // backbone.shape[-1]
            level = [backbone[number]]
            if stored.pooling.published_rois:
                cells = published_cells(boxes, level, images[number].original[1])
            else:
                cells = pixels_to_cells(found[:, :4], level, pixels_per_cell)
            latent = latent_means(level, cells, pixels_per_cell, stored.pooling)
            columns["latent"] = to_numpy(latent).astype(stored.dtype)
        rows.append(columns)
        shown.append(found[:, :4])
    if stored is not None:
        add_by_image(rows, stored.arrays(stored.tapped(taps, shown, (batch.shape[2], batch.shape[3]))))
    return rows


def run(network: DetectionModel, batch: Tensor, precision: str = "float32") -> tuple[Tensor, Tensor, Tensor]:
    """One pass, as Ultralytics' own, that also returns logits and activations. The head computes in float32.

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
    """Input of a layer: output of the previous layer, or of those that `from` in its description names."""
    source: Any = layer.f
    if isinstance(source, int):
        return previous if source == -1 else kept[source]
    return [previous if number == -1 else kept[number] for number in source]

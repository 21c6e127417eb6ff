"""Detection networks of Ultralytics (YOLOv8 and its relatives), and inference that keeps the logits of each box."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid

from farther.detectors.networks.detection import Detections, autocast
from farther.detectors.networks.pooling import latent_means, pixels_to_cells, published_cells
from farther.detectors.networks.replay import Answer, Candidates, Dropout, GroupedReplay
from farther.detectors.networks.taps import Taps, kept_calls
from farther.detectors.networks.ultralytics_import import import_quietly
from farther.detectors.networks.yolo_text import last_layer
from farther.detectors.scaling import Scaled
from farther.detectors.settings import NO_LAYERS, Selection, StoredColumns, to_numpy
from farther.errors import DataError, ParameterError
from farther.images.device import ordinary_tensors
from farther.tables import Header

import_quietly()

from ultralytics.data.augment import LetterBox  # noqa: E402
from ultralytics.nn import modules  # noqa: E402
from ultralytics.nn.tasks import DetectionModel, guess_model_scale, parse_model  # noqa: E402, F401
from ultralytics.utils import ROOT, YAML  # noqa: E402
from ultralytics.utils.nms import non_max_suppression  # noqa: E402
from ultralytics.utils.ops import scale_boxes, xywh2xyxy  # noqa: E402

#: Ultralytics drops the rest of a batch when suppression takes longer; no machine is that slow.
NO_TIME_LIMIT = 1e6

#: Where Ultralytics keeps the descriptions of its networks.
MODELS = ROOT / "cfg" / "models"

#: Heads whose class logits belong to one anchor each; others predict masks, or follow a decoder. Those of `TEXT_MODELS`
#: compare with text, and need its embeddings.
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
    def shipped(
        cls, name: str, classes: Sequence[str], image_size: int, changes: Mapping[str, Any] | None = None
    ) -> YoloBlueprint:
        """The blueprint of an architecture that ships with Ultralytics, such as "yolov8n", with keys replaced.

        Raises:
            ParameterError: Ultralytics has no such architecture.
        """
        family = re.sub(r"(?<=\d)[nslmx](?=-|$)", "", name)  # yolov8.yaml describes yolov8n, too
        known = {file.stem: file for file in MODELS.rglob("*.yaml")}
        file = known.get(name) or known.get(family)
        if file is None:
            raise ParameterError(f"Ultralytics has no architecture {name!r}; 'yolov8n' is one")
        architecture = {**YAML.load(file), "scale": guess_model_scale(name), "yaml_file": f"{name}.yaml"}
        architecture |= changes or {}
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


def check_architecture(architecture: dict[str, Any], heads: Sequence[str] = HEADS) -> None:
    """Refuses a description that is more than layers: Ultralytics' parser evaluates what it finds.

    Args:
        heads: Names of the last layers that are read.

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
    if not layers or layers[-1] not in heads:
        raise ParameterError(f"architecture: the last layer is {layers[-1:]}, not one of {', '.join(heads)}")
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


class YoloGroup:
    """Detections of images of one shape by a detection network of Ultralytics; see `Group`. Rows are anchors.

    Args:
        network: In evaluation mode.
        images: The images.
        selection: Which boxes are detections.
        precision: Type of the network's activations.
        stored: Logits and the column `latent`; None leaves `latent` out.

    Raises:
        DataError: the network gives numbers that are not finite.
    """

    def __init__(
        self,
        network: DetectionModel,
        images: Sequence[Scaled],
        selection: Selection,
        precision: str = "float32",
        stored: StoredColumns | None = None,
    ):
        self._network, self._precision, self._stored = network, precision, stored
        self._sizes = [image.original for image in images]
        pixels = torch.from_numpy(np.stack([image.pixels for image in images])).to(next(network.parameters()).device)
        self._batch = pixels.permute(0, 3, 1, 2).float().div_(255)
        self.images = list(self._batch)
        self._taps = Taps(network, NO_LAYERS if stored is None else stored.layers)
        with self._taps:
            seen = run(network, self._batch, precision)
        self._levels, self._class_features = seen.levels, seen.class_features
        if not torch.isfinite(seen.decoded).all():
            # Selection would drop such boxes without a word.
            problem = "the network gives boxes or scores that are not finite: the checkpoint's weights are damaged"
            raise DataError(problem)
        self._selection = selection
        found, self._anchors = _suppressed(seen.decoded, selection)
        self._shown = [one[:, :4] for one in found]
        self._boxes = self._in_images(self._shown)
        logits = self._of_anchors(seen.logits)
        whole = {
            "logits": to_numpy(logsigmoid(logits) if stored is not None and stored.log_scores else logits),
            "box": to_numpy(self._boxes),
            "score": to_numpy(torch.cat([one[:, 4] for one in found])),
            "label": to_numpy(torch.cat([one[:, 5] for one in found])).astype(np.int16),
        }
        if stored is not None:
            whole |= stored.arrays({**self._features(seen, stored), **self._latents(seen, stored)})
        self.columns, self.counts = whole, [len(one) for one in found]

    def again(self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None) -> Answer:
        """See `Replay.again`."""
        head = self._network.model[-1]
        with ordinary_tensors(images or ()):
            if images is None and dropout is not None and not dropout.where:
                return Answer(self._stored_logits(self._class_branch(dropout)), self._boxes)
            batch = self._batch if images is None else torch.stack(list(images))
            batch = batch.contiguous(memory_format=torch.channels_last)  # another layout would round differently
            only_head = images is None and dropout is not None and dropout.is_within([f"model.{head.i}"])
            places = class_features(self._network)
            masked = nullcontext() if dropout is None else dropout.on(self._network, places, [1] * len(batch))
            with masked, self._taps:
                if only_head:
                    seen = run_head(self._network, self._levels, batch)
                else:
                    seen = run(self._network, batch, self._precision)
            decoded = [of_image.T[rows] for of_image, rows in zip(seen.decoded, self._anchors, strict=True)]
            boxes = self._in_images([xywh2xyxy(one[:, :4]) for one in decoded])
            latents = {} if only_head or self._stored is None else self._latents(seen, self._stored)
            features = {} if self._stored is None else self._features(seen, self._stored)
            return Answer(self._stored_logits(self._of_anchors(seen.logits)), boxes, features.get("features"), latents)

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `FreeReplay.candidates`."""
        dropout.check_within([f"model.{self._network.model[-1].i}"])
        places = class_features(self._network)
        with ordinary_tensors(), dropout.on(self._network, places, [1] * len(self._batch)):
            seen = run_head(self._network, self._levels, self._batch)
        per_image = zip(seen.logits, seen.decoded, strict=True)
        return [Candidates(self._stored_logits(z.T), boxes.T[:, :4]) for z, boxes in per_image]

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> Detections:
        """See `FreeReplay.select`."""
        (found,), (anchors,) = _suppressed(torch.cat([boxes, probabilities], dim=1).T[None], self._selection)
        labels = found[:, 5].long()
        return Detections(self.placed(number, boxes, anchors, labels), found[:, 4], labels, anchors)

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """See `FreeReplay.placed`."""
        return scale_boxes(self._batch.shape[2:], xywh2xyxy(boxes[rows]), self._sizes[number])

    def _features(self, seen: Output, stored: StoredColumns) -> dict[str, Tensor]:
        """The column `features` of all rows, where all levels share a last layer."""
        if last_layer(self._network) is None or not stored.wants("features"):
            return {}
        return {"features": self._of_anchors(torch.cat([level.flatten(2) for level in seen.class_features], dim=2))}

    def _latents(self, seen: Output, stored: StoredColumns) -> dict[str, Tensor]:
        """The columns `latent` and `latent.<name>` of all rows."""
        height, width = self._batch.shape[2:]
        further = self._taps.over_boxes(self._shown, (height, width), stored.pooling)
        if not stored.wants("latent"):
            return further
        stride = width // seen.backbone.shape[-1]
        boxes = self._boxes.split([len(one) for one in self._shown])
        means = []
        for number, level in enumerate(seen.backbone):
            if stored.pooling.published_rois:
                cells = published_cells(boxes[number], [level], self._sizes[number][1])
            else:
                cells = pixels_to_cells(self._shown[number], [level], stride)
            means.append(latent_means([level], cells, stride, stored.pooling))
        return {"latent": torch.cat(means), **further}

    def _class_branch(self, dropout: Dropout) -> Tensor:
        """Logits of all rows, with masks on the inputs of the last convolutions, whose kernels have one cell."""
        starts = np.cumsum([0, *(level.shape[2] * level.shape[3] for level in self._levels)])
        anchors = torch.cat(self._anchors)
        logits = self._batch.new_zeros(len(anchors), self._network.model[-1].nc)
        convolutions = zip(
            _last_convolutions(self._network), self._class_features, class_features(self._network), strict=True
        )
        for (conv, features, place), (first, end) in zip(convolutions, pairwise(starts), strict=True):
            cells = [one[(one >= first) & (one < end)] - int(first) for one in self._anchors]
            inputs = [of.flatten(1).T[at] for of, at in zip(features, cells, strict=True)]
            masks = dropout.masks([tuple(of_image.shape) for of_image in inputs], place)
            masked = torch.cat(inputs) * torch.cat(masks).to(logits.device)
            rows = (anchors >= first) & (anchors < end)
            logits[rows] = linear(masked, conv.weight.flatten(1), conv.bias)
        return logits

    def _of_anchors(self, logits: Tensor) -> Tensor:
        """Logits of all rows, (N, K), from those of all anchors, (B, K, A)."""
        return torch.cat([of_image.T[rows] for of_image, rows in zip(logits, self._anchors, strict=True)])

    def _stored_logits(self, logits: Tensor) -> Tensor:
        return logsigmoid(logits) if self._stored is not None and self._stored.log_scores else logits

    def _in_images(self, boxes: Sequence[Tensor]) -> Tensor:
        """Boxes of each image in pixels of the batch → all boxes in pixels of the images as given."""
        shape = self._batch.shape[2:]
        return torch.cat([scale_boxes(shape, of.clone(), size) for of, size in zip(boxes, self._sizes, strict=True)])


def _suppressed(decoded: Tensor, selection: Selection) -> tuple[list[Tensor], list[Tensor]]:
    """Of each image, boxes (corners), score and class of its detections, (N, 6), and their anchors, (N,)."""
    detections, anchors = non_max_suppression(
        decoded,
        selection.score_threshold,
        selection.iou,
        max_det=selection.max_detections,
        max_time_img=NO_TIME_LIMIT,
        return_idxs=True,
    )
    # Heads that give distances as they are (YOLO26) can turn a box inside out.
    proper = [(kept[:, 2:4] >= kept[:, :2]).all(dim=1) for kept in detections]
    found = [kept[rows] for kept, rows in zip(detections, proper, strict=True)]
    return found, [anchor.view(-1).long()[rows] for anchor, rows in zip(anchors, proper, strict=True)]


def replay(
    network: DetectionModel,
    header: Header,
    images: Sequence[Scaled],
    selection: Selection,
    precision: str = "float32",
    stored: StoredColumns | None = None,
) -> GroupedReplay:
    """Detections of one batch that do not depend on their neighbours, and can be computed again; see `YoloGroup`."""
    detect = partial(YoloGroup, network, selection=selection, precision=precision, stored=stored)
    return GroupedReplay(header, images, lambda image: image.pixels.shape, detect)


class Output(NamedTuple):
    """Output of a network for B images with A anchors.

    Args:
        decoded: Boxes (centre, size, in pixels of the batch) and class scores, shape (B, 4 + K, A).
        logits: Class logits, shape (B, K, A).
        backbone: Activations of the last backbone layer, shape (B, C, H / stride, W / stride).
        levels: Inputs of the head.
        class_features: Inputs of the last convolutions of its class branch.
    """

    decoded: Tensor
    logits: Tensor
    backbone: Tensor
    levels: list[Tensor]
    class_features: list[Tensor]


def run(network: DetectionModel, batch: Tensor, precision: str = "float32") -> Output:
    """One pass over images (B, 3, H, W), 0 to 1, as Ultralytics' own. The head computes in float32."""
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
    levels = [level.float() for level in _input(network.model[-1], value, kept)]
    return run_head(network, levels, backbone.float())


def run_head(network: DetectionModel, levels: list[Tensor], backbone: Tensor) -> Output:
    """The output, from the inputs of the head."""
    head, last = network.model[-1], _last_convolutions(network)
    head.shape = None  # else anchors that were made in inference mode would be used with gradients
    with kept_calls(last) as kept:
        decoded, raw = head(levels)
    logits = raw.get("one2many", raw)["scores"]
    return Output(decoded, logits, backbone, levels, [kept[conv][0] for conv in last])


def class_features(network: DetectionModel) -> list[str]:
    """Names of the modules whose outputs enter the last convolutions of the class branch, one per level."""
    head = network.model[-1]
    return [f"model.{head.i}.cv3.{level}.{len(branch) - 2}" for level, branch in enumerate(head.cv3)]


def _last_convolutions(network: DetectionModel) -> list[nn.Conv2d]:
    return [branch[-1] for branch in network.model[-1].cv3]


def _input(layer: nn.Module, previous: Any, kept: list[Tensor | None]) -> Any:
    """Input of a layer: output of the previous layer, or of those that `from` in its description names."""
    source: Any = layer.f
    if isinstance(source, int):
        return previous if source == -1 else kept[source]
    return [previous if number == -1 else kept[number] for number in source]

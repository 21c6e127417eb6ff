"""YOLOv8 and the other detection networks of Ultralytics (Jocher et al. 2023), with the logits of each box."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid

from farther.detectors.base import Count, Fraction, LatentDetector, ReplayDetector, register
from farther.detectors.networks.detection import ImageDetections, autocast, pyramid_latent
from farther.detectors.networks.feature_maps import nearest, salient_pixels
from farther.detectors.networks.proposals import ImageProposals, best, propose
from farther.detectors.networks.replay import Candidates, Dropout, GroupedReplay, RowOutputs
from farther.detectors.networks.taps import Taps, kept_calls
from farther.detectors.networks.yolo import (
    DetectionModel,
    YoloCheckpoint,
    letterbox,
    load_network,
    read_checkpoint,
)
from farther.detectors.networks.yolo_text import last_layer
from farther.detectors.scaling import Scaled
from farther.detectors.settings import (
    NOTHING,
    BoxSelection,
    MapSelection,
    ProposalSelection,
    StoredColumns,
    to_numpy,
)
from farther.errors import DataError
from farther.images.device import ordinary_tensors
from farther.registry import STRICT
from farther.tables import Header

# isort: split
from ultralytics.nn.modules.head import Detect, Segment
from ultralytics.utils.nms import non_max_suppression
from ultralytics.utils.ops import scale_boxes, xywh2xyxy

#: Ultralytics drops the rest of a batch when suppression takes longer; no machine is that slow.
NO_TIME_LIMIT = 1e6


@register("yolo")
@dataclass(config=STRICT, kw_only=True)
class Yolo(ReplayDetector, LatentDetector):
    """A detection network of Ultralytics: YOLOv8, and the others whose head scores each anchor (v3 to v12, YOLO26).

    Of a segmentation network the boxes are read, without its masks; `predict` drops boxes with an
    empty mask.

    Boxes, scores and labels are those of Ultralytics' `predict`, given one image at a time (in a
    batch it pads images of different shapes to squares). Heads that also have a branch without
    suppression (YOLOv10, YOLO26) answer with the other one, as `predict` does. Image files are read
    as stored: unlike `predict`, without turning them as EXIF says.

    Logits are the head's at the anchor that gave the box, see `logits`; there is no background. The
    network is convolutional to its end: it has no last linear layer, hence neither `features` nor a
    `weight`, and methods that need them are not offered for it (FMIYC, Section 4 and Appendix F).
    `latent` pools the backbone's last layer over each detection's box and averages it per channel
    (FMIYC, Appendix F.2.4).

    YOLO-World and YOLOE are read from a `.pt` file whose classes were set (`set_classes`) and
    saved. They have a last layer: `weight` is the text embeddings, and `features` the anchor's
    embedding with scale and bias of its level.

    The checkpoint is farther's safetensors file or a `.pt` file of Ultralytics. The latter is a
    pickle, read without running anything that it names.

    Args:
        nms_iou: See `BoxDetector`; the default is that of `predict`.
        image_size: Pixels that the longer side is scaled to; None takes the checkpoint's.
        logits: "raw": before the sigmoid; "log_sigmoid": log(sigmoid(logit)), of which the
            published code computes its scores. None takes the protocol's.
    """

    PROPOSALS: ClassVar[str | None] = "anchors"
    FEATURE_MAP: ClassVar[bool] = True

    nms_iou: Fraction = 0.7
    image_size: Count | None = None
    logits: Literal["raw", "log_sigmoid"] | None = None

    @cached_property
    def checkpoint(self) -> YoloCheckpoint:
        """The checkpoint's content; errors as in `read_checkpoint`."""
        return read_checkpoint(self.weights)

    @cached_property
    def network(self) -> DetectionModel:
        """See `Detector.network`."""
        return self.placed(load_network(self.weights, self.checkpoint))

    @property
    def log_scores(self) -> bool:
        """True if the column `logits` is log(sigmoid(logit))."""
        return (
            self.logits or {"paper": "raw", "published-code": "log_sigmoid"}[self.protocol]
        ) == "log_sigmoid"

    def header(self) -> Header:
        """See `Detector.header`."""
        weight = None
        if self.checkpoint.text is not None and not self.log_scores:
            found = last_layer(self.network)
            weight = None if found is None else found.detach().cpu().numpy()
        return Header(
            classes=self.checkpoint.blueprint.classes,
            activation="exp" if self.log_scores else "sigmoid",
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=weight,
            bias=None if weight is None else np.zeros(len(weight), np.float32),
        )

    def prepare(self, image: np.ndarray) -> Scaled:
        """The image, scaled and padded as `predict` does."""
        return letterbox(
            image, self.image_size or self.checkpoint.blueprint.image_size, self.checkpoint.stride
        )

    def scaled(self, factor: float) -> Self:
        """See `Detector.scaled`."""
        other = replace(
            self,
            image_size=round((self.image_size or self.checkpoint.blueprint.image_size) * factor),
        )
        vars(other).update(
            {
                name: value
                for name, value in vars(self).items()
                if name in ("checkpoint", "network", "computed")
            }
        )
        return other

    def detection(self, prepared: list) -> GroupedReplay:
        """See `ReplayDetector.detection`: the rows are anchors."""
        stored = self.stored_columns(log_scores=self.log_scores)
        return replay(
            self.network, self.header(), prepared, self.selection(), self.precision, stored
        )

    def selection(self) -> BoxSelection:
        """Which boxes are detections."""
        return BoxSelection(self.score_threshold, self.nms_iou, self.max_detections)


class YoloGroup:
    """Detections of images of one shape by a detection network of Ultralytics; see `ReplayGroup`. Rows are anchors.

    Args:
        network: In evaluation mode.
        images: The images.
        selection: Which boxes are detections.
        precision: Type of the network's activations.
        stored: Logits and the optional columns.

    Raises:
        DataError: the network gives numbers that are not finite.
    """

    def __init__(
        self,
        network: DetectionModel,
        images: Sequence[Scaled],
        selection: BoxSelection,
        precision: str = "float32",
        stored: StoredColumns = NOTHING,
    ):
        self._network, self._precision, self._stored = network, precision, stored
        self._sizes = [image.original for image in images]
        pixels = torch.from_numpy(np.stack([image.pixels for image in images])).to(
            next(network.parameters()).device
        )
        self._batch = pixels.permute(0, 3, 1, 2).float().div_(255)
        self.images = list(self._batch)
        self._taps = Taps(network, stored.layers)
        with self._taps:
            seen = run(network, self._batch, precision)
        self._levels, self._class_features = seen.levels, seen.class_features
        self._seen = seen
        if not torch.isfinite(seen.decoded).all():
            # The selection would drop such boxes without a word.
            problem = "the network gives boxes or scores that are not finite: the checkpoint's weights are damaged"
            raise DataError(problem)
        self._selection = selection
        found, self._anchors = _suppressed(seen.decoded, selection)
        self._shown = [one[:, :4] for one in found]
        self._boxes = self._in_images(self._shown)
        self.counts = [len(one) for one in found]
        self.columns = {
            "logits": to_numpy(self._stored_logits(self._of_anchors(seen.logits))),
            "box": to_numpy(self._boxes),
            "score": to_numpy(torch.cat([one[:, 4] for one in found])),
            "label": to_numpy(torch.cat([one[:, 5] for one in found])).astype(np.int16),
        }
        self.columns |= stored.arrays({**self._features(seen), **self._latents(seen)})

    def again(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.again`."""
        head = self._network.model[-1]
        with ordinary_tensors(images or ()):
            if images is None and dropout is not None and not dropout.where:
                return RowOutputs(self._stored_logits(self._class_branch(dropout)), self._boxes)
            batch = self._batch if images is None else torch.stack(list(images))
            batch = batch.contiguous(
                memory_format=torch.channels_last
            )  # another layout would round differently
            only_head = (
                images is None and dropout is not None and dropout.is_within([f"model.{head.i}"])
            )
            places = class_features(self._network)
            masked = (
                nullcontext()
                if dropout is None
                else dropout.on(self._network, places, [1] * len(batch))
            )
            with masked, self._taps:
                if only_head:
                    seen = run_head(self._network, self._levels, batch)
                else:
                    seen = run(self._network, batch, self._precision)
            decoded = [
                of_image.T[rows] for of_image, rows in zip(seen.decoded, self._anchors, strict=True)
            ]
            boxes = self._in_images([xywh2xyxy(one[:, :4]) for one in decoded])
            latents = {} if only_head else self._latents(seen)
            logits = self._stored_logits(self._of_anchors(seen.logits))
            return RowOutputs(logits, boxes, self._features(seen).get("features"), latents)

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """See `Proposing.proposals`."""
        seen, found = self._seen, []
        features = self._every_feature(seen)
        for number, (decoded, logits) in enumerate(zip(seen.decoded, seen.logits, strict=True)):
            own = None
            if isinstance(selection, MapSelection):
                whole, own = salient_pixels(
                    seen.levels[0][number], self._batch.shape[2:], selection
                )
                rows = nearest(whole, xywh2xyxy(decoded[:4].T))
            else:
                rows = best(decoded[4:].amax(dim=0), selection)
                whole = xywh2xyxy(decoded[:4, rows].T)
            boxes = scale_boxes(self._batch.shape[2:], whole.clone(), self._sizes[number])
            kept, values = propose(
                boxes, decoded[4:, rows].T, own, self._sizes[number], selection, whole
            )
            of = None if features is None else features[number].T[rows[kept]]
            z = self._stored_logits(logits.T[rows[kept]])
            found.append(ImageProposals(boxes[kept], values, z, of))
        return found

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `Free.candidates`."""
        dropout.check_within([f"model.{self._network.model[-1].i}"])
        places = class_features(self._network)
        with ordinary_tensors(), dropout.on(self._network, places, [1] * len(self._batch)):
            seen = run_head(self._network, self._levels, self._batch)
        per_image = zip(seen.logits, seen.decoded, strict=True)
        return [Candidates(self._stored_logits(z.T), boxes.T[:, :4]) for z, boxes in per_image]

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """See `Free.select`."""
        (found,), (anchors,) = _suppressed(
            torch.cat([boxes, probabilities], dim=1).T[None], self._selection
        )
        labels = found[:, 5].long()
        return ImageDetections(
            self.placed(number, boxes, anchors, labels), found[:, 4], labels, anchors
        )

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """See `Free.placed`."""
        return scale_boxes(self._batch.shape[2:], xywh2xyxy(boxes[rows]), self._sizes[number])

    def _features(self, seen: YoloOutput) -> dict[str, Tensor]:
        """The column `features` of all rows, where all levels share a last layer."""
        features = self._every_feature(seen)
        return {} if features is None else {"features": self._of_anchors(features)}

    def _every_feature(self, seen: YoloOutput) -> Tensor | None:
        """The column `features` of all anchors, (B, D, A), where all levels share a last layer."""
        if last_layer(self._network) is None or not self._stored.wants("features"):
            return None
        return torch.cat([level.flatten(2) for level in seen.class_features], dim=2)

    def _latents(self, seen: YoloOutput) -> dict[str, Tensor]:
        """The columns `latent` and `latent.<name>` of all rows."""
        height, width = self._batch.shape[2:]
        further = self._taps.over_boxes(self._shown, (height, width), self._stored.pooling)
        if not self._stored.wants("latent"):
            return further
        given, stride = self._boxes.split(self.counts), width // seen.backbone.shape[-1]
        widths = [width for _, width in self._sizes]
        return {
            "latent": pyramid_latent(
                [seen.backbone], stride, self._shown, given, widths, self._stored.pooling
            ),
            **further,
        }

    def _class_branch(self, dropout: Dropout) -> Tensor:
        """Logits of all rows, with masks on the inputs of the last convolutions, whose kernels have one cell."""
        starts = np.cumsum([0, *(level.shape[2] * level.shape[3] for level in self._levels)])
        anchors = torch.cat(self._anchors)
        logits = self._batch.new_zeros(len(anchors), self._network.model[-1].nc)
        convolutions = zip(
            _last_convolutions(self._network),
            self._class_features,
            class_features(self._network),
            strict=True,
        )
        for (conv, features, place), (first, end) in zip(
            convolutions, pairwise(starts), strict=True
        ):
            cells = [one[(one >= first) & (one < end)] - int(first) for one in self._anchors]
            inputs = [of.flatten(1).T[at] for of, at in zip(features, cells, strict=True)]
            masks = dropout.masks([tuple(of_image.shape) for of_image in inputs], place)
            masked = torch.cat(inputs) * torch.cat(masks).to(logits.device)
            rows = (anchors >= first) & (anchors < end)
            logits[rows] = linear(masked, conv.weight.flatten(1), conv.bias)
        return logits

    def _of_anchors(self, logits: Tensor) -> Tensor:
        """Logits of all rows, (N, K), from those of all anchors, (B, K, A)."""
        return torch.cat(
            [of_image.T[rows] for of_image, rows in zip(logits, self._anchors, strict=True)]
        )

    def _stored_logits(self, logits: Tensor) -> Tensor:
        return logsigmoid(logits) if self._stored.log_scores else logits

    def _in_images(self, boxes: Sequence[Tensor]) -> Tensor:
        """Boxes of each image in pixels of the batch → all boxes in pixels of the images as given."""
        shape = self._batch.shape[2:]
        return torch.cat(
            [
                scale_boxes(shape, of.clone(), size)
                for of, size in zip(boxes, self._sizes, strict=True)
            ]
        )


def _suppressed(decoded: Tensor, selection: BoxSelection) -> tuple[list[Tensor], list[Tensor]]:
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
    return found, [
        anchor.view(-1).long()[rows] for anchor, rows in zip(anchors, proper, strict=True)
    ]


def replay(
    network: DetectionModel,
    header: Header,
    images: Sequence[Scaled],
    selection: BoxSelection,
    precision: str = "float32",
    stored: StoredColumns = NOTHING,
) -> GroupedReplay:
    """Detections of one batch that do not depend on their neighbours, and can be computed again; see `YoloGroup`."""
    detect = partial(YoloGroup, network, selection=selection, precision=precision, stored=stored)
    return GroupedReplay.detect(header, images, lambda image: image.pixels.shape, detect)


class YoloOutput(NamedTuple):
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


def run(network: DetectionModel, batch: Tensor, precision: str = "float32") -> YoloOutput:
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


def run_head(network: DetectionModel, levels: list[Tensor], backbone: Tensor) -> YoloOutput:
    """The output, from the inputs of the head."""
    head, last = network.model[-1], _last_convolutions(network)
    if torch.jit.is_tracing() or (
        head.anchors.is_inference() and not torch.is_inference_mode_enabled()
    ):
        head.shape = None  # anchors are made again: a graph has those of any shape, gradients those of another mode
    with kept_calls(last) as kept:
        decoded, raw = Detect.forward(head, levels) if isinstance(head, Segment) else head(levels)
    decoded = decoded[:, : 4 + head.nc]  # behind them come a mask's coefficients
    logits = raw.get("one2many", raw)["scores"]
    return YoloOutput(decoded, logits, backbone, levels, [kept[conv][0] for conv in last])


def class_features(network: DetectionModel) -> list[str]:
    """Names of the modules whose outputs enter the last convolutions of the class branch, one per level."""
    head = network.model[-1]
    return [
        f"model.{head.i}.cv3.{level}.{len(branch) - 2}" for level, branch in enumerate(head.cv3)
    ]


def _last_convolutions(network: DetectionModel) -> list[nn.Conv2d]:
    return [branch[-1] for branch in network.model[-1].cv3]


def _input(layer: nn.Module, previous: Any, kept: list[Tensor | None]) -> Any:
    """Input of a layer: output of the previous layer, or of those that `from` in its description names."""
    source: Any = layer.f
    if isinstance(source, int):
        return previous if source == -1 else kept[source]
    return [previous if number == -1 else kept[number] for number in source]

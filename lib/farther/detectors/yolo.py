"""YOLOv8 and the other detection networks of Ultralytics (Jocher et al. 2023), with logits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid

from farther.detectors.base import Count, Fraction, LatentDetector, ReplayDetector, register
from farther.detectors.networks.candidate_boxes import (
    ImageProposals,
    select_proposals,
    top_candidates,
)
from farther.detectors.networks.detection import ImageDetections, autocast, pyramid_latent
from farther.detectors.networks.feature_maps import nearest, salient_pixels
from farther.detectors.networks.replay import Candidates, Dropout, GroupedReplay, RowOutputs
from farther.detectors.networks.taps import Taps, recorded_calls
from farther.detectors.networks.yolo import (
    WITHOUT_ADAPTER,
    DetectionModel,
    YoloCheckpoint,
    letterbox,
    load_network,
    read_checkpoint,
)
from farther.detectors.networks.yolo_text import last_layer
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.detectors.scaling import Scaled
from farther.detectors.settings import (
    NOTHING,
    BoxSelection,
    MapSelection,
    ProposalSelection,
    StoredColumns,
    to_numpy,
)
from farther.errors import DataError, FartherError
from farther.images.device import ordinary_tensors
from farther.naming.registry import STRICT
from farther.tables import Header

# isort: split
from ultralytics.nn.modules.head import Detect, Segment
from ultralytics.utils.nms import non_max_suppression
from ultralytics.utils.ops import scale_boxes, xywh2xyxy

#: Seconds per image after which Ultralytics' NMS would drop the rest of a batch: never.
NO_TIME_LIMIT = 1e6


@register("yolo")
@dataclass(config=STRICT, kw_only=True)
class Yolo(ReplayDetector, LatentDetector):
    """A detection network of Ultralytics whose head scores each anchor: YOLOv3 to YOLOv12, YOLO26.

    Of a segmentation network only the boxes are read, without its masks; `predict` drops boxes with
    an empty mask.

    Boxes, scores and labels are those of Ultralytics' `predict` for one image at a time (in a batch
    it pads images of different shapes to squares). Of heads that also have a branch without NMS
    (YOLOv10, YOLO26) the other branch is used, as `predict` does.

    Logits are the head's at the anchor of the box, see `logits`; there is no background. The
    network is convolutional to its end: it has no last linear layer, hence neither `features` nor a
    `weight`, and methods that need them are not offered for it (FMIYC, Section 4 and Appendix F).
    `latent` pools the backbone's last layer over each detection's box and averages it per channel
    (FMIYC, Appendix F.2.4).

    YOLO-World and YOLOE are read from a `.pt` file whose classes were set (`set_classes`) and
    saved. They have a last layer: `weight` is the text embeddings, and `features` the anchor's
    embedding with scale and bias of its level.

    The checkpoint is farther's safetensors file or a `.pt` file of Ultralytics. The latter is a
    pickle, which is read without running any code that it names.

    Args:
        nms_iou: See `LatentDetector`; the default is that of `predict`.
        image_size: Length of the longer side after scaling, in pixels; None takes the checkpoint's.
        logits: "raw": before the sigmoid; "log_sigmoid": log(sigmoid(logit)), from which the
            published code computes its scores. None takes the protocol's.
    """

    PROPOSALS: ClassVar[str | None] = "anchors"
    FEATURE_MAP: ClassVar[bool] = True

    nms_iou: Fraction = 0.7
    image_size: Count | None = None
    logits: Literal["raw", "log_sigmoid"] | None = None

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """A checkpoint of Ultralytics, or farther's own file; see `Adapter`.

        Raises:
            ParameterError: it is a network of Ultralytics for another task.
        """
        try:
            detector = cls(weights=path)
            detector.load_network()
            detector.header()
        except FartherError as error:
            if str(getattr(error, "problem", error)).startswith(WITHOUT_ADAPTER):
                raise
            return None
        return RecognisedFile(detector=detector)

    @cached_property
    def checkpoint(self) -> YoloCheckpoint:
        """The checkpoint's content; errors as in `read_checkpoint`."""
        return read_checkpoint(self.weights)

    @cached_property
    def network(self) -> DetectionModel:
        """See `Detector.network`."""
        return self.to_device(load_network(self.weights, self.checkpoint))

    @property
    def log_scores(self) -> bool:
        """True if the column `logits` is log(sigmoid(logit))."""
        if self.logits is None:
            return self.protocol == "published-code"
        return self.logits == "log_sigmoid"

    def header(self) -> Header:
        """See `Detector.header`."""
        weight = None
        bias = None
        if self.checkpoint.text is not None and not self.log_scores:
            text_embeddings = last_layer(self.network)
            if text_embeddings is not None:
                weight = text_embeddings.detach().cpu().numpy()
                bias = np.zeros(len(weight), np.float32)
        return Header(
            classes=self.checkpoint.blueprint.classes,
            activation="exp" if self.log_scores else "sigmoid",
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=weight,
            bias=bias,
        )

    @property
    def input_size(self) -> int:
        """Length of the longer side of the network's input, in pixels."""
        return self.image_size or self.checkpoint.blueprint.image_size

    def prepare(self, image: np.ndarray) -> Scaled:
        """The image, scaled and padded as `predict` does."""
        return letterbox(image, self.input_size, self.checkpoint.stride)

    def scaled(self, factor: float) -> Self:
        """See `Detector.scaled`."""
        detector = replace(self, image_size=round(self.input_size * factor))
        for name in ("checkpoint", "network", "computed"):
            if name in vars(self):
                vars(detector)[name] = vars(self)[name]
        return detector

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
    """Detections of images of one shape by a network of Ultralytics; see `ReplayGroup`.

    Rows are anchors.

    Args:
        network: In evaluation mode.
        images: The images.
        selection: Which boxes are detections.
        precision: Type of the network's activations.
        stored: Settings of logits and optional columns.
    """

    def __init__(
        self,
        network: DetectionModel,
        images: Sequence[Scaled],
        selection: BoxSelection,
        precision: str = "float32",
        stored: StoredColumns = NOTHING,
    ):
        self._network = network
        self._selection = selection
        self._precision = precision
        self._stored = stored
        self._taps = Taps(network, stored.layers)
        self._sizes = [image.original for image in images]
        device = next(network.parameters()).device
        pixels = torch.from_numpy(np.stack([image.pixels for image in images])).to(device)
        self._batch = pixels.permute(0, 3, 1, 2).float().div_(255)
        self.images = list(self._batch)

    @classmethod
    def detect(
        cls,
        images: Sequence[Scaled],
        network: DetectionModel,
        selection: BoxSelection,
        precision: str = "float32",
        stored: StoredColumns = NOTHING,
    ) -> YoloGroup:
        """Runs the network on images of one shape.

        Raises:
            DataError: the network gives numbers that are not finite.
        """
        group = cls(network, images, selection, precision, stored)
        group._detect()
        return group

    def _detect(self) -> None:
        """Runs the network and computes the columns."""
        with self._taps:
            output = run(self._network, self._batch, self._precision)
        if not torch.isfinite(output.decoded).all():
            # NMS would drop such boxes silently.
            raise DataError(
                "the network gives boxes or scores that are not finite: the checkpoint's weights "
                "are damaged"
            )
        self._output = output
        detections = _non_max_suppression(output.decoded, self._selection)
        self._anchors = [image.anchors for image in detections]
        #: Boxes of each image in pixels of the batch.
        self._batch_boxes = [image.boxes for image in detections]
        #: All boxes in pixels of the original images.
        self._boxes = self._in_images(self._batch_boxes)

        self.counts = [len(anchors) for anchors in self._anchors]
        score = torch.cat([image.scores for image in detections])
        label = torch.cat([image.labels for image in detections])
        self.columns = {
            "logits": to_numpy(self._stored_logits(self._at_anchors(output.logits))),
            "box": to_numpy(self._boxes),
            "score": to_numpy(score),
            "label": to_numpy(label).astype(np.int16),
        }
        optional_columns = {**self._features(output), **self._latents(output)}
        self.columns |= self._stored.arrays(optional_columns)

    def recompute(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.recompute`."""
        with ordinary_tensors(images or ()):
            if images is not None:
                batch = torch.stack(list(images))
            elif dropout is not None and not dropout.where:
                logits = self._logits_with_dropout(dropout)
                return RowOutputs(self._stored_logits(logits), self._boxes)
            else:
                batch = self._batch
            # Another memory layout would round differently.
            batch = batch.contiguous(memory_format=torch.channels_last)

            head = f"model.{self._network.model[-1].i}"
            is_head_only = images is None and dropout is not None and dropout.is_within([head])
            with self._masks(dropout, len(batch)), self._taps:
                if is_head_only:
                    output = run_head(self._network, self._output.levels, batch)
                else:
                    output = run(self._network, batch, self._precision)

            batch_boxes = []
            for decoded, anchors in zip(output.decoded, self._anchors, strict=True):
                batch_boxes.append(xywh2xyxy(decoded.T[anchors][:, :4]))
            return RowOutputs(
                self._stored_logits(self._at_anchors(output.logits)),
                self._in_images(batch_boxes),
                self._features(output).get("features"),
                {} if is_head_only else self._latents(output),
            )

    def _masks(self, dropout: Dropout | None, images: int) -> AbstractContextManager[None]:
        """Masks the outputs of modules in a block; does nothing without dropout."""
        if dropout is None:
            return nullcontext()
        return dropout.on(self._network, class_features(self._network), [1] * images)

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """See `ProposalSource.proposals`."""
        output = self._output
        batch_size = self._batch.shape[2:]
        features = self._anchor_features(output)
        proposals = []
        for number, size in enumerate(self._sizes):
            boxes_of_anchors = output.decoded[number][:4]
            scores_of_anchors = output.decoded[number][4:]
            contrast = None
            if isinstance(selection, MapSelection):
                finest_map = output.levels[0][number]
                batch_boxes, contrast = salient_pixels(finest_map, batch_size, selection)
                anchors = nearest(batch_boxes, xywh2xyxy(boxes_of_anchors.T))
            else:
                anchors = top_candidates(scores_of_anchors.amax(dim=0), selection)
                batch_boxes = xywh2xyxy(boxes_of_anchors[:, anchors].T)
            boxes = scale_boxes(batch_size, batch_boxes.clone(), size)
            scores = scores_of_anchors[:, anchors].T
            rows, objectness = select_proposals(
                boxes, scores, contrast, size, selection, batch_boxes
            )
            logits = self._stored_logits(output.logits[number].T[anchors[rows]])
            image_features = None
            if features is not None:
                image_features = features[number].T[anchors[rows]]
            proposals.append(ImageProposals(boxes[rows], objectness, logits, image_features))
        return proposals

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `CandidateSource.candidates`."""
        dropout.check_within([f"model.{self._network.model[-1].i}"])
        with ordinary_tensors(), self._masks(dropout, len(self._batch)):
            output = run_head(self._network, self._output.levels, self._batch)
        candidates = []
        for logits, decoded in zip(output.logits, output.decoded, strict=True):
            candidates.append(Candidates(self._stored_logits(logits.T), decoded.T[:, :4]))
        return candidates

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """See `CandidateSource.select`."""
        decoded = torch.cat([boxes, probabilities], dim=1).T[None]
        detections = _non_max_suppression(decoded, self._selection)[0]
        labels = detections.labels.long()
        anchors = detections.anchors
        return ImageDetections(
            self.placed(number, boxes, anchors, labels), detections.scores, labels, anchors
        )

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """See `CandidateSource.placed`."""
        return scale_boxes(self._batch.shape[2:], xywh2xyxy(boxes[rows]), self._sizes[number])

    def _features(self, output: YoloOutput) -> dict[str, Tensor]:
        """The column `features` of all rows, if all levels share a last layer."""
        features = self._anchor_features(output)
        if features is None:
            return {}
        return {"features": self._at_anchors(features)}

    def _anchor_features(self, output: YoloOutput) -> Tensor | None:
        """Features of all anchors, shape (B, D, A), if all levels share a last layer."""
        if last_layer(self._network) is None or not self._stored.stores("features"):
            return None
        return torch.cat([level.flatten(2) for level in output.class_features], dim=2)

    def _latents(self, output: YoloOutput) -> dict[str, Tensor]:
        """The columns `latent`, `latent.<name>` and `gram.<name>` of all rows."""
        height, width = self._batch.shape[2:]
        pooling = self._stored.pooling
        layer_columns = self._taps.over_boxes(self._batch_boxes, (height, width), pooling)
        if not self._stored.stores("latent"):
            return layer_columns
        stride = width // output.backbone.shape[-1]
        image_boxes = self._boxes.split(self.counts)
        image_widths = [image_width for _, image_width in self._sizes]
        latent = pyramid_latent(
            [output.backbone], stride, self._batch_boxes, image_boxes, image_widths, pooling
        )
        return {"latent": latent, **layer_columns}

    def _logits_with_dropout(self, dropout: Dropout) -> Tensor:
        """Logits of all rows with masks on the inputs of the last convolutions.

        The kernels of these convolutions have one cell, so that they are computed for the rows'
        anchors only.

        Returns:
            Shape (N, K).
        """
        all_anchors = torch.cat(self._anchors)
        logits = self._batch.new_zeros(len(all_anchors), self._network.model[-1].nc)
        first = 0
        for convolution, features, name in zip(
            _last_convolutions(self._network),
            self._output.class_features,
            class_features(self._network),
            strict=True,
        ):
            end = first + features.shape[2] * features.shape[3]
            inputs = []
            for image_features, anchors in zip(features, self._anchors, strict=True):
                cells = anchors[(anchors >= first) & (anchors < end)] - first
                inputs.append(image_features.flatten(1).T[cells])
            masks = dropout.masks([tuple(cells.shape) for cells in inputs], name)
            masked = torch.cat(inputs) * torch.cat(masks).to(logits.device)
            rows = (all_anchors >= first) & (all_anchors < end)
            logits[rows] = linear(masked, convolution.weight.flatten(1), convolution.bias)
            first = end
        return logits

    def _at_anchors(self, values: Tensor) -> Tensor:
        """Values of all rows, shape (N, K), from those of all anchors, shape (B, K, A)."""
        rows = []
        for image_values, anchors in zip(values, self._anchors, strict=True):
            rows.append(image_values.T[anchors])
        return torch.cat(rows)

    def _stored_logits(self, logits: Tensor) -> Tensor:
        """Logits of the column `logits`."""
        if self._stored.log_scores:
            return logsigmoid(logits)
        return logits

    def _in_images(self, batch_boxes: Sequence[Tensor]) -> Tensor:
        """All boxes in pixels of the original images, from each image's in pixels of the batch."""
        batch_size = self._batch.shape[2:]
        boxes = []
        for image_boxes, size in zip(batch_boxes, self._sizes, strict=True):
            boxes.append(scale_boxes(batch_size, image_boxes.clone(), size))
        return torch.cat(boxes)


class BatchDetections(NamedTuple):
    """N detections of an image of the batch.

    Args:
        boxes: Corners in pixels of the batch, shape (N, 4).
        scores: Shape (N,).
        labels: Shape (N,), floating-point.
        anchors: Their anchors, shape (N,).
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    anchors: Tensor


def _non_max_suppression(decoded: Tensor, selection: BoxSelection) -> list[BatchDetections]:
    """The detections of each image after Ultralytics' NMS.

    Args:
        decoded: See `YoloOutput`.
        selection: Which boxes are detections.
    """
    kept_boxes, kept_anchors = non_max_suppression(
        decoded,
        selection.score_threshold,
        selection.iou,
        max_det=selection.max_detections,
        max_time_img=NO_TIME_LIMIT,
        return_idxs=True,
    )
    detections = []
    for rows, anchors in zip(kept_boxes, kept_anchors, strict=True):
        # Heads with unbounded distances (YOLO26) can yield boxes with negative sides.
        is_valid = (rows[:, 2:4] >= rows[:, :2]).all(dim=1)
        rows = rows[is_valid]
        detections.append(
            BatchDetections(rows[:, :4], rows[:, 4], rows[:, 5], anchors.view(-1).long()[is_valid])
        )
    return detections


def replay(
    network: DetectionModel,
    header: Header,
    images: Sequence[Scaled],
    selection: BoxSelection,
    precision: str = "float32",
    stored: StoredColumns = NOTHING,
) -> GroupedReplay:
    """Detections of one batch that can be recomputed; see `YoloGroup`.

    The detections of an image do not depend on the other images.
    """
    detect = partial(
        YoloGroup.detect, network=network, selection=selection, precision=precision, stored=stored
    )
    return GroupedReplay.detect(header, images, _pixel_shape, detect)


def _pixel_shape(image: Scaled) -> tuple[int, ...]:
    """Shape of a prepared image."""
    return image.pixels.shape


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
    """Forward pass of a network, as Ultralytics' own; the head computes in float32.

    Args:
        network: In evaluation mode.
        batch: Images of shape (B, 3, H, W), from 0 to 1.
        precision: Type of the activations before the head.
    """
    last_backbone_layer = len(network.yaml["backbone"]) - 1
    saved: list[Tensor | None] = []
    value: Any = batch
    backbone = batch
    with autocast(batch.device, precision):
        for layer in network.model[:-1]:
            value = layer(_input(layer, value, saved))
            saved.append(value if layer.i in network.save else None)
            if layer.i == last_backbone_layer:
                backbone = value
    levels = [level.float() for level in _input(network.model[-1], value, saved)]
    return run_head(network, levels, backbone.float())


def run_head(network: DetectionModel, levels: list[Tensor], backbone: Tensor) -> YoloOutput:
    """Forward pass of the head, from its inputs."""
    head = network.model[-1]
    convolutions = _last_convolutions(network)
    is_other_mode = head.anchors.is_inference() and not torch.is_inference_mode_enabled()
    if torch.jit.is_tracing() or is_other_mode:
        # Anchors are computed anew: a graph needs those of any shape, and gradients need those of
        # ordinary mode.
        head.shape = None
    with recorded_calls(convolutions) as calls:
        if isinstance(head, Segment):
            decoded, raw = Detect.forward(head, levels)
        else:
            decoded, raw = head(levels)
    decoded = decoded[:, : 4 + head.nc]  # the coefficients of a mask follow
    logits = raw.get("one2many", raw)["scores"]
    inputs = [calls[convolution][0] for convolution in convolutions]
    return YoloOutput(decoded, logits, backbone, levels, inputs)


def class_features(network: DetectionModel) -> list[str]:
    """Names of the modules before the last convolutions of the class branch, one per level."""
    head = network.model[-1]
    names = []
    for level, branch in enumerate(head.cv3):
        names.append(f"model.{head.i}.cv3.{level}.{len(branch) - 2}")
    return names


def _last_convolutions(network: DetectionModel) -> list[nn.Conv2d]:
    """The last convolutions of the class branch, one per level."""
    return [branch[-1] for branch in network.model[-1].cv3]


def _input(layer: nn.Module, previous: Any, saved: list[Tensor | None]) -> Any:
    """Input of a layer: outputs of the layers in its `from`, where −1 is the previous one."""
    source: Any = layer.f
    if isinstance(source, int):
        return previous if source == -1 else saved[source]
    return [previous if number == -1 else saved[number] for number in source]

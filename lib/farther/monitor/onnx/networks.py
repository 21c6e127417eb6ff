"""Detectors as modules that PyTorch traces: from one prepared image to its detections.

They call the adapters' networks and selections with sizes as tensors, so that a graph takes images
of any shape. A graph takes one image, because the number of detections differs between images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, logsigmoid, pad
from torch.onnx.operators import shape_as_tensor
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import batched_nms, nms, roi_align

from farther.detectors import yolo
from farther.detectors.base import Detector
from farther.detectors.dense import DenseDetector, decode, scores_of, select
from farther.detectors.detr import Detr
from farther.detectors.faster_rcnn import FasterRCNN
from farther.detectors.networks import detr_inference
from farther.detectors.networks.candidate_boxes import (
    class_scores,
    select_proposals,
    top_candidates,
)
from farther.detectors.networks.faster_rcnn import distinct_levels, run_rpn, select_detections
from farther.detectors.networks.pooling import fitting_levels
from farther.detectors.networks.taps import Taps
from farther.detectors.networks.yolo_text import last_layer
from farther.detectors.settings import BoxSelection, ProposalSelection, StoredColumns
from farther.detectors.whole_images import ImageClassifier
from farther.detectors.yolo import Yolo
from farther.tables.regions import LAYER

#: Columns of one image's N detections: `box`, `label`, `confidence`, `logits`, and those that the
#: method reads; and of its P proposals, the highest objectness first: `proposal_box` and
#: `proposal_objectness`.
Columns = dict[str, Tensor]


class Graph(nn.Module, ABC):
    """A detector's network with its selection.

    Args:
        detector: The adapter, on the CPU.
        columns: Names of the optional columns that are computed.
        operating: t*: detections of less confidence are left out.
        proposed: Which candidates are proposals; None for none.
    """

    #: True if images may have any height and width; else the graph takes those of the adapter's
    #: only.
    any_shape: ClassVar[bool] = False

    def __init__(
        self,
        detector: Detector,
        columns: Sequence[str],
        operating: float,
        proposed: ProposalSelection | None = None,
    ):
        super().__init__()
        self.detector = detector
        self.optional_columns = frozenset(columns)
        self.operating = operating
        self.proposed = proposed

    @abstractmethod
    def forward(self, image: Tensor, original: Tensor | None = None) -> Columns:
        """The detections of one image.

        Args:
            image: As the adapter's `prepare` gives it.
            original: Height and width of the image as given, shape (2,), int64; None where the
                graph takes that image.
        """

    def confident(self, scores: Tensor) -> Tensor:
        """Scores, those below t* set to 0: in NMS a box never removes one of a higher score."""
        return torch.where(scores >= self.operating, scores, torch.zeros_like(scores))


class ClassifierGraph(Graph):
    """An image classifier: the box is the image."""

    detector: ImageClassifier

    def __init__(self, detector: ImageClassifier, columns: Sequence[str], *settings: Any):
        super().__init__(detector, columns, *settings)
        self.classifier = detector.only(columns).network
        self.network = self.classifier.network

    def forward(self, image: Tensor, original: Tensor | None = None) -> Columns:
        """See `Graph.forward`."""
        assert original is not None
        if image.dtype == torch.uint8:
            mean, deviation = (
                torch.tensor(values)[:, None, None] for values in self.classifier.normalisation
            )
            image = (image.permute(2, 0, 1).float() / 255 - mean) / deviation
        outputs = self.classifier(image[None])
        confidence, label = outputs.logits.softmax(1).max(1)
        zero = torch.zeros_like(original[:1])
        columns = {
            "box": torch.cat([zero, zero, original[1:], original[:1]]).float()[None],
            "label": label,
            "confidence": confidence,
            "logits": outputs.logits,
            **outputs.latents,
        }
        if outputs.features is not None:
            columns["features"] = outputs.features
        rows = torch.where(confidence >= self.operating)[0]
        return {name: values[rows] for name, values in columns.items()}


class BoxGraph(Graph):
    """Base of the detectors of boxes."""

    stored: StoredColumns
    #: True if maps have whole strides; else boxes are placed by their share of the network's input.
    strided = True

    def proposals(
        self,
        boxes: Tensor,
        scores: Tensor,
        objectness: Tensor | None,
        original: Tensor,
        unclipped: Tensor | None = None,
    ) -> Columns:
        """The columns of the proposals.

        See `farther.detectors.networks.candidate_boxes.select_proposals` for the arguments.
        """
        if self.proposed is None:
            return {}
        rows, values = select_proposals(
            boxes, scores, objectness, original, self.proposed, unclipped
        )
        return {"proposal_box": boxes[rows], "proposal_objectness": values}

    def best_anchors(self, scores: Tensor) -> Tensor:
        """Rows of the anchors that may become proposals, of scores (A, K)."""
        if self.proposed is None:
            return scores.new_zeros(0, dtype=torch.long)
        return top_candidates(scores.amax(1), self.proposed)

    def tapped(self, network: nn.Module) -> Taps:
        """Hooks on the inner modules whose activations are wanted."""
        return Taps(network, self.stored.layers)

    def latents(
        self, levels: Callable[[], Sequence[Tensor]], placed: Tensor, size: Tensor, taps: Taps
    ) -> Columns:
        """The wanted columns of activations.

        Args:
            levels: Gives the maps that `latent` is pooled from, (1, C, h, w) each, finest first.
            placed: Boxes in pixels of the network's input, shape (N, 4).
            size: Height and width of the network's input, int64.
            taps: After the network's pass.
        """
        columns = {}
        if "latent" in self.optional_columns:
            maps = list(levels())
            if self.strided:
                columns["latent"] = self._pyramid(maps, placed, size)
            else:
                columns["latent"] = self._share(maps[0], placed, size)
        for name in self.stored.layers.latents:
            columns[f"{LAYER}{name}"] = self._share(taps.map_of(name), placed, size)
        return columns

    def _pyramid(self, maps: list[Tensor], placed: Tensor, size: Tensor) -> Tensor:
        """Of the level that fits each box, or of all levels side by side, as `latent_means`."""
        finest = int(size[1]) // int(maps[0].shape[-1])
        cells = [placed / (finest << number) for number in range(len(maps))]
        if self.stored.pooling.all_levels or len(maps) == 1:
            pooled = [self._pool(level, boxes) for level, boxes in zip(maps, cells, strict=True)]
            return torch.cat(pooled, dim=1)

        level_of_box = fitting_levels(placed, finest, len(maps))
        pooled, rows = [], []
        for number, level in enumerate(maps):
            rows_of_level = torch.where(level_of_box == number)[0]
            pooled.append(self._pool(level, cells[number][rows_of_level]))
            rows.append(rows_of_level)
        return torch.cat(pooled)[torch.cat(rows).argsort()]

    def _share(self, level: Tensor, placed: Tensor, size: Tensor) -> Tensor:
        """Of a map that covers the network's input, whatever its stride."""
        return self._pool(level, placed * (shape_as_tensor(level)[2:] / size).flip(0).repeat(2))

    def _pool(self, level: Tensor, cells: Tensor) -> Tensor:
        """Channel means of a map, (1, C, h, w), over boxes in its cells: shape (N, C).

        As `box_means`.
        """
        pooling = self.stored.pooling
        aligned = roi_align(level, [cells], pooling.size, 1.0, pooling.sampling, aligned=True)
        return aligned.mean(dim=(2, 3))


class YoloGraph(BoxGraph):
    """A network of Ultralytics, with the suppression of its `non_max_suppression`."""

    any_shape = True
    #: Offset of the boxes of different classes, as Ultralytics has it.
    OFFSET = 7680

    def __init__(self, detector: Yolo, columns: Sequence[str], *settings: Any):
        super().__init__(detector, columns, *settings)
        self.stored = detector.only(columns).stored_columns(log_scores=detector.log_scores)
        self.selection = BoxSelection(
            detector.score_threshold, detector.nms_iou, detector.max_detections
        )
        self.network = detector.network

    def forward(self, image: Tensor, original: Tensor | None = None) -> Columns:
        """See `Graph.forward`."""
        assert original is not None
        batch = image.permute(2, 0, 1)[None].float() / 255
        with self.tapped(self.network) as taps:
            outputs = yolo.run(self.network, batch)
        decoded = outputs.decoded[0].T
        size = shape_as_tensor(batch)[2:]
        confidence, label = self.confident(decoded[:, 4:]).max(1)

        rows = torch.where(confidence > self.selection.score_threshold)[0]
        boxes = self._corners(decoded[rows])
        boxes_by_class = boxes + label[rows, None].float() * self.OFFSET
        selected = nms(boxes_by_class, confidence[rows], self.selection.iou)
        selected = selected[: self.selection.max_detections]
        selected = selected[(boxes[selected, 2:] >= boxes[selected, :2]).all(dim=1)]
        boxes, rows = boxes[selected], rows[selected]
        logits = outputs.logits[0].T[rows]
        if self.stored.log_scores:
            logits = logsigmoid(logits)

        anchors = self.best_anchors(decoded[:, 4:])
        anchor_boxes = self._corners(decoded[anchors])
        proposals = self.proposals(
            self._in_image(anchor_boxes, size, original),
            decoded[anchors, 4:],
            None,
            original,
            anchor_boxes,
        )
        return {
            "box": self._in_image(boxes, size, original),
            "label": label[rows],
            "confidence": confidence[rows],
            "logits": logits,
            **proposals,
            **self._features(outputs, rows),
            **self.latents(lambda: [outputs.backbone], boxes, size, taps),
        }

    @staticmethod
    def _corners(decoded: Tensor) -> Tensor:
        """Boxes from centre and size."""
        centre, half = decoded[:, :2], decoded[:, 2:4] / 2
        return torch.cat([centre - half, centre + half], dim=1)

    def _features(self, outputs: yolo.YoloOutput, rows: Tensor) -> Columns:
        """The column `features`, where all levels share a last layer."""
        if last_layer(self.network) is None or not self.stored.stores("features"):
            return {}
        levels = [level[0].flatten(1) for level in outputs.class_features]
        return {"features": torch.cat(levels, dim=1).T[rows]}

    @staticmethod
    def _in_image(boxes: Tensor, size: Tensor, original: Tensor) -> Tensor:
        """Boxes in pixels of the padded input → in pixels of the image, clipped to it.

        As Ultralytics' `scale_boxes`.
        """
        sides = original.double()
        gain = (size / sides).min()
        scaled = (sides * gain).round().clamp(min=1)
        padding = ((size - scaled) / 2 - 0.1).round().flip(0).repeat(2).float()
        factor = (scaled / sides).flip(0).repeat(2).float()
        edges = original.flip(0).repeat(2).float()
        return torch.minimum(((boxes - padding) / factor).clamp(min=0), edges)


class DetrGraph(BoxGraph):
    """A detection transformer of transformers, whose inputs have one shape."""

    strided = False

    def __init__(self, detector: Detr, columns: Sequence[str], *settings: Any):
        super().__init__(detector, columns, *settings)
        self.stored = detector.only(columns).stored_columns()
        self.selection = detector.selection()
        self.network = detector.network

    def forward(self, image: Tensor, original: Tensor | None = None) -> Columns:
        """See `Graph.forward`."""
        assert original is not None
        pixels = image[None]
        with self.tapped(self.network) as taps:
            outputs = detr_inference.run(self.network, pixels, torch.ones_like(pixels[:, 0]))
        boxes = detr_inference.corners(outputs.boxes[0])
        if self.selection.clipped:
            boxes = boxes.clamp(0, 1)
        pairs = detr_inference.candidates(self.confident(outputs.scores[0]), self.selection)
        # All of them, sorted: of equal scores, ONNX takes the first one first, as a stable sort
        # does.
        order = pairs.scores.topk(pairs.scores.shape[0]).indices
        if self.selection.iou < 1:
            order = batched_nms(
                boxes[pairs.queries], pairs.scores, pairs.labels, self.selection.iou
            )
        detections = pairs.at(order[: self.selection.max_detections])
        detected_boxes = boxes[detections.queries]

        edges = original.flip(0).repeat(2).float()
        size = shape_as_tensor(pixels)[2:]
        placed = detected_boxes * size.flip(0).repeat(2)
        maps = [] if outputs.latent is None else [outputs.latent]
        return {
            "box": detected_boxes * edges,
            "label": detections.labels,
            "confidence": detections.scores,
            "logits": outputs.logits[0][detections.queries],
            "features": outputs.features[0][detections.queries],
            **self.proposals(boxes * edges, outputs.scores[0], None, original),
            **self.latents(lambda: maps, placed, size, taps),
        }


@dataclass(frozen=True)
class ScaledImage:
    """An image as torchvision's detectors take it.

    Args:
        batch: The batch of this one image.
        original: Height and width as given, shape (2,), int64.
        scaled: Height and width after scaling, shape (2,), int64.
        padded: Height and width after padding, shape (2,), int64.
    """

    batch: ImageList
    original: Tensor
    scaled: Tensor
    padded: Tensor

    def in_original(self, boxes: Tensor) -> Tensor:
        """Boxes in pixels of the scaled image → in pixels of the image as given."""
        return boxes * (self.original.float() / self.scaled.float()).flip(0).repeat(2)


class TorchvisionGraph(BoxGraph):
    """Base of torchvision's detectors, which scale images themselves."""

    any_shape = True
    network: Any

    def scaled_image(self, image: Tensor) -> ScaledImage:
        """An image (H, W, 3), uint8, as torchvision's transform makes it for the network."""
        transform = self.network.transform
        pixels = transform.normalize(image.permute(2, 0, 1).float() / 255)
        original = shape_as_tensor(image)[:2]
        sides = original.double()
        limits = torch.tensor([transform.min_size[-1], transform.max_size], dtype=torch.float64)
        # Tensor by tensor: a number by a tensor is a product with its reciprocal, which can round a
        # side down.
        factor = (limits / torch.stack([sides.min(), sides.max()])).min()
        scaled = torch.floor(sides * factor).long()
        size: Any = [scaled[0], scaled[1]]
        resized = interpolate(pixels[None], size=size, mode="bilinear", align_corners=False)

        divisor: int = transform.size_divisible
        padded = (scaled + divisor - 1) // divisor * divisor
        padding: Any = padded - scaled
        batch = pad(resized, [0, padding[1], 0, padding[0]])
        return ScaledImage(ImageList(batch, [(scaled[0], scaled[1])]), original, scaled, padded)

    @staticmethod
    def columns(detections: Any, logits: Tensor, image: ScaledImage) -> Columns:
        """The columns of the network's detections, their boxes in pixels of the image as given."""
        return {
            "box": image.in_original(detections.boxes),
            "label": detections.labels,
            "confidence": detections.scores,
            "logits": logits[detections.rows],
        }


class FasterRCNNGraph(TorchvisionGraph):
    """Faster R-CNN, and Mask R-CNN without its masks."""

    def __init__(self, detector: FasterRCNN, columns: Sequence[str], *settings: Any):
        super().__init__(detector, columns, *settings)
        self.stored = detector.only(columns).stored_columns(all_levels=detector.all_levels)
        self.network = detector.network

    def forward(self, image: Tensor, original: Tensor | None = None) -> Columns:
        """See `Graph.forward`."""
        network = self.network
        heads = network.roi_heads
        scaled = self.scaled_image(image)
        sizes = scaled.batch.image_sizes
        with self.tapped(network) as taps:
            levels = network.backbone(scaled.batch.tensors)
        proposed = run_rpn(network, scaled.batch, levels)
        features = heads.box_head(heads.box_roi_pool(levels, proposed.proposals, sizes))
        logits, deltas = heads.box_predictor(features)
        boxes = heads.box_coder.decode(deltas, proposed.proposals)
        scores = self.confident(logits.softmax(-1))
        detections = select_detections(network, boxes, scores, sizes[0])

        def maps() -> Sequence[Tensor]:
            return distinct_levels(network, proposed.shared)

        proposals = self.proposals(
            scaled.in_original(proposed.proposals[0]),
            class_scores(logits, self.detector.header()),
            proposed.scores[0],
            scaled.original,
        )
        return {
            **self.columns(detections, logits, scaled),
            **proposals,
            "features": features[detections.rows],
            **self.latents(maps, detections.boxes, scaled.padded, taps),
        }


class DenseGraph(TorchvisionGraph):
    """RetinaNet and FCOS."""

    def __init__(self, detector: DenseDetector, columns: Sequence[str], *settings: Any):
        super().__init__(detector, columns, *settings)
        self.stored = detector.only(columns).stored_columns()
        self.selection = detector.selection()
        self.network = detector.network
        self.background = detector.header().background_index

    def forward(self, image: Tensor, original: Tensor | None = None) -> Columns:
        """See `Graph.forward`."""
        network = self.network
        scaled = self.scaled_image(image)
        size = scaled.batch.image_sizes[0]
        with self.tapped(network) as taps:
            levels = list(network.backbone(scaled.batch.tensors).values())
        outputs = network.head(levels)
        logits = outputs["cls_logits"][0]
        deltas = outputs["bbox_regression"][0]
        scores = scores_of(outputs, self.background)[0]

        anchors = network.anchor_generator(scaled.batch, levels)[0]
        per_cell = network.anchor_generator.num_anchors_per_location()[0]
        counts = [level.shape[2] * level.shape[3] * per_cell for level in levels]
        detections = select(
            network, self.confident(scores), deltas, anchors, size, counts, self.selection
        )

        rows = self.best_anchors(scores)
        boxes = decode(network, deltas[rows], anchors[rows], size)
        proposals = self.proposals(scaled.in_original(boxes), scores[rows], None, scaled.original)
        return {
            **self.columns(detections, logits, scaled),
            **proposals,
            **self.latents(lambda: levels, detections.boxes, scaled.padded, taps),
        }

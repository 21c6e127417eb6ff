"""Detectors as modules that PyTorch traces: one prepared image in, the columns of its detections out.

They call the adapters' networks and selections with sizes as tensors, so that a graph takes images
of any shape. A graph takes one image, because the number of detections differs between images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
from farther.detectors.networks.faster_rcnn import distinct_levels, propose, select_detections
from farther.detectors.networks.pooling import fitting_levels
from farther.detectors.networks.proposals import best, class_scores
from farther.detectors.networks.proposals import propose as propose_boxes
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
        self.detector, self.wanted, self.operating, self.proposed = (
            detector,
            frozenset(columns),
            operating,
            proposed,
        )

    @abstractmethod
    def forward(self, image: Tensor, original: Tensor | None = None) -> Columns:
        """The detections of one image.

        Args:
            image: As the adapter's `prepare` gives it.
            original: Height and width of the image as given, shape (2,), int64; None where the
                graph takes that image.
        """

    def confident(self, scores: Tensor) -> Tensor:
        """Scores, those below t* set to 0: suppression never lets a box remove one of a higher score."""
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
            mean, std = (
                torch.tensor(values)[:, None, None] for values in self.classifier.normalisation
            )
            image = (image.permute(2, 0, 1).float() / 255 - mean) / std
        seen = self.classifier(image[None])
        confidence, label = seen.logits.softmax(1).max(1)
        zero = torch.zeros_like(original[:1])
        box = torch.cat([zero, zero, original[1:], original[:1]]).float()[None]
        vectors = dict(seen.latents) | (
            {} if seen.features is None else {"features": seen.features}
        )
        columns = {
            "box": box,
            "label": label,
            "confidence": confidence,
            "logits": seen.logits,
            **vectors,
        }
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
        own: Tensor | None,
        given: Tensor,
        whole: Tensor | None = None,
    ) -> Columns:
        """The columns of the proposals; see `farther.detectors.networks.proposals.propose` for the arguments."""
        if self.proposed is None:
            return {}
        rows, values = propose_boxes(boxes, scores, own, given, self.proposed, whole)
        return {"proposal_box": boxes[rows], "proposal_objectness": values}

    def best_anchors(self, scores: Tensor) -> Tensor:
        """Rows of the anchors that may become proposals, of scores (A, K)."""
        return (
            scores.new_zeros(0, dtype=torch.long)
            if self.proposed is None
            else best(scores.amax(1), self.proposed)
        )

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
        found = {}
        if "latent" in self.wanted:
            maps = list(levels())
            found["latent"] = (
                self._pyramid(maps, placed, size)
                if self.strided
                else self._share(maps[0], placed, size)
            )
        for name in self.stored.layers.latents:
            found[f"{LAYER}{name}"] = self._share(taps.map_of(name), placed, size)
        return found

    def _pyramid(self, maps: list[Tensor], placed: Tensor, size: Tensor) -> Tensor:
        """Of the level that fits each box, or of all levels side by side, as `latent_means`."""
        finest = int(size[1]) // int(maps[0].shape[-1])
        cells = [placed / (finest << number) for number in range(len(maps))]
        if self.stored.pooling.all_levels or len(maps) == 1:
            return torch.cat([self._pool(*one) for one in zip(maps, cells, strict=True)], dim=1)
        fitting = fitting_levels(placed, finest, len(maps))
        rows = [torch.where(fitting == number)[0] for number in range(len(maps))]
        parts = [self._pool(level, of[at]) for level, of, at in zip(maps, cells, rows, strict=True)]
        return torch.cat(parts)[torch.cat(rows).argsort()]

    def _share(self, level: Tensor, placed: Tensor, size: Tensor) -> Tensor:
        """Of a map that covers the network's input, whatever its stride."""
        return self._pool(level, placed * (shape_as_tensor(level)[2:] / size).flip(0).repeat(2))

    def _pool(self, level: Tensor, cells: Tensor) -> Tensor:
        """Channel means of a map, (1, C, h, w), over boxes in its cells, as `box_means`: shape (N, C)."""
        pooling = self.stored.pooling
        return roi_align(level, [cells], pooling.size, 1.0, pooling.sampling, aligned=True).mean(
            dim=(2, 3)
        )


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
            seen = yolo.run(self.network, batch)
        decoded = seen.decoded[0].T
        confidence, label = self.confident(decoded[:, 4:]).max(1)
        anchors = self.best_anchors(decoded[:, 4:])
        rows = torch.where(confidence > self.selection.score_threshold)[0]
        boxes, whole = self._corners(decoded[rows]), self._corners(decoded[anchors])
        apart = boxes + label[rows, None].float() * self.OFFSET
        kept = nms(apart, confidence[rows], self.selection.iou)[: self.selection.max_detections]
        kept = kept[(boxes[kept, 2:] >= boxes[kept, :2]).all(dim=1)]
        boxes, rows = boxes[kept], rows[kept]
        logits = seen.logits[0].T[rows]
        size = shape_as_tensor(batch)[2:]
        return {
            "box": self._in_image(boxes, size, original),
            "label": label[rows],
            "confidence": confidence[rows],
            "logits": logsigmoid(logits) if self.stored.log_scores else logits,
            **self.proposals(
                self._in_image(whole, size, original), decoded[anchors, 4:], None, original, whole
            ),
            **self._features(seen, rows),
            **self.latents(lambda: [seen.backbone], boxes, size, taps),
        }

    @staticmethod
    def _corners(decoded: Tensor) -> Tensor:
        """Boxes from centre and size."""
        centre, half = decoded[:, :2], decoded[:, 2:4] / 2
        return torch.cat([centre - half, centre + half], dim=1)

    def _features(self, seen: yolo.YoloOutput, rows: Tensor) -> Columns:
        """The column `features`, where all levels share a last layer."""
        if last_layer(self.network) is None or not self.stored.wants("features"):
            return {}
        return {
            "features": torch.cat([level[0].flatten(1) for level in seen.class_features], dim=1).T[
                rows
            ]
        }

    @staticmethod
    def _in_image(boxes: Tensor, size: Tensor, original: Tensor) -> Tensor:
        """Boxes in pixels of the padded input → in pixels of the image as given, as Ultralytics' `scale_boxes`."""
        given = original.double()
        gain = (size / given).min()
        new = (given * gain).round().clamp(min=1)
        before = ((size - new) / 2 - 0.1).round().flip(0).repeat(2).float()
        factor = (new / given).flip(0).repeat(2).float()
        edges = original.flip(0).repeat(2).float()
        return torch.minimum(((boxes - before) / factor).clamp(min=0), edges)


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
            seen = detr_inference.run(self.network, pixels, torch.ones_like(pixels[:, 0]))
        boxes = detr_inference.corners(seen.boxes[0])
        if self.selection.clipped:
            boxes = boxes.clamp(0, 1)
        pairs = detr_inference.candidates(self.confident(seen.scores[0]), self.selection)
        # All of them, sorted: of equal scores, ONNX takes the first one first, as a stable sort
        # does.
        order = pairs.scores.topk(pairs.scores.shape[0]).indices
        if self.selection.iou < 1:
            order = batched_nms(
                boxes[pairs.queries], pairs.scores, pairs.labels, self.selection.iou
            )
        found = pairs.at(order[: self.selection.max_detections])
        edges, size = original.flip(0).repeat(2).float(), shape_as_tensor(pixels)[2:]
        shown = boxes[found.queries]
        maps = [] if seen.latent is None else [seen.latent]
        return {
            "box": shown * edges,
            "label": found.labels,
            "confidence": found.scores,
            "logits": seen.logits[0][found.queries],
            "features": seen.features[0][found.queries],
            **self.proposals(boxes * edges, seen.scores[0], None, original),
            **self.latents(lambda: maps, shown * size.flip(0).repeat(2), size, taps),
        }


class TorchvisionGraph(BoxGraph):
    """Base of torchvision's detectors, which scale images themselves."""

    any_shape = True
    network: Any

    def batch(self, image: Tensor) -> tuple[ImageList, Tensor, Tensor, Tensor]:
        """An image (H, W, 3), uint8, as the network takes it, as torchvision's transform makes it.

        Returns:
            The batch of one image, and height and width as given, scaled, and padded.
        """
        transform = self.network.transform
        pixels = transform.normalize(image.permute(2, 0, 1).float() / 255)
        given = shape_as_tensor(image)[:2]
        sides = given.double()
        most = torch.tensor([transform.min_size[-1], transform.max_size], dtype=torch.float64)
        # Tensor by tensor: a number by a tensor is a product with its reciprocal, which can round a
        # side down.
        scaled = torch.floor(sides * (most / torch.stack([sides.min(), sides.max()])).min()).long()
        size: Any = [scaled[0], scaled[1]]
        made = interpolate(pixels[None], size=size, mode="bilinear", align_corners=False)
        divisor: int = transform.size_divisible
        padded = (scaled + divisor - 1) // divisor * divisor
        further: Any = padded - scaled
        made = pad(made, [0, further[1], 0, further[0]])
        return ImageList(made, [(scaled[0], scaled[1])]), given, scaled, padded

    @staticmethod
    def in_image(boxes: Tensor, scaled: Tensor, given: Tensor) -> Tensor:
        """Boxes in pixels of the scaled image → in pixels of the image as given."""
        return boxes * (given.float() / scaled.float()).flip(0).repeat(2)

    def columns(self, found: Any, logits: Tensor, scaled: Tensor, given: Tensor) -> Columns:
        """The columns of the network's detections, their boxes in pixels of the image as given."""
        return {
            "box": self.in_image(found.boxes, scaled, given),
            "label": found.labels,
            "confidence": found.scores,
            "logits": logits[found.rows],
        }


class FasterRCNNGraph(TorchvisionGraph):
    """Faster R-CNN, and Mask R-CNN without its masks."""

    def __init__(self, detector: FasterRCNN, columns: Sequence[str], *settings: Any):
        super().__init__(detector, columns, *settings)
        self.stored = detector.only(columns).stored_columns(all_levels=detector.all_levels)
        self.network = detector.network

    def forward(self, image: Tensor, original: Tensor | None = None) -> Columns:
        """See `Graph.forward`."""
        network, heads = self.network, self.network.roi_heads
        batch, given, scaled, padded = self.batch(image)
        with self.tapped(network) as taps:
            levels = network.backbone(batch.tensors)
        seen = propose(network, batch, levels)
        features = heads.box_head(heads.box_roi_pool(levels, seen.proposals, batch.image_sizes))
        logits, deltas = heads.box_predictor(features)
        boxes = heads.box_coder.decode(deltas, seen.proposals)
        found = select_detections(
            network, boxes, self.confident(logits.softmax(-1)), batch.image_sizes[0]
        )
        proposed = self.in_image(seen.proposals[0], scaled, given)
        return {
            **self.columns(found, logits, scaled, given),
            **self.proposals(
                proposed, class_scores(logits, self.detector.header()), seen.scores[0], given
            ),
            "features": features[found.rows],
            **self.latents(
                lambda: distinct_levels(network, seen.shared), found.boxes, padded, taps
            ),
        }


class DenseGraph(TorchvisionGraph):
    """RetinaNet and FCOS."""

    def __init__(self, detector: DenseDetector, columns: Sequence[str], *settings: Any):
        super().__init__(detector, columns, *settings)
        self.stored = detector.only(columns).stored_columns()
        self.selection = detector.selection()
        self.network, self.background = detector.network, detector.header().background_index

    def forward(self, image: Tensor, original: Tensor | None = None) -> Columns:
        """See `Graph.forward`."""
        network = self.network
        batch, given, scaled, padded = self.batch(image)
        with self.tapped(network) as taps:
            levels = list(network.backbone(batch.tensors).values())
        answers = network.head(levels)
        logits, deltas = answers["cls_logits"][0], answers["bbox_regression"][0]
        scores = scores_of(answers, self.background)[0]
        per_cell = network.anchor_generator.num_anchors_per_location()[0]
        counts = [level.shape[2] * level.shape[3] * per_cell for level in levels]
        anchors = network.anchor_generator(batch, levels)[0]
        size, best_rows = batch.image_sizes[0], self.best_anchors(scores)
        found = select(
            network, self.confident(scores), deltas, anchors, size, counts, self.selection
        )
        proposed = self.in_image(
            decode(network, deltas[best_rows], anchors[best_rows], size), scaled, given
        )
        return {
            **self.columns(found, logits, scaled, given),
            **self.proposals(proposed, scores[best_rows], None, given),
            **self.latents(lambda: levels, found.boxes, padded, taps),
        }

"""The steps of a Faster R-CNN, and detections that can be computed again for the same proposals.

They call the modules of torchvision's model and give the same numbers. They add: the activations
that the RPN's heads share, the box head's features, and for each detection the proposal that it
comes from.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softmax
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import concat_box_prediction_layers
from torchvision.models.detection.transform import resize_boxes
from torchvision.ops import batched_nms
from torchvision.ops import boxes as box_ops

from farther.detectors.networks.candidate_boxes import (
    ImageProposals,
    class_scores,
    select_proposals,
)
from farther.detectors.networks.detection import (
    ImageDetections,
    as_floats,
    autocast,
    detection_columns,
    network_input,
    pyramid_latent,
)
from farther.detectors.networks.feature_maps import salient_pixels
from farther.detectors.networks.heads import VARIANCE_HEAD, corner_variances, resize_variances
from farther.detectors.networks.replay import Candidates, Dropout, RowOutputs
from farther.detectors.networks.taps import Taps
from farther.detectors.settings import (
    NOTHING,
    MapSelection,
    ProposalSelection,
    StoredColumns,
    to_numpy,
)
from farther.images.device import ordinary_tensors
from farther.tables import Header, Regions

#: The part of a network that computes logits from pooled proposals.
BOX_HEAD = ("roi_heads.box_head", "roi_heads.box_predictor")

#: Boxes narrower than this, in pixels of the resized image, are dropped, as torchvision does.
SMALLEST_SIDE = 1e-2


@dataclass
class RPNOutput:
    """Output of the region proposal network for B images with A anchors in all.

    Args:
        shared: Activations of its shared convolution, one (B, C, H, W) per pyramid level.
        objectness: (B × A, 1) logits.
        deltas: (B × A, 4) box regressions.
        anchors: Per image (A, 4).
        proposals: Per image (P, 4), pixels of the resized image.
        scores: Per image (P,), their objectness, 0 to 1.
    """

    shared: list[Tensor]
    objectness: Tensor
    deltas: Tensor
    anchors: list[Tensor]
    proposals: list[Tensor]
    scores: list[Tensor]


def run_rpn(network: FasterRCNN, images: ImageList, levels: dict[str, Tensor]) -> RPNOutput:
    """Runs the region proposal network; boxes are computed in float32 at any precision.

    Args:
        network: The network.
        images: The batch.
        levels: Its feature pyramid, the finest level first.
    """
    rpn = network.rpn
    shared = [rpn.head.conv(level) for level in levels.values()]
    logits_per_level = [rpn.head.cls_logits(activations).float() for activations in shared]
    deltas_per_level = [rpn.head.bbox_pred(activations).float() for activations in shared]
    anchors_per_level = [logits[0].numel() for logits in logits_per_level]
    anchors = rpn.anchor_generator(images, list(levels.values()))
    objectness, deltas = concat_box_prediction_layers(logits_per_level, deltas_per_level)
    boxes = rpn.box_coder.decode(deltas.detach(), anchors).view(len(anchors), -1, 4)
    proposals, scores = rpn.filter_proposals(
        boxes, objectness, images.image_sizes, anchors_per_level
    )
    return RPNOutput(shared, objectness, deltas, anchors, proposals, scores)


def select_detections(
    network: FasterRCNN, boxes: Tensor, scores: Tensor, size: tuple[int, int]
) -> ImageDetections:
    """Thresholds scores, suppresses per class, and keeps the best detections, as torchvision does.

    Args:
        network: Has the thresholds.
        boxes: Shape (P, K, 4), a box for each proposal and column.
        scores: Shape (P, K), softmax scores; column 0 is the background.
        size: Height and width of the resized image.
    """
    heads = network.roi_heads
    proposals, columns = torch.where(scores[:, 1:] > heads.score_thresh)
    columns = columns + 1
    clipped = box_ops.clip_boxes_to_image(boxes[proposals, columns], size)

    large = box_ops.remove_small_boxes(clipped, SMALLEST_SIDE)
    clipped = clipped[large]
    proposals = proposals[large]
    columns = columns[large]
    confidence = scores[proposals, columns]

    order = batched_nms(clipped, confidence, columns, heads.nms_thresh)
    selected = order[: heads.detections_per_img]
    return ImageDetections(
        boxes=clipped[selected],
        scores=confidence[selected],
        labels=columns[selected],
        rows=proposals[selected],
    )


def distinct_levels(network: FasterRCNN, levels: Sequence[Tensor]) -> list[Tensor]:
    """The levels of a pyramid whose stride differs from that of the level before.

    A pyramid of MobileNetV3 has two levels of one stride.
    """
    scales = network.roi_heads.box_roi_pool.scales or []
    distinct = []
    for number, level in enumerate(levels):
        if 0 < number < len(scales) and scales[number] == scales[number - 1]:
            continue
        distinct.append(level)
    return distinct


def box_head_activations(network: FasterRCNN) -> list[str]:
    """Names of the modules of the box head whose outputs dropout masks: its ReLUs, or else linears.

    torchvision's box head calls ReLU as a function, on the output of each linear layer; dropout
    before a ReLU equals dropout behind it.
    """
    activations = []
    linear_layers = []
    for name, module in network.roi_heads.box_head.named_modules():
        if isinstance(module, nn.ReLU):
            activations.append(f"{BOX_HEAD[0]}.{name}")
        if isinstance(module, nn.Linear):
            linear_layers.append(f"{BOX_HEAD[0]}.{name}")
    return activations or linear_layers


@dataclass(frozen=True)
class Frame:
    """Sizes of one image, height and width each.

    Args:
        resized: As the network sees it.
        original: As given.
    """

    resized: tuple[int, int]
    original: tuple[int, ...]

    def to_original(self, boxes: Tensor) -> Tensor:
        """Converts boxes (N, 4) from pixels of the resized image to pixels of the one as given."""
        return resize_boxes(boxes, self.resized, self.original)


@dataclass
class PooledProposals:
    """Input of the box head for a batch, and the activations that it comes from.

    Args:
        values: (P, C, h, w) pooled activations of all images' proposals.
        proposals: Per image (P_i, 4), pixels of the resized image.
        objectness: Per image (P_i,); empty where the proposals were given.
        shared: See `RPNOutput`.
        levels: Of the feature pyramid, the finest first.
        taps: Outputs of further modules.
        input_size: Height and width of the batch, padding included.
        frames: Sizes of each image.
    """

    values: Tensor
    proposals: list[Tensor]
    objectness: list[Tensor]
    shared: list[Tensor]
    levels: dict[str, Tensor]
    taps: Taps
    input_size: tuple[int, int]
    frames: list[Frame]


@dataclass
class BoxHeadOutputs:
    """Output of the box head for P proposals.

    Args:
        features: (P, D), input of the last linear layer.
        logits: (P, K).
        deltas: (P, 4 K) box regressions.
    """

    features: Tensor
    logits: Tensor
    deltas: Tensor

    def at(self, rows: Tensor) -> BoxHeadOutputs:
        """The output for some of the proposals."""
        return BoxHeadOutputs(self.features[rows], self.logits[rows], self.deltas[rows])


@dataclass(eq=False)
class FasterRCNNReplay:
    """Detections of one batch of images; see `Replay`. The rows are proposals, which stay the same.

    `FasterRCNNReplay.detect` runs a network and returns one.

    Args:
        network: In evaluation mode.
        header: Header of the regions.
        inputs: The images, uint8 arrays of shape (H, W, 3).
        sizes: Height and width of each image before scaling.
        precision: Type of the network's activations.
        stored: The optional columns.
        pooled: The proposals and their activations.
        outputs: Of the box head for all proposals.
        detections: Of each image.
    """

    network: FasterRCNN
    header: Header
    inputs: Sequence[np.ndarray]
    sizes: Sequence[tuple[int, ...]]
    precision: str
    stored: StoredColumns
    pooled: PooledProposals
    outputs: BoxHeadOutputs
    detections: list[ImageDetections]

    #: Row of each detection among the proposals of all images, and its logits column.
    _rows: Tensor = field(init=False)
    _labels: Tensor = field(init=False)

    def __post_init__(self) -> None:
        first_rows = np.cumsum([0, *self._proposal_counts[:-1]])
        rows = []
        for image, first_row in zip(self.detections, first_rows, strict=True):
            rows.append(image.rows + int(first_row))
        self._rows = torch.cat(rows)
        self._labels = torch.cat([image.labels for image in self.detections])

    @classmethod
    def detect(
        cls,
        network: FasterRCNN,
        header: Header,
        images: Sequence[np.ndarray],
        precision: str = "float32",
        stored: StoredColumns = NOTHING,
        sizes: Sequence[tuple[int, ...]] | None = None,
    ) -> FasterRCNNReplay:
        """Runs the network on a batch of images.

        Args:
            network: In evaluation mode; its thresholds decide which boxes are detections.
            header: Header of the regions.
            images: uint8 arrays of shape (H, W, 3).
            precision: Type of the network's activations.
            stored: The optional columns.
            sizes: Height and width of each image before scaling; None for images that were not
                scaled.
        """
        sizes = sizes or [image.shape[:2] for image in images]
        batch = network_input(network.transform, images, _device(network))
        pooled = _pool(network, batch, sizes, precision, stored)
        outputs = _run_box_head(network, pooled.values, precision)

        counts = [len(proposals) for proposals in pooled.proposals]
        boxes = network.roi_heads.box_coder.decode(outputs.deltas, pooled.proposals).split(counts)
        scores = softmax(outputs.logits, -1).split(counts)
        detections = []
        for number, frame in enumerate(pooled.frames):
            image = select_detections(network, boxes[number], scores[number], frame.resized)
            detections.append(image)
        return cls(network, header, images, sizes, precision, stored, pooled, outputs, detections)

    @property
    def unit(self) -> float:
        """See `Replay.unit`."""
        return 1.0

    @property
    def images(self) -> list[Tensor]:
        """See `Replay.images`; made anew each time, as floats take four times the memory."""
        device = _device(self.network)
        return [as_floats(image, device) for image in self.inputs]

    @torch.no_grad()
    def regions(self, image_ids: Sequence[str]) -> Regions:
        """See `Replay.regions`."""
        outputs = self.outputs.at(self._rows)
        boxes = self._in_originals([image.boxes for image in self.detections])
        columns = detection_columns(self.detections, boxes, image_ids)
        columns["logits"] = to_numpy(outputs.logits)
        if hasattr(self.network, VARIANCE_HEAD) and self.stored.stores("box_variance"):
            columns["box_variance"] = to_numpy(self._box_variances(outputs))
        optional = {"features": outputs.features, **self._latents(self.pooled)}
        columns |= self.stored.arrays(optional)
        return Regions(header=self.header, **columns)

    def recompute(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.recompute`."""
        if images is None and dropout is not None and dropout.is_within(BOX_HEAD):
            return self._box_head_again(dropout)

        with ordinary_tensors(images or ()), self._masked(dropout, self._proposal_counts):
            batch = self._batch(self.inputs if images is None else images)
            pooled = self._pool(batch, self.pooled.proposals)
            outputs = self._run_box_head(pooled.values).at(self._rows)
            return RowOutputs(
                logits=outputs.logits,
                boxes=self._boxes(outputs.deltas, self._row_proposals, self.pooled.frames),
                features=outputs.features,
                latents=self._latents(pooled),
            )

    def view(self, *, flip: bool, scale: float) -> RowOutputs:
        """The output for the same rows of another view of the images, without `latents`.

        Boxes are turned back to the images as given.

        Args:
            flip: Mirror images and proposals left to right.
            scale: Factor of the size that images are resized to.
        """
        with ordinary_tensors():
            images = self.inputs
            if flip:
                images = [np.ascontiguousarray(image[:, ::-1]) for image in self.inputs]
            batch = self._batch(images, scale)
            proposals = self._proposals_in_view(batch.image_sizes, flip=flip)
            pooled = self._pool(batch, proposals)
            outputs = self._run_box_head(pooled.values)
            boxes = self._boxes(outputs.deltas, torch.cat(proposals), pooled.frames)
            if flip:
                mirrored = []
                for image_boxes, size in zip(self._by_image(boxes), self.sizes, strict=True):
                    mirrored.append(_mirrored(image_boxes, size))
                boxes = torch.cat(mirrored)
            return RowOutputs(outputs.logits, boxes, outputs.features)

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `CandidateSource.candidates`."""
        dropout.check_within(BOX_HEAD)
        counts = self._proposal_counts
        with ordinary_tensors(), self._masked(dropout, counts):
            outputs = self._run_box_head(self.pooled.values)
        box_coder = self.network.roi_heads.box_coder
        boxes = box_coder.decode(outputs.deltas, self.pooled.proposals).split(counts)
        logits = outputs.logits.split(counts)
        return [Candidates(*candidates) for candidates in zip(logits, boxes, strict=True)]

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """See `ProposalSource.proposals`.

        Boxes and objectness are the region proposal network's.
        """
        candidates = self.pooled.proposals
        objectness = self.pooled.objectness
        outputs = self.outputs
        if isinstance(selection, MapSelection):
            candidates, objectness = self._salient(selection)
            sizes = [frame.resized for frame in self.pooled.frames]
            pool = self.network.roi_heads.box_roi_pool
            outputs = self._run_box_head(pool(self.pooled.levels, candidates, sizes))

        counts = [len(boxes) for boxes in candidates]
        features = outputs.features.split(counts)
        logits = outputs.logits.split(counts)
        proposals = []
        for number, boxes in enumerate(self._in_originals(candidates)):
            rows, values = select_proposals(
                boxes,
                class_scores(logits[number], self.header),
                objectness[number],
                self.sizes[number],
                selection,
            )
            image_proposals = ImageProposals(
                boxes[rows], values, logits[number][rows], features[number][rows]
            )
            proposals.append(image_proposals)
        return proposals

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """See `CandidateSource.select`."""
        frame = self.pooled.frames[number]
        detections = select_detections(self.network, boxes, probabilities, frame.resized)
        return replace(detections, boxes=frame.to_original(detections.boxes))

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """See `CandidateSource.placed`."""
        frame = self.pooled.frames[number]
        clipped = box_ops.clip_boxes_to_image(boxes[rows, labels], frame.resized)
        return frame.to_original(clipped)

    @property
    def _proposal_counts(self) -> list[int]:
        """Number of proposals of each image."""
        return [len(proposals) for proposals in self.pooled.proposals]

    @property
    def _row_proposals(self) -> Tensor:
        """The proposal of each row, (N, 4), in pixels of the resized images."""
        return torch.cat(self.pooled.proposals)[self._rows]

    def _box_head_again(self, dropout: Dropout) -> RowOutputs:
        """The output for all rows with dropout in the box head, which alone runs again."""
        counts = [len(image.rows) for image in self.detections]
        with ordinary_tensors(), self._masked(dropout, counts):
            outputs = self._run_box_head(self.pooled.values[self._rows])
            boxes = self._boxes(outputs.deltas, self._row_proposals, self.pooled.frames)
            return RowOutputs(outputs.logits, boxes, outputs.features)

    def _masked(
        self, dropout: Dropout | None, counts: Sequence[int]
    ) -> AbstractContextManager[None]:
        """A context with the masks of dropout; see `Dropout.on`."""
        if dropout is None:
            return nullcontext()
        return dropout.on(self.network, box_head_activations(self.network), counts)

    def _batch(
        self, images: Sequence[np.ndarray] | Sequence[Tensor], scale: float = 1.0
    ) -> ImageList:
        """The batch of images, as they were given or like `Replay.images`, for the backbone."""
        transform = self.network.transform
        if scale != 1:
            transform = copy.copy(transform)
            transform.min_size = tuple(round(side * scale) for side in transform.min_size)
            transform.max_size = round(transform.max_size * scale)
        return network_input(transform, images, _device(self.network))

    def _pool(self, batch: ImageList, proposals: list[Tensor]) -> PooledProposals:
        return _pool(self.network, batch, self.sizes, self.precision, self.stored, proposals)

    def _run_box_head(self, values: Tensor) -> BoxHeadOutputs:
        return _run_box_head(self.network, values, self.precision)

    def _proposals_in_view(
        self, view_sizes: Sequence[tuple[int, int]], *, flip: bool
    ) -> list[Tensor]:
        """The proposals of each image's rows in pixels of a view; see `view`.

        Args:
            view_sizes: Height and width of each image in the view.
            flip: The view is mirrored.
        """
        proposals_by_image = self._by_image(self._row_proposals)
        in_view = []
        for number, view_size in enumerate(view_sizes):
            size = self.inputs[number].shape[:2]
            resized = self.pooled.frames[number].resized
            boxes = resize_boxes(proposals_by_image[number], resized, size)
            if flip:
                boxes = _mirrored(boxes, size)
            in_view.append(resize_boxes(boxes, size, view_size))
        return in_view

    def _salient(self, selection: MapSelection) -> tuple[list[Tensor], list[Tensor]]:
        """Salient boxes of each image's finest level, and their contrasts.

        Boxes are in pixels of the resized image.
        """
        finest_level = next(iter(self.pooled.levels.values()))
        boxes = []
        contrasts = []
        for level, frame in zip(finest_level, self.pooled.frames, strict=True):
            image_boxes, image_contrasts = salient_pixels(level, self.pooled.input_size, selection)
            boxes.append(box_ops.clip_boxes_to_image(image_boxes, frame.resized))
            contrasts.append(image_contrasts)
        return boxes, contrasts

    def _boxes(self, deltas: Tensor, proposals: Tensor, frames: Sequence[Frame]) -> Tensor:
        """The boxes of all rows in pixels of the images as given.

        Args:
            deltas: Box regressions of all rows.
            proposals: Of all rows, (N, 4), in pixels of the resized images.
            frames: Sizes of the images that the proposals are in.
        """
        decoded = self.network.roi_heads.box_coder.decode(deltas, [proposals])
        boxes = []
        for image_boxes, frame in zip(
            self._by_image(self._of_labels(decoded)), frames, strict=True
        ):
            clipped = box_ops.clip_boxes_to_image(image_boxes, frame.resized)
            boxes.append(frame.to_original(clipped))
        return torch.cat(boxes)

    def _box_variances(self, outputs: BoxHeadOutputs) -> Tensor:
        """The column `box_variance` of all rows, in pixels² of the images as given."""
        variance_head = getattr(self.network, VARIANCE_HEAD)
        variances = corner_variances(
            self.network.roi_heads.box_coder,
            self._of_labels(outputs.deltas),
            self._of_labels(variance_head(outputs.features)),
            self._row_proposals,
        )
        resized = []
        for image_variances, frame in zip(
            self._by_image(variances), self.pooled.frames, strict=True
        ):
            resized.append(resize_variances(image_variances, frame.resized, frame.original))
        return torch.cat(resized)

    def _latents(self, pooled: PooledProposals) -> dict[str, Tensor]:
        """The columns `latent`, `latent.<name>` and `gram.<name>` of all rows."""
        pooling = self.stored.pooling
        boxes = [image.boxes for image in self.detections]
        columns = pooled.taps.over_boxes(boxes, pooled.input_size, pooling)
        if not self.stored.stores("latent"):
            return columns
        levels = distinct_levels(self.network, pooled.shared)
        first_stride = pooled.input_size[1] // levels[0].shape[-1]
        widths = [size[1] for size in self.sizes]
        latent = pyramid_latent(
            levels, first_stride, boxes, self._in_originals(boxes), widths, pooling
        )
        return {"latent": latent, **columns}

    def _in_originals(self, boxes: Sequence[Tensor]) -> list[Tensor]:
        """Boxes of each image, converted from the resized image to the image as given."""
        in_originals = []
        for image_boxes, frame in zip(boxes, self.pooled.frames, strict=True):
            in_originals.append(frame.to_original(image_boxes))
        return in_originals

    def _of_labels(self, values: Tensor) -> Tensor:
        """The four values of each row's label, from (N, 4 K) or (N, K, 4) values."""
        values_per_column = values.flatten(1).unflatten(1, (-1, 4))
        return values_per_column[torch.arange(len(values), device=values.device), self._labels]

    def _by_image(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Values of all rows, split into those of each image."""
        return rows.split([len(image.rows) for image in self.detections])


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


def _pool(
    network: FasterRCNN,
    batch: ImageList,
    sizes: Sequence[tuple[int, ...]],
    precision: str,
    stored: StoredColumns,
    proposals: list[Tensor] | None = None,
) -> PooledProposals:
    """Runs a network up to the pooled activations of its proposals.

    Args:
        network: In evaluation mode.
        batch: The images.
        sizes: Height and width of each image as given.
        precision: Type of the network's activations.
        stored: Has the names of further modules whose outputs are kept.
        proposals: Boxes of each image instead of the network's proposals.
    """
    taps = Taps(network, stored.layers)
    with taps, autocast(batch.tensors.device, precision):
        activations = network.backbone(batch.tensors)
        levels = {name: level.float() for name, level in activations.items()}
        objectness: list[Tensor] = []
        if proposals is None:
            proposed = run_rpn(network, batch, levels)
            shared = proposed.shared
            proposals = proposed.proposals
            objectness = proposed.scores
        else:
            shared = [network.rpn.head.conv(level) for level in levels.values()]
        values = network.roi_heads.box_roi_pool(levels, proposals, batch.image_sizes)

    height, width = batch.tensors.shape[2:]
    frames = [Frame(*frame) for frame in zip(batch.image_sizes, sizes, strict=True)]
    return PooledProposals(
        values, proposals, objectness, shared, levels, taps, (height, width), frames
    )


def _run_box_head(network: FasterRCNN, values: Tensor, precision: str) -> BoxHeadOutputs:
    """Runs the box head on pooled proposals (P, C, h, w); its last layers compute in float32."""
    heads = network.roi_heads
    with autocast(values.device, precision):
        features = heads.box_head(values)
    features = features.float()
    logits, deltas = heads.box_predictor(features)
    return BoxHeadOutputs(features, logits, deltas)


def _mirrored(boxes: Tensor, size: Sequence[int]) -> Tensor:
    """Boxes (N, 4) in an image of this height and width, mirrored left to right."""
    left, top, right, bottom = boxes.unbind(1)
    width = size[1]
    return torch.stack([width - right, top, width - left, bottom], dim=1)

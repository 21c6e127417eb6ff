"""The steps of a Faster R-CNN, one by one, and inference that can repeat them for the same proposals.

They call the parts of torchvision's model and give the same numbers. They add: the RPN's shared
activations, the box head's features, and for each detection the proposal that it came from.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

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

from farther.detectors.networks.detection import (
    ImageDetections,
    as_floats,
    autocast,
    columns_of,
    network_input,
    pyramid_latent,
)
from farther.detectors.networks.feature_maps import salient_pixels
from farther.detectors.networks.heads import VARIANCE_HEAD, corner_variances, resize_variances
from farther.detectors.networks.proposals import ImageProposals, class_scores
from farther.detectors.networks.proposals import propose as propose_boxes
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

#: Height and width of an image as the network takes it, and as given.
Frame = tuple[tuple[int, int], tuple[int, ...]]

#: Boxes narrower than this, in pixels of the resized image, are dropped, as torchvision does.
SMALLEST_SIDE = 1e-2


@dataclass
class Proposed:
    """Output of the region proposal network for B images with A anchors in all.

    Args:
        shared: Activations of its shared convolution, one (B, C, H, W) a pyramid level.
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


def propose(network: FasterRCNN, images: ImageList, levels: dict[str, Tensor]) -> Proposed:
    """Runs the region proposal network; boxes are computed in float32 whatever the network computes in."""
    rpn = network.rpn
    shared = [rpn.head.conv(level) for level in levels.values()]
    per_level = [rpn.head.cls_logits(t).float() for t in shared]
    counts = [scores[0].numel() for scores in per_level]
    anchors = rpn.anchor_generator(images, list(levels.values()))
    objectness, deltas = concat_box_prediction_layers(
        per_level, [rpn.head.bbox_pred(t).float() for t in shared]
    )
    boxes = rpn.box_coder.decode(deltas.detach(), anchors).view(len(anchors), -1, 4)
    proposals, kept = rpn.filter_proposals(boxes, objectness, images.image_sizes, counts)
    return Proposed(shared, objectness, deltas, anchors, proposals, kept)


def select_detections(
    network: FasterRCNN, boxes: Tensor, scores: Tensor, size: tuple[int, int]
) -> ImageDetections:
    """Threshold, non-maximum suppression per class, and the best of what is left, as torchvision does.

    Args:
        boxes: (P, K, 4) a box for each proposal and column.
        scores: (P, K) softmax scores; column 0 is the background.
        size: Height and width of the resized image.
    """
    heads = network.roi_heads
    proposals, columns = torch.where(scores[:, 1:] > heads.score_thresh)
    columns = columns + 1
    candidates = box_ops.clip_boxes_to_image(boxes[proposals, columns], size)
    kept = box_ops.remove_small_boxes(candidates, SMALLEST_SIDE)
    candidates, proposals, columns = candidates[kept], proposals[kept], columns[kept]
    confidence = scores[proposals, columns]
    kept = batched_nms(candidates, confidence, columns, heads.nms_thresh)[
        : heads.detections_per_img
    ]
    return ImageDetections(candidates[kept], confidence[kept], columns[kept], proposals[kept])


def distinct_levels(network: FasterRCNN, levels: Sequence[Tensor]) -> list[Tensor]:
    """The pyramid's levels without those that have the stride of the level before, as one of MobileNetV3's has."""
    scales = network.roi_heads.box_roi_pool.scales or []
    distinct = []
    for number, level in enumerate(levels):
        if 0 < number < len(scales) and scales[number] == scales[number - 1]:
            continue
        distinct.append(level)
    return distinct


def box_head_activations(network: FasterRCNN) -> list[str]:
    """Names of the modules of the box head behind which dropout is put: its ReLUs, or else its linear layers.

    torchvision's box head calls ReLU as a function, on the output of each linear layer; dropout
    before a ReLU equals dropout behind it.
    """
    parts = [
        (f"{BOX_HEAD[0]}.{name}", module)
        for name, module in network.roi_heads.box_head.named_modules()
    ]
    activations = [name for name, module in parts if isinstance(module, nn.ReLU)]
    return activations or [name for name, module in parts if isinstance(module, nn.Linear)]


@dataclass
class _Pooled:
    """A batch as the box head takes it.

    Args:
        values: (P, C, h, w) pooled activations of all images' proposals.
        shared: See `Proposed`.
        taps: Outputs of further modules.
        input_size: Height and width of the batch, padding included.
        frames: Sizes of each image: resized, and as given.
        scores: Objectness of each image's proposals; empty where these were given.
        levels: Of the feature pyramid, the finest first.
    """

    values: Tensor
    shared: list[Tensor]
    taps: Taps
    input_size: tuple[int, int]
    frames: list[Frame]
    scores: list[Tensor]
    levels: dict[str, Tensor]


class FasterRCNNReplay:
    """Detections of one batch of images; see `Replay`. The proposals are those of the first pass.

    Args:
        network: In evaluation mode; its thresholds decide what is kept.
        header: Header of the regions.
        images: uint8 arrays of shape (H, W, 3).
        precision: Type of the network's activations.
        stored: The optional columns.
        sizes: Height and width of each image before scaling; None for images that were not scaled.
    """

    unit = 1.0

    def __init__(
        self,
        network: FasterRCNN,
        header: Header,
        images: Sequence[np.ndarray],
        precision: str = "float32",
        stored: StoredColumns = NOTHING,
        sizes: Sequence[tuple[int, ...]] | None = None,
    ):
        self._network, self._header, self._precision, self._stored = (
            network,
            header,
            precision,
            stored,
        )
        self._sizes = sizes or [image.shape[:2] for image in images]
        self._images, self._device = images, next(network.parameters()).device
        self._pooled, self._proposals = self._pool(images)
        features, logits, deltas = self._head(self._pooled.values)
        boxes = network.roi_heads.box_coder.decode(deltas, self._proposals)
        self._every = features, logits
        counts = [len(one) for one in self._proposals]
        resized = [frame[0] for frame in self._pooled.frames]
        answers = zip(boxes.split(counts), softmax(logits, -1).split(counts), resized, strict=True)
        self._found = [select_detections(network, of, scores, size) for of, scores, size in answers]
        starts = np.cumsum([0, *counts[:-1]])
        self._rows = torch.cat(
            [one.rows + int(start) for one, start in zip(self._found, starts, strict=True)]
        )
        self._labels = torch.cat([one.labels for one in self._found])
        self._picked = torch.cat(self._proposals)[self._rows]
        self._features, self._logits, self._deltas = (
            features[self._rows],
            logits[self._rows],
            deltas[self._rows],
        )

    @property
    def images(self) -> list[Tensor]:
        """See `Replay`; they are made anew each time, as floats take four times the memory."""
        return [as_floats(image, self._device) for image in self._images]

    @torch.no_grad()
    def regions(self, image_ids: Sequence[str]) -> Regions:
        """See `Replay.regions`."""
        given = self._given([one.boxes for one in self._found])
        columns = {**columns_of(self._found, given, image_ids), "logits": to_numpy(self._logits)}
        head = getattr(self._network, VARIANCE_HEAD, None)
        if head is not None and self._stored.wants("box_variance"):
            likely = self._of_labels(self._deltas), self._of_labels(head(self._features))
            variances = corner_variances(self._network.roi_heads.box_coder, *likely, self._picked)
            pairs = zip(self._by_image(variances), self._pooled.frames, strict=True)
            columns["box_variance"] = to_numpy(
                torch.cat([resize_variances(one, *frame) for one, frame in pairs])
            )
        columns |= self._stored.arrays({"features": self._features, **self._latents(self._pooled)})
        return Regions(header=self._header, **columns)

    def again(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.again`."""
        only_head = images is None and dropout is not None and dropout.is_within(BOX_HEAD)
        pairs = zip(self._found, self._proposals, strict=True)
        counts = [len(one.rows if only_head else proposals) for one, proposals in pairs]
        masked = (
            nullcontext()
            if dropout is None
            else dropout.on(self._network, box_head_activations(self._network), counts)
        )
        with ordinary_tensors(images or ()), masked:
            if only_head:
                features, logits, deltas = self._head(self._pooled.values[self._rows])
                return RowOutputs(logits, self._boxes(deltas), features)
            pooled, _ = self._pool(self._images if images is None else images, self._proposals)
            features, logits, deltas = (values[self._rows] for values in self._head(pooled.values))
            return RowOutputs(logits, self._boxes(deltas), features, self._latents(pooled))

    def view(self, *, flip: bool, scale: float) -> RowOutputs:
        """The output for the same rows of another view of the images; boxes are turned back. Without `latents`.

        Args:
            flip: Mirror images and proposals left to right.
            scale: Factor of the size that images are resized to.
        """
        with ordinary_tensors():
            images = (
                [np.ascontiguousarray(image[:, ::-1]) for image in self._images]
                if flip
                else self._images
            )
            # Proposals in pixels of the images as given, as the view shows them, and in pixels of
            # the view.
            sizes = [
                (frame[0], image.shape[:2])
                for frame, image in zip(self._pooled.frames, images, strict=True)
            ]
            given = [
                resize_boxes(one, *size)
                for one, size in zip(self._by_image(self._picked), sizes, strict=True)
            ]
            given = (
                [_mirrored(one, size[1]) for one, size in zip(given, sizes, strict=True)]
                if flip
                else given
            )
            seen = self._transformed(images, scale).image_sizes
            picked = [
                resize_boxes(one, size[1], new)
                for one, size, new in zip(given, sizes, seen, strict=True)
            ]
            pooled, _ = self._pool(images, picked, scale)
            features, logits, deltas = self._head(pooled.values)
            boxes = self._boxes(deltas, torch.cat(picked), pooled.frames)
            if flip:
                parts = zip(self._by_image(boxes), self._sizes, strict=True)
                boxes = torch.cat([_mirrored(one, size) for one, size in parts])
            return RowOutputs(logits, boxes, features)

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `Free.candidates`."""
        dropout.check_within(BOX_HEAD)
        counts = [len(one) for one in self._proposals]
        with (
            ordinary_tensors(),
            dropout.on(self._network, box_head_activations(self._network), counts),
        ):
            _, logits, deltas = self._head(self._pooled.values)
        boxes = self._network.roi_heads.box_coder.decode(deltas, self._proposals)
        pairs = zip(logits.split(counts), boxes.split(counts), strict=True)
        return [Candidates(of_image, of_boxes) for of_image, of_boxes in pairs]

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """See `Proposing.proposals`: boxes and objectness are those of the region proposal network."""
        candidates, objectness, (every, answers) = self._proposals, self._pooled.scores, self._every
        if isinstance(selection, MapSelection):
            candidates, objectness = self._salient(selection)
            sizes = [frame[0] for frame in self._pooled.frames]
            every, answers, _ = self._head(
                self._network.roi_heads.box_roi_pool(self._pooled.levels, candidates, sizes)
            )
        found, counts = [], [len(one) for one in candidates]
        features, logits = every.split(counts), answers.split(counts)
        each = zip(features, logits, self._given(candidates), objectness, self._sizes, strict=True)
        for of_image, z, boxes, own, size in each:
            rows, values = propose_boxes(boxes, class_scores(z, self._header), own, size, selection)
            found.append(ImageProposals(boxes[rows], values, z[rows], of_image[rows]))
        return found

    def _salient(self, selection: MapSelection) -> tuple[list[Tensor], list[Tensor]]:
        """Parts of each image's finest level that stand out, in pixels of the resized image, and their contrasts."""
        pooled, finest = self._pooled, next(iter(self._pooled.levels.values()))
        boxes, contrasts = zip(
            *(salient_pixels(of, pooled.input_size, selection) for of in finest), strict=True
        )
        inside = [
            box_ops.clip_boxes_to_image(of, frame[0])
            for of, frame in zip(boxes, pooled.frames, strict=True)
        ]
        return inside, list(contrasts)

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """See `Free.select`."""
        found = select_detections(
            self._network, boxes, probabilities, self._pooled.frames[number][0]
        )
        return replace(found, boxes=resize_boxes(found.boxes, *self._pooled.frames[number]))

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """See `Free.placed`."""
        frame = self._pooled.frames[number]
        return resize_boxes(box_ops.clip_boxes_to_image(boxes[rows, labels], frame[0]), *frame)

    def _transformed(
        self, images: Sequence[np.ndarray] | Sequence[Tensor], scale: float = 1.0
    ) -> ImageList:
        """The batch of images, as they were given or like `Replay.images`, as the backbone takes it."""
        transform = self._network.transform
        if scale != 1:
            transform = copy.copy(transform)
            transform.min_size = tuple(round(side * scale) for side in transform.min_size)
            transform.max_size = round(transform.max_size * scale)
        return network_input(transform, images, self._device)

    def _pool(
        self,
        images: Sequence[np.ndarray] | Sequence[Tensor],
        proposals: list[Tensor] | None = None,
        scale: float = 1.0,
    ) -> tuple[_Pooled, list[Tensor]]:
        """Pooled activations of the proposals given, or else of the network's, which are returned too."""
        network = self._network
        batch = self._transformed(images, scale)
        taps = Taps(network, self._stored.layers)
        with taps, autocast(batch.tensors.device, self._precision):
            levels = {
                name: level.float() for name, level in network.backbone(batch.tensors).items()
            }
            scores: list[Tensor] = []
            if proposals is None:
                seen = propose(network, batch, levels)
                shared, proposals, scores = seen.shared, seen.proposals, seen.scores
            else:
                shared = [network.rpn.head.conv(level) for level in levels.values()]
            values = network.roi_heads.box_roi_pool(levels, proposals, batch.image_sizes)
        height, width = batch.tensors.shape[2:]
        frames = list(zip(batch.image_sizes, self._sizes, strict=True))
        return _Pooled(values, shared, taps, (height, width), frames, scores, levels), proposals

    def _head(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features, logits and box deltas of pooled proposals."""
        heads = self._network.roi_heads
        with autocast(values.device, self._precision):
            features = heads.box_head(values)
        features = features.float()
        return features, *heads.box_predictor(features)

    def _boxes(
        self, deltas: Tensor, picked: Tensor | None = None, frames: Sequence[Frame] | None = None
    ) -> Tensor:
        """The boxes of all rows, in pixels of the images as given, from their deltas; by default of the first pass."""
        every = self._network.roi_heads.box_coder.decode(
            deltas, [self._picked if picked is None else picked]
        )
        parts = zip(
            self._by_image(self._of_labels(every)), frames or self._pooled.frames, strict=True
        )
        return torch.cat(
            [
                resize_boxes(box_ops.clip_boxes_to_image(one, frame[0]), *frame)
                for one, frame in parts
            ]
        )

    def _latents(self, pooled: _Pooled) -> dict[str, Tensor]:
        """The columns `latent` and `latent.<name>` of all rows."""
        shown = [one.boxes for one in self._found]
        further = pooled.taps.over_boxes(shown, pooled.input_size, self._stored.pooling)
        if not self._stored.wants("latent"):
            return further
        levels = distinct_levels(self._network, pooled.shared)
        stride = pooled.input_size[1] // levels[0].shape[-1]
        widths = [size[1] for size in self._sizes]
        pooling = self._stored.pooling
        return {
            "latent": pyramid_latent(levels, stride, shown, self._given(shown), widths, pooling),
            **further,
        }

    def _given(self, boxes: Sequence[Tensor]) -> list[Tensor]:
        """Boxes of each image in pixels of the resized image → in pixels of the image as given."""
        return [
            resize_boxes(of, *frame) for of, frame in zip(boxes, self._pooled.frames, strict=True)
        ]

    def _of_labels(self, values: Tensor) -> Tensor:
        """The four values of each row's label, from (N, 4 K) or (N, K, 4) values."""
        return values.flatten(1).unflatten(1, (-1, 4))[
            torch.arange(len(values), device=values.device), self._labels
        ]

    def _by_image(self, rows: Tensor) -> tuple[Tensor, ...]:
        return rows.split([len(one.rows) for one in self._found])


def _mirrored(boxes: Tensor, size: Sequence[int]) -> Tensor:
    """Boxes (N, 4) in an image of this height and width, mirrored left to right."""
    left, top, right, bottom = boxes.unbind(1)
    return torch.stack([size[1] - right, top, size[1] - left, bottom], dim=1)

"""RetinaNet (Lin et al. 2017, "Focal Loss for Dense Object Detection") and FCOS (Tian et al. 2019, "FCOS: Fully
Convolutional One-Stage Object Detection") as torchvision builds them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torchvision.models import detection
from torchvision.models.detection._utils import _topk_min
from torchvision.models.detection.transform import resize_boxes
from torchvision.ops import FrozenBatchNorm2d, batched_nms, clip_boxes_to_image

from farther.detectors.base import Count, Fraction, LatentDetector, register
from farther.detectors.networks.detection import ImageDetections, autocast, columns_of, network_input, pyramid_latent
from farther.detectors.networks.feature_maps import nearest, salient_pixels
from farther.detectors.networks.proposals import ImageProposals, as_regions, best, propose
from farther.detectors.networks.taps import Taps
from farther.detectors.networks.weights import fill, read_weights
from farther.detectors.settings import BoxSelection, MapSelection, ProposalSelection, to_numpy
from farther.errors import DataError
from farther.images.bounds import network_errors
from farther.images.device import inference_mode
from farther.registry import STRICT
from farther.tables import Header, Regions

#: torchvision's networks, and how many anchors each has in a cell.
BUILDERS: dict[str, tuple[Callable[..., detection.RetinaNet | detection.FCOS], int]] = {
    "retinanet_resnet50_fpn": (detection.retinanet_resnet50_fpn, 9),
    "retinanet_resnet50_fpn_v2": (detection.retinanet_resnet50_fpn_v2, 9),
    "fcos_resnet50_fpn": (detection.fcos_resnet50_fpn, 1),
}

#: Pixels between two cells of the finest pyramid level; each further level has twice as many.
FIRST_STRIDE = 8

#: The weight whose rows are the logits of all anchors of a cell.
LAST_LAYER = "head.classification_head.cls_logits.weight"


@dataclass(config=STRICT, kw_only=True)
class DenseDetector(LatentDetector):
    """A detector of torchvision that scores every anchor with a convolution, and its state dict.

    Logits are the whole row of the anchor that gave the box, before the sigmoid. The last layer is a 3×3 convolution:
    there is no last linear layer on a vector, hence neither `features` nor a `weight`, and methods that need them are
    not offered for it. `latent` pools the feature pyramid over each detection's box, from the level that fits its size,
    and averages it per channel.

    torchvision reserves the first column for a background, which is never trained. A file with one column more than
    `classes` has it: it is then called "background", stored in the logits, and never detected.

    Args:
        classes: The file's classes, without the background, in the order of its logits.
        min_size: Images are scaled to this many pixels on the shorter side …
        max_size: … unless the longer one would then have more than this.
        candidates: Number of boxes of each pyramid level, the best, that take part in the suppression.
        norm_epsilon: ε of the backbone's normalisations. `RetinaNet_ResNet50_FPN_Weights.COCO_V1` were trained with 0,
            which their file does not contain; all others with 1e-5.
    """

    PROPOSALS: ClassVar[str | None] = "anchors"
    FEATURE_MAP: ClassVar[bool] = True

    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    min_size: Count = 800
    max_size: Count = 1333
    candidates: Count = 1000
    norm_epsilon: Annotated[float, Field(ge=0)] = 1e-5

    @property
    @abstractmethod
    def builder(self) -> str:
        """Name of torchvision's function that builds the network."""

    @cached_property
    def network(self) -> detection.RetinaNet | detection.FCOS:
        """See `Detector.network`."""
        weights = read_weights(self.weights)
        build, anchors = BUILDERS[self.builder]
        rows = len(weights.get(LAST_LAYER, ()))
        if rows == 0 or rows % anchors:
            problem = f"expected {anchors} rows for each class, as {self.builder!r} has them, found {rows}"
            raise DataError(problem, file=self.weights, field=LAST_LAYER)
        columns, sides = rows // anchors, {"min_size": self.min_size, "max_size": self.max_size}
        network = build(weights=None, weights_backbone=None, num_classes=columns, **sides)
        fill(network, self.weights, weights, f"{self.builder} with {columns} columns")
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d | FrozenBatchNorm2d):
                module.eps = self.norm_epsilon
        return self.placed(network.eval())

    @cached_property
    def _header(self) -> Header:
        columns = self.network.head.classification_head.num_classes
        extra = columns - len(self.classes)
        if extra not in (0, 1):
            problem = f"{len(self.classes)} classes are named, but the logits have {columns} columns"
            raise DataError(f"{problem}; torchvision's may have one more, for the background", file=self.weights)
        return Header(
            classes=("background",) * extra + self.classes,
            background_index=0 if extra else None,
            activation="sigmoid",
            score_threshold=self.score_threshold,
            detector=self.identity,
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """The image itself: it is scaled and normalised on the network's device."""
        return np.ascontiguousarray(image)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        return self.forward_proposals(prepared, image_ids, {})[0]

    def forward_proposals(
        self, prepared: list, image_ids: list[str], wanted: Mapping[str, ProposalSelection]
    ) -> tuple[Regions, ...]:
        """See `Detector.forward_proposals`."""
        network, header, selection, stored = self.network, self._header, self.selection(), self.stored_columns()
        with network_errors(self.weights), inference_mode():
            batch = network_input(network.transform, prepared, self.torch_device())
            taps = Taps(network, stored.layers)
            with taps, autocast(batch.tensors.device, self.precision):
                levels = [level.float() for level in network.backbone(batch.tensors).values()]
                answers = {name: answer.float() for name, answer in network.head(levels).items()}
            logits, deltas = answers["cls_logits"], answers["bbox_regression"]
            scores = scores_of(answers, header.background_index)
            cells = [level.shape[2] * level.shape[3] for level in levels]
            counts = [count * logits.shape[1] // sum(cells) for count in cells]
            anchors = network.anchor_generator(batch, levels)
            per_image = zip(scores, deltas, anchors, batch.image_sizes, strict=True)
            found = [select(network, *answer, counts, selection) for answer in per_image]
            boxes, sizes = [one.boxes for one in found], [image.shape[:2] for image in prepared]
            given = [resize_boxes(*each) for each in zip(boxes, batch.image_sizes, sizes, strict=True)]
            height, width = batch.tensors.shape[2:]
            vectors = taps.over_boxes(boxes, (height, width), stored.pooling)
            if stored.wants("latent"):
                widths = [size[1] for size in sizes]
                vectors["latent"] = pyramid_latent(levels, FIRST_STRIDE, boxes, given, widths, stored.pooling)
            columns = columns_of(found, given, image_ids) | stored.arrays(vectors)
            kept = torch.cat([of_image[one.rows] for of_image, one in zip(logits, found, strict=True)])
            regions = Regions(header=header, **columns, logits=to_numpy(kept))
            images = [*zip(logits, scores, deltas, anchors, batch.image_sizes, sizes, levels[0], strict=True)]
            further = []
            for of in wanted.values():
                proposals = [self._proposals(of, (height, width), *image) for image in images]
                further.append(as_regions(self.proposals_header(of), proposals, image_ids, self.features_dtype))
            return (regions, *further)

    def _proposals(
        self,
        selection: ProposalSelection,
        padded: tuple[int, int],
        logits: Tensor,
        scores: Tensor,
        deltas: Tensor,
        anchors: Tensor,
        seen: tuple[int, int],
        given: tuple[int, int],
        finest: Tensor,
    ) -> ImageProposals:
        """The proposals of an image; arguments as in `select`, its size as given, and the finest level, of a size."""
        own = None
        if isinstance(selection, MapSelection):
            every = decode(self.network, deltas, anchors, seen)
            whole, own = salient_pixels(finest, padded, selection)
            rows, boxes = nearest(whole, every), clip_boxes_to_image(whole, seen)
        else:
            rows = best(scores.amax(dim=1), selection)
            boxes = decode(self.network, deltas[rows], anchors[rows], seen)
        boxes = resize_boxes(boxes, seen, given)
        kept, values = propose(boxes, scores[rows], own, given, selection)
        return ImageProposals(boxes[kept], values, logits[rows[kept]])

    def selection(self) -> BoxSelection:
        """Which boxes are detections."""
        return BoxSelection(self.score_threshold, self.nms_iou, self.max_detections, candidates=self.candidates)


@register("retinanet")
@dataclass(config=STRICT, kw_only=True)
class RetinaNet(DenseDetector):
    """torchvision's RetinaNet. Boxes, scores and labels are those of its own forward pass.

    A box's score is the sigmoid of its class's logit. See `DenseDetector` for what is stored and its parameters.

    Args:
        architecture: "resnet50_fpn", or "resnet50_fpn_v2" (its head normalises groups of channels, its coarsest levels
            follow the backbone).
    """

    architecture: Literal["resnet50_fpn", "resnet50_fpn_v2"] = "resnet50_fpn"

    @property
    def builder(self) -> str:
        """See `DenseDetector.builder`."""
        return f"retinanet_{self.architecture}"


@register("fcos")
@dataclass(config=STRICT, kw_only=True)
class FCOS(DenseDetector):
    """torchvision's FCOS. Boxes, scores and labels are those of its own forward pass.

    The network also says how near each anchor is to the middle of its object, its centerness, and a box's score is
    √(sigmoid(logit) · sigmoid(centerness)): it is not a function of the logits alone, which are the class's only. See
    `DenseDetector` for what is stored and its parameters.

    Args:
        nms_iou: See `BoxDetector`; the default is torchvision's.
    """

    nms_iou: Fraction = 0.6

    @property
    def builder(self) -> str:
        """See `DenseDetector.builder`."""
        return "fcos_resnet50_fpn"


def scores_of(answers: dict[str, Tensor], background: int | None) -> Tensor:
    """Scores of all anchors and classes, shape (B, A, K), from the output of the network's head."""
    scores = answers["cls_logits"].sigmoid()
    if "bbox_ctrness" in answers:
        scores = torch.sqrt(scores * answers["bbox_ctrness"].sigmoid())
    if background is not None:
        scores[..., background] = 0.0
    return scores


def select(
    network: detection.RetinaNet | detection.FCOS,
    scores: Tensor,
    deltas: Tensor,
    anchors: Tensor,
    size: tuple[int, int],
    counts: list[int],
    selection: BoxSelection,
) -> ImageDetections:
    """Threshold, the best of each level, and non-maximum suppression per class, as torchvision does.

    Args:
        scores, deltas, anchors: (A, K), (A, 4) and (A, 4) for an image's A anchors, in pixels of the resized image.
        size: Height and width of the resized image.
        counts: Number of anchors of each level.
    """
    columns = scores.shape[1]
    chosen, start = [], 0
    for level in scores.split(counts):
        flat = level.flatten()
        above = torch.where(flat > selection.score_threshold)[0]
        best = flat[above].topk(_topk_min(above, selection.candidates, 0)).indices
        chosen.append(above[best] + start * columns)
        start = start + level.shape[0]
    picked = torch.cat(chosen)
    rows, labels = picked // columns, picked % columns
    boxes = decode(network, deltas[rows], anchors[rows], size)
    confidence = scores[rows, labels]
    kept = batched_nms(boxes, confidence, labels, selection.iou)[: selection.max_detections]
    return ImageDetections(boxes[kept], confidence[kept], labels[kept], rows[kept])


def decode(
    network: detection.RetinaNet | detection.FCOS, deltas: Tensor, anchors: Tensor, size: tuple[int, int]
) -> Tensor:
    """Boxes (N, 4) of anchors, clipped to the resized image, whose height and width are `size`."""
    coder = network.box_coder
    decoded = (coder.decode_single if isinstance(network, detection.RetinaNet) else coder.decode)(deltas, anchors)
    return clip_boxes_to_image(decoded, size)

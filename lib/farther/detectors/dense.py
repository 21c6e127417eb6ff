"""One-stage detectors of torchvision, which score every anchor.

RetinaNet (Lin et al. 2017, "Focal Loss for Dense Object Detection"), FCOS (Tian et al. 2019, "FCOS:
Fully Convolutional One-Stage Object Detection"), and the base that they share with SSD
(`farther.detectors.ssd`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

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
from farther.detectors.networks.detection import (
    ImageDetections,
    autocast,
    columns_of,
    network_input,
    pyramid_latent,
)
from farther.detectors.networks.feature_maps import nearest, salient_pixels
from farther.detectors.networks.proposals import ImageProposals, as_regions, best, propose
from farther.detectors.networks.retinanet import RetinaNetBlueprint, load_retinanet
from farther.detectors.networks.taps import Taps
from farther.detectors.networks.torchvision_builders import (
    BUILDERS,
    Builder,
    Fit,
    check_columns,
    closest_builders,
    epsilon_of,
)
from farther.detectors.networks.weights import describes_itself, fill, read_weights
from farther.detectors.settings import (
    BoxSelection,
    MapSelection,
    Pooling,
    ProposalSelection,
    to_numpy,
)
from farther.errors import DataError, ParameterError
from farther.images.bounds import network_errors
from farther.images.device import inference_mode
from farther.registry import STRICT
from farther.tables import Header, Regions

#: Pixels between two cells of the finest pyramid level; each further level has twice as many.
FIRST_STRIDE = 8

#: torchvision's pixels of the shorter side of scaled images, and most of the longer one.
MIN_SIZE, MAX_SIZE = 800, 1333


#: Parameters that a checkpoint of farther says itself.
TOLD = ("architecture", "classes", "min_size", "max_size", "norm_epsilon")


@plain_dataclass(frozen=True)
class AnchorOutput:
    """Output of a network for one image with A anchors.

    Args:
        logits: Shape (A, K).
        scores: Of the classes, shape (A, K); 0 for the background.
        deltas: Regressions of the boxes, shape (A, 4).
        anchors: Shape (A, 4), in pixels of the resized image.
        size: Height and width of the resized image.
        original: Height and width of the image as given.
        finest: The finest map of the backbone, shape (C, H, W).
    """

    logits: Tensor
    scores: Tensor
    deltas: Tensor
    anchors: Tensor
    size: tuple[int, int]
    original: tuple[int, int]
    finest: Tensor


@dataclass(config=STRICT, kw_only=True)
class AnchorDetector(LatentDetector):
    """Base of torchvision's detectors that score every anchor.

    Args:
        classes: The file's classes, without the background, in the order of its logits.
    """

    PROPOSALS: ClassVar[str | None] = "anchors"
    FEATURE_MAP: ClassVar[bool] = True

    classes: Annotated[tuple[str, ...], Field(min_length=1)]

    @cached_property
    def fits(self) -> list[Fit]:
        """How the weights fit those of torchvision's networks that they fit best."""
        return closest_builders(read_weights(self.weights))

    @property
    def fit(self) -> Fit:
        """The builder of this adapter that the weights fit.

        Raises:
            DataError: they fit none; says which do not fit the closest one, or whose they are.
        """
        own = [builder.last_layer for builder in BUILDERS.values() if builder.adapter == self.name]
        if not self.fits:
            problem = "the weight is missing, or has not the same number of rows for each anchor of a cell"
            raise DataError(problem, file=self.weights, field=own[0])
        (fit,) = self.fits[:1]
        if fit.misfits:
            fit.refuse(self.weights)
        fit.refuse_other_adapter(self.weights, [self.name])
        return fit

    @abstractmethod
    def selection(self) -> BoxSelection:
        """Which boxes are detections."""

    @abstractmethod
    def scores(self, answers: Mapping[str, Tensor]) -> Tensor:
        """Scores of all anchors and classes, shape (B, A, K), from the output of the network's head."""

    @abstractmethod
    def select(self, output: AnchorOutput, counts: Sequence[int]) -> ImageDetections:
        """The detections of an image.

        Args:
            output: Of the network.
            counts: Number of anchors of each level.
        """

    @abstractmethod
    def anchors_per_level(self, levels: Sequence[Tensor]) -> list[int]:
        """Number of anchors of each level, whose maps are of shape (B, C, H, W)."""

    @abstractmethod
    def latent_maps(self, levels: Sequence[Tensor]) -> tuple[Sequence[Tensor], int]:
        """The levels that `latent` is pooled from, and the pixels between two cells of the first."""

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
        network: Any = self.network
        header, stored = self.header(), self.stored_columns()
        with network_errors(self.weights), inference_mode():
            batch = network_input(network.transform, prepared, self.torch_device())
            taps = Taps(network, stored.layers)
            with taps, autocast(batch.tensors.device, self.precision):
                levels = [level.float() for level in network.backbone(batch.tensors).values()]
                answers = {name: answer.float() for name, answer in network.head(levels).items()}
            anchors = network.anchor_generator(batch, levels)
            scores = self.scores(answers)
            counts = self.anchors_per_level(levels)
            outputs, found = [], []
            for number, image in enumerate(prepared):
                output = AnchorOutput(
                    answers["cls_logits"][number],
                    scores[number],
                    answers["bbox_regression"][number],
                    anchors[number],
                    batch.image_sizes[number],
                    image.shape[:2],
                    levels[0][number],
                )
                outputs.append(output)
                found.append(self.select(output, counts))

            boxes = [detections.boxes for detections in found]
            given, logits = [], []
            for output, detections in zip(outputs, found, strict=True):
                given.append(resize_boxes(detections.boxes, output.size, output.original))
                logits.append(output.logits[detections.rows])
            height, width = batch.tensors.shape[2:]
            vectors = taps.over_boxes(boxes, (height, width), stored.pooling)
            if stored.wants("latent"):
                vectors["latent"] = self._latent(levels, boxes, given, outputs, stored.pooling)
            columns = columns_of(found, given, image_ids) | stored.arrays(vectors)
            tables = [Regions(header=header, **columns, logits=to_numpy(torch.cat(logits)))]
            for selection in wanted.values():
                proposals = [
                    self._proposals(selection, (height, width), output) for output in outputs
                ]
                header_of = self.proposals_header(selection)
                tables.append(as_regions(header_of, proposals, image_ids, self.features_dtype))
            return tuple(tables)

    def _latent(
        self,
        levels: Sequence[Tensor],
        boxes: Sequence[Tensor],
        given: Sequence[Tensor],
        outputs: Sequence[AnchorOutput],
        pooling: Pooling,
    ) -> Tensor:
        """The column `latent` of all detections, whose boxes are in pixels of resized images and of those as given."""
        maps, stride = self.latent_maps(levels)
        widths = [output.original[1] for output in outputs]
        return pyramid_latent(maps, stride, boxes, given, widths, pooling)

    def _proposals(
        self, selection: ProposalSelection, padded: tuple[int, int], output: AnchorOutput
    ) -> ImageProposals:
        """The proposals of an image.

        Args:
            selection: Which boxes are proposals.
            padded: Height and width of the network's input, padding included.
            output: Of the network.
        """
        own = None
        if isinstance(selection, MapSelection):
            every = decode(self.network, output.deltas, output.anchors, output.size)
            whole, own = salient_pixels(output.finest, padded, selection)
            rows = nearest(whole, every)
            boxes = clip_boxes_to_image(whole, output.size)
        else:
            rows = best(output.scores.amax(dim=1), selection)
            boxes = decode(self.network, output.deltas[rows], output.anchors[rows], output.size)
        boxes = resize_boxes(boxes, output.size, output.original)
        kept, values = propose(boxes, output.scores[rows], own, output.original, selection)
        return ImageProposals(boxes[kept], values, output.logits[rows[kept]])


@dataclass(config=STRICT, kw_only=True)
class DenseDetector(AnchorDetector):
    """A detector of torchvision that scores every anchor with a convolution, and its state dict.

    Logits are the whole row of the anchor that gave the box, before the sigmoid. The last layer is
    a 3×3 convolution: there is no last linear layer on a vector, hence neither `features` nor a
    `weight`, and methods that need them are not offered for it. `latent` pools the feature pyramid
    over each detection's box, from the level that fits its size, and averages it per channel.

    torchvision reserves the first column for a background, which is never trained. A file with one
    column more than `classes` has it: it is then called "background", stored in the logits, and
    never detected.

    Args:
        classes: The file's classes, without the background, in the order of its logits.
        min_size: Images are scaled to this many pixels on the shorter side (800) …
        max_size: … unless the longer one would then have more than this (1333).
        candidates: Number of boxes of each pyramid level, the best, that take part in the
            suppression.
        norm_epsilon: ε of the backbone's normalisations. `RetinaNet_ResNet50_FPN_Weights.COCO_V1`
            were trained with 0, which their file does not contain, nor do files that were
            fine-tuned from them; all others with 1e-5. Left out, it is 0 for the file that
            torchvision publishes, else 1e-5.
    """

    min_size: Count | None = None
    max_size: Count | None = None
    candidates: Count = 1000
    norm_epsilon: Annotated[float, Field(ge=0)] | None = None

    @property
    @abstractmethod
    def builder(self) -> str:
        """Name of torchvision's function that builds the network."""

    def class_names(self) -> tuple[str, ...]:
        """The classes, without the background, in the order of the logits."""
        return self.classes

    @cached_property
    def network(self) -> detection.RetinaNet | detection.FCOS:
        """See `Detector.network`."""
        return self.placed(self.load())

    def load(self) -> detection.RetinaNet | detection.FCOS:
        """The network with the weights of a state dict, in evaluation mode.

        Raises:
            DataError: the checkpoint is absent or damaged, or does not fit.
        """
        weights = read_weights(self.weights)
        builder: Builder = BUILDERS[self.builder]
        rows = len(weights.get(builder.last_layer, ()))
        if rows == 0 or rows % builder.rows:
            problem = f"expected {builder.rows} rows for each class, as {self.builder!r} has them, found {rows}"
            raise DataError(problem, file=self.weights, field=builder.last_layer)
        columns = rows // builder.rows
        check_columns(self.weights, self.classes, columns, optional_background=True)
        network: Any = builder.build(columns)
        network.transform.min_size = (self.min_size or MIN_SIZE,)
        network.transform.max_size = self.max_size or MAX_SIZE
        fill(network, self.weights, weights, f"{self.builder} with {columns} columns")
        epsilon = self.norm_epsilon
        if epsilon is None:
            epsilon = epsilon_of(self.weights, self.fits)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d | FrozenBatchNorm2d):
                module.eps = epsilon
        evaluated: detection.RetinaNet | detection.FCOS = network.eval()
        return evaluated

    @cached_property
    def _header(self) -> Header:
        columns = self.network.head.classification_head.num_classes
        names = self.class_names()
        has_background = columns > len(names)
        return Header(
            classes=("background", *names) if has_background else names,
            background_index=0 if has_background else None,
            activation="sigmoid",
            score_threshold=self.score_threshold,
            detector=self.identity,
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    def scores(self, answers: Mapping[str, Tensor]) -> Tensor:
        """See `AnchorDetector.scores`."""
        return scores_of(answers, self._header.background_index)

    def anchors_per_level(self, levels: Sequence[Tensor]) -> list[int]:
        """See `AnchorDetector.anchors_per_level`."""
        per_cell = self.network.anchor_generator.num_anchors_per_location()[0]
        return [level.shape[2] * level.shape[3] * per_cell for level in levels]

    def select(self, output: AnchorOutput, counts: Sequence[int]) -> ImageDetections:
        """See `AnchorDetector.select`."""
        selection = self.selection()
        return select(
            self.network,
            output.scores,
            output.deltas,
            output.anchors,
            output.size,
            list(counts),
            selection,
        )

    def latent_maps(self, levels: Sequence[Tensor]) -> tuple[Sequence[Tensor], int]:
        """See `AnchorDetector.latent_maps`."""
        return levels, FIRST_STRIDE

    def selection(self) -> BoxSelection:
        """Which boxes are detections."""
        return BoxSelection(
            self.score_threshold, self.nms_iou, self.max_detections, candidates=self.candidates
        )


@register("retinanet")
@dataclass(config=STRICT, kw_only=True)
class RetinaNet(DenseDetector):
    """torchvision's RetinaNet. Boxes, scores and labels are those of its own forward pass.

    A box's score is the sigmoid of its class's logit. See `DenseDetector` for what is stored and
    its parameters. A checkpoint of farther's trainer says its classes, its architecture and the
    size of images itself.

    Args:
        architecture: "resnet50_fpn", or "resnet50_fpn_v2" (its head normalises groups of channels,
            its coarsest levels follow the backbone); left out, the one that the weights fit.
        classes: For a state dict: its classes, without the background, in the order of its logits.

    Raises:
        ParameterError: a state dict is given without its classes, or a checkpoint of farther with
            one of these.
    """

    architecture: Literal["resnet50_fpn", "resnet50_fpn_v2"] | None = None
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        told = [name for name in TOLD if getattr(self, name) is not None]
        if not describes_itself(self.weights):
            if self.classes is None:
                problem = "a state dict does not name its classes: list them in its order, without the background"
                raise ParameterError(f"detector {self.name!r}: parameter 'classes': {problem}")
        elif told:
            problem = f"the checkpoint {self.weights} says so itself; remove the parameter"
            raise ParameterError(f"detector {self.name!r}: parameter {told[0]!r}: {problem}")

    @cached_property
    def blueprint(self) -> RetinaNetBlueprint:
        """Description of the network in a checkpoint of farther; DataError if it is absent or wrong."""
        return RetinaNetBlueprint.read(self.weights)

    def class_names(self) -> tuple[str, ...]:
        """See `DenseDetector.class_names`."""
        return self.blueprint.classes if self.classes is None else self.classes

    def load(self) -> detection.RetinaNet | detection.FCOS:
        """See `DenseDetector.load`."""
        if self.classes is None:
            return load_retinanet(self.weights, self.blueprint)
        return super().load()

    @property
    def builder(self) -> str:
        """See `DenseDetector.builder`."""
        if self.architecture is None:
            return self.fit.builder
        return f"retinanet_{self.architecture}"


@register("fcos")
@dataclass(config=STRICT, kw_only=True)
class FCOS(DenseDetector):
    """torchvision's FCOS. Boxes, scores and labels are those of its own forward pass.

    The network also says how near each anchor is to the middle of its object, its centerness, and a
    box's score is √(sigmoid(logit) · sigmoid(centerness)): it is not a function of the logits
    alone, which are the class's only. See `DenseDetector` for what is stored and its parameters.

    Args:
        nms_iou: See `BoxDetector`; the default is torchvision's.
    """

    nms_iou: Fraction = 0.6

    @property
    def builder(self) -> str:
        """See `DenseDetector.builder`."""
        return self.fit.builder


def scores_of(answers: Mapping[str, Tensor], background: int | None) -> Tensor:
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
        scores, deltas, anchors: (A, K), (A, 4) and (A, 4) for an image's A anchors, in pixels of
            the resized image.
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


def decode(network: Any, deltas: Tensor, anchors: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes (N, 4) of anchors, clipped to the resized image, whose height and width are `size`."""
    coder = network.box_coder
    if isinstance(network, detection.FCOS):
        decoded = coder.decode(deltas, anchors)
    else:
        decoded = coder.decode_single(deltas, anchors)
    return clip_boxes_to_image(decoded, size)

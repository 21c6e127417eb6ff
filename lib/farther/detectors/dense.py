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
from farther.detectors.networks.candidate_boxes import (
    ImageProposals,
    as_regions,
    select_proposals,
    top_candidates,
)
from farther.detectors.networks.detection import (
    ImageDetections,
    autocast,
    detection_columns,
    network_input,
    pyramid_latent,
)
from farther.detectors.networks.feature_maps import nearest, salient_pixels
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
from farther.detectors.networks.weights import (
    LAST_LAYERS,
    BlankWeights,
    describes_itself,
    load_weights,
    read_weights,
)
from farther.detectors.settings import (
    BoxSelection,
    MapSelection,
    ProposalSelection,
    to_numpy,
)
from farther.errors import DataError, ParameterError
from farther.images.bounds import network_errors
from farther.images.device import inference_mode
from farther.naming.registry import STRICT
from farther.tables import Header, Regions

#: Pixels between two cells of the finest pyramid level; each further level has twice as many.
FIRST_STRIDE = 8

#: torchvision's length of the shorter side of scaled images, in pixels.
MIN_SIZE = 800
#: torchvision's largest length of the longer side of scaled images, in pixels.
MAX_SIZE = 1333

#: Parameters that are in the metadata of a checkpoint of farther.
IN_CHECKPOINT = ("architecture", "classes", "min_size", "max_size", "norm_epsilon")


@plain_dataclass(frozen=True)
class AnchorOutput:
    """Output of a network for one image with A anchors.

    Args:
        logits: Shape (A, K).
        scores: Scores of the classes, shape (A, K); 0 for the background.
        deltas: Regressions of the boxes, shape (A, 4).
        anchors: Shape (A, 4), in pixels of the resized image.
        size: Height and width of the resized image.
        original: Height and width of the original image.
        finest: The finest map of the backbone, shape (C, H, W).
    """

    logits: Tensor
    scores: Tensor
    deltas: Tensor
    anchors: Tensor
    size: tuple[int, int]
    original: tuple[int, int]
    finest: Tensor


@plain_dataclass(frozen=True)
class BatchOutput:
    """Output of a network for a batch.

    Args:
        images: Output for each image.
        levels: Maps of the backbone's pyramid, the finest first, shape (B, C, H, W) each.
        taps: Outputs of the inner modules that are stored.
        input_size: Height and width of the network's input, padding included.
    """

    images: list[AnchorOutput]
    levels: list[Tensor]
    taps: Taps
    input_size: tuple[int, int]


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
        """torchvision's networks that the weights fit best."""
        return closest_builders(read_weights(self.weights, LAST_LAYERS))

    @property
    def fit(self) -> Fit:
        """The builder of this adapter that the weights fit.

        Raises:
            DataError: they fit none; lists those that do not fit the closest one.
        """
        if not self.fits:
            last_layers = [b.last_layer for b in BUILDERS.values() if b.adapter == self.name]
            raise DataError(
                "the weight is missing, or has not the same number of rows for each anchor of a "
                "cell",
                file=self.weights,
                field=last_layers[0],
            )
        fit = self.fits[0]
        if fit.misfits:
            fit.refuse(self.weights)
        fit.refuse_other_adapter(self.weights, [self.name])
        return fit

    @abstractmethod
    def selection(self) -> BoxSelection:
        """Which boxes are detections."""

    @abstractmethod
    def scores(self, head_output: Mapping[str, Tensor]) -> Tensor:
        """Scores of all anchors and classes, shape (B, A, K), from the output of the head."""

    @abstractmethod
    def select(self, output: AnchorOutput, counts: Sequence[int]) -> ImageDetections:
        """The detections of an image.

        Args:
            output: Output of the network.
            counts: Number of anchors of each level.
        """

    @abstractmethod
    def anchors_per_level(self, levels: Sequence[Tensor]) -> list[int]:
        """Number of anchors of each level, whose maps are of shape (B, C, H, W)."""

    @abstractmethod
    def latent_maps(self, levels: Sequence[Tensor]) -> tuple[Sequence[Tensor], int]:
        """The levels that `latent` is pooled from, and the stride of the first one in pixels."""

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """The image, which is scaled and normalised on the network's device."""
        return np.ascontiguousarray(image)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        return self.forward_proposals(prepared, image_ids, {})[0]

    def forward_proposals(
        self, prepared: list, image_ids: list[str], selections: Mapping[str, ProposalSelection]
    ) -> tuple[Regions, ...]:
        """See `Detector.forward_proposals`."""
        self.load_network()
        with network_errors(self.weights), inference_mode():
            output = self._run(prepared)
            tables = [self._regions(output, image_ids)]
            for selection in selections.values():
                proposals = [
                    self._proposals(selection, output.input_size, image_output)
                    for image_output in output.images
                ]
                header = self.proposals_header(selection)
                tables.append(as_regions(header, proposals, image_ids, self.features_dtype))
            return tuple(tables)

    def _run(self, prepared: list) -> BatchOutput:
        """Forward pass of a batch of images."""
        network: Any = self.network
        batch = network_input(network.transform, prepared, self.torch_device())
        taps = Taps(network, self.layers())
        with taps, autocast(batch.tensors.device, self.precision):
            features_by_level = network.backbone(batch.tensors)
            levels = [level.float() for level in features_by_level.values()]
            half_output = network.head(levels)
            head_output = {name: value.float() for name, value in half_output.items()}
        anchors = network.anchor_generator(batch, levels)
        scores = self.scores(head_output)

        images = []
        for number, image in enumerate(prepared):
            images.append(
                AnchorOutput(
                    logits=head_output["cls_logits"][number],
                    scores=scores[number],
                    deltas=head_output["bbox_regression"][number],
                    anchors=anchors[number],
                    size=batch.image_sizes[number],
                    original=image.shape[:2],
                    finest=levels[0][number],
                )
            )
        height, width = batch.tensors.shape[2:]
        return BatchOutput(images, levels, taps, (height, width))

    def _regions(self, output: BatchOutput, image_ids: list[str]) -> Regions:
        """The detections of a batch."""
        counts = self.anchors_per_level(output.levels)
        detections = []
        logits = []
        #: Boxes of each image in pixels of the resized and of the original image.
        boxes = []
        original_boxes = []
        for image in output.images:
            image_detections = self.select(image, counts)
            detections.append(image_detections)
            logits.append(image.logits[image_detections.rows])
            boxes.append(image_detections.boxes)
            original_boxes.append(resize_boxes(image_detections.boxes, image.size, image.original))

        stored = self.stored_columns()
        optional_columns = output.taps.over_boxes(boxes, output.input_size, stored.pooling)
        if stored.stores("latent"):
            maps, stride = self.latent_maps(output.levels)
            widths = [image.original[1] for image in output.images]
            optional_columns["latent"] = pyramid_latent(
                maps, stride, boxes, original_boxes, widths, stored.pooling
            )
        columns = detection_columns(detections, original_boxes, image_ids)
        columns |= stored.arrays(optional_columns)
        return Regions(header=self.header(), **columns, logits=to_numpy(torch.cat(logits)))

    def _proposals(
        self, selection: ProposalSelection, input_size: tuple[int, int], output: AnchorOutput
    ) -> ImageProposals:
        """The proposals of an image.

        Args:
            selection: Which boxes are proposals.
            input_size: Height and width of the network's input, padding included.
            output: Output of the network.
        """
        contrast = None
        if isinstance(selection, MapSelection):
            anchor_boxes = decode(self.network, output.deltas, output.anchors, output.size)
            salient_boxes, contrast = salient_pixels(output.finest, input_size, selection)
            anchors = nearest(salient_boxes, anchor_boxes)
            boxes = clip_boxes_to_image(salient_boxes, output.size)
        else:
            anchors = top_candidates(output.scores.amax(dim=1), selection)
            boxes = decode(
                self.network, output.deltas[anchors], output.anchors[anchors], output.size
            )
        boxes = resize_boxes(boxes, output.size, output.original)
        scores = output.scores[anchors]
        rows, objectness = select_proposals(boxes, scores, contrast, output.original, selection)
        return ImageProposals(boxes[rows], objectness, output.logits[anchors[rows]])


@dataclass(config=STRICT, kw_only=True)
class DenseDetector(AnchorDetector):
    """Base of torchvision's detectors that score every anchor with a convolution.

    Logits are those of all classes at the anchor of the box, before the sigmoid. The last layer is
    a 3×3 convolution: there is no last linear layer on a vector, hence neither `features` nor a
    `weight`, and methods that need them are not offered for it. `latent` pools the feature pyramid
    over each detection's box, from the level that fits its size, and averages it per channel.

    torchvision reserves the first column for a background, which is never trained. A file with one
    more column than `classes` has it: it is then called "background", stored in the logits, and
    never detected.

    Args:
        classes: The file's classes, without the background, in the order of its logits.
        min_size: Images are scaled to this many pixels on the shorter side (800) …
        max_size: … unless the longer one would then have more than this (1333).
        candidates: Number of boxes of each pyramid level, the best, that take part in NMS.
        norm_epsilon: ε of the backbone's normalisations. `RetinaNet_ResNet50_FPN_Weights.COCO_V1`
            were trained with 0, which their file does not contain, nor do files that were
            fine-tuned from them; all others with 1e-5. The default is 0 for the file that
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
        return self.to_device(self.load())

    def load(self) -> detection.RetinaNet | detection.FCOS:
        """The network with the weights of a state dict, in evaluation mode.

        Raises:
            DataError: the checkpoint is absent or damaged, or does not fit.
        """
        weights = read_weights(self.weights, LAST_LAYERS)
        builder: Builder = BUILDERS[self.builder]
        rows = len(weights.get(builder.last_layer, ()))
        if rows == 0 or rows % builder.rows:
            raise DataError(
                f"expected {builder.rows} rows for each class, as {self.builder!r} has them, "
                f"found {rows}",
                file=self.weights,
                field=builder.last_layer,
            )
        columns = rows // builder.rows
        check_columns(self.weights, self.classes, columns, optional_background=True)
        with BlankWeights():
            network: Any = builder.build(columns)
        network.transform.min_size = (self.min_size or MIN_SIZE,)
        network.transform.max_size = self.max_size or MAX_SIZE
        load_weights(network, self.weights, weights, f"{self.builder} with {columns} columns")
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
        classes = self.class_names()
        background_index = None
        if columns > len(classes):
            classes = ("background", *classes)
            background_index = 0
        return Header(
            classes=classes,
            background_index=background_index,
            activation="sigmoid",
            score_threshold=self.score_threshold,
            detector=self.identity,
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    def scores(self, head_output: Mapping[str, Tensor]) -> Tensor:
        """See `AnchorDetector.scores`."""
        return scores_of(head_output, self._header.background_index)

    def anchors_per_level(self, levels: Sequence[Tensor]) -> list[int]:
        """See `AnchorDetector.anchors_per_level`."""
        per_cell = self.network.anchor_generator.num_anchors_per_location()[0]
        return [level.shape[2] * level.shape[3] * per_cell for level in levels]

    def select(self, output: AnchorOutput, counts: Sequence[int]) -> ImageDetections:
        """See `AnchorDetector.select`."""
        return select(
            self.network,
            output.scores,
            output.deltas,
            output.anchors,
            output.size,
            list(counts),
            self.selection(),
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

    A box's score is the sigmoid of its class's logit. See `DenseDetector` for the stored columns
    and the parameters. A checkpoint of farther's trainer has its classes, its architecture and the
    size of images in its metadata.

    Args:
        architecture: "resnet50_fpn", or "resnet50_fpn_v2" (its head normalises groups of channels,
            its coarsest levels follow the backbone); by default, the one that the weights fit.
        classes: For a state dict: its classes, without the background, in the order of its logits.

    Raises:
        ParameterError: a state dict is given without its classes, or a checkpoint of farther with
            a parameter that is in its metadata.
    """

    architecture: Literal["resnet50_fpn", "resnet50_fpn_v2"] | None = None
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if not describes_itself(self.weights):
            if self.classes is None:
                raise ParameterError(
                    f"detector {self.name!r}: parameter 'classes': a state dict does not name its "
                    "classes: list them in its order, without the background"
                )
            return
        for name in IN_CHECKPOINT:
            if getattr(self, name) is not None:
                raise ParameterError(
                    f"detector {self.name!r}: parameter {name!r}: the checkpoint {self.weights} "
                    "says so itself; remove the parameter"
                )

    @cached_property
    def blueprint(self) -> RetinaNetBlueprint:
        """Description of the network in a checkpoint of farther.

        Raises:
            DataError: it is absent or wrong.
        """
        return RetinaNetBlueprint.read(self.weights)

    def class_names(self) -> tuple[str, ...]:
        """See `DenseDetector.class_names`."""
        if self.classes is None:
            return self.blueprint.classes
        return self.classes

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

    The network also predicts the centerness of each anchor, how near it is to the middle of its
    object. A box's score is √(sigmoid(logit) · sigmoid(centerness)): it is not a function of the
    stored logits alone, which are those of the classes. See `DenseDetector` for the stored columns
    and the parameters.

    Args:
        nms_iou: See `LatentDetector`; the default is torchvision's.
    """

    nms_iou: Fraction = 0.6

    @property
    def builder(self) -> str:
        """See `DenseDetector.builder`."""
        return self.fit.builder


def scores_of(head_output: Mapping[str, Tensor], background: int | None) -> Tensor:
    """Scores of all anchors and classes, shape (B, A, K), from the output of the head."""
    scores = head_output["cls_logits"].sigmoid()
    if "bbox_ctrness" in head_output:
        scores = torch.sqrt(scores * head_output["bbox_ctrness"].sigmoid())
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
    """Applies threshold, the limit of candidates per level, and NMS per class, as torchvision does.

    Args:
        network: Decodes the boxes.
        scores, deltas, anchors: Shapes (A, K), (A, 4) and (A, 4), for an image's A anchors, in
            pixels of the resized image.
        size: Height and width of the resized image.
        counts: Number of anchors of each level.
        selection: Which boxes are detections.
    """
    columns = scores.shape[1]
    selected_by_level = []
    first_anchor = 0
    for level in scores.split(counts):
        flat_scores = level.flatten()
        above = torch.where(flat_scores > selection.score_threshold)[0]
        count = _topk_min(above, selection.candidates, 0)
        highest = flat_scores[above].topk(count).indices
        selected_by_level.append(above[highest] + first_anchor * columns)
        first_anchor = first_anchor + level.shape[0]
    selected = torch.cat(selected_by_level)
    rows = selected // columns
    labels = selected % columns
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

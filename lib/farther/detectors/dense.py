"""RetinaNet (Lin et al. 2017, "Focal Loss for Dense Object Detection") and FCOS (Tian et al. 2019, "FCOS: Fully
Convolutional One-Stage Object Detection") as torchvision builds them.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import Count, Fraction, LatentDetector, register
from farther.detectors.settings import Selection
from farther.errors import DataError
from farther.images.bounds import network_errors
from farther.registry import STRICT
from farther.tables import Header, Regions

if TYPE_CHECKING:
    from torchvision.models import detection


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
        from farther.detectors.networks.dense import load_dense_network

        network = load_dense_network(self.weights, self.builder, self.min_size, self.max_size, self.norm_epsilon)
        return network.to(self.torch_device())

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
        from farther.detectors.networks.dense import detect_regions

        settings = self.selection(), self.precision, self.stored_columns()
        with network_errors(self.weights):
            return detect_regions(self.network, self._header, prepared, image_ids, *settings)

    def selection(self) -> Selection:
        """Which boxes are detections."""

        return Selection(self.score_threshold, self.nms_iou, self.max_detections, candidates=self.candidates)


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

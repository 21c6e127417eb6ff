"""Base of the adapters of torchvision's one-stage detectors."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import Count, LatentDetector
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables import Header, Regions

if TYPE_CHECKING:
    from torchvision.models.detection import FCOS, RetinaNet

    from farther.detectors.networks.detection import Selection


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
    def network(self) -> RetinaNet | FCOS:
        """See `Detector.network`."""
        import torch

        from farther.detectors.networks.dense import load_dense_network

        network = load_dense_network(self.weights, self.builder, self.min_size, self.max_size, self.norm_epsilon)
        return network.to(self.torch_device(), memory_format=torch.channels_last)

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
        from farther.images.bounds import network_errors

        settings = self.selection(), self.precision, self.stored_columns()
        with network_errors(self.weights):
            return detect_regions(self.network, self._header, prepared, image_ids, *settings)

    def selection(self) -> Selection:
        """Which boxes are detections."""
        from farther.detectors.networks.detection import Selection

        return Selection(self.score_threshold, self.nms_iou, self.max_detections, candidates=self.candidates)

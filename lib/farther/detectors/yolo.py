"""YOLOv8 and the other detection networks of Ultralytics (Jocher et al. 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic.dataclasses import dataclass

from farther.detectors.base import Count, Fraction, LatentDetector, register
from farther.detectors.scaling import Scaled
from farther.detectors.settings import Selection
from farther.images.bounds import network_errors
from farther.images.device import inference_mode, ordinary_tensors
from farther.registry import STRICT
from farther.tables import Header, Regions

if TYPE_CHECKING:
    from ultralytics.nn.tasks import DetectionModel

    from farther.detectors.networks.replay import GroupedReplay
    from farther.detectors.networks.yolo_checkpoint import YoloCheckpoint


@register("yolo")
@dataclass(config=STRICT, kw_only=True)
class Yolo(LatentDetector):
    """A detection network of Ultralytics: YOLOv8, and the others whose head scores each anchor (v3 to v12, YOLO26).

    Boxes, scores and labels are those of Ultralytics' `predict`, given one image at a time (in a batch it pads images
    of different shapes to squares). Heads that also have a branch without suppression (YOLOv10, YOLO26) answer with
    the other one, as `predict` does. Image files are read as stored: unlike `predict`, without turning them as EXIF
    says.

    Logits are the head's at the anchor that gave the box, see `logits`; there is no background. The network
    is convolutional to its end: it has no last linear layer, hence neither `features` nor a `weight`, and methods that
    need them are not offered for it (FMIYC, Section 4 and Appendix F). `latent` pools the backbone's last layer over
    each detection's box and averages it per channel (FMIYC, Appendix F.2.4).

    YOLO-World and YOLOE are read from a `.pt` file whose classes were set (`set_classes`) and saved. They have a last
    layer: `weight` is the text embeddings, and `features` the anchor's embedding with scale and bias of its level.

    The checkpoint is farther's safetensors file or a `.pt` file of Ultralytics. The latter is a pickle, read without
    running anything that it names.

    Args:
        nms_iou: See `BoxDetector`; the default is that of `predict`.
        image_size: Pixels that the longer side is scaled to; None takes the checkpoint's.
        logits: "raw": before the sigmoid; "log_sigmoid": log(sigmoid(logit)), of which the published code computes its
            scores. None takes the protocol's.
    """

    nms_iou: Fraction = 0.7
    image_size: Count | None = None
    logits: Literal["raw", "log_sigmoid"] | None = None

    @cached_property
    def checkpoint(self) -> YoloCheckpoint:
        """The checkpoint's content; errors as in `read_checkpoint`."""
        from farther.detectors.networks.yolo_checkpoint import read_checkpoint

        return read_checkpoint(self.weights)

    @cached_property
    def network(self) -> DetectionModel:
        """See `Detector.network`."""
        from farther.detectors.networks.yolo_checkpoint import load_network

        return load_network(self.weights, self.checkpoint).to(self.torch_device())

    @property
    def log_scores(self) -> bool:
        """True if the column `logits` is log(sigmoid(logit))."""
        return (self.logits or {"paper": "raw", "published-code": "log_sigmoid"}[self.protocol]) == "log_sigmoid"

    def header(self) -> Header:
        """See `Detector.header`."""
        weight = None
        if self.checkpoint.text is not None and not self.log_scores:
            from farther.detectors.networks.yolo_text import last_layer

            found = last_layer(self.network)
            weight = None if found is None else found.detach().cpu().numpy()
        return Header(
            classes=self.checkpoint.blueprint.classes,
            activation="exp" if self.log_scores else "sigmoid",
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=weight,
            bias=None if weight is None else np.zeros(len(weight), np.float32),
        )

    def prepare(self, image: np.ndarray) -> Scaled:
        """The image, scaled and padded as `predict` does."""
        from farther.detectors.networks.yolo import letterbox

        return letterbox(image, self.image_size or self.checkpoint.blueprint.image_size, self.checkpoint.stride)

    def scaled(self, factor: float) -> Self:
        """See `Detector.scaled`."""
        other = replace(self, image_size=round((self.image_size or self.checkpoint.blueprint.image_size) * factor))
        vars(other).update(
            {name: value for name, value in vars(self).items() if name in ("checkpoint", "network", "computed")}
        )
        return other

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        detect = self._detection(prepared)  # loads the network, whose weights must be ordinary tensors
        with network_errors(self.weights), inference_mode():
            return detect().regions(image_ids)

    def replay(self, prepared: list) -> GroupedReplay:
        """See `Detector.replay`: the rows are anchors."""
        with ordinary_tensors():
            return self._detection(prepared)()

    def _detection(self, prepared: list) -> Callable[[], GroupedReplay]:
        from farther.detectors.networks.yolo import replay

        selection = Selection(self.score_threshold, self.nms_iou, self.max_detections)
        settings = selection, self.precision, self.stored_columns(log_scores=self.log_scores)
        return partial(replay, self.network, self.header(), prepared, *settings)

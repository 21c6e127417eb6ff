"""Faster R-CNN (Ren et al. 2015) and Mask R-CNN (He et al. 2017) of torchvision, and checkpoints of Detectron2."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass
from torchvision.models.detection import FasterRCNN as Network
from torchvision.ops import FrozenBatchNorm2d

from farther.detectors.base import Count, LatentDetector, ReplayDetector, register
from farther.detectors.networks.architectures import MSRA, FasterRCNNBlueprint, layout_of, load_network, read_blueprint
from farther.detectors.networks.faster_rcnn import FasterRCNNReplay
from farther.detectors.networks.heads import ENERGY_HEAD
from farther.detectors.scaling import Scaled, scale
from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.tables import Header


@register("faster_rcnn")
@dataclass(config=STRICT, kw_only=True)
class FasterRCNN(ReplayDetector, LatentDetector):
    """torchvision's Faster R-CNN, with everything that OOD scores read.

    Logits are the box head's, the background in column 0; `features` is the input of their linear layer. `latent` pools
    the RPN's shared activations over each detection's box and averages them per channel (LaRD; FMIYC, Appendix F.2.4).
    Where the checkpoint holds the head that VOS trains, the header's `detector["vos_head"]` has its numbers.

    Where it holds the head of box variances (docs/training.md), `box_variance` is predicted.

    A checkpoint of Detectron2 on MSRA's ResNet-50, as the authors of VOS publish them, is recognised by the names of
    its weights and computed as Detectron2 does, from Pillow's scaling on; only boxes narrower than a hundredth of a
    pixel are dropped, as torchvision does. Which layout a PyTorch file has is said in the header's
    `detector["layout"]`. Network and checkpoint: `farther.detectors.networks.msra` and `.detectron2_import`.

    Args:
        latent: Levels of the RPN's pyramid that `latent` is pooled from: "level", the one that fits the box's size, or
            "levels", all of them side by side (5 × 256 = 1,280 values). None takes the protocol's, the latter in the
            published code.
        architecture: For a PyTorch file: "resnet50_fpn", "small" or "resnet50_fpn_msra"; the last one where the layout
            is Detectron2's. A safetensors checkpoint says this and the following itself.
        layout: For a PyTorch file: "torchvision" or "detectron2", if the other one is to be refused.
        classes: For a PyTorch file: its classes, without the background, in the order of its logits.
        min_size: For a PyTorch file: images are scaled to this many pixels on the shorter side …
        max_size: … unless the longer one would then have more than this.
        norm_epsilon: For a PyTorch file: ε of the frozen normalisations. Networks fine-tuned from torchvision's weights
            `COCO_V1` were trained with 0, which their files do not say; all others with 1e-5.

    Raises:
        ParameterError: a PyTorch file is given without its classes, or a safetensors checkpoint with them.
    """

    #: Beginnings of the names of weights that a checkpoint may hold and the network does not have.
    unused_weights: ClassVar[tuple[str, ...]] = ()
    PROPOSALS: ClassVar[str | None] = "rpn"
    FEATURE_MAP: ClassVar[bool] = True

    latent: Literal["level", "levels"] | None = None
    architecture: str | None = None
    layout: Literal["torchvision", "detectron2"] | None = None
    classes: tuple[str, ...] | None = None
    min_size: Count | None = None
    max_size: Count | None = None
    norm_epsilon: Annotated[float, Field(ge=0)] | None = None

    def __post_init__(self) -> None:
        names = ("architecture", "layout", "classes", "min_size", "max_size", "norm_epsilon")
        told = [name for name in names if getattr(self, name) is not None]
        if self.weights.suffix == ".safetensors" and told:
            problem = f"the checkpoint {self.weights} says so itself; remove the parameter"
            raise ParameterError(f"detector {self.name!r}: parameter {told[0]!r}: {problem}")
        if self.weights.suffix != ".safetensors" and self.classes is None:
            problem = "a PyTorch file does not name its classes: list them in its order, without the background"
            raise ParameterError(f"detector {self.name!r}: parameter 'classes': {problem}")

    @cached_property
    def blueprint(self) -> FasterRCNNBlueprint:
        """Description from which the network is built.

        Raises:
            DataError: the checkpoint is absent, its metadata is wrong, or its layout is not the one asked for.
        """
        if self.classes is None:
            return read_blueprint(self.weights)
        usual = MSRA if self.found_layout == "detectron2" else "resnet50_fpn"
        return FasterRCNNBlueprint(
            self.architecture or usual, self.classes, self.min_size or 800, self.max_size or 1333
        )

    @cached_property
    def found_layout(self) -> str:
        """The library whose names the weights have: "torchvision" or "detectron2".

        Raises:
            DataError: the checkpoint is absent or damaged, or `layout` asks for the other one.
        """
        found = layout_of(self.weights)
        if self.layout not in (None, found):
            raise DataError(f"expected {self.layout!r}, found weights in {found!r}", file=self.weights, field="layout")
        return found

    @cached_property
    def scaling(self) -> tuple[int, int] | None:
        """Pixels of the shorter side and at most of the longer if Pillow scales images, else None."""
        plan = self.blueprint
        return (plan.min_size, plan.max_size) if plan.architecture == MSRA else None

    @property
    def all_levels(self) -> bool:
        """True if `latent` is pooled from all levels of the pyramid."""
        return (self.latent or {"paper": "level", "published-code": "levels"}[self.protocol]) == "levels"

    @cached_property
    def network(self) -> Network:
        """See `Detector.network`; it has this adapter's thresholds."""
        network = load_network(self.weights, self.blueprint, self.unused_weights)
        network = self.placed(network)
        for module in network.modules():
            if isinstance(module, FrozenBatchNorm2d) and self.norm_epsilon is not None:
                module.eps = self.norm_epsilon
        heads = network.roi_heads
        heads.score_thresh, heads.nms_thresh = self.score_threshold, self.nms_iou
        heads.detections_per_img = self.max_detections
        return network

    @cached_property
    def _header(self) -> Header:
        last = self.network.roi_heads.box_predictor.cls_score
        head = getattr(self.network, ENERGY_HEAD, None)
        return Header(
            classes=self.blueprint.columns,
            background_index=0,
            activation="softmax",
            score_threshold=self.score_threshold,
            detector={
                **self.identity,
                **({} if self.classes is None else {"layout": self.found_layout}),
                **({} if head is None else {"vos_head": head.numbers()}),
            },
            weight=last.weight.detach().float().cpu().numpy(),
            bias=last.bias.detach().float().cpu().numpy(),
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    def prepare(self, image: np.ndarray) -> np.ndarray | Scaled:
        """The image itself, which is scaled on the network's device; for Detectron2's networks, scaled by Pillow."""
        pixels = np.ascontiguousarray(image)
        return pixels if self.scaling is None else scale(pixels, *self.scaling)

    def detection(self, prepared: list) -> FasterRCNNReplay:
        """See `ReplayDetector.detection`: the rows are proposals. Dropout is put behind each ReLU of the box head."""
        stored = self.stored_columns(all_levels=self.all_levels)
        sizes = [image.original if isinstance(image, Scaled) else image.shape[:2] for image in prepared]
        images = [image.pixels if isinstance(image, Scaled) else image for image in prepared]
        return FasterRCNNReplay(self.network, self._header, images, self.precision, stored, sizes)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # What `prepare` needs goes along, so that no worker process reads the checkpoint for it.
        return {**state, "scaling": self.scaling} if "blueprint" in self.__dict__ else state


@register("mask_rcnn")
@dataclass(config=STRICT, kw_only=True)
class MaskRCNN(FasterRCNN):
    """torchvision's Mask R-CNN: its boxes, scores and labels, with everything that OOD scores read.

    The masks are drawn in boxes that are already detected, so the boxes are those of a Faster R-CNN with the weights
    that the mask branch does not use. Only that part is built and loaded: masks are neither computed nor stored. See
    `FasterRCNN` for what is stored and for the parameters.
    """

    unused_weights: ClassVar[tuple[str, ...]] = ("roi_heads.mask_head.", "roi_heads.mask_predictor.")

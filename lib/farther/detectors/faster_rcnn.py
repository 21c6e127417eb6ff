"""Faster R-CNN (Ren et al. 2015) and Mask R-CNN (He et al. 2017) of torchvision, and checkpoints of Detectron2."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass
from torchvision.models.detection import FasterRCNN as Network
from torchvision.ops import FrozenBatchNorm2d

from farther.detectors.base import Count, LatentDetector, ReplayDetector, register
from farther.detectors.networks.architectures import (
    MSRA,
    FasterRCNNBlueprint,
    architecture_of,
    layout_of,
    load_network,
)
from farther.detectors.networks.faster_rcnn import FasterRCNNReplay
from farther.detectors.networks.heads import ENERGY_HEAD, VARIANCE_HEAD
from farther.detectors.networks.torchvision_builders import (
    BOX_PREDICTOR,
    BUILDERS,
    KEYPOINT_BRANCH,
    MASK_BRANCH,
    Fit,
    check_columns,
    closest_builders,
    epsilon_of,
    published_builder,
)
from farther.detectors.networks.weights import describes_itself, read_weights
from farther.detectors.scaling import Scaled, scale
from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.tables import Header


@register("faster_rcnn")
@dataclass(config=STRICT, kw_only=True)
class FasterRCNN(ReplayDetector, LatentDetector):
    """torchvision's Faster R-CNN, with everything that OOD scores read.

    Logits are the box head's, the background in column 0; `features` is the input of their linear
    layer. `latent` pools the RPN's shared activations over each detection's box and averages them
    per channel (LaRD; FMIYC, Appendix F.2.4). Where the checkpoint holds the head that VOS trains,
    the header's `detector["vos_head"]` has its numbers.

    Where it holds the head of box variances (docs/training.md), `box_variance` is predicted.

    A checkpoint of Detectron2 on MSRA's ResNet-50, as the authors of VOS publish them, is
    recognised by the names of its weights and computed as Detectron2 does, from Pillow's scaling
    on; only boxes narrower than a hundredth of a pixel are dropped, as torchvision does. Which
    layout a PyTorch file has is said in the header's `detector["layout"]`. Network and checkpoint:
    `farther.detectors.networks.msra` and `.detectron2_import`.

    Args:
        latent: Levels of the RPN's pyramid that `latent` is pooled from: "level", the one that fits
            the box's size, or "levels", all of them side by side (5 × 256 = 1,280 values). None
            takes the protocol's, the latter in the published code.
        architecture: For a PyTorch file: "resnet50_fpn", "resnet50_fpn_v2",
            "mobilenet_v3_large_fpn", "mobilenet_v3_large_320_fpn", "small" or "resnet50_fpn_msra"
            (Detectron2's layout); left out, the one that the weights fit. The weights of the two
            with MobileNetV3 have the same shapes: one of them must be named. A safetensors
            checkpoint says this and the following itself.
        layout: For a PyTorch file: "torchvision" or "detectron2", if the other one is to be
            refused.
        classes: For a PyTorch file: its classes, without the background, in the order of its
            logits.
        min_size: For a PyTorch file: images are scaled to this many pixels on the shorter side
            (800; 320 for "mobilenet_v3_large_320_fpn") …
        max_size: … unless the longer one would then have more than this (1333; 640).
        norm_epsilon: For a PyTorch file: ε of the frozen normalisations. Networks on ResNet-50 that
            were fine-tuned from torchvision's weights `COCO_V1` were trained with 0, which their
            files do not say; all others with 1e-5. Left out, it is 0 for the files that torchvision
            publishes and trained so, else 1e-5.

    Raises:
        ParameterError: a PyTorch file is given without its classes, or a safetensors checkpoint
            with them.
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
        if told and describes_itself(self.weights):
            problem = f"the checkpoint {self.weights} says so itself; remove the parameter"
            raise ParameterError(f"detector {self.name!r}: parameter {told[0]!r}: {problem}")
        if self.weights.suffix != ".safetensors" and self.classes is None:
            problem = "a PyTorch file does not name its classes: list them in its order, without the background"
            raise ParameterError(f"detector {self.name!r}: parameter 'classes': {problem}")

    @cached_property
    def blueprint(self) -> FasterRCNNBlueprint:
        """Description from which the network is built.

        Raises:
            DataError: the checkpoint is absent, its metadata is wrong, or its layout is not the one
                asked for.
        """
        if self.classes is None:
            return FasterRCNNBlueprint.read(self.weights)
        plan = FasterRCNNBlueprint(self.architecture or self.found_architecture, self.classes, 0, 0)
        try:
            min_size, max_size = architecture_of(plan).sides
        except ParameterError as error:
            raise DataError(str(error), file=self.weights, field="architecture") from None
        return replace(plan, min_size=self.min_size or min_size, max_size=self.max_size or max_size)

    @cached_property
    def fits(self) -> list[Fit]:
        """How the weights fit those of torchvision's networks that they fit best; without heads that training adds."""
        heads = (f"{ENERGY_HEAD}.", f"{VARIANCE_HEAD}.")
        weights = read_weights(self.weights)
        return closest_builders(
            {name: tensor for name, tensor in weights.items() if not name.startswith(heads)}
        )

    @cached_property
    def found_architecture(self) -> str:
        """The architecture whose weights have the names and shapes of the file's.

        Raises:
            DataError: the weights fit none; says which do not fit the closest one.
            ParameterError: they fit several alike.
        """
        if self.found_layout == "detectron2":
            return MSRA
        if not self.fits:
            problem = (
                "the weight is missing: these are not the weights of a Faster R-CNN of torchvision"
            )
            raise DataError(problem, file=self.weights, field=BOX_PREDICTOR)
        if self.fits[0].misfits:
            self.fits[0].refuse(self.weights)
        # The boxes of a Mask R-CNN are those of a Faster R-CNN: its adapter takes both.
        self.fits[0].refuse_other_adapter(self.weights, ["faster_rcnn", self.name])
        if len(self.fits) == 1:
            return BUILDERS[self.fits[0].builder].architecture
        if published := published_builder(self.weights, self.fits):
            return BUILDERS[published].architecture
        names = " and ".join(repr(BUILDERS[fit.builder].architecture) for fit in self.fits)
        problem = f"the weights fit {names} alike, which differ in the size of images: name the one that was trained"
        raise ParameterError(f"detector {self.name!r}: parameter 'architecture': {problem}")

    @cached_property
    def found_layout(self) -> str:
        """The library whose names the weights have: "torchvision" or "detectron2".

        Raises:
            DataError: the checkpoint is absent or damaged, or `layout` asks for the other one.
        """
        found = layout_of(self.weights)
        if self.layout not in (None, found):
            raise DataError(
                f"expected {self.layout!r}, found weights in {found!r}",
                file=self.weights,
                field="layout",
            )
        return found

    @cached_property
    def scaling(self) -> tuple[int, int] | None:
        """Pixels of the shorter side and at most of the longer if Pillow scales images, else None."""
        plan = self.blueprint
        return (plan.min_size, plan.max_size) if plan.architecture == MSRA else None

    @property
    def all_levels(self) -> bool:
        """True if `latent` is pooled from all levels of the pyramid."""
        return (
            self.latent or {"paper": "level", "published-code": "levels"}[self.protocol]
        ) == "levels"

    @cached_property
    def network(self) -> Network:
        """See `Detector.network`; it has this adapter's thresholds."""
        if self.classes is not None and self.found_layout == "torchvision":
            last_layer = read_weights(self.weights).get(BOX_PREDICTOR)
            if last_layer is not None:
                check_columns(self.weights, self.classes, len(last_layer))
        network = load_network(self.weights, self.blueprint, self.unused_weights)
        network = self.placed(network)
        epsilon = self.norm_epsilon
        if (
            epsilon is None
            and self.classes is not None
            and self.blueprint.architecture == "resnet50_fpn"
        ):
            epsilon = epsilon_of(self.weights, self.fits)
        for module in network.modules():
            if isinstance(module, FrozenBatchNorm2d) and epsilon is not None:
                module.eps = epsilon
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
        sizes = [
            image.original if isinstance(image, Scaled) else image.shape[:2] for image in prepared
        ]
        images = [image.pixels if isinstance(image, Scaled) else image for image in prepared]
        return FasterRCNNReplay.detect(
            self.network, self._header, images, self.precision, stored, sizes
        )

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # What `prepare` needs goes along, so that no worker process reads the checkpoint for it.
        return {**state, "scaling": self.scaling} if "blueprint" in self.__dict__ else state


@register("mask_rcnn")
@dataclass(config=STRICT, kw_only=True)
class MaskRCNN(FasterRCNN):
    """torchvision's Mask R-CNN or Keypoint R-CNN: boxes, scores and labels, with everything that OOD scores read.

    The masks are drawn in boxes that are already detected, so the boxes are those of a Faster R-CNN
    with the weights that the mask branch does not use. Only that part is built and loaded: masks
    are neither computed nor stored; nor are keypoints. See `FasterRCNN` for what is stored and for
    the parameters.
    """

    unused_weights: ClassVar[tuple[str, ...]] = (*MASK_BRANCH, *KEYPOINT_BRANCH)

"""Faster R-CNN (Ren et al. 2015) and Mask R-CNN (He et al. 2017) of torchvision and Detectron2."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
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
    BUILDERS,
    KEYPOINT_BRANCH,
    MASK_BRANCH,
    Fit,
    check_columns,
    closest_builders,
    epsilon_of,
    published_builder,
)
from farther.detectors.networks.weights import (
    BOX_PREDICTOR,
    LAST_LAYERS,
    describes_itself,
    read_weights,
)
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.detectors.scaling import Scaled, scale
from farther.errors import DataError, ParameterError
from farther.naming.registry import STRICT
from farther.tables import Header


@register("faster_rcnn")
@dataclass(config=STRICT, kw_only=True)
class FasterRCNN(ReplayDetector, LatentDetector):
    """torchvision's Faster R-CNN, with everything that OOD scores read.

    Logits are the box head's, with the background in column 0; `features` is the input of their
    linear layer. `latent` pools the RPN's shared activations over each detection's box and averages
    them per channel (LaRD; FMIYC, Appendix F.2.4). If the checkpoint has the head that VOS trains,
    the header's `detector["vos_head"]` has its numbers.

    If it has the head of box variances that the trainer `faster_rcnn` adds, `box_variance` is
    predicted.

    A checkpoint of Detectron2 on MSRA's ResNet-50, as the authors of VOS publish them, is
    recognised by the names of its weights and computed as Detectron2 does, from Pillow's scaling
    on; only boxes narrower than a hundredth of a pixel are dropped, as torchvision does. The
    header's `detector["layout"]` has the layout of a PyTorch file. Network and checkpoint:
    `farther.detectors.networks.msra` and `.detectron2_import`.

    Args:
        latent: Levels of the RPN's pyramid that `latent` is pooled from: "level", the one that fits
            the box's size, or "levels", all of them side by side (5 × 256 = 1,280 values). None
            takes the protocol's, the latter in the published code.
        architecture: For a PyTorch file: "resnet50_fpn", "resnet50_fpn_v2",
            "mobilenet_v3_large_fpn", "mobilenet_v3_large_320_fpn", "small" or "resnet50_fpn_msra"
            (Detectron2's layout); by default, the one that the weights fit. The weights of the two
            with MobileNetV3 have the same shapes: one of them must be named. A safetensors
            checkpoint has this and the following in its metadata.
        layout: For a PyTorch file: "torchvision" or "detectron2", to refuse the other one.
        classes: For a PyTorch file: its classes, without the background, in the order of its
            logits.
        min_size: For a PyTorch file: images are scaled to this many pixels on the shorter side
            (800; 320 for "mobilenet_v3_large_320_fpn") …
        max_size: … unless the longer one would then have more than this (1333; 640).
        norm_epsilon: For a PyTorch file: ε of the frozen normalisations. Networks on ResNet-50 that
            were fine-tuned from torchvision's weights `COCO_V1` were trained with 0, which their
            files do not say; all others with 1e-5. The default is 0 for the files that torchvision
            publishes and trained so, else 1e-5.

    Raises:
        ParameterError: a PyTorch file is given without its classes, or a safetensors checkpoint
            with them.
    """

    #: Prefixes of the names of weights that a checkpoint may hold and the network does not have.
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

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """Farther's own file, or any state dict of torchvision; see `Adapter`."""
        opened = cls.opened(path)
        if opened is not None:
            return opened
        # builds networks of torchvision, which loads slowly
        from farther.detectors.networks.torchvision_recognition import recognise_state_dict

        return recognise_state_dict(path, id_classes)

    def __post_init__(self) -> None:
        names = ("architecture", "layout", "classes", "min_size", "max_size", "norm_epsilon")
        for name in names:
            if getattr(self, name) is not None and describes_itself(self.weights):
                raise ParameterError(
                    f"detector {self.name!r}: parameter {name!r}: the checkpoint {self.weights} "
                    "says so itself; remove the parameter"
                )
        if self.weights.suffix.lower() != ".safetensors" and self.classes is None:
            raise ParameterError(
                f"detector {self.name!r}: parameter 'classes': a PyTorch file does not name its "
                "classes: list them in its order, without the background"
            )

    @cached_property
    def blueprint(self) -> FasterRCNNBlueprint:
        """Description from which the network is built.

        Raises:
            DataError: the checkpoint is absent, its metadata is wrong, or its layout is not the one
                asked for.
        """
        if self.classes is None:
            return FasterRCNNBlueprint.read(self.weights)
        architecture = self.architecture or self.found_architecture
        blueprint = FasterRCNNBlueprint(architecture, self.classes, min_size=0, max_size=0)
        try:
            min_size, max_size = architecture_of(blueprint).sides
        except ParameterError as error:
            raise DataError(str(error), file=self.weights, field="architecture") from None
        return replace(
            blueprint, min_size=self.min_size or min_size, max_size=self.max_size or max_size
        )

    @cached_property
    def fits(self) -> list[Fit]:
        """torchvision's networks that the weights fit best, compared without added heads."""
        added_heads = (f"{ENERGY_HEAD}.", f"{VARIANCE_HEAD}.")
        weights = read_weights(self.weights, LAST_LAYERS).items()
        return closest_builders(
            {name: tensor for name, tensor in weights if not name.startswith(added_heads)}
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
            raise DataError(
                "the weight is missing: these are not the weights of a Faster R-CNN of torchvision",
                file=self.weights,
                field=BOX_PREDICTOR,
            )
        best_fit = self.fits[0]
        if best_fit.misfits:
            best_fit.refuse(self.weights)
        # The boxes of a Mask R-CNN are those of a Faster R-CNN: its adapter accepts both.
        best_fit.refuse_other_adapter(self.weights, ["faster_rcnn", self.name])
        if len(self.fits) == 1:
            return BUILDERS[best_fit.builder].architecture
        published = published_builder(self.weights, self.fits)
        if published:
            return BUILDERS[published].architecture
        architectures = [BUILDERS[fit.builder].architecture for fit in self.fits]
        names = " and ".join(repr(architecture) for architecture in architectures)
        raise ParameterError(
            f"detector {self.name!r}: parameter 'architecture': the weights fit {names} alike, "
            "which differ in the size of images: name the one that was trained"
        )

    @cached_property
    def found_layout(self) -> str:
        """The library whose names the weights have: "torchvision" or "detectron2".

        Raises:
            DataError: the checkpoint is absent or damaged, or `layout` requires the other one.
        """
        layout = layout_of(self.weights)
        if self.layout is not None and self.layout != layout:
            raise DataError(
                f"expected {self.layout!r}, found weights in {layout!r}",
                file=self.weights,
                field="layout",
            )
        return layout

    @cached_property
    def scaling(self) -> tuple[int, int] | None:
        """Length of the shorter side, and limit of the longer, if Pillow scales images."""
        if self.blueprint.architecture == MSRA:
            return self.blueprint.min_size, self.blueprint.max_size
        return None

    @property
    def all_levels(self) -> bool:
        """True if `latent` is pooled from all levels of the pyramid."""
        if self.latent is None:
            return self.protocol == "published-code"
        return self.latent == "levels"

    @cached_property
    def network(self) -> Network:
        """See `Detector.network`; it has this adapter's thresholds."""
        if self.classes is not None and self.found_layout == "torchvision":
            last_layer = read_weights(self.weights, LAST_LAYERS).get(BOX_PREDICTOR)
            if last_layer is not None:
                check_columns(self.weights, self.classes, len(last_layer))
        network = load_network(self.weights, self.blueprint, self.unused_weights)
        network = self.to_device(network)
        epsilon = self._norm_epsilon()
        if epsilon is not None:
            for module in network.modules():
                if isinstance(module, FrozenBatchNorm2d):
                    module.eps = epsilon
        heads = network.roi_heads
        heads.score_thresh = self.score_threshold
        heads.nms_thresh = self.nms_iou
        heads.detections_per_img = self.max_detections
        return network

    def _norm_epsilon(self) -> float | None:
        """ε of the frozen normalisations; None for the network's own."""
        if self.norm_epsilon is not None:
            return self.norm_epsilon
        if self.classes is not None and self.blueprint.architecture == "resnet50_fpn":
            return epsilon_of(self.weights, self.fits)
        return None

    @cached_property
    def _header(self) -> Header:
        detector = dict(self.identity)
        if self.classes is not None:
            detector["layout"] = self.found_layout
        energy_head = getattr(self.network, ENERGY_HEAD, None)
        if energy_head is not None:
            detector["vos_head"] = energy_head.numbers()
        last_layer = self.network.roi_heads.box_predictor.cls_score
        return Header(
            classes=self.blueprint.columns,
            background_index=0,
            activation="softmax",
            score_threshold=self.score_threshold,
            detector=detector,
            weight=last_layer.weight.detach().float().cpu().numpy(),
            bias=last_layer.bias.detach().float().cpu().numpy(),
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    def prepare(self, image: np.ndarray) -> np.ndarray | Scaled:
        """The image, which the network scales; for Detectron2's networks, scaled by Pillow."""
        pixels = np.ascontiguousarray(image)
        if self.scaling is None:
            return pixels
        return scale(pixels, *self.scaling)

    def detection(self, prepared: list) -> FasterRCNNReplay:
        """See `ReplayDetector.detection`: the rows are proposals.

        The default place of dropout is behind each ReLU of the box head.
        """
        stored = self.stored_columns(all_levels=self.all_levels)
        images = []
        sizes = []
        for image in prepared:
            if isinstance(image, Scaled):
                images.append(image.pixels)
                sizes.append(image.original)
            else:
                images.append(image)
                sizes.append(image.shape[:2])
        return FasterRCNNReplay.detect(
            self.network, self._header, images, self.precision, stored, sizes
        )

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # `prepare` needs it, and no worker process should read the checkpoint for it.
        if "blueprint" in vars(self):
            state["scaling"] = self.scaling
        return state


@register("mask_rcnn")
@dataclass(config=STRICT, kw_only=True)
class MaskRCNN(FasterRCNN):
    """Boxes of torchvision's Mask R-CNN or Keypoint R-CNN, with everything that OOD scores read.

    Masks are predicted in boxes that are already detected, so the boxes are those of a Faster R-CNN
    with the weights that the mask branch does not use. Only that part is built and loaded: masks
    and keypoints are neither computed nor stored. See `FasterRCNN` for the stored columns and the
    parameters.
    """

    unused_weights: ClassVar[tuple[str, ...]] = (*MASK_BRANCH, *KEYPOINT_BRANCH)

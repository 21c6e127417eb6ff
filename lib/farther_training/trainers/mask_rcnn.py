"""The trainer of Mask R-CNN (He et al. 2017, arXiv:1703.06870)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import MultiScaleRoIAlign

from farther.detectors.networks.architectures import (
    FasterRCNNBlueprint,
    architecture_of,
    build_network,
)
from farther.detectors.networks.pooling import set_strides
from farther.detectors.networks.torchvision_builders import MASK_BRANCH
from farther.naming.registry import STRICT
from farther_training.trainers import register
from farther_training.trainers.faster_rcnn import FasterRCNNJob

#: Convolutions of the mask head, cells along one side of what it pools, and samples along one side
#: of a cell.
CONVOLUTIONS = 4
CELLS = 14
SAMPLES = 2


@register("mask_rcnn")
@dataclass(config=STRICT, kw_only=True)
class MaskRCNNJob(FasterRCNNJob):
    """Trains a Mask R-CNN of torchvision: a Faster R-CNN that also predicts a mask per object.

    The dataset's tables have boxes and no masks. The checkpoint holds the whole network; the
    adapter `mask_rcnn` reads what detects boxes.

    Args:
        masks: "boxes" takes each box, filled, as its object's mask: so the branch learns, beside
            the boxes, which part of a proposal is in the object's box. There is no default: it must
            be chosen.
        architecture: "resnet50_fpn" (torchvision's `maskrcnn_resnet50_fpn`), or another one of
            `farther.detectors.networks.architectures`.
    """

    title: ClassVar[str] = "Mask R-CNN"
    unread_weights: ClassVar[tuple[str, ...]] = MASK_BRANCH

    masks: Literal["boxes"] | None = None

    def __post_init__(self) -> None:
        if self.masks is None:
            raise ValueError(
                "a Mask R-CNN learns masks, and the dataset's tables hold boxes only. "
                "Write `masks: boxes` to take each box, filled, as the mask of its object; "
                "or train a faster_rcnn"
            )

    def build(self, blueprint: FasterRCNNBlueprint) -> FasterRCNN:
        """See `FasterRCNNJob.build`."""
        return build_mask_rcnn(blueprint)


def build_mask_rcnn(blueprint: FasterRCNNBlueprint) -> FasterRCNN:
    """A Faster R-CNN with torchvision's mask branch, as wide as the feature pyramid.

    Errors as in `build_network`.
    """
    network = build_network(blueprint)
    heads = network.roi_heads
    width = network.backbone.out_channels
    boxes = heads.box_roi_pool
    heads.mask_roi_pool = MultiScaleRoIAlign(
        boxes.featmap_names,
        output_size=CELLS,
        sampling_ratio=SAMPLES,
        canonical_scale=boxes.canonical_scale,
        canonical_level=boxes.canonical_level,
    )
    set_strides(heads.mask_roi_pool, architecture_of(blueprint).strides)
    heads.mask_head = MaskRCNNHeads(width, [width] * CONVOLUTIONS, dilation=1)
    heads.mask_predictor = MaskRCNNPredictor(width, width, len(blueprint.columns))
    return network

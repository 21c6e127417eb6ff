"""Faster R-CNN on MSRA's ResNet-50 that computes what Detectron2 computes (Wu et al. 2019).

torchvision's network of the same shape differs from Detectron2's in small things, each of which
moves boxes or scores: where blocks have their stride, how pixels are normalised, how anchors are
rounded and laid out, how proposals are ranked, and where ROIAlign samples. The classes here are
torchvision's with these changed. The facts are those of Detectron2's defaults and of the
configurations with which Du et al. 2022 (VOS) trained.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn.functional import pad
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import RegionProposalNetwork
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import (
    FrozenBatchNorm2d,
    MultiScaleRoIAlign,
    batched_nms,
    clip_boxes_to_image,
    roi_align,
)

from farther.detectors.scaling import scaled_sides

#: Subtracted from blue, green and red between 0 and 255; nothing is divided by.
PIXEL_MEAN = (103.530, 116.280, 123.675)

#: Side of the square anchor of each pyramid level, in pixels.
ANCHOR_SIZES = (32, 64, 128, 256, 512)

#: Height over width of a level's anchors.
ANCHOR_RATIOS = (0.5, 1.0, 2.0)

#: Pixels between two cells of the finest pyramid level; each further level has twice as many.
FIRST_STRIDE = 4


def build_msra_network(columns: int, min_size: int, max_size: int) -> FasterRCNN:
    """An untrained network that takes images as torchvision's do: RGB between 0 and 1.

    Args:
        columns: Number of its logits, the background's in column 0.
        min_size: See `farther.detectors.scaling.scaled_sides`.
        max_size: See there.
    """
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
    )
    for stage in (backbone.body.layer2, backbone.body.layer3, backbone.body.layer4):
        stage[0].conv1.stride = (2, 2)
        stage[0].conv2.stride = (1, 1)
    pool = AlignedPool(["0", "1", "2", "3"], output_size=7, sampling_ratio=0)
    anchors = msra_anchors()
    network = FasterRCNN(backbone, columns, rpn_anchor_generator=anchors, box_roi_pool=pool)
    network.transform = BlueGreenRed(min_size, max_size, PIXEL_MEAN, (1.0, 1.0, 1.0))
    network.rpn = LogitRanking(
        anchors,
        network.rpn.head,
        fg_iou_thresh=0.7,
        bg_iou_thresh=0.3,
        batch_size_per_image=256,
        positive_fraction=0.5,
        pre_nms_top_n={"training": 2000, "testing": 1000},
        post_nms_top_n={"training": 1000, "testing": 1000},
        nms_thresh=0.7,
    )
    return network


def msra_anchors() -> ExactAnchors:
    """The anchors of all pyramid levels."""
    sizes_per_level = tuple((size,) for size in ANCHOR_SIZES)
    return ExactAnchors(sizes_per_level, (ANCHOR_RATIOS,) * len(ANCHOR_SIZES))


class BlueGreenRed(GeneralizedRCNNTransform):
    """Reverses the order of the colours and subtracts their means on the scale of bytes.

    Images that have their final size are not resized.
    """

    def normalize(self, image: Tensor) -> Tensor:
        """Shape (3, H, W): red, green, blue between 0 and 1 → blue, green, red around 0."""
        mean = torch.tensor(self.image_mean, dtype=image.dtype, device=image.device)
        return image.flip(0) * 255 - mean[:, None, None]

    def resize(
        self, image: Tensor, target: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        """Resizes as torchvision does, unless the image has its final size.

        It has where Pillow scaled it (`scaling.scale`).
        """
        if not self.training:
            height, width = image.shape[-2:]
            sides = scaled_sides(height, width, self.min_size[-1], self.max_size)
            if sides == (height, width):
                return image, target
        return super().resize(image, target)


class ExactAnchors(AnchorGenerator):
    """Anchors whose corners are not rounded, at multiples of each level's stride.

    torchvision divides the batch's height by the level's instead: 800 pixels give 13 rows on the
    coarsest level, and 61 in place of 64.
    """

    def generate_anchors(
        self,
        scales: tuple[int, ...],
        aspect_ratios: tuple[float, ...],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """A level's anchors around the origin, shape (scales × ratios, 4)."""
        corners = []
        for size, ratio in itertools.product(scales, aspect_ratios):
            width = size / math.sqrt(ratio)
            height = width * ratio
            corners.append((-width / 2, -height / 2, width / 2, height / 2))
        return torch.tensor(corners, dtype=dtype, device=device)

    def forward(self, image_list: ImageList, feature_maps: list[Tensor]) -> list[Tensor]:
        """For each image all anchors, level by level, row by row."""
        self.set_cell_anchors(feature_maps[0].dtype, feature_maps[0].device)
        sizes = [level.shape[-2:] for level in feature_maps]
        strides = [[FIRST_STRIDE << level] * 2 for level in range(len(feature_maps))]
        anchors = torch.cat(self.grid_anchors(sizes, strides))
        return [anchors] * len(image_list.image_sizes)


class LogitRanking(RegionProposalNetwork):
    """Ranks proposals by their logits, and keeps all that have an area.

    torchvision ranks by their sigmoid, which rounds large logits to the same number, and drops
    boxes that are narrower than a thousandth of a pixel.
    """

    def filter_proposals(
        self,
        proposals: Tensor,
        objectness: Tensor,
        image_shapes: list[tuple[int, int]],
        num_anchors_per_level: list[int],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The best boxes of each image, best first, and their logits; see torchvision's method."""
        logits = objectness.detach().view(len(proposals), -1)
        best = self._get_top_n_idx(logits, num_anchors_per_level)
        counts = torch.tensor(num_anchors_per_level, device=best.device)
        levels = torch.repeat_interleave(torch.arange(len(counts), device=best.device), counts)
        boxes_by_image = []
        logits_by_image = []
        for image, (rows, size) in enumerate(zip(best, image_shapes, strict=True)):
            image_boxes, image_logits = self._suppress(
                proposals[image, rows], logits[image, rows], levels[rows], size
            )
            boxes_by_image.append(image_boxes)
            logits_by_image.append(image_logits)
        return boxes_by_image, logits_by_image

    def _suppress(
        self, boxes: Tensor, logits: Tensor, levels: Tensor, size: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """The boxes of one image after non-maximum suppression within levels, and their logits."""
        boxes = clip_boxes_to_image(boxes, size)
        has_area = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
        boxes = boxes[has_area]
        logits = logits[has_area]
        levels = levels[has_area]
        order = batched_nms(boxes, logits, levels, self.nms_thresh)
        selected = order[: self.post_nms_top_n()]
        return boxes[selected], logits[selected]


class AlignedPool(MultiScaleRoIAlign):
    """ROIAlign with a pixel's value at its centre (Detectron2's `ROIAlignV2`).

    torchvision's pool places boxes half a cell off, as the first ROIAlign did.
    """

    def forward(
        self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]
    ) -> Tensor:
        """Pools each box from the level that fits its size (Lin et al. 2017, Equation 1).

        Args:
            x: Pyramid levels by name, (B, C, H, W) each.
            boxes: For each of the B images (N, 4), in pixels.
            image_shapes: Not needed; torchvision's callers give them.

        Returns:
            Shape (all N together, C, size, size).
        """
        levels = [x[name] for name in self.featmap_names]
        rois_by_image = []
        for number, image_boxes in enumerate(boxes):
            rois_by_image.append(pad(image_boxes, (1, 0), value=float(number)))
        rois = torch.cat(rois_by_image)

        sides = ((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2])).sqrt()
        finest = int(math.log2(FIRST_STRIDE))
        fitting = torch.floor(self.canonical_level + torch.log2(sides / self.canonical_scale))
        fitting = fitting.clamp(finest, finest + len(levels) - 1)
        pooled = levels[0].new_zeros((len(rois), levels[0].shape[1], *self.output_size))
        for number, level in enumerate(levels):
            rows = torch.where(fitting == finest + number)[0]
            scale = 1 / (FIRST_STRIDE << number)
            values = roi_align(
                level, rois[rows], self.output_size, scale, self.sampling_ratio, aligned=True
            )
            pooled[rows] = values.to(pooled.dtype)
        return pooled

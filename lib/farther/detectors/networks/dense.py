"""RetinaNet and FCOS of torchvision, and inference that keeps the logits of the anchor that gave each box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.models import detection
from torchvision.models.detection import FCOS, RetinaNet
from torchvision.models.detection._utils import _topk_min
from torchvision.ops import FrozenBatchNorm2d, batched_nms, clip_boxes_to_image

from farther.detectors.networks.detection import Detections, autocast, columns_of, network_input, pyramid_latent
from farther.detectors.networks.taps import Taps
from farther.detectors.networks.weights import fill, read_weights
from farther.detectors.settings import Selection, StoredColumns, to_numpy
from farther.errors import DataError
from farther.tables import Header, Regions

#: torchvision's networks, and how many anchors each has in a cell.
BUILDERS: dict[str, tuple[Callable[..., RetinaNet | FCOS], int]] = {
    "retinanet_resnet50_fpn": (detection.retinanet_resnet50_fpn, 9),
    "retinanet_resnet50_fpn_v2": (detection.retinanet_resnet50_fpn_v2, 9),
    "fcos_resnet50_fpn": (detection.fcos_resnet50_fpn, 1),
}

#: Pixels between two cells of the finest pyramid level; each further level has twice as many.
FIRST_STRIDE = 8

#: The weight whose rows are the logits of all anchors of a cell.
LAST_LAYER = "head.classification_head.cls_logits.weight"


def load_dense_network(
    path: str | Path, architecture: str, min_size: int, max_size: int, norm_epsilon: float
) -> RetinaNet | FCOS:
    """A network with the weights of a file, in evaluation mode and float32.

    Args:
        path: torchvision's state dict; how many columns its logits have follows from its last layer.
        architecture: A name of `BUILDERS`.
        min_size, max_size: Pixels of the images' shorter side, and at most of the longer.
        norm_epsilon: ε of the backbone's normalisations.

    Raises:
        DataError: the file is absent or damaged, or does not fit the network.
    """
    weights = read_weights(path)
    build, anchors = BUILDERS[architecture]
    rows = len(weights.get(LAST_LAYER, ()))
    if rows == 0 or rows % anchors:
        problem = f"expected {anchors} rows for each class, as {architecture!r} has them, found {rows}"
        raise DataError(problem, file=path, field=LAST_LAYER)
    columns = rows // anchors
    network = build(weights=None, weights_backbone=None, num_classes=columns, min_size=min_size, max_size=max_size)
    fill(network, path, weights, f"{architecture} with {columns} columns")
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | FrozenBatchNorm2d):
            module.eps = norm_epsilon
    return network.eval().to(memory_format=torch.channels_last)


@torch.inference_mode()
def detect_regions(
    network: RetinaNet | FCOS,
    header: Header,
    images: Sequence[np.ndarray],
    image_ids: Sequence[str],
    selection: Selection,
    precision: str,
    stored: StoredColumns,
) -> Regions:
    """Detects objects in one batch of images.

    Args:
        network: In evaluation mode.
        images: uint8 arrays of shape (H, W, 3).

    Returns:
        The rows image by image, best score first; `region_id` counts from 0. Boxes in pixels of the images as given.
    """
    device = next(network.parameters()).device
    batch = network_input(network.transform, images, device)
    taps = Taps(network, stored.layers)
    with taps, autocast(device, precision):
        levels = [level.float() for level in network.backbone(batch.tensors).values()]
        answers = {name: answer.float() for name, answer in network.head(levels).items()}
    logits, deltas = answers["cls_logits"], answers["bbox_regression"]
    scores = scores_of(answers, header.background_index)
    cells = [level.shape[2] * level.shape[3] for level in levels]
    counts = [count * logits.shape[1] // sum(cells) for count in cells]
    per_image = zip(scores, deltas, network.anchor_generator(batch, levels), batch.image_sizes, strict=True)
    found = [select(network, *answer, counts, selection) for answer in per_image]
    frames = list(zip(batch.image_sizes, [image.shape[:2] for image in images], strict=True))
    columns = columns_of(found, image_ids, frames)
    columns["logits"] = to_numpy(torch.cat([of_image[one.rows] for of_image, one in zip(logits, found, strict=True)]))
    height, width = batch.tensors.shape[2:]
    latents = taps.over_boxes([one.boxes for one in found], (height, width), stored.pooling)
    if stored.wants("latent"):
        latents["latent"] = pyramid_latent(levels, FIRST_STRIDE, found, frames, stored)
    columns |= stored.arrays(latents)
    return Regions(header=header, **columns)


def scores_of(answers: dict[str, Tensor], background: int | None) -> Tensor:
    """Scores of all anchors and classes, shape (B, A, K), from the output of the network's head."""
    scores = answers["cls_logits"].sigmoid()
    if "bbox_ctrness" in answers:
        scores = torch.sqrt(scores * answers["bbox_ctrness"].sigmoid())
    if background is not None:
        scores[..., background] = 0.0
    return scores


def select(
    network: RetinaNet | FCOS,
    scores: Tensor,
    deltas: Tensor,
    anchors: Tensor,
    size: tuple[int, int],
    counts: list[int],
    selection: Selection,
) -> Detections:
    """Threshold, the best of each level, and non-maximum suppression per class, as torchvision does.

    Args:
        scores, deltas, anchors: (A, K), (A, 4) and (A, 4) for an image's A anchors, in pixels of the resized image.
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
    coder = network.box_coder
    decode = coder.decode_single if isinstance(network, RetinaNet) else coder.decode
    boxes = clip_boxes_to_image(decode(deltas[rows], anchors[rows]), size)
    confidence = scores[rows, labels]
    kept = batched_nms(boxes, confidence, labels, selection.iou)[: selection.max_detections]
    return Detections(boxes[kept], confidence[kept], labels[kept], rows[kept])

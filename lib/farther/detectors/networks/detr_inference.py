"""Inference with a detection transformer that keeps logits, features and activations of each detection's query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torchvision.ops import batched_nms
from transformers import PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from farther.detectors.networks.detection import (
    Selection,
    StoredColumns,
    add_by_image,
    autocast,
    detect_by_shape,
    to_numpy,
)
from farther.detectors.networks.detr import class_head, family_of
from farther.detectors.networks.pooling import Pooling, box_means, published_cells
from farther.detectors.networks.taps import NO_LAYERS, Taps
from farther.errors import DataError, ParameterError
from farther.tables import Header, Regions

#: Index of the latent map among those that were flattened into the encoder's tokens: of stride 32, or the coarsest.
LATENT_LEVEL = 2


def make_processor(processor: dict[str, Any]) -> BaseImageProcessor:
    """The image processor that a `preprocessor_config.json` describes.

    Raises:
        ParameterError: it names another kind of processor, or one of its fields is wrong.
    """
    named = str(processor.get("image_processor_type", "")).removesuffix("Fast").removesuffix("Pil")
    found = getattr(transformers, named, None) if named.endswith("ImageProcessor") else None
    if not (isinstance(found, type) and hasattr(found, "post_process_object_detection")):
        name = processor.get("image_processor_type")
        raise ParameterError(f"image_processor_type {name!r} is not one of transformers' processors for detection")
    try:
        processor_class: Any = found
        return processor_class.from_dict(processor)
    except Exception as error:  # each processor raises different errors
        raise ParameterError(f"transformers refuses the image processor: {str(error).strip()[:400]}") from None


@dataclass(frozen=True)
class Prepared:
    """An image as the network takes it.

    Args:
        pixels: Shape (3, H, W), float32.
        mask: Shape (H, W): 1 in the image, 0 in the padding; None if the processor returns none.
        original: Height and width of the image before resizing.
    """

    pixels: Tensor
    mask: Tensor | None
    original: tuple[int, int]


def prepare(processor: BaseImageProcessor, image: np.ndarray) -> Prepared:
    """The image (H, W, 3), uint8, resized, rescaled, normalised and padded by its checkpoint's processor."""
    prepared = processor(images=[np.ascontiguousarray(image)], input_data_format="channels_last", return_tensors="pt")
    mask = prepared.get("pixel_mask")
    return Prepared(prepared["pixel_values"][0], None if mask is None else mask[0], image.shape[:2])


@torch.inference_mode()
def detect_regions(
    network: PreTrainedModel,
    header: Header,
    images: Sequence[Prepared],
    image_ids: Sequence[str],
    selection: Selection,
    precision: str = "float32",
    stored: StoredColumns | None = None,
) -> Regions:
    """Detects objects in one batch of images; detections do not depend on an image's neighbours in the batch.

    Args:
        network: In evaluation mode.
        stored: The columns `features` and `latent`; None leaves them out.

    Returns:
        The rows image by image, best score first; `region_id` counts from 0. Boxes in pixels of the original images.

    Raises:
        DataError: the network gives numbers that are not finite.
    """

    def detect(numbers: list[int]) -> list[dict[str, np.ndarray]]:
        return _detect_group(network, [images[number] for number in numbers], selection, precision, stored)

    shapes = [(*image.pixels.shape, image.mask is None) for image in images]
    return detect_by_shape(header, image_ids, shapes, detect)


def _detect_group(
    network: PreTrainedModel,
    images: Sequence[Prepared],
    selection: Selection,
    precision: str,
    stored: StoredColumns | None,
) -> list[dict[str, np.ndarray]]:
    """Columns of each image's detections; the images have one shape."""
    device = next(network.parameters()).device
    pixels = torch.stack([image.pixels for image in images]).to(device)
    masks = [torch.ones(pixels.shape[2:]) if image.mask is None else image.mask for image in images]
    taps = Taps(network, NO_LAYERS) if stored is None else stored.taps(network)
    with taps:
        seen = run(network, pixels, torch.stack(masks).to(device), precision)
    if not (torch.isfinite(seen.logits).all() and torch.isfinite(seen.boxes).all()):
        raise DataError("the network gives boxes or scores that are not finite: the checkpoint's weights are damaged")
    rows = []
    placed: list[Tensor] = []
    for number, image in enumerate(images):
        height, width = image.original
        boxes = _corners(seen.boxes[number])
        pairs = select(seen.scores[number], boxes, selection)
        logits = seen.logits[number]
        columns = {
            "box": to_numpy(boxes[pairs.queries] * boxes.new_tensor([width, height, width, height])),
            "score": to_numpy(pairs.scores),
            "label": pairs.labels.cpu().numpy().astype(np.int16),
            "logits": to_numpy(logits[pairs.queries]),
        }
        if stored is not None:
            columns["features"] = to_numpy(seen.features[number][pairs.queries]).astype(stored.dtype)
            if seen.latent is not None:
                extent = _extent(masks[number])
                # Rows of one query share its box: pooled once, they cost once.
                queries, of_row = pairs.queries.unique(return_inverse=True)
                level = seen.latent[number]
                if stored.pooling.published_rois:
                    shown = boxes[queries] * boxes.new_tensor([width, height, width, height])
                    latent = box_means(level, published_cells(shown, [level], width)[0], stored.pooling)
                else:
                    latent = pool_latent(level, boxes[queries] * extent.to(device), stored.pooling)
                columns["latent"] = to_numpy(latent[of_row]).astype(stored.dtype)
        rows.append(columns)
        padded = boxes.new_tensor([pixels.shape[3], pixels.shape[2]] * 2)
        placed.append(boxes[pairs.queries] * _extent(masks[number]).to(device) * padded)
    if stored is not None:
        add_by_image(rows, stored.arrays(stored.tapped(taps, placed, (pixels.shape[2], pixels.shape[3]))))
    return rows


@dataclass(frozen=True)
class Seen:
    """Output of a network for B images, with Q queries each.

    Args:
        logits: Shape (B, Q, K).
        scores: Shape (B, Q, K), "no object" left out.
        boxes: Shape (B, Q, 4): centre and size, as fractions of the image.
        features: Shape (B, Q, D), input of the last class head.
        latent: Shape (B, C, h, w), output of the first encoder module; None without an encoder.
    """

    logits: Tensor
    scores: Tensor
    boxes: Tensor
    features: Tensor
    latent: Tensor | None


def run(network: PreTrainedModel, pixels: Tensor, mask: Tensor, precision: str = "float32") -> Seen:
    """One pass over pixels (B, 3, H, W) under a mask (B, H, W) that keeps inputs and outputs of inner modules."""
    family = family_of(network.config.model_type)
    head = class_head(network)
    wanted: list[nn.Module] = [head]
    encoder = _submodule(network, family.encoder)
    projections = _projections(network, family.maps)
    wanted += [m for m in [encoder, *projections] if m is not None]
    with _kept(wanted) as kept, autocast(pixels.device, precision):
        output = network(pixel_values=pixels, pixel_mask=mask)
    logits = output.logits.float()
    scores = logits.sigmoid() if family.activation == "sigmoid" else logits.softmax(-1)[..., :-1]
    features = kept[head][0].float()
    latent = None
    if encoder is not None:
        latent = _as_map(kept[encoder][1], [kept[p][1] for p in projections]).float()
    return Seen(logits, scores, output.pred_boxes.float(), features, latent)


def _submodule(network: nn.Module, name: str | None) -> nn.Module | None:
    """The module of a name; None if this network's configuration leaves it out."""
    try:
        return None if name is None else network.get_submodule(name)
    except AttributeError:
        return None


def _projections(network: nn.Module, name: str | None) -> list[nn.Module]:
    module = _submodule(network, name)
    if module is None:
        return []
    return list(module) if isinstance(module, nn.ModuleList) else [module]


@contextmanager
def _kept(modules: Sequence[nn.Module]) -> Iterator[dict[nn.Module, tuple[Tensor, Tensor]]]:
    """The first input and the output of each module's last call in the block."""
    kept: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def keep(module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        given = args[0] if args else next(iter(kwargs.values()))
        kept[module] = given, output[0] if isinstance(output, tuple) else output

    hooks = [module.register_forward_hook(keep, with_kwargs=True) for module in modules]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def _as_map(output: Tensor, maps: list[Tensor]) -> Tensor:
    """An encoder module's output as a map, shape (B, C, h, w); `maps` were flattened into its tokens in this order."""
    if output.ndim == 4:
        return output
    level = min(LATENT_LEVEL, len(maps) - 1)
    start = sum(m.shape[2] * m.shape[3] for m in maps[:level])
    height, width = maps[level].shape[2:]
    return output[:, start : start + height * width].transpose(1, 2).unflatten(2, (height, width))


@dataclass(frozen=True)
class Pairs:
    """N pairs of query and class of one image, best score first: shape (N,) each."""

    queries: Tensor
    labels: Tensor
    scores: Tensor


def select(scores: Tensor, boxes: Tensor, selection: Selection) -> Pairs:
    """The detections of one image.

    Args:
        scores: Shape (Q, K).
        boxes: Shape (Q, 4), corners, in any unit.
    """
    candidates = scores
    if selection.per_query == "one":
        best = scores.max(-1, keepdim=True)
        candidates = torch.full_like(scores, -1).scatter(1, best.indices, best.values)
    queries, labels = torch.where(candidates > selection.score_threshold)
    found = candidates[queries, labels]
    if selection.iou < 1:
        order = batched_nms(boxes[queries], found, labels, selection.iou)
    else:
        order = found.argsort(descending=True, stable=True)
    order = order[: selection.max_detections]
    return Pairs(queries[order], labels[order], found[order])


def pool_latent(latent: Tensor, boxes: Tensor, pooling: Pooling) -> Tensor:
    """Channel means of activations over each box (FMIYC, Appendix F.2.4: ROIAlign, then the mean over the grid).

    Args:
        latent: Shape (C, h, w).
        boxes: Shape (N, 4), corners as fractions of the whole map.

    Returns:
        Shape (N, C).
    """
    height, width = latent.shape[1:]
    cells = boxes * boxes.new_tensor([width, height, width, height])
    return box_means(latent, cells, pooling)


def _extent(mask: Tensor) -> Tensor:
    """Fractions of the padded image's width and height that are image, for both corners: shape (4,)."""
    height, width = mask.shape
    seen = mask > 0
    x, y = seen.any(0).sum() / width, seen.any(1).sum() / height
    return torch.stack([x, y, x, y])


def _corners(boxes: Tensor) -> Tensor:
    """Centre and size → xmin, ymin, xmax, ymax."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1)

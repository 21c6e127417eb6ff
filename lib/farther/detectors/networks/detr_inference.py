"""Inference with a detection transformer that keeps logits, features and activations of each detection's query."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.ops import batched_nms
from transformers import PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from farther.detectors.hub import Prepared, masks
from farther.detectors.networks.detection import ImageDetections, autocast
from farther.detectors.networks.detr import class_head, family_of
from farther.detectors.networks.pooling import box_means, published_cells
from farther.detectors.networks.proposals import ImageProposals, propose
from farther.detectors.networks.replay import Candidates, Dropout, GroupedReplay, RowOutputs
from farther.detectors.networks.taps import Taps, answering, kept_calls
from farther.detectors.settings import NOTHING, BoxSelection, Pooling, ProposalSelection, StoredColumns, to_numpy
from farther.errors import DataError
from farther.images.device import ordinary_tensors
from farther.tables import Header

#: Index of the latent map among those that were flattened into the encoder's tokens: of stride 32, or the coarsest.
LATENT_LEVEL = 2


def unit(processor: BaseImageProcessor) -> Tensor:
    """Change of the network's input for a change of 1 in pixels from 0 to 1, shape (3, 1, 1)."""
    scale = 255 * processor.rescale_factor if processor.do_rescale else 255
    std = processor.image_std if processor.do_normalize else [1.0, 1.0, 1.0]
    return scale / torch.tensor(std)[:, None, None]


class DetrGroup:
    """Detections of images of one shape by a detection transformer; see `ReplayGroup`. Rows are queries.

    Args:
        network: In evaluation mode.
        images: The images.
        selection: Which boxes are detections.
        precision: Type of the network's activations.
        stored: The optional columns.

    Raises:
        DataError: the network gives numbers that are not finite.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        images: Sequence[Prepared],
        selection: BoxSelection,
        precision: str = "float32",
        stored: StoredColumns = NOTHING,
    ):
        self._network, self._selection, self._precision, self._stored = network, selection, precision, stored
        device = next(network.parameters()).device
        self._pixels = torch.stack([image.pixels for image in images]).to(device)
        self._masks = masks(images, device)
        self.images = list(self._pixels)
        self._sizes = [image.original for image in images]
        self._taps = Taps(network, stored.layers)
        before = [network.get_submodule(name) for name in BEFORE_DECODER]
        scorer = _scorer(network)
        with self._taps, kept_calls([*before, *([] if scorer is None else [scorer])]) as kept:
            seen = self._run(self._pixels)
        self._encoded = {module: kept[module][1] for module in before}
        self._ranks = {} if scorer is None else {scorer: _ranks(network, kept[scorer][1], seen.logits.shape[1])}
        if not (torch.isfinite(seen.logits).all() and torch.isfinite(seen.boxes).all()):
            problem = "the network gives boxes or scores that are not finite: the checkpoint's weights are damaged"
            raise DataError(problem)
        placed = [corners(boxes) for boxes in seen.boxes]
        pairs = [select(*answer, selection) for answer in zip(seen.scores, placed, strict=True)]
        self._queries = [one.queries for one in pairs]
        self._placed = [boxes[queries] for boxes, queries in zip(placed, self._queries, strict=True)]
        self._seen = seen
        answer = self._answer(seen)
        self.counts = [len(queries) for queries in self._queries]
        self.columns = {
            "box": to_numpy(answer.boxes),
            "score": to_numpy(torch.cat([one.scores for one in pairs])),
            "label": torch.cat([one.labels for one in pairs]).cpu().numpy().astype(np.int16),
            "logits": to_numpy(answer.logits),
        }
        self.columns |= stored.arrays({"features": self._of_queries(seen.features), **answer.latents})

    def again(self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None) -> RowOutputs:
        """See `Replay.again`."""
        network = self._network
        only_decoder = images is None and dropout is not None and dropout.is_within(self._after())
        with ordinary_tensors(images or ()), ExitStack() as stack:
            if dropout is not None:
                stack.enter_context(dropout.on(network, decoder_parts(network), [1] * len(self._queries)))
            stack.enter_context(answering({**self._ranks, **(self._encoded if only_decoder else {})}))
            if only_decoder:
                return self._answer(self._run(self._pixels), pooled=False)
            with self._taps:
                seen = self._run(self._pixels if images is None else torch.stack(list(images)))
            return self._answer(seen)

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """See `Proposing.proposals`."""
        seen, found = self._seen, []
        for number, (scores, boxes) in enumerate(zip(seen.scores, seen.boxes, strict=True)):
            given = self.placed(number, corners(boxes), torch.arange(len(boxes), device=boxes.device))
            rows, values = propose(given, scores, None, self._sizes[number], selection)
            found.append(ImageProposals(given[rows], values, seen.logits[number][rows], seen.features[number][rows]))
        return found

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `Free.candidates`."""
        dropout.check_within(self._after())
        masked = dropout.on(self._network, decoder_parts(self._network), [1] * len(self._sizes))
        with ordinary_tensors(), masked, answering({**self._ranks, **self._encoded}):
            seen = self._run(self._pixels)
        return [Candidates(z, corners(boxes)) for z, boxes in zip(seen.logits, seen.boxes, strict=True)]

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """See `Free.select`."""
        softmax = family_of(self._network.config.model_type).activation == "softmax"
        found = select(probabilities[:, :-1] if softmax else probabilities, boxes, self._selection)
        given = self.placed(number, boxes, found.queries, found.labels)
        return ImageDetections(given, found.scores, found.labels, found.queries)

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor | None = None) -> Tensor:
        """See `Free.placed`."""
        height, width = self._sizes[number]
        return boxes[rows] * boxes.new_tensor([width, height, width, height])

    def _after(self) -> list[str]:
        """Names of the decoder and of the heads outside of it."""
        family = family_of(self._network.config.model_type)
        return [name for name in ("model.decoder", family.head, family.boxes) if name is not None]

    def _run(self, pixels: Tensor) -> DetrOutput:
        return run(self._network, pixels, self._masks, self._precision)

    def _answer(self, seen: DetrOutput, *, pooled: bool = True) -> RowOutputs:
        """Output for all rows; without `latents` unless they are pooled."""
        boxes = []
        for of_image, queries, (height, width) in zip(seen.boxes, self._queries, self._sizes, strict=True):
            boxes.append(corners(of_image)[queries] * of_image.new_tensor([width, height, width, height]))
        return RowOutputs(
            self._of_queries(seen.logits),
            torch.cat(boxes),
            self._of_queries(seen.features),
            self._latents(seen) if pooled else {},
        )

    def _latents(self, seen: DetrOutput) -> dict[str, Tensor]:
        """The columns `latent` and `latent.<name>` of all rows."""
        stored = self._stored
        extents = _extents(self._masks)
        height, width = self._pixels.shape[2:]
        size = self._pixels.new_tensor([width, height, width, height])
        shown = [boxes * extent * size for boxes, extent in zip(self._placed, extents, strict=True)]
        further = self._taps.over_boxes(shown, (height, width), stored.pooling)
        if seen.latent is None or not stored.wants("latent"):
            return further
        means = []
        for number, level in enumerate(seen.latent):
            # Rows of one query share its box: pooled once, they cost once.
            _, first, of_row = np.unique(self._queries[number].cpu().numpy(), return_index=True, return_inverse=True)
            boxes = self._placed[number][torch.from_numpy(first)]
            if stored.pooling.published_rois:
                height, width = self._sizes[number]
                given = boxes * boxes.new_tensor([width, height, width, height])
                pooled = box_means(level, published_cells(given, [level], width)[0], stored.pooling)
            else:
                pooled = pool_latent(level, boxes * extents[number], stored.pooling)
            means.append(pooled[torch.from_numpy(of_row)])
        return {"latent": torch.cat(means), **further}

    def _of_queries(self, values: Tensor) -> Tensor:
        """Values of all rows, (N, D), from those of all queries, (B, Q, D)."""
        return torch.cat([of_image[queries] for of_image, queries in zip(values, self._queries, strict=True)])


#: What runs before the decoder.
BEFORE_DECODER = ("model.backbone", "model.encoder")

#: Last parts of the names of modules in the decoder's layers behind which transformers puts dropout.
DROPPED = ("self_attn", "cross_attn", "encoder_attn", "mlp", "fc2")


def decoder_parts(network: PreTrainedModel) -> list[str]:
    """Names of the modules of the decoder's layers behind which there is a dropout layer, if only with rate 0."""
    names = [name for name, _ in network.get_submodule("model.decoder.layers").named_modules()]
    found = [name for name in names if name.rpartition(".")[2] in DROPPED]
    inner = [name for name in found if not any(other.startswith(f"{name}.") for other in found)]
    return [f"model.decoder.layers.{name}" for name in inner]


def _scorer(network: PreTrainedModel) -> nn.Module | None:
    """The module whose best proposals become queries; None in networks whose queries are learnt."""
    module = _submodule(network, family_of(network.config.model_type).proposals)
    return module[-1] if isinstance(module, nn.ModuleList) else module


def _ranks(network: PreTrainedModel, scores: Tensor, count: int) -> Tensor:
    """Output of the scorer, shape (B, T, K), that chooses the same proposals, in the same order, as `scores` does."""
    by_first = network.config.model_type == "deformable_detr"
    best = (scores[..., 0] if by_first else scores.max(-1).values).topk(count, dim=1).indices
    places = torch.arange(count, 0, -1, device=scores.device, dtype=scores.dtype)
    ranks = scores.new_zeros(scores.shape[:2]).scatter(1, best, places.expand(len(scores), -1))
    return ranks[..., None].expand_as(scores)


def replay(
    network: PreTrainedModel,
    header: Header,
    images: Sequence[Prepared],
    selection: BoxSelection,
    precision: str = "float32",
    stored: StoredColumns = NOTHING,
) -> GroupedReplay:
    """Detections of one batch that do not depend on their neighbours, and can be computed again; see `DetrGroup`."""
    detect = partial(DetrGroup, network, selection=selection, precision=precision, stored=stored)
    return GroupedReplay(header, images, lambda image: (*image.pixels.shape, image.mask is None), detect)


@dataclass(frozen=True)
class DetrOutput:
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


def run(network: PreTrainedModel, pixels: Tensor, mask: Tensor, precision: str = "float32") -> DetrOutput:
    """One pass over pixels (B, 3, H, W) under a mask (B, H, W) that keeps inputs and outputs of inner modules."""
    family = family_of(network.config.model_type)
    head = class_head(network)
    wanted: list[nn.Module] = [head]
    encoder = _submodule(network, family.encoder)
    projections = _projections(network, family.maps)
    wanted += [m for m in [encoder, *projections] if m is not None]
    with kept_calls(wanted) as kept, autocast(pixels.device, precision):
        output = network(pixel_values=pixels, pixel_mask=mask)
    logits = output.logits.float()
    scores = logits.sigmoid() if family.activation == "sigmoid" else logits.softmax(-1)[..., :-1]
    features = kept[head][0].float()
    latent = None
    if encoder in kept:
        latent = _as_map(_first(kept[encoder][1]), [kept[p][1] for p in projections]).float()
    return DetrOutput(logits, scores, output.pred_boxes.float(), features, latent)


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


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _as_map(output: Tensor, maps: list[Tensor]) -> Tensor:
    """An encoder module's output as a map, shape (B, C, h, w); `maps` were flattened into its tokens in this order."""
    if output.ndim == 4:
        return output
    level = min(LATENT_LEVEL, len(maps) - 1)
    start = sum(m.shape[2] * m.shape[3] for m in maps[:level])
    height, width = maps[level].shape[2:]
    return output[:, start : start + height * width].transpose(1, 2).unflatten(2, (height, width))


@dataclass(frozen=True)
class QueryPairs:
    """N pairs of query and class of one image: shape (N,) each."""

    queries: Tensor
    labels: Tensor
    scores: Tensor

    def at(self, rows: Tensor) -> QueryPairs:
        """Some of them."""
        return QueryPairs(self.queries[rows], self.labels[rows], self.scores[rows])


def select(scores: Tensor, boxes: Tensor, selection: BoxSelection) -> QueryPairs:
    """The detections of one image.

    Args:
        scores: Shape (Q, K).
        boxes: Shape (Q, 4), corners, in any unit.
    """
    found = candidates(scores, selection)
    if selection.iou < 1:
        order = batched_nms(boxes[found.queries], found.scores, found.labels, selection.iou)
    else:
        order = found.scores.argsort(descending=True, stable=True)
    return found.at(order[: selection.max_detections])


def candidates(scores: Tensor, selection: BoxSelection) -> QueryPairs:
    """The pairs of scores (Q, K) above the threshold, in the order of the queries."""
    counted = scores
    if selection.per_query == "one":
        best = scores.max(-1, keepdim=True)
        counted = torch.full_like(scores, -1).scatter(1, best.indices, best.values)
    queries, labels = torch.where(counted > selection.score_threshold)
    return QueryPairs(queries, labels, counted[queries, labels])


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


def _extents(masks: Tensor) -> Tensor:
    """Fractions of each padded image's width and height that are image, for both corners: shape (B, 4)."""
    height, width = masks.shape[1:]
    seen = masks > 0
    x, y = seen.any(1).sum(1) / width, seen.any(2).sum(1) / height
    return torch.stack([x, y, x, y], dim=1)


def corners(boxes: Tensor) -> Tensor:
    """Centre and size → xmin, ymin, xmax, ymax."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1)

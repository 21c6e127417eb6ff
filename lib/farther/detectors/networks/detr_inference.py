"""Inference with a detection transformer that keeps logits, features and activations of each detection's query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from farther.detectors.settings import (
    NOTHING,
    BoxSelection,
    Pooling,
    ProposalSelection,
    StoredColumns,
    to_numpy,
)
from farther.errors import DataError
from farther.images.device import ordinary_tensors
from farther.tables import Header

#: Index of the latent map among those that were flattened into the encoder's tokens: of stride 32,
#: or the coarsest.
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
        self._network, self._selection, self._precision, self._stored = (
            network,
            selection,
            precision,
            stored,
        )
        device = next(network.parameters()).device
        self._pixels = torch.stack([image.pixels for image in images]).to(device)
        self._masks = masks(images, device)
        self.images = list(self._pixels)
        self._sizes = [image.original for image in images]
        self._taps = Taps(network, stored.layers)
        before = [
            network.get_submodule(name) for name in family_of(network.config.model_type).before
        ]
        scoring = _scoring(network)
        with self._taps, kept_calls([*before, *scoring.modules]) as kept:
            seen = self._run(self._pixels)
        self._encoded = {module: kept[module][1] for module in before}
        self._ranks = scoring.ranks(kept, seen.logits.shape[1])
        if not (torch.isfinite(seen.logits).all() and torch.isfinite(seen.boxes).all()):
            problem = "the network gives boxes or scores that are not finite: the checkpoint's weights are damaged"
            raise DataError(problem)
        placed = [corners(boxes) for boxes in seen.boxes]
        pairs = [select(*answer, selection) for answer in zip(seen.scores, placed, strict=True)]
        self._queries = [one.queries for one in pairs]
        self._placed = [
            boxes[queries] for boxes, queries in zip(placed, self._queries, strict=True)
        ]
        self._seen = seen
        answer = self._answer(seen)
        self.counts = [len(queries) for queries in self._queries]
        self.columns = {
            "box": to_numpy(answer.boxes),
            "score": to_numpy(torch.cat([one.scores for one in pairs])),
            "label": torch.cat([one.labels for one in pairs]).cpu().numpy().astype(np.int16),
            "logits": to_numpy(answer.logits),
        }
        self.columns |= stored.arrays(
            {"features": self._of_queries(seen.features), **answer.latents}
        )

    def again(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.again`."""
        network = self._network
        only_decoder = images is None and dropout is not None and dropout.is_within(self._after())
        with ordinary_tensors(images or ()), ExitStack() as stack:
            if dropout is not None:
                stack.enter_context(
                    dropout.on(network, decoder_parts(network), [1] * len(self._queries))
                )
            stack.enter_context(
                answering({**self._ranks, **(self._encoded if only_decoder else {})})
            )
            if only_decoder:
                return self._answer(self._run(self._pixels), pooled=False)
            with self._taps:
                seen = self._run(self._pixels if images is None else torch.stack(list(images)))
            return self._answer(seen)

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """See `Proposing.proposals`."""
        seen, found = self._seen, []
        for number, (scores, boxes) in enumerate(zip(seen.scores, seen.boxes, strict=True)):
            given = self.placed(
                number, corners(boxes), torch.arange(len(boxes), device=boxes.device)
            )
            rows, values = propose(given, scores, None, self._sizes[number], selection)
            found.append(
                ImageProposals(
                    given[rows], values, seen.logits[number][rows], seen.features[number][rows]
                )
            )
        return found

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `Free.candidates`."""
        dropout.check_within(self._after())
        masked = dropout.on(self._network, decoder_parts(self._network), [1] * len(self._sizes))
        with ordinary_tensors(), masked, answering({**self._ranks, **self._encoded}):
            seen = self._run(self._pixels)
        return [
            Candidates(z, corners(boxes)) for z, boxes in zip(seen.logits, seen.boxes, strict=True)
        ]

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """See `Free.select`."""
        softmax = family_of(self._network.config.model_type).activation == "softmax"
        found = select(probabilities[:, :-1] if softmax else probabilities, boxes, self._selection)
        given = self.placed(number, boxes, found.queries, found.labels)
        return ImageDetections(given, found.scores, found.labels, found.queries)

    def placed(
        self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        """See `Free.placed`."""
        height, width = self._sizes[number]
        if self._selection.clipped:
            boxes = boxes.clamp(0, 1)
        return boxes[rows] * boxes.new_tensor([width, height, width, height])

    def _after(self) -> list[str]:
        """Names of the decoder and of the heads outside of it."""
        family = family_of(self._network.config.model_type)
        return [name for name in (family.decoder, family.head, family.boxes) if name is not None]

    def _run(self, pixels: Tensor) -> DetrOutput:
        return run(self._network, pixels, self._masks, self._precision)

    def _answer(self, seen: DetrOutput, *, pooled: bool = True) -> RowOutputs:
        """Output for all rows; without `latents` unless they are pooled."""
        boxes = []
        for number, queries in enumerate(self._queries):
            boxes.append(self.placed(number, corners(seen.boxes[number]), queries))
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
            _, first, of_row = np.unique(
                self._queries[number].cpu().numpy(), return_index=True, return_inverse=True
            )
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
        return torch.cat(
            [of_image[queries] for of_image, queries in zip(values, self._queries, strict=True)]
        )


def decoder_parts(network: PreTrainedModel) -> list[str]:
    """Names of the modules of the decoder's layers behind which there is a dropout layer, if only with rate 0."""
    family = family_of(network.config.model_type)
    layers = f"{family.decoder}.{family.layers}"
    names = [name for name, _ in network.get_submodule(layers).named_modules()]
    dropped = [
        name
        for name in names
        if f".{name}".endswith(tuple(f".{ending}" for ending in family.dropped))
    ]
    inner = [name for name in dropped if not any(other.startswith(f"{name}.") for other in dropped)]
    return [f"{layers}.{name}" for name in inner]


@dataclass(frozen=True)
class Scoring:
    """How a network chooses the proposals that become queries.

    Args:
        scorer: The module whose best proposals become queries; None in networks whose queries are
            learnt.
        by_first: The score is that of the first class, instead of the best one.
        masked: The layer whose input is 0 where a proposal cannot become a query; None where all
            can.
        scored: The layer whose output is scored; None where the scorer runs once and its own output
            is taken.
    """

    scorer: nn.Module | None = None
    by_first: bool = False
    masked: nn.Module | None = None
    scored: nn.Module | None = None

    @property
    def modules(self) -> list[nn.Module]:
        """Those whose calls `ranks` reads."""
        return [module for module in (self.scorer, self.masked, self.scored) if module is not None]

    def ranks(
        self, kept: Mapping[nn.Module, tuple[Tensor, Any]], count: int
    ) -> dict[nn.Module, Tensor]:
        """By the scorer, an output, shape (B, T, K), that chooses the same `count` proposals in the same order."""
        if self.scorer is None:
            return {}
        if self.scored is None or self.masked is None:
            scores = kept[self.scorer][1]
        else:
            possible = (kept[self.masked][0] != 0).any(-1, keepdim=True)
            scores = self.scorer(kept[self.scored][1]).masked_fill(~possible, -torch.inf)
        score_per_proposal = scores[..., 0] if self.by_first else scores.max(-1).values
        best = score_per_proposal.topk(count, dim=1).indices
        places = torch.arange(count, 0, -1, device=scores.device, dtype=scores.dtype)
        ranks = scores.new_zeros(scores.shape[:2]).scatter(1, best, places.expand(len(scores), -1))
        return {self.scorer: ranks[..., None].expand_as(scores)}


def _scoring(network: PreTrainedModel) -> Scoring:
    family = family_of(network.config.model_type)
    scorer = _submodule(network, family.proposals)
    if family.proposal_inputs is not None:
        masked, scored = (network.get_submodule(f"{name}.0") for name in family.proposal_inputs)
        return Scoring(network.get_submodule(f"{family.proposals}.0"), masked=masked, scored=scored)
    if isinstance(scorer, nn.ModuleList):
        scorer = scorer[-1]
    return Scoring(scorer, by_first=network.config.model_type == "deformable_detr")


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
    return GroupedReplay(
        header, images, lambda image: (*image.pixels.shape, image.mask is None), detect
    )


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


def run(
    network: PreTrainedModel, pixels: Tensor, mask: Tensor, precision: str = "float32"
) -> DetrOutput:
    """One pass over pixels (B, 3, H, W) under a mask (B, H, W) that keeps inputs and outputs of inner modules."""
    family = family_of(network.config.model_type)
    head = class_head(network)
    wanted: list[nn.Module] = [head]
    encoder = _first_of(network, family.encoders)
    projections = _projections(network, family.maps)
    wanted += [m for m in [encoder, *projections] if m is not None]
    with kept_calls(wanted) as kept, autocast(pixels.device, precision):
        given = {"pixel_mask": mask} if family.has_mask else {}
        output = network(pixel_values=pixels, **given)
    logits = output.logits.float()
    scores = logits.sigmoid() if family.activation == "sigmoid" else logits.softmax(-1)[..., :-1]
    features = kept[head][0].float()
    latent = None
    # In a pass of the decoder alone, the modules in front of it do not run again.
    if encoder in kept and all(projection in kept for projection in projections):
        maps = [kept[projection][1] for projection in projections]
        latent = _as_map(_first(kept[encoder][1]), maps, family.first_token).float()
    return DetrOutput(logits, scores, output.pred_boxes.float(), features, latent)


def _submodule(network: nn.Module, name: str | None) -> nn.Module | None:
    """The module of a name; None if this network's configuration leaves it out."""
    try:
        return None if name is None else network.get_submodule(name)
    except AttributeError:
        return None


def _first_of(network: nn.Module, names: Sequence[str]) -> nn.Module | None:
    """The first of these modules that the network has; None where it has none."""
    for name in names:
        module = _submodule(network, name)
        if module is not None:
            return module
    return None


def _projections(network: nn.Module, name: str | None) -> list[nn.Module]:
    module = _submodule(network, name)
    if module is None:
        return []
    return list(module) if isinstance(module, nn.ModuleList) else [module]


def _first(output: Any) -> Tensor:
    """The tensor of a module's output: the first one of a tuple, the coarsest map of a list."""
    if isinstance(output, list):
        return min(output, key=lambda level: level.shape[2] * level.shape[3])
    return output[0] if isinstance(output, tuple) else output


def _as_map(output: Tensor, maps: list[Tensor], first_token: int) -> Tensor:
    """An encoder module's output as a map, shape (B, C, h, w); `maps` were flattened into its tokens in this order."""
    if output.ndim == 4:
        return output
    level = min(LATENT_LEVEL, len(maps) - 1)
    start = first_token + sum(m.shape[2] * m.shape[3] for m in maps[:level])
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

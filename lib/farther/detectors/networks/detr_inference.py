"""Inference with detection transformers that keeps the features and activations of each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.ops import batched_nms
from transformers import PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from farther.detectors.hub import Prepared, masks
from farther.detectors.networks.candidate_boxes import ImageProposals, select_proposals
from farther.detectors.networks.detection import ImageDetections, autocast
from farther.detectors.networks.detr import class_head, family_of
from farther.detectors.networks.pooling import box_means, published_cells
from farther.detectors.networks.replay import Candidates, Dropout, GroupedReplay, RowOutputs
from farther.detectors.networks.taps import Taps, recorded_calls, replaced_outputs
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


@dataclass(eq=False)
class DetrGroup:
    """Detections of images of one shape by a detection transformer; see `ReplayGroup`.

    The rows are queries. `DetrGroup.detect` runs a network and returns one.

    Args:
        network: In evaluation mode.
        selection: Limits of scores and overlaps of detections.
        precision: Type of the network's activations.
        stored: The optional columns.
        pixels: Shape (B, 3, H, W).
        masks: Shape (B, H, W): which pixels are image.
        sizes: Height and width of each image as given.
        taps: Outputs of further modules.
        encoded: Outputs of the modules that run before the decoder.
        ranks: Output of the module that scores proposals, by that module; see `Scoring.ranks`.
        output: Of the network.
        detected: Query, class and score of each image's detections.
    """

    network: PreTrainedModel
    selection: BoxSelection
    precision: str
    stored: StoredColumns
    pixels: Tensor
    masks: Tensor
    sizes: list[tuple[int, ...]]
    taps: Taps
    encoded: dict[nn.Module, Any]
    ranks: dict[nn.Module, Tensor]
    output: DetrOutput
    detected: list[QueryPairs]

    images: list[Tensor] = field(init=False)
    counts: list[int] = field(init=False)
    columns: dict[str, np.ndarray] = field(init=False)

    #: Boxes of each image's detections, corners as fractions of the image.
    _boxes: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.images = list(self.pixels)
        self.counts = [len(pairs.queries) for pairs in self.detected]
        self._boxes = []
        for boxes, pairs in zip(self.output.boxes, self.detected, strict=True):
            self._boxes.append(corners(boxes)[pairs.queries])
        self.columns = self._columns()

    @classmethod
    def detect(
        cls,
        network: PreTrainedModel,
        images: Sequence[Prepared],
        selection: BoxSelection,
        precision: str = "float32",
        stored: StoredColumns = NOTHING,
    ) -> DetrGroup:
        """Runs the network on images of one shape.

        Args:
            network: In evaluation mode.
            images: The prepared images.
            selection: Limits of scores and overlaps of detections.
            precision: Type of the network's activations.
            stored: The optional columns.

        Raises:
            DataError: the network gives numbers that are not finite.
        """
        device = next(network.parameters()).device
        pixels = torch.stack([image.pixels for image in images]).to(device)
        image_masks = masks(images, device)
        family = family_of(network.config.model_type)
        before_decoder = [network.get_submodule(name) for name in family.before]
        scoring = _scoring(network)
        taps = Taps(network, stored.layers)
        with taps, recorded_calls([*before_decoder, *scoring.modules]) as calls:
            output = run(network, pixels, image_masks, precision)
        output.check_finite()

        detected = []
        for scores, boxes in zip(output.scores, output.boxes, strict=True):
            detected.append(select(scores, corners(boxes), selection))
        return cls(
            network=network,
            selection=selection,
            precision=precision,
            stored=stored,
            pixels=pixels,
            masks=image_masks,
            sizes=[image.original for image in images],
            taps=taps,
            encoded={module: calls[module][1] for module in before_decoder},
            ranks=scoring.ranks(calls, output.logits.shape[1]),
            output=output,
            detected=detected,
        )

    def recompute(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.recompute`."""
        if images is None and dropout is not None and dropout.is_within(self._decoder_modules()):
            output = self._run_decoder(dropout)
            return self._row_outputs(output, latents={})

        pixels = self.pixels if images is None else torch.stack(list(images))
        with ordinary_tensors(images or ()), self._masked(dropout), replaced_outputs(self.ranks):
            with self.taps:
                output = self._run(pixels)
            return self._row_outputs(output, self._latents(output))

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """See `ProposalSource.proposals`."""
        output = self.output
        proposals = []
        for number, boxes in enumerate(output.boxes):
            every_query = torch.arange(len(boxes), device=boxes.device)
            image_boxes = self.placed(number, corners(boxes), every_query)
            rows, objectness = select_proposals(
                image_boxes, output.scores[number], None, self.sizes[number], selection
            )
            logits = output.logits[number][rows]
            features = output.features[number][rows]
            proposals.append(ImageProposals(image_boxes[rows], objectness, logits, features))
        return proposals

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `CandidateSource.candidates`."""
        dropout.check_within(self._decoder_modules())
        output = self._run_decoder(dropout)
        candidates = []
        for logits, boxes in zip(output.logits, output.boxes, strict=True):
            candidates.append(Candidates(logits, corners(boxes)))
        return candidates

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """See `CandidateSource.select`."""
        if family_of(self.network.config.model_type).activation == "softmax":
            probabilities = probabilities[:, :-1]
        pairs = select(probabilities, boxes, self.selection)
        image_boxes = self.placed(number, boxes, pairs.queries, pairs.labels)
        return ImageDetections(image_boxes, pairs.scores, pairs.labels, pairs.queries)

    def placed(
        self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        """See `CandidateSource.placed`."""
        height, width = self.sizes[number]
        if self.selection.clipped:
            boxes = boxes.clamp(0, 1)
        return boxes[rows] * boxes.new_tensor([width, height, width, height])

    def _columns(self) -> dict[str, np.ndarray]:
        """The columns of the detections, image by image."""
        outputs = self._row_outputs(self.output, self._latents(self.output))
        scores = torch.cat([pairs.scores for pairs in self.detected])
        labels = torch.cat([pairs.labels for pairs in self.detected])
        columns = {
            "box": to_numpy(outputs.boxes),
            "score": to_numpy(scores),
            "label": labels.cpu().numpy().astype(np.int16),
            "logits": to_numpy(outputs.logits),
        }
        optional = {"features": self._of_queries(self.output.features), **outputs.latents}
        return columns | self.stored.arrays(optional)

    def _decoder_modules(self) -> list[str]:
        """Names of the decoder and of the heads outside of it."""
        family = family_of(self.network.config.model_type)
        names = [family.decoder, family.head]
        if family.boxes is not None:
            names.append(family.boxes)
        return names

    def _run(self, pixels: Tensor) -> DetrOutput:
        return run(self.network, pixels, self.masks, self.precision)

    def _run_decoder(self, dropout: Dropout) -> DetrOutput:
        """Runs only the decoder and the heads again, with dropout."""
        with (
            ordinary_tensors(),
            self._masked(dropout),
            replaced_outputs({**self.ranks, **self.encoded}),
        ):
            return self._run(self.pixels)

    def _masked(self, dropout: Dropout | None) -> AbstractContextManager[None]:
        """A context with the masks of dropout; see `Dropout.on`."""
        if dropout is None:
            return nullcontext()
        return dropout.on(self.network, decoder_parts(self.network), [1] * len(self.sizes))

    def _row_outputs(self, output: DetrOutput, latents: dict[str, Tensor]) -> RowOutputs:
        """The output of the network for all rows."""
        boxes = []
        for number, pairs in enumerate(self.detected):
            boxes.append(self.placed(number, corners(output.boxes[number]), pairs.queries))
        return RowOutputs(
            logits=self._of_queries(output.logits),
            boxes=torch.cat(boxes),
            features=self._of_queries(output.features),
            latents=latents,
        )

    def _latents(self, output: DetrOutput) -> dict[str, Tensor]:
        """The columns `latent`, `latent.<name>` and `gram.<name>` of all rows."""
        height, width = self.pixels.shape[2:]
        input_size = self.pixels.new_tensor([width, height, width, height])
        extents = _extents(self.masks)
        input_boxes = []
        for boxes, extent in zip(self._boxes, extents, strict=True):
            input_boxes.append(boxes * extent * input_size)
        columns = self.taps.over_boxes(input_boxes, (height, width), self.stored.pooling)
        if output.latent is None or not self.stored.stores("latent"):
            return columns
        means = []
        for number, (level, extent) in enumerate(zip(output.latent, extents, strict=True)):
            means.append(self._latent_of(number, level, extent))
        return {"latent": torch.cat(means), **columns}

    def _latent_of(self, number: int, level: Tensor, extent: Tensor) -> Tensor:
        """The column `latent` of one image's rows, (N, C).

        Args:
            number: The image's number.
            level: Its latent map, (C, h, w).
            extent: Fractions of the map that are image; see `_extents`.
        """
        # Rows of one query share its box, which is pooled once.
        queries = self.detected[number].queries.cpu().numpy()
        _, first_row, query_of_row = np.unique(queries, return_index=True, return_inverse=True)
        boxes = self._boxes[number][torch.from_numpy(first_row)]
        pooling = self.stored.pooling
        if pooling.published_rois:
            height, width = self.sizes[number]
            image_boxes = boxes * boxes.new_tensor([width, height, width, height])
            pooled = box_means(level, published_cells(image_boxes, [level], width)[0], pooling)
        else:
            pooled = pool_latent(level, boxes * extent, pooling)
        return pooled[torch.from_numpy(query_of_row)]

    def _of_queries(self, values: Tensor) -> Tensor:
        """Values of all rows, (N, D), from those of all queries, (B, Q, D)."""
        values_by_image = []
        for image_values, pairs in zip(values, self.detected, strict=True):
            values_by_image.append(image_values[pairs.queries])
        return torch.cat(values_by_image)


def decoder_parts(network: PreTrainedModel) -> list[str]:
    """Names of the modules of the decoder's layers behind which there is a dropout layer.

    Its rate may be 0.
    """
    family = family_of(network.config.model_type)
    layers = f"{family.decoder}.{family.layers}"
    endings = tuple(f".{ending}" for ending in family.dropped)
    modules = network.get_submodule(layers).named_modules()
    names = [name for name, _ in modules if f".{name}".endswith(endings)]
    return [f"{layers}.{name}" for name in names if not _is_outer(name, names)]


def _is_outer(name: str, names: Sequence[str]) -> bool:
    """True if a module holds another one of these modules."""
    return any(inner.startswith(f"{name}.") for inner in names)


@dataclass(frozen=True)
class Scoring:
    """The modules by which a network chooses the proposals that become queries.

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
        """The modules whose calls `ranks` reads."""
        return [module for module in (self.scorer, self.masked, self.scored) if module is not None]

    def ranks(
        self, calls: Mapping[nn.Module, tuple[Tensor, Any]], count: int
    ) -> dict[nn.Module, Tensor]:
        """An output of the scorer that chooses the same proposals in the same order.

        Args:
            calls: First input and output of each of `modules`.
            count: Number of proposals that become queries.

        Returns:
            Scorer → output, shape (B, T, K); empty without a scorer.
        """
        if self.scorer is None:
            return {}
        if self.scored is None or self.masked is None:
            scores = calls[self.scorer][1]
        else:
            possible = (calls[self.masked][0] != 0).any(-1, keepdim=True)
            scores = self.scorer(calls[self.scored][1]).masked_fill(~possible, -torch.inf)
        score_per_proposal = scores[..., 0] if self.by_first else scores.max(-1).values
        best = score_per_proposal.topk(count, dim=1).indices
        places = torch.arange(count, 0, -1, device=scores.device, dtype=scores.dtype)
        ranks = scores.new_zeros(scores.shape[:2]).scatter(1, best, places.expand(len(scores), -1))
        return {self.scorer: ranks[..., None].expand_as(scores)}


def _scoring(network: PreTrainedModel) -> Scoring:
    family = family_of(network.config.model_type)
    if family.proposal_inputs is not None:
        masked, scored = family.proposal_inputs
        return Scoring(
            scorer=network.get_submodule(f"{family.proposals}.0"),
            masked=network.get_submodule(f"{masked}.0"),
            scored=network.get_submodule(f"{scored}.0"),
        )
    scorer = _submodule(network, family.proposals)
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
    """Runs a network on a batch whose detections can be computed again; see `DetrGroup`.

    An image's detections do not depend on the other images of the batch.
    """
    detect = partial(
        DetrGroup.detect, network, selection=selection, precision=precision, stored=stored
    )
    return GroupedReplay.detect(header, images, _shape, detect)


def _shape(image: Prepared) -> tuple:
    """Images of one shape go through the network together."""
    return (*image.pixels.shape, image.mask is None)


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

    def check_finite(self) -> None:
        """Raises a DataError if a logit or a box is not finite."""
        if torch.isfinite(self.logits).all() and torch.isfinite(self.boxes).all():
            return
        raise DataError(
            "the network gives boxes or scores that are not finite: "
            "the checkpoint's weights are damaged"
        )


def run(
    network: PreTrainedModel, pixels: Tensor, mask: Tensor, precision: str = "float32"
) -> DetrOutput:
    """Runs a network, and keeps inputs and outputs of inner modules.

    Args:
        network: In evaluation mode.
        pixels: Shape (B, 3, H, W).
        mask: Shape (B, H, W): which pixels are image.
        precision: Type of the network's activations.
    """
    family = family_of(network.config.model_type)
    head = class_head(network)
    encoder = _first_of(network, family.encoders)
    projections = _projections(network, family.maps)
    modules = [head, *projections]
    if encoder is not None:
        modules.append(encoder)

    with recorded_calls(modules) as calls, autocast(pixels.device, precision):
        arguments = {"pixel_mask": mask} if family.has_mask else {}
        output = network(pixel_values=pixels, **arguments)

    logits = output.logits.float()
    scores = logits.sigmoid() if family.activation == "sigmoid" else logits.softmax(-1)[..., :-1]
    latent = None
    # Where only the decoder runs, there are no calls of the modules in front of it.
    if encoder in calls and all(projection in calls for projection in projections):
        maps = [calls[projection][1] for projection in projections]
        tokens = _first(calls[encoder][1])
        latent = _as_map(tokens, maps, family.first_token).float()
    return DetrOutput(
        logits=logits,
        scores=scores,
        boxes=output.pred_boxes.float(),
        features=calls[head][0].float(),
        latent=latent,
    )


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
    """The module of a name, or the items of a list of modules; empty if the network has none."""
    module = _submodule(network, name)
    if module is None:
        return []
    if isinstance(module, nn.ModuleList):
        return list(module)
    return [module]


def _first(output: Any) -> Tensor:
    """The tensor of a module's output: the first one of a tuple, the coarsest map of a list."""
    if isinstance(output, list):
        return min(output, key=_cell_count)
    if isinstance(output, tuple):
        return output[0]
    return output


def _cell_count(level: Tensor) -> int:
    return level.shape[2] * level.shape[3]


def _as_map(output: Tensor, maps: list[Tensor], first_token: int) -> Tensor:
    """An encoder module's output as a map, shape (B, C, h, w).

    Args:
        output: A map, or tokens, (B, T, C).
        maps: The maps that were flattened into the tokens, in this order.
        first_token: Number of tokens in front of those of the first map.
    """
    if output.ndim == 4:
        return output
    level = min(LATENT_LEVEL, len(maps) - 1)
    start = first_token + sum(_cell_count(before) for before in maps[:level])
    height, width = maps[level].shape[2:]
    return output[:, start : start + height * width].transpose(1, 2).unflatten(2, (height, width))


@dataclass(frozen=True)
class QueryPairs:
    """N pairs of query and class of one image: shape (N,) each."""

    queries: Tensor
    labels: Tensor
    scores: Tensor

    def at(self, rows: Tensor) -> QueryPairs:
        """The pairs at some rows."""
        return QueryPairs(self.queries[rows], self.labels[rows], self.scores[rows])


def select(scores: Tensor, boxes: Tensor, selection: BoxSelection) -> QueryPairs:
    """The detections of one image, best first.

    Args:
        scores: Shape (Q, K).
        boxes: Shape (Q, 4), corners, in any unit.
        selection: Limits of scores and overlaps.
    """
    pairs = candidates(scores, selection)
    if selection.iou < 1:
        order = batched_nms(boxes[pairs.queries], pairs.scores, pairs.labels, selection.iou)
    else:
        order = pairs.scores.argsort(descending=True, stable=True)
    return pairs.at(order[: selection.max_detections])


def candidates(scores: Tensor, selection: BoxSelection) -> QueryPairs:
    """The pairs of scores (Q, K) above the threshold, in the order of the queries."""
    if selection.per_query == "one":
        best = scores.max(-1, keepdim=True)
        scores = torch.full_like(scores, -1).scatter(1, best.indices, best.values)
    queries, labels = torch.where(scores > selection.score_threshold)
    return QueryPairs(queries, labels, scores[queries, labels])


def pool_latent(latent: Tensor, boxes: Tensor, pooling: Pooling) -> Tensor:
    """Channel means of activations over each box.

    ROIAlign, then the mean over its grid (FMIYC, Appendix F.2.4).

    Args:
        latent: Shape (C, h, w).
        boxes: Shape (N, 4), corners as fractions of the whole map.
        pooling: Settings of ROIAlign.

    Returns:
        Shape (N, C).
    """
    height, width = latent.shape[1:]
    cells = boxes * boxes.new_tensor([width, height, width, height])
    return box_means(latent, cells, pooling)


def _extents(masks: Tensor) -> Tensor:
    """Fractions of each padded image's width and height that are image, for both corners.

    Args:
        masks: Shape (B, H, W).

    Returns:
        Shape (B, 4): width, height, width, height.
    """
    height, width = masks.shape[1:]
    is_image = masks > 0
    x = is_image.any(1).sum(1) / width
    y = is_image.any(2).sum(1) / height
    return torch.stack([x, y, x, y], dim=1)


def corners(boxes: Tensor) -> Tensor:
    """Centre and size → xmin, ymin, xmax, ymax."""
    centre = boxes[..., :2]
    half = boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1)

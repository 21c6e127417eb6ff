"""Boxes that a network knows of and does not report: class-agnostic proposals with an objectness.

An object of no known class is often seen all the same: a region proposal network gives it a box, or
the anchors and queries on it share their scores among several classes, none of which is high
enough. Of one image's candidates the best are kept by objectness, whatever class they would be
(non-maximum suppression without classes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torchvision.models.detection._utils import _topk_min
from torchvision.ops import nms

from farther.detectors.settings import ProposalSelection, to_numpy
from farther.tables import Header, Regions


@dataclass
class ImageProposals:
    """P proposals of one image, the highest objectness first.

    Args:
        boxes: Shape (P, 4), pixels of the image as given.
        objectness: Shape (P,), 0 to 1.
        logits: Shape (P, K), of the anchor, query or proposal.
        features: Shape (P, D), input of the last linear layer for the same; None where there is
            none.
    """

    boxes: Tensor
    objectness: Tensor
    logits: Tensor
    features: Tensor | None = None


def class_scores(logits: Tensor, header: Header) -> Tensor:
    """Scores of the classes, shape (P, K'), without "no object"."""
    scores = {"softmax": lambda z: z.softmax(-1), "sigmoid": torch.sigmoid, "exp": torch.exp}[
        header.activation
    ](logits)
    if header.background_index is None:
        return scores
    return torch.cat(
        [scores[:, : header.background_index], scores[:, header.background_index + 1 :]], dim=1
    )


def ambiguity(scores: Tensor) -> Tensor:
    """How much of a class score there is, and how little it is of one class: H = −Σ p_k log(p_k / Σ p), shape (P,).

    It is the sum of the scores p_k times the entropy of their shares, 0 or more: 0 on background,
    where no class scores, and on a known object, where one class has it all; large where several
    classes claim one box.

    Args:
        scores: Shape (P, K), 0 to 1.

    >>> [
    ...     round(value, 2)
    ...     for value in ambiguity(torch.tensor([[0.0, 0.0], [0.9, 0.0], [0.4, 0.4]])).tolist()
    ... ]
    [0.0, 0.0, 0.55]
    """
    total = scores.sum(dim=1, keepdim=True)
    shares = scores / total.clamp_min(torch.finfo(scores.dtype).tiny)
    return torch.special.entr(shares).sum(dim=1) * total[:, 0]


def propose(
    boxes: Tensor,
    scores: Tensor,
    own: Tensor | None,
    image: tuple[int, ...] | Tensor,
    selection: ProposalSelection,
    whole: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The proposals among candidates, the best first.

    Args:
        boxes: Shape (A, 4), pixels of the image as given.
        scores: Of the classes, shape (A, K).
        own: The network's own objectness, shape (A,); None where it has none.
        image: Height and width of the image as given.
        selection: What objectness is, and which candidates are kept.
        whole: The boxes before they were clipped to the image, in any unit, where overlaps are
            those of these.

    Returns:
        Their rows, shape (P,), and their objectness, shape (P,).
    """
    if selection.objectness == "network" and own is not None:
        values = own
    else:
        values = ambiguity(scores) if selection.objectness == "ambiguity" else scores.amax(dim=1)
    sides = boxes[:, 2:] - boxes[:, :2]
    if selection.size:
        share = sides.clamp_min(0).prod(dim=1) / (image[0] * image[1])
        values = values * share.clamp(0, 1).sqrt() ** selection.size
    if selection.objectness == "ambiguity":
        values = -torch.expm1(-values)  # 0 to 1, in the same order
    rows = torch.where((sides.amin(dim=1) >= selection.smallest) & torch.isfinite(values))[0]
    kept = rows[
        nms((boxes if whole is None else whole)[rows], values[rows], selection.iou)[
            : selection.most
        ]
    ]
    return kept, values[kept]


def best(values: Tensor, selection: ProposalSelection) -> Tensor:
    """Rows of the candidates that take part in the suppression: those of the highest values."""
    return values.topk(_topk_min(values, selection.candidates, 0)).indices


def as_regions(
    header: Header, found: Sequence[ImageProposals], image_ids: Sequence[str], dtype: str
) -> Regions:
    """The proposals of a batch as a regions table: `score` is the objectness, `label` the class of the highest logit.

    Args:
        header: Of the table.
        found: Of each image.
        image_ids: Their names.
        dtype: Type of `features`.
    """
    logits = torch.cat([one.logits for one in found])
    known = logits.clone()
    if header.background_index is not None:
        known[:, header.background_index] = -torch.inf
    columns = {
        "image_id": np.repeat(np.array(image_ids, dtype=object), [len(one.boxes) for one in found]),
        "region_id": np.arange(len(logits)),
        "box": to_numpy(torch.cat([one.boxes for one in found])),
        "score": to_numpy(torch.cat([one.objectness for one in found])),
        "label": to_numpy(known.argmax(dim=1)).astype(np.int16),
        "logits": to_numpy(logits),
    }
    features = [one.features for one in found if one.features is not None]
    if features:
        columns["features"] = to_numpy(torch.cat(features), dtype)
    return Regions(header=header, **columns)

"""Class-agnostic proposals with an objectness: boxes that a network computes and does not report.

A network often has a box for an object of no known class: a region proposal network proposes it,
or the anchors and queries on it share their scores among several classes, none of which is high
enough. The candidates of an image with the highest objectness are kept, whatever their class would
be (non-maximum suppression without classes).
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
    match header.activation:
        case "softmax":
            scores = logits.softmax(-1)
        case "sigmoid":
            scores = logits.sigmoid()
        case _:
            scores = logits.exp()
    background = header.background_index
    if background is None:
        return scores
    return torch.cat([scores[:, :background], scores[:, background + 1 :]], dim=1)


def ambiguity(scores: Tensor) -> Tensor:
    """Entropy of the class scores, weighted by their sum: H = −Σ p_k log(p_k / Σ p), shape (P,).

    It is the sum of the scores p_k times the entropy of their shares, 0 or more: 0 on background,
    where no class scores, and on a known object, where one class has the whole score; large where
    several classes claim one box.

    Args:
        scores: Shape (P, K), 0 to 1.

    >>> scores = torch.tensor([[0.0, 0.0], [0.9, 0.0], [0.4, 0.4]])
    >>> [round(value, 2) for value in ambiguity(scores).tolist()]
    [0.0, 0.0, 0.55]
    """
    total = scores.sum(dim=1, keepdim=True)
    shares = scores / total.clamp_min(torch.finfo(scores.dtype).tiny)
    return torch.special.entr(shares).sum(dim=1) * total[:, 0]


def select_proposals(
    boxes: Tensor,
    scores: Tensor,
    network_objectness: Tensor | None,
    image_size: tuple[int, ...] | Tensor,
    selection: ProposalSelection,
    unclipped_boxes: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Selects the proposals among candidates, the highest objectness first.

    Args:
        boxes: Shape (A, 4), pixels of the image as given.
        scores: Of the classes, shape (A, K).
        network_objectness: The network's own objectness, shape (A,); None where it has none.
        image_size: Height and width of the image as given.
        selection: Definition of objectness, and limits.
        unclipped_boxes: The boxes before they were clipped to the image, in any unit, for computing
            overlaps; None computes them from `boxes`.

    Returns:
        Rows of the proposals, shape (P,), and their objectness, shape (P,).
    """
    if selection.objectness == "network" and network_objectness is not None:
        objectness = network_objectness
    elif selection.objectness == "ambiguity":
        objectness = ambiguity(scores)
    else:
        objectness = scores.amax(dim=1)

    sides = boxes[:, 2:] - boxes[:, :2]
    if selection.size:
        area_share = sides.clamp_min(0).prod(dim=1) / (image_size[0] * image_size[1])
        objectness = objectness * area_share.clamp(0, 1).sqrt() ** selection.size
    if selection.objectness == "ambiguity":
        objectness = -torch.expm1(-objectness)  # 0 to 1, in the same order

    is_large = sides.amin(dim=1) >= selection.smallest
    rows = torch.where(is_large & torch.isfinite(objectness))[0]
    overlapping = boxes if unclipped_boxes is None else unclipped_boxes
    after_nms = nms(overlapping[rows], objectness[rows], selection.iou)
    selected = rows[after_nms[: selection.most]]
    return selected, objectness[selected]


def top_candidates(scores: Tensor, selection: ProposalSelection) -> Tensor:
    """Rows of the candidates with the highest scores, which take part in the suppression."""
    return scores.topk(_topk_min(scores, selection.candidates, 0)).indices


def as_regions(
    header: Header, proposals: Sequence[ImageProposals], image_ids: Sequence[str], dtype: str
) -> Regions:
    """The proposals of a batch as a regions table.

    `score` is the objectness, `label` the class of the highest logit.

    Args:
        header: Of the table.
        proposals: Of each image.
        image_ids: Names of the images.
        dtype: Type of `features`.
    """
    counts = [len(image.boxes) for image in proposals]
    boxes = torch.cat([image.boxes for image in proposals])
    objectness = torch.cat([image.objectness for image in proposals])
    logits = torch.cat([image.logits for image in proposals])
    class_logits = logits.clone()
    if header.background_index is not None:
        class_logits[:, header.background_index] = -torch.inf
    columns = {
        "image_id": np.repeat(np.array(image_ids, dtype=object), counts),
        "region_id": np.arange(len(logits)),
        "box": to_numpy(boxes),
        "score": to_numpy(objectness),
        "label": to_numpy(class_logits.argmax(dim=1)).astype(np.int16),
        "logits": to_numpy(logits),
    }
    features = [image.features for image in proposals if image.features is not None]
    if features:
        columns["features"] = to_numpy(torch.cat(features), dtype)
    return Regions(header=header, **columns)

"""Proposals in a graph that lie on no detection, and operations that ONNX does not have."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.onnx import symbolic_helper

from farther.metrics.open_set.proposals import INSIDE

#: Outputs that have one row per proposal.
OF_PROPOSALS = ("proposal_box", "proposal_objectness")


def beside(proposals: Tensor, detections: Tensor, iou: float) -> Tensor:
    """Proposals that lie on no detection, shape (P,), bool.

    The same as `farther.metrics.open_set.proposals.apart_from_detections`.

    Args:
        proposals: Shape (P, 4), float64.
        detections: Shape (N, 4), float64.
        iou: IoU with a detection from which on a proposal lies on it.
    """
    proposal_area = (proposals[:, 2:] - proposals[:, :2]).prod(dim=1)
    detection_area = (detections[:, 2:] - detections[:, :2]).prod(dim=1)
    low = torch.maximum(proposals[:, None, :2], detections[None, :, :2])
    high = torch.minimum(proposals[:, None, 2:], detections[None, :, 2:])
    intersection = (high - low).clamp(min=0).prod(dim=2)
    union = proposal_area[:, None] + detection_area[None] - intersection
    overlaps = intersection / union >= iou
    is_inside = intersection / proposal_area[:, None] > INSIDE
    return ~(overlaps | is_inside).any(dim=1)


def _expm1(graph: Any, x: Any) -> Any:
    """exp(x) − 1 = tanh(x / 2) (exp(x) + 1), without loss of digits near 0."""
    one = graph.op("CastLike", graph.op("Constant", value_t=torch.tensor(1.0)), x)
    two = graph.op("CastLike", graph.op("Constant", value_t=torch.tensor(2.0)), x)
    tanh = graph.op("Tanh", graph.op("Div", x, two))
    return graph.op("Mul", tanh, graph.op("Add", graph.op("Exp", x), one))


def _entr(graph: Any, x: Any) -> Any:
    """−x log x, 0 at 0, of x ≥ 0."""
    tiny = graph.op("Constant", value_t=torch.tensor(torch.finfo(torch.float32).tiny))
    log = graph.op("Log", graph.op("Max", x, graph.op("CastLike", tiny, x)))
    return graph.op("Neg", graph.op("Mul", x, log))


def _argsort(graph: Any, x: Any, *options: Any) -> Any:
    """Positions in sorted order; of equal values the first one is first, as in a stable sort.

    The options are `stable`, which may be left out, `dim` and `descending`.
    """
    dim = symbolic_helper._parse_arg(options[-2], "i")
    descending = symbolic_helper._parse_arg(options[-1], "i")
    axis = graph.op("Constant", value_t=torch.tensor([dim]))
    count = graph.op("Gather", graph.op("Shape", x), axis, axis_i=0)
    return graph.op("TopK", x, count, axis_i=dim, largest_i=descending, outputs=2)[1]


#: What the exporter has no steps for.
SYMBOLICS = {"aten::expm1": _expm1, "aten::special_entr": _entr, "aten::argsort": _argsort}

"""Proposals in a graph: which of them lie on no detection, and the steps of objectness and scores that ONNX has not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.onnx import symbolic_helper

from farther.metrics.open_set.proposals import INSIDE

#: Outputs that have one row per proposal.
OF_PROPOSALS = ("proposal_box", "proposal_objectness")


def beside(proposals: Tensor, detections: Tensor, iou: float) -> Tensor:
    """Proposals that lie on no detection, shape (P,), bool; see `farther.metrics.open_set.proposals.beside`.

    Args:
        proposals: Shape (P, 4), float64.
        detections: Shape (N, 4), float64.
        iou: IoU with a detection from which on a proposal lies on it.
    """
    of_proposal, of_detection = (
        (of[:, 2:] - of[:, :2]).prod(dim=1) for of in (proposals, detections)
    )
    low = torch.maximum(proposals[:, None, :2], detections[None, :, :2])
    high = torch.minimum(proposals[:, None, 2:], detections[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(dim=2)
    union = of_proposal[:, None] + of_detection[None] - shared
    on = (shared / union >= iou) | (shared / of_proposal[:, None] > INSIDE)
    return ~on.any(dim=1)


def _expm1(graph: Any, x: Any) -> Any:
    """exp(x) − 1 = tanh(x / 2) (exp(x) + 1), without loss of digits near 0."""
    one, two = (
        graph.op("CastLike", graph.op("Constant", value_t=torch.tensor(value)), x)
        for value in (1.0, 2.0)
    )
    return graph.op(
        "Mul", graph.op("Tanh", graph.op("Div", x, two)), graph.op("Add", graph.op("Exp", x), one)
    )


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

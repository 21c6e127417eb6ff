"""Columns of detections as tensors, and the sums and constants that the scores in graphs share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from farther.methods.base import Method
from farther.methods.logits import Activation, Background, class_columns
from farther.tables import Header


@dataclass
class Rows:
    """Columns of N detections, and what all of them share.

    Args:
        header: Header of the detector's regions.
        columns: `confidence`, `label`, `logits`, and the vectors that the method reads.
    """

    header: Header
    columns: dict[str, Tensor]

    def logits(self, background: Background, activation: Activation = "softmax") -> Tensor:
        """Logits of the classes, (N, C), as `class_logits`."""
        z = self.columns["logits"].double()[:, constant(class_columns(self.header, background))]
        if activation == "detector" and self.header.activation == "exp":
            z = torch.minimum(z, number(-float(np.finfo(np.float32).tiny)))
            # 1 − exp(z) without loss of digits near 0: ONNX has no expm1.
            return z - torch.log(-torch.tanh(z / 2) * (z.exp() + 1))
        return z

    def is_sigmoid(self, activation: Activation) -> bool:
        """True if each class is a binary decision."""
        return activation == "detector" and self.header.activation in ("sigmoid", "exp")

    def last_layer(self, background: Background) -> tuple[Tensor, Tensor]:
        """Transposed weight (D, C) and bias (C,) of the classes."""
        rows = class_columns(self.header, background)
        assert self.header.weight is not None and self.header.bias is not None
        return constant(self.header.weight[rows].T.astype(np.float64)), constant(self.header.bias[rows].astype(float))

    def vectors(self, name: str) -> Tensor:
        """A column of vectors, (N, D)."""
        return self.columns[name].double()


def constant(array: np.ndarray) -> Tensor:
    """An array as a constant of the graph."""
    return torch.from_numpy(np.ascontiguousarray(array))


def number(value: float) -> Tensor:
    """A number as a constant of the graph, shape (1,): the exporter would round a plain one to float32."""
    return constant(np.array([value], np.float64))


def read(method: Method, rows: Rows, usual: str = "features") -> Tensor:
    """The vectors that a method reads: those of its layer, or else of the usual column."""
    (name,) = method.layers or (usual,)
    return rows.vectors(name)


def softplus(values: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow: onnxruntime has none for float64."""
    return values.clamp(min=0) + (1 + (-values.abs()).exp()).log()


def squares(values: Tensor) -> Tensor:
    """Squared Euclidean norm of each row."""
    return (values * values).sum(dim=1)


def unit(values: Tensor) -> Tensor:
    """Rows at norm 1; rows of zeros stay zero."""
    norms = squares(values).sqrt()[:, None]
    return values / torch.where(norms > 0, norms, torch.ones_like(norms))

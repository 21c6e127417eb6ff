"""Heads of image classifiers that are trained for OOD detection: a confidence branch, and G-ODIN.

They replace a network's last layer, `fc`. Their attribute `columns` names the modules whose outputs
are columns of the regions table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from farther.errors import DataError, ParameterError
from farther.tables.regions import CONFIDENCE, DENOMINATOR, NUMERATOR

Similarity = Literal["inner", "euclidean", "cosine"]

#: Added to lengths that vectors are divided by, as in OpenOOD's networks.
SMALLEST_LENGTH = 1e-4

#: Weights by which a head is recognised, below the name of the last layer.
CONFIDENCE_WEIGHT = "fc.confidence.weight"
NUMERATOR_WEIGHT = "fc.numerator.weight"

#: Weights of the heads of OpenOOD's `ConfBranchNet` and `GodinNet`.
OPENOOD_HEADS = ("confidence.weight", "h.h.weight")

#: Names in OpenOOD's `ConfBranchNet` and `GodinNet`, which keep the network below `backbone`, and
#: those of farther.
OPENOOD_NAMES = {
    r"^fc\.": "fc.classify.",
    r"^confidence\.": "fc.confidence.",
    r"^h\.h\.": "fc.numerator.",
    r"^g\.": "fc.denominator.",
    r"^backbone\.": "",
}


class ConfidenceHead(nn.Module):
    """A linear layer that classifies, and one that gives a confidence, here before the sigmoid.

    Args:
        features: D, values of an image's features.
        classes: K.

    References:
        DeVries and Taylor, "Learning Confidence for Out-of-Distribution Detection in Neural
        Networks", 2018, Section 2.1, arXiv:1802.04865.
    """

    #: Column → module.
    columns: ClassVar[Mapping[str, str]] = {CONFIDENCE: "confidence"}

    def __init__(self, features: int, classes: int):
        super().__init__()
        self.classify = nn.Linear(features, classes)
        self.confidence = nn.Linear(features, 1)

    def both(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, K) and confidences before the sigmoid (B,), of features (B, D), in float32."""
        with torch.autocast(features.device.type, enabled=False):
            features = features.float()
            confidence = self.confidence(features)[:, 0]
            return self.classify(features), confidence

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, K) of features (B, D)."""
        return self.both(features)[0]


class SimilarityLayer(nn.Module):
    """h of G-ODIN: the similarity of features x and a vector w_c of each class.

    - "inner": w_c · x + b_c
    - "euclidean": −‖x − w_c‖² / D. The paper has no division by D, the number of features;
      OpenOOD's network has it.
    - "cosine": w_c · x / (‖w_c‖ ‖x‖)

    Args:
        features: D, values of an image's features.
        classes: K.
        similarity: One of the three.

    References:
        Hsu et al., "Generalized ODIN: Detecting Out-of-distribution Image without Learning from
        Out-of-distribution Data", 2020, Section 3.1, arXiv:2002.11297.
    """

    def __init__(self, features: int, classes: int, similarity: Similarity):
        super().__init__()
        self.similarity = similarity
        self.weight = nn.Parameter(torch.empty(classes, features))
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        self.bias = nn.Parameter(torch.zeros(classes)) if similarity == "inner" else None

    def forward(self, features: Tensor) -> Tensor:
        """Similarities (B, K) of features (B, D)."""
        if self.similarity == "inner":
            return linear(features, self.weight, self.bias)
        if self.similarity == "euclidean":
            return -(features[:, None] - self.weight).square().mean(dim=2)
        return _unit(features) @ _unit(self.weight).T


class GOdinHead(nn.Module):
    """Logits h(x) / g(x) of G-ODIN.

    h(x) are similarities of x to the classes, and g(x) = sigmoid(BatchNorm(w · x + b)) is the
    estimated probability of the training distribution.

    Args:
        features: D, values of an image's features.
        classes: K.
        similarity: See `SimilarityLayer`.
    """

    #: Column → module.
    columns: ClassVar[Mapping[str, str]] = {NUMERATOR: "numerator", DENOMINATOR: "denominator"}

    def __init__(self, features: int, classes: int, similarity: Similarity):
        super().__init__()
        self.numerator = SimilarityLayer(features, classes, similarity)
        self.denominator = nn.Sequential(nn.Linear(features, 1), nn.BatchNorm1d(1), nn.Sigmoid())

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, K) of features (B, D), in float32."""
        with torch.autocast(features.device.type, enabled=False):
            features = features.float()
            return self.numerator(features) / self.denominator(features)


def _unit(vectors: Tensor) -> Tensor:
    """Vectors (N, D) at length 1."""
    return vectors / (vectors.norm(dim=1, keepdim=True) + SMALLEST_LENGTH)


def head_columns(network: nn.Module) -> dict[str, str]:
    """Columns of a network's head, with the name of the module of each; none for a linear layer."""
    head = getattr(network, "fc", None)
    if not isinstance(head, ConfidenceHead | GOdinHead):
        return {}
    return {column: f"fc.{module}" for column, module in head.columns.items()}


def from_openood(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of OpenOOD's `ConfBranchNet` or `GodinNet` under farther's names.

    Other weights stay as they are. The last layer of its `backbone`, which neither uses, is left
    out.
    """
    has_head = any(name in weights for name in OPENOOD_HEADS)
    if not has_head or "backbone.conv1.weight" not in weights:
        return dict(weights)
    renamed = {}
    for name, tensor in weights.items():
        if not re.match(r"backbone\.(fc|linear)\.", name):
            renamed[_renamed(name)] = tensor
    return renamed


def _renamed(name: str) -> str:
    """farther's name for a weight of OpenOOD's networks."""
    for pattern, replacement in OPENOOD_NAMES.items():
        if re.match(pattern, name):
            return re.sub(pattern, replacement, name)
    return name


def replace_head(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    classes: int,
    similarity: Similarity | None,
    path: Path,
) -> None:
    """Replaces a network's last layer by the head that weights hold, if they hold one.

    Args:
        network: Its last layer, `fc`, is a linear one.
        weights: By farther's names.
        classes: K.
        similarity: Of G-ODIN's numerator, which weights without a bias do not tell; None where it
            is not known.
        path: The file, for messages.

    Raises:
        DataError: the network has no last layer `fc`, or the similarity contradicts the weights.
        ParameterError: the similarity is not known.
    """
    has_confidence = CONFIDENCE_WEIGHT in weights
    if not has_confidence and NUMERATOR_WEIGHT not in weights:
        return
    last = getattr(network, "fc", None)
    if not isinstance(last, nn.Linear):
        problem = (
            "the weights are of a head that stands in the place of `fc`, "
            f"which {type(network).__name__} lacks"
        )
        raise DataError(problem, file=path, field="architecture")
    if has_confidence:
        network.fc = ConfidenceHead(last.in_features, classes)
        return
    has_bias = "fc.numerator.bias" in weights
    if similarity is None and has_bias:
        similarity = "inner"
    if similarity is None:
        known = ", ".join(name for name in get_args(Similarity) if name != "inner")
        problem = (
            "the checkpoint is of G-ODIN and does not say which similarity it was trained with: "
            f"{known}"
        )
        raise ParameterError(
            f"detector 'classifier': give the parameter 'similarity'; {path}: {problem}"
        )
    if has_bias != (similarity == "inner"):
        bias = "with" if has_bias else "without"
        problem = f"a numerator {bias} a bias is not that of {similarity!r}"
        raise DataError(problem, file=path, field="similarity")
    network.fc = GOdinHead(last.in_features, classes, similarity)

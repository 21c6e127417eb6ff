"""LogitNorm: cross-entropy of logits of constant length, against overconfidence."""

from __future__ import annotations

from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from farther.naming.registry import STRICT, Parameters


@dataclass(config=STRICT, kw_only=True)
class LogitNorm(Parameters):
    """Cross-entropy of z / (τ ‖z‖): a longer vector of logits z does not lower the loss.

    The logits stored are z.

    Args:
        temperature: τ; the authors choose it from 0.001 to 0.05 on validation images, 0.04 for
            CIFAR-10.

    References:
        Wei et al., "Mitigating Neural Network Overconfidence with Logit Normalization", 2022,
        Equation 4, arXiv:2205.09310. Code: https://github.com/hongxin001/logitnorm_ood
    """

    temperature: PositiveFloat = 0.04

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean over images, of logits (N, K) and labels (N,)."""
        return cross_entropy(normalize(logits, dim=1, eps=1e-7) / self.temperature, labels)

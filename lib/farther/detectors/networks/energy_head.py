"""The head that VOS adds to a detector: known or unknown, from a weighted energy (Du et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Name of the head in a network, and so the beginning of its weights' names in a checkpoint.
ENERGY_HEAD = "vos"


class EnergyHead(nn.Module):
    """Logistic regression on the energy of the class logits, each class with a weight of its own.

    E = log Σ_k max(w_k, 0) exp(f_k) over the known classes (Du et al. 2022, Equation 7, with the sign turned), and the
    logits of unknown and known are a_0 E + b_0 and a_1 E + b_1.

    Args:
        classes: C, the known classes.
    """

    def __init__(self, classes: int):
        super().__init__()
        self.energy_weight = nn.Parameter(torch.ones(classes))
        self.weight = nn.Parameter(torch.tensor([-0.1, 0.1]))
        self.bias = nn.Parameter(torch.zeros(2))

    def energy(self, logits: Tensor) -> Tensor:
        """The weighted energy, higher for what looks known.

        Args:
            logits: Shape (N, C), without the background.

        Returns:
            Shape (N,).
        """
        highest = logits.max(dim=1).values
        parts = self.energy_weight.relu() * (logits - highest[:, None]).exp()
        return parts.sum(dim=1).clamp_min(torch.finfo(parts.dtype).tiny).log() + highest

    def forward(self, logits: Tensor) -> Tensor:
        """Logits of unknown (column 0) and known (column 1), shape (N, 2), of class logits, shape (N, C)."""
        return self.energy(logits)[:, None] * self.weight + self.bias

    def numbers(self) -> dict[str, list[float]]:
        """What the score `vos` reads: `energy_weight` (C), `weight` (2) and `bias` (2)."""
        return {name: value.detach().float().cpu().tolist() for name, value in self.named_parameters()}

"""Heads that training may add to a Faster R-CNN: VOS's energy, and the variances of boxes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchvision.models.detection._utils import BoxCoder

#: Names of the heads in a network, and first parts of their weights' names in a checkpoint.
ENERGY_HEAD = "vos"
VARIANCE_HEAD = "box_variance"

#: Limits of log σ². At the upper one σ is 0.74 widths of the proposal: matched proposals err less.
LOG_VARIANCE = (-7.0, 4.0)


class EnergyHead(nn.Module):
    """VOS's head: logistic regression on the weighted energy of the class logits.

    E = log Σ_k max(w_k, 0) exp(f_k) over the known classes (Du et al. 2022, Equation 7, with the
    sign turned), and the logits of unknown and known are a_0 E + b_0 and a_1 E + b_1.

    Args:
        classes: C, the known classes.
    """

    def __init__(self, classes: int):
        super().__init__()
        self.energy_weight = nn.Parameter(torch.ones(classes))
        self.weight = nn.Parameter(torch.tensor([-0.1, 0.1]))
        self.bias = nn.Parameter(torch.zeros(2))

    def energy(self, logits: Tensor) -> Tensor:
        """The weighted energy, shape (N,); higher is more known.

        Args:
            logits: Shape (N, C), without the background.
        """
        highest = logits.max(dim=1).values
        weighted = self.energy_weight.relu() * (logits - highest[:, None]).exp()
        smallest = torch.finfo(weighted.dtype).tiny
        return weighted.sum(dim=1).clamp_min(smallest).log() + highest

    def forward(self, logits: Tensor) -> Tensor:
        """Logits of unknown (column 0) and known (column 1), shape (N, 2).

        Args:
            logits: Shape (N, C), without the background.
        """
        return self.energy(logits)[:, None] * self.weight + self.bias

    def numbers(self) -> dict[str, list[float]]:
        """Parameters for the method `vos`: `energy_weight` (C), `weight` (2) and `bias` (2)."""
        numbers = {}
        for name, value in self.named_parameters():
            numbers[name] = value.detach().float().cpu().tolist()
        return numbers


class VarianceHead(nn.Linear):
    """Linear layer that predicts α = log σ² of the four deltas of a box, per column of the logits.

    Its weights start near 0, so that all variances start at 1 and training like that of a detector
    without the head (He et al. 2019, arXiv:1809.08545, Section 3.2).

    Args:
        features: Values of a proposal's features.
        columns: Number of logits, the background's included.
    """

    def __init__(self, features: int, columns: int):
        super().__init__(features, 4 * columns)
        nn.init.normal_(self.weight, std=1e-4)
        nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Shape (P, features) → (P, columns, 4), limited to `LOG_VARIANCE`."""
        return super().forward(features).unflatten(1, (-1, 4)).clamp(*LOG_VARIANCE)


def corner_variances(
    coder: BoxCoder, deltas: Tensor, log_variances: Tensor, proposals: Tensor
) -> Tensor:
    """Variances of xmin, ymin, xmax, ymax of N boxes, in pixels² of the network's input.

    The deltas are independent Gaussians N(δ, σ²). With t = δ / w and s = σ / w, where w are the
    coder's weights, a proposal of width W gives a centre at t_x W, with variance s_x² W², and a
    log-normal width W exp(t_w). Exactly, not to first order, xmin and xmax = centre ∓ width / 2
    have the variance

        W² (s_x² + ¼ exp(2 t_w + s_w²) (exp(s_w²) − 1)),

    and likewise ymin and ymax. The covariance of xmin and xmax is left out. So is clipping to the
    image: the variance is that of the box before.

    Args:
        coder: The box head's; it limits t_w and t_h, as it does when it decodes the box.
        deltas: Box regression for the detected class, shape (N, 4): x, y, width, height.
        log_variances: Its predicted log σ², shape (N, 4).
        proposals: Shape (N, 4), in pixels.
    """
    weights = deltas.new_tensor(coder.weights)
    means = deltas[:, 2:] / weights[2:]
    variances = log_variances.exp() / weights.square()
    centre_variances = variances[:, :2]
    size_variances = variances[:, 2:]
    log_normal_means = (2 * means.clamp(max=coder.bbox_xform_clip) + size_variances).exp()
    log_normal_variances = log_normal_means * size_variances.expm1()
    sides = proposals[:, 2:] - proposals[:, :2]
    corners = sides.square() * (centre_variances + log_normal_variances / 4)
    return corners.repeat(1, 2)


def resize_variances(
    variances: Tensor, resized: tuple[int, int], original: tuple[int, ...]
) -> Tensor:
    """Converts variances from pixels² of a resized image to pixels² of the image as given.

    Args:
        variances: Shape (N, 4).
        resized: Height and width of the resized image.
        original: Height and width of the image as given.
    """
    height = original[0] / resized[0]
    width = original[1] / resized[1]
    scale = torch.tensor([width, height, width, height], device=variances.device)
    return variances * scale.square()

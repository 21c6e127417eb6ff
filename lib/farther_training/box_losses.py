"""Losses of boxes with predicted variances: the negative log-likelihood and the energy score.

Both compare the Gaussian N(μ, diag σ²) of a box's four deltas with the deltas t of its object; α =
log σ².
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

#: M, the number of samples with which the energy score is estimated (Harakeh & Waslander 2021).
SAMPLES = 1000


def negative_log_likelihood(means: Tensor, log_variances: Tensor, goals: Tensor) -> Tensor:
    """Σ_j exp(−α_j) · smooth L1(t_j − μ_j) + α_j / 2, shape (N,), of deltas of shape (N, 4).

    For errors up to 1 this is the negative log-likelihood of the Gaussian, less 2 log 2π; larger
    errors count linearly, so that gradients stay small early in training.

    References:
        He et al., "Bounding Box Regression with Uncertainty for Accurate Object Detection", 2019,
        arXiv:1809.08545.
    """
    errors = smooth_l1_loss(means, goals, beta=1.0, reduction="none")
    return ((-log_variances).exp() * errors + log_variances / 2).sum(dim=1)


def energy_score(
    means: Tensor, log_variances: Tensor, goals: Tensor, samples: int = SAMPLES
) -> Tensor:
    """E‖z − t‖ − ½ E‖z − z'‖, shape (N,), of deltas of shape (N, 4).

    z and z' are independent draws of the Gaussian.

    The expectations are means over M + 1 draws of PyTorch's generator and pairs of successive ones.
    The distance is Euclidean, as in the paper; the authors' code sums a smooth L1 distance over the
    coordinates.

    References:
        Harakeh & Waslander, "Estimating and Evaluating Regression Predictive Uncertainty in Deep
        Object Detectors", 2021, Section 3, arXiv:2101.05036. Code:
        https://github.com/asharakeh/probdet
    """
    noise = torch.randn(samples + 1, *means.shape, device=means.device)
    draws = means + (log_variances / 2).exp() * noise
    distance_to_object = (draws[:-1] - goals).norm(dim=2).mean(dim=0)
    distance_of_pairs = (draws[1:] - draws[:-1]).norm(dim=2).mean(dim=0)
    return distance_to_object - distance_of_pairs / 2


#: Losses by their names in a recipe.
LOSSES = {"nll": negative_log_likelihood, "energy_score": energy_score}


def variance_loss(
    kind: str, deltas: Tensor, log_variances: Tensor, labels: list[Tensor], goals: list[Tensor]
) -> Tensor:
    """Loss of the objects' proposals, divided by the number of all sampled proposals.

    torchvision's `fastrcnn_loss` divides by the same number.

    Args:
        kind: A name of `LOSSES`.
        deltas: Of M proposals, shape (M, 4 K), for each column of the logits.
        log_variances: Shape (M, K, 4).
        labels: Per image: column of each proposal's object, 0 for none.
        goals: Per image: deltas of each proposal's object, shape (P, 4).
    """
    columns = torch.cat(labels)
    rows = torch.where(columns > 0)[0]
    object_columns = columns[rows]
    means = deltas.unflatten(1, (-1, 4))[rows, object_columns]
    object_log_variances = log_variances[rows, object_columns]
    object_deltas = torch.cat(goals)[rows]
    loss_per_object = LOSSES[kind](means, object_log_variances, object_deltas)
    return loss_per_object.sum() / len(columns)

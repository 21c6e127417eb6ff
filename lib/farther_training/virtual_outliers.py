"""Virtual outliers: points of feature space that no known class is likely to give (VOS).

Du et al., "VOS: Learning What You Don't Know by Virtual Outlier Synthesis", 2022, arXiv:2202.01197.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from farther.detectors.networks.heads import EnergyHead
from farther_training.recipe import VirtualOutliers
from farther_training.run import TrainingError

#: Added to the covariance's diagonal to make it invertible.
RIDGE = 1e-4


class OutlierQueue(nn.Module):
    """Newest features (of dimension D) of C known classes, and virtual outliers drawn from them."""

    features: Tensor
    seen: Tensor

    def __init__(self, params: VirtualOutliers, classes: int, dimensions: int):
        super().__init__()
        self.params = params
        self.register_buffer("features", torch.zeros(classes, params.queue, dimensions))
        self.register_buffer("seen", torch.zeros(classes, dtype=torch.int64))

    @torch.no_grad()
    def push(self, features: Tensor, classes: Tensor) -> None:
        """Adds features (N, D) of objects of known classes (N,), and drops the oldest features."""
        for known_class in classes.unique().tolist():
            newest = features[classes == known_class][-self.params.queue :]
            positions = self.seen[known_class] + torch.arange(len(newest), device=newest.device)
            positions %= self.params.queue
            self.features[known_class, positions] = newest.float()
            self.seen[known_class] += len(newest)

    @property
    def full(self) -> Tensor:
        """Classes with a full queue; only these have outliers."""
        return torch.where(self.seen >= self.params.queue)[0]

    @torch.no_grad()
    def outliers(self) -> Tensor:
        """Virtual outliers: the least likely of many points drawn from each class's Gaussian.

        The Gaussians share one covariance (Du et al. 2022, Section 3.1). The density of a point
        mean + L z, with z standard normal and L Lᵀ the covariance, falls with the length of z
        alone, and length and direction are independent. So the lengths of all candidates are drawn,
        and directions for the longest only: the same distribution as drawing every candidate.
        """
        queues = self.features[self.full]
        means = queues.mean(dim=1)
        centred = (queues - means[:, None]).flatten(0, 1)
        dimensions = centred.shape[1]
        covariance = centred.T @ centred / len(centred)
        covariance.diagonal().add_(RIDGE)
        factor = torch.linalg.cholesky(covariance)
        # A squared length is χ² distributed with D degrees of freedom: twice a Gamma variable of
        # shape D / 2.
        shape = torch.full(
            (len(means), self.params.candidates), dimensions / 2, device=means.device
        )
        lengths = (2 * torch._standard_gamma(shape)).sqrt()
        longest = lengths.topk(self.params.kept, dim=1).values
        normal = torch.randn(*longest.shape, dimensions, device=means.device)
        directions = normalize(normal, dim=-1)
        offsets = (longest[..., None] * directions) @ factor.T
        return (means[:, None] + offsets).flatten(0, 1)


def outlier_loss(
    queue: OutlierQueue, head: EnergyHead, classify: Callable[[Tensor], Tensor], logits: Tensor
) -> Tensor:
    """Weighted uncertainty loss of known objects against virtual outliers.

    See Du et al. 2022, Equation 6.

    Args:
        classify: Maps features, shape (M, D), to logits of the known classes, shape (M, C).
        logits: Logits of the known objects, or images, of this batch, shape (N, C).
    """
    virtual = classify(queue.outliers())
    known_logits = head(torch.cat([virtual, logits]))
    is_known = torch.ones(len(known_logits), dtype=torch.int64, device=known_logits.device)
    is_known[: len(virtual)] = 0
    return queue.params.weight * cross_entropy(known_logits, is_known)


def check_filled(queue: OutlierQueue) -> None:
    """Checks that training had virtual outliers at all.

    Raises:
        TrainingError: no class ever filled its queue.
    """
    if len(queue.full):
        return
    raise TrainingError(
        f"virtual_outliers: no class ever filled its queue of {queue.params.queue} features: "
        f"at most {int(queue.seen.max())} were seen. Lower 'queue' or train for more epochs"
    )

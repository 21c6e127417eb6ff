"""Virtual outlier synthesis (VOS; Du et al. 2022, arXiv:2202.01197)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from farther.detectors.networks.architectures import EnergyHead
from farther.registry import STRICT
from farther.tools.training.recipe import Count, Fraction, Positive, Recipe

#: Added to the covariance's diagonal to make it invertible.
RIDGE = 1e-4


@dataclass(config=STRICT, kw_only=True)
class VirtualOutliers:
    """Parameters of virtual outliers. The defaults are those of the authors' code.

    Args:
        queue: Number of features kept per class, the newest ones.
        candidates: Number of points drawn from each class's Gaussian per step.
        kept: Number of these points with the lowest density that become virtual outliers.
        weight: Weight of the loss.
        start: Fraction of the run before which the loss is not used, as features do not separate classes yet.
    """

    queue: Count = 1000
    candidates: Count = 10_000
    kept: Count = 1
    weight: Positive = 0.1
    start: Fraction = 2 / 3

    def __post_init__(self) -> None:
        if self.kept > self.candidates:
            raise ValueError(f"kept = {self.kept} of {self.candidates} candidates")


@dataclass(config=STRICT, kw_only=True)
class FasterRCNNRecipe(Recipe):
    """Hyperparameters of a Faster R-CNN, in addition to those of `Recipe`.

    Args:
        virtual_outliers: Parameters of VOS; None trains without it.
    """

    virtual_outliers: VirtualOutliers | None = None


class OutlierQueue(nn.Module):
    """The newest features (of dimension D) of each of C known classes, and virtual outliers drawn from them."""

    features: Tensor
    seen: Tensor

    def __init__(self, params: VirtualOutliers, classes: int, dimensions: int):
        super().__init__()
        self.params = params
        self.register_buffer("features", torch.zeros(classes, params.queue, dimensions))
        self.register_buffer("seen", torch.zeros(classes, dtype=torch.int64))

    @torch.no_grad()
    def push(self, features: Tensor, classes: Tensor) -> None:
        """Adds features, shape (N, D), of objects of known classes, shape (N,), and drops the oldest ones."""
        for known in classes.unique().tolist():
            new = features[classes == known][-self.params.queue :]
            places = (self.seen[known] + torch.arange(len(new), device=new.device)) % self.params.queue
            self.features[known, places] = new.float()
            self.seen[known] += len(new)

    @property
    def full(self) -> Tensor:
        """Classes with a full queue; only these have outliers."""
        return torch.where(self.seen >= self.params.queue)[0]

    @torch.no_grad()
    def outliers(self) -> Tensor:
        """Virtual outliers: the least likely of many points drawn from each class's Gaussian.

        The Gaussians share one covariance (Du et al. 2022, Section 3.1). The density of a point mean + L z, with z
        standard normal and L Lᵀ the covariance, falls with the length of z alone, and length and direction are
        independent. So the lengths of all candidates are drawn, and directions for the longest only: the same
        distribution as drawing every candidate.
        """
        queues = self.features[self.full]
        means = queues.mean(dim=1)
        centred = (queues - means[:, None]).flatten(0, 1)
        dimensions = centred.shape[1]
        covariance = centred.T @ centred / len(centred)
        covariance.diagonal().add_(RIDGE)
        factor = torch.linalg.cholesky(covariance)
        # A squared length is χ² distributed with D degrees of freedom: twice a Gamma of shape D / 2.
        shape = torch.full((len(means), self.params.candidates), dimensions / 2, device=means.device)
        lengths = (2 * torch._standard_gamma(shape)).sqrt().topk(self.params.kept, dim=1).values
        directions = normalize(torch.randn(*lengths.shape, dimensions, device=means.device), dim=-1)
        return (means[:, None] + (lengths[..., None] * directions) @ factor.T).flatten(0, 1)


def outlier_loss(queue: OutlierQueue, head: EnergyHead, classify: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Weighted uncertainty loss (Du et al. 2022, Equation 6): known objects against virtual outliers.

    Args:
        classify: Maps features, shape (M, D), to logits, shape (M, 1 + C), the background first.
        logits: Logits of the known objects of this batch, shape (N, 1 + C).
    """
    virtual = classify(queue.outliers())
    found = head(torch.cat([virtual, logits])[:, 1:])
    known = torch.ones(len(found), dtype=torch.int64, device=found.device)
    known[: len(virtual)] = 0
    return queue.params.weight * cross_entropy(found, known)

"""Virtual outlier synthesis: what a detector learns to call unknown (VOS; Du et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from farther.detectors.networks.energy_head import EnergyHead
from farther.registry import STRICT
from farther.tools.training.recipe import Count, Fraction, Positive, Recipe

#: Added to the covariance's diagonal, so that it can be inverted.
RIDGE = 1e-4


@dataclass(config=STRICT, kw_only=True)
class VirtualOutliers:
    """How virtual outliers are made and learned. The defaults are those of the authors' code.

    Args:
        queue: Features kept of each class, the newest ones.
        candidates: Points drawn from each class's Gaussian in each step …
        kept: … of which so many with the lowest density become virtual outliers.
        weight: Of the loss.
        start: Fraction of the run after which the loss counts: before, features do not tell classes apart.
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
    """Parameters of a training run of a Faster R-CNN; those not named here are `Recipe`'s.

    Args:
        virtual_outliers: Trains with VOS; None trains the network as it is.
    """

    virtual_outliers: VirtualOutliers | None = None


class OutlierQueue(nn.Module):
    """The newest features of each class, and the virtual outliers that they give. Its state is a state dict.

    Args:
        how: Its parameters.
        classes: C, the known classes.
        dimensions: D, of the features.
    """

    features: Tensor
    seen: Tensor

    def __init__(self, how: VirtualOutliers, classes: int, dimensions: int):
        super().__init__()
        self.how = how
        self.register_buffer("features", torch.zeros(classes, how.queue, dimensions))
        self.register_buffer("seen", torch.zeros(classes, dtype=torch.int64))

    @torch.no_grad()
    def push(self, features: Tensor, classes: Tensor) -> None:
        """Keeps features, shape (N, D), of objects of known classes, shape (N,); the oldest ones go."""
        for known in classes.unique().tolist():
            new = features[classes == known][-self.how.queue :]
            places = (self.seen[known] + torch.arange(len(new), device=new.device)) % self.how.queue
            self.features[known, places] = new.float()
            self.seen[known] += len(new)

    @property
    def full(self) -> Tensor:
        """Classes whose queue is full; only these give outliers."""
        return torch.where(self.seen >= self.how.queue)[0]

    @torch.no_grad()
    def outliers(self) -> Tensor:
        """Virtual outliers: the least likely of many points drawn from each class's Gaussian.

        The Gaussians share one covariance (Du et al. 2022, Section 3.1). The density of a point mean + L z, with z
        standard normal and L Lᵀ the covariance, falls with the length of z alone, and length and direction are
        independent. So the lengths of all candidates are drawn, and directions for the longest only: the same
        distribution as drawing every candidate.

        Returns:
            Shape (number of full classes × kept, D).
        """
        queues = self.features[self.full]
        means = queues.mean(dim=1)
        centred = (queues - means[:, None]).flatten(0, 1)
        dimensions = centred.shape[1]
        covariance = centred.T @ centred / len(centred)
        covariance.diagonal().add_(RIDGE)
        factor = torch.linalg.cholesky(covariance)
        # A squared length is χ² distributed with D degrees of freedom: twice a Gamma of shape D / 2.
        shape = torch.full((len(means), self.how.candidates), dimensions / 2, device=means.device)
        lengths = (2 * torch._standard_gamma(shape)).sqrt().topk(self.how.kept, dim=1).values
        directions = normalize(torch.randn(*lengths.shape, dimensions, device=means.device), dim=-1)
        return (means[:, None] + (lengths[..., None] * directions) @ factor.T).flatten(0, 1)


def outlier_loss(queue: OutlierQueue, head: EnergyHead, classify: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Uncertainty loss (Du et al. 2022, Equation 6): known objects against virtual outliers.

    Args:
        queue: Has at least one full class.
        head: Tells known from unknown.
        classify: Takes features, shape (M, D), to logits, shape (M, 1 + C), the background first.
        logits: Of the known objects of this batch, shape (N, 1 + C).

    Returns:
        The weighted cross entropy.
    """
    virtual = classify(queue.outliers())
    found = head(torch.cat([virtual, logits])[:, 1:])
    known = torch.ones(len(found), dtype=torch.int64, device=found.device)
    known[: len(virtual)] = 0
    return queue.how.weight * cross_entropy(found, known)

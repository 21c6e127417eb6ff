"""One step of the images of a batch along the gradient of a loss, and the same detections after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from farther.detectors.networks.replay import Answer, Replay
from farther.detectors.settings import to_numpy
from farther.errors import ParameterError
from farther.tables import Regions, RegionsFolder

#: Loss of each of the N rows of an answer, shape (N,).
Loss = Callable[[Answer], Tensor]


@dataclass(frozen=True)
class Gaussians:
    """Means of the classes and the inverse of their common covariance.

    Args:
        means: μ of the classes with regions, ndarray of shape (C, D).
        precision: Σ⁻¹, ndarray of shape (D, D); the pseudo-inverse where Σ is singular.
    """

    means: np.ndarray
    precision: np.ndarray


@dataclass(frozen=True)
class Step:
    """Settings of a step.

    Args:
        loss: The loss.
        size: Its size in pixels from 0 to 1; below 0 for a step up the loss.
        per_region: Each region has a step of its own, by the gradient of its loss.
        zero_is_positive: The sign of 0 is 1.
        min_score: Regions with a lower score have no loss.
    """

    loss: Loss
    size: float
    per_region: bool = False
    zero_is_positive: bool = False
    min_score: float = 0.0


def after_step(replay: Replay, image_ids: Sequence[str], step: Step) -> Regions:
    """The detections of a batch with the logits, features and latent columns of the images after the step.

    Raises:
        ParameterError: see `Replay.again`, and the loss.
        DataError: the network gives numbers that are not finite.
    """
    regions = replay.regions(image_ids)
    if not len(regions):
        return regions
    images = [image.detach().clone().requires_grad_() for image in replay.images]
    answer = replay.again(images)
    losses, columns = step.loss(answer), _columns(answer)
    for counted, taken in _rounds(regions, step):
        total = losses[torch.from_numpy(counted).to(losses.device)].sum()
        gradients = torch.autograd.grad(total, images, retain_graph=True, allow_unused=True)
        moved = [_moved(*each, replay.unit, step) for each in zip(images, gradients, strict=True)]
        for name, values in _columns(replay.again(moved)).items():
            columns[name][taken] = values[taken]
    stored = {name: regions.array(name) for name in columns if regions.has(name)}
    return regions.with_columns(**{name: columns[name].astype(own.dtype) for name, own in stored.items()})  # type: ignore[union-attr]


def max_softmax(columns: Sequence[int], temperature: float) -> Loss:
    """−log max_c p_c, with p = softmax(z / T) over these columns of the logits."""

    def loss(answer: Answer) -> Tensor:
        scaled = answer.logits[:, columns] / temperature
        return cross_entropy(scaled, scaled.argmax(1), reduction="none")

    return loss


def max_logit(columns: Sequence[int]) -> Loss:
    """−max_c z_c over these columns of the logits."""
    return lambda answer: -answer.logits[:, columns].amax(1)


def mahalanobis(gaussians: Gaussians) -> Loss:
    """min_c (h − μ_c)ᵀ Σ⁻¹ (h − μ_c)."""

    def loss(answer: Answer) -> Tensor:
        if answer.features is None:
            raise ParameterError("loss 'mahalanobis' needs features, which this detector does not have")
        device = answer.features.device
        dtype = torch.float32 if device.type == "mps" else torch.float64
        means, precision = (
            torch.as_tensor(a, dtype=dtype, device=device) for a in (gaussians.means, gaussians.precision)
        )
        centred = answer.features.to(dtype)[:, None] - means
        return ((centred @ precision) * centred).sum(2).amin(1)

    return loss


def class_gaussians(regions: RegionsFolder) -> Gaussians:
    """Gaussians of the features of stored regions by their predicted classes; reads them twice.

    Raises:
        ParameterError: there are no features, or no regions.
    """
    if not regions.has("features"):
        raise ParameterError("loss 'mahalanobis' needs features, which this detector does not store")
    counts = np.zeros(len(regions.header.classes))
    sums: np.ndarray | float = 0.0
    for h, members in _features_by_class(regions):
        counts, sums = counts + members.sum(axis=1), sums + members @ h
    if not counts.any():
        raise ParameterError(f"loss 'mahalanobis' needs regions to learn from: none in {regions.path}")
    means = sums / np.maximum(counts, 1)[:, None]
    scatter = sum(c.T @ c for c in (h - members.T @ means for h, members in _features_by_class(regions)))
    return Gaussians(means[counts > 0], np.linalg.pinv(scatter / counts.sum(), hermitian=True))


def _features_by_class(regions: RegionsFolder) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Features (n, D) of each batch, and 1 where a row is of a class (K, n)."""
    for batch in regions.batches(["features"]):
        if len(batch):
            members = batch.label == np.arange(len(regions.header.classes))[:, None]
            yield batch.array("features").astype(np.float64), members.astype(np.float64)  # type: ignore[union-attr]


def _rounds(regions: Regions, step: Step) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each step to take: masks of the rows whose loss counts, and of those that are taken from its answer."""
    counted = regions.score >= step.min_score
    if not step.per_region:
        yield counted, np.ones(len(regions), bool)
        return
    rank = regions.frame.select(pl.int_range(pl.len()).over("image_id")).to_series().to_numpy()
    for number in np.unique(rank[counted]):
        yield counted & (rank == number), counted & (rank == number)


def _moved(image: Tensor, gradient: Tensor | None, unit: Tensor | float, step: Step) -> Tensor:
    image = image.detach()
    gradient = torch.zeros_like(image) if gradient is None else gradient
    sign = torch.where(gradient >= 0, 1.0, -1.0) if step.zero_is_positive else gradient.sign()
    return image - step.size * unit * sign


def _columns(answer: Answer) -> dict[str, np.ndarray]:
    """The columns of an answer, which own their memory."""
    found = {"logits": answer.logits, **answer.latents}
    if answer.features is not None:
        found["features"] = answer.features
    return {name: to_numpy(values.detach()).copy() for name, values in found.items()}

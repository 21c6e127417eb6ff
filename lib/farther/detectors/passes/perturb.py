"""One step of the image along the gradient of a loss, and the same detections after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import polars as pl
import torch
from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from farther.detectors.base import Detector, Fraction, Protocol
from farther.detectors.networks.replay import Replay, RowOutputs
from farther.detectors.passes.base import Pass, check_replay, register_pass
from farther.detectors.settings import to_numpy
from farther.errors import ParameterError
from farther.registry import STRICT
from farther.tables import Header, Regions, RegionsFolder
from farther.tables.files import digest
from farther.tables.regions import CONFIDENCE, NUMERATOR


@plain_dataclass(frozen=True)
class Gaussians:
    """Means of the classes and the inverse of their common covariance.

    Args:
        means: μ of the classes with regions, ndarray of shape (C, D).
        precision: Σ⁻¹, ndarray of shape (D, D); the pseudo-inverse where Σ is singular.
    """

    means: np.ndarray
    precision: np.ndarray


@register_pass("perturb")
@dataclass(config=STRICT, kw_only=True)
class Perturb(Pass):
    """One step of the image along the sign of the gradient of a loss: logits, features and latents are those after it.

    The step makes the network more certain of what it predicts, the more so for known classes
    (ODIN); in the other direction it is the fast gradient sign method, whose rows are the negatives
    of `safe`. Rows of a detector are those of its proposals, anchors or queries before the step.
    Images are not clipped to 0 … 1 after it, as in the published codes.

    Formula:
        x' = x − ε · sign(∇_x Σ_i L_i(x)), with the loss L of region i: "max_softmax": −log max_c
        softmax(z / T)_c; "max_logit": −max_c z_c; "mahalanobis": min_c (h − μ_c)ᵀ Σ⁻¹ (h − μ_c);
        "numerator": −max_c h_c of G-ODIN's numerator h; "confidence": −log of a confidence branch's
        output

    Args:
        epsilon: ε in pixels from 0 to 1: of a normalised input each channel moves by ε / its
            standard deviation, as in the published codes of ODIN, the Mahalanobis detector and
            OpenOOD. 0.0014 is ODIN's and OpenOOD's.
        loss: See the formula.
        temperature: T.
        direction: "down" the loss, or "up".
        per: "image": one step for the sum of the losses of all regions of an image; "region": a
            backward and a forward pass for each region of an image, by the gradient of its own
            loss. No paper defines the step for objects.
        background: Whether the background logit counts as a class.
        min_score: Detections with a lower score have no loss: they count neither in the sum nor in
            the means, and with `per: region` they keep their values. t* is taken after the passes,
            so the value is not taken from it.
        split: The split that μ_c and Σ are taken from, by predicted class, as in the method
            `mahalanobis`.
        protocol: "paper": sign(0) is 0; "published-code": it is 1.

    References:
        Liang et al., "Enhancing The Reliability of Out-of-distribution Image Detection in Neural
        Networks" (ODIN), 2018, arXiv:1706.02690. Code: https://github.com/facebookresearch/odin

        Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples and
        Adversarial Attacks", 2018, arXiv:1807.03888. Code:
        https://github.com/pokaxpoka/deep_Mahalanobis_detector

        Hsu et al., "Generalized ODIN", 2020, arXiv:2002.11297, Section 3.2: the loss "numerator".

        DeVries and Taylor, "Learning Confidence for Out-of-Distribution Detection in Neural
        Networks", 2018, arXiv:1802.04865: the loss "confidence".

        Goodfellow et al., "Explaining and Harnessing Adversarial Examples" (FGSM), 2015,
        arXiv:1412.6572.
    """

    needs_gradients: ClassVar[bool] = True
    epsilon: PositiveFloat = 0.0014
    loss: Literal["max_softmax", "max_logit", "mahalanobis", "numerator", "confidence"] = (
        "max_softmax"
    )
    temperature: PositiveFloat = 1000.0
    direction: Literal["down", "up"] = "down"
    per: Literal["image", "region"] = "image"
    background: Literal["drop", "keep"] = "drop"
    min_score: Fraction = 0.0
    split: str = "train"
    protocol: Protocol = "paper"

    #: Kept by `learn`.
    _gaussians: ClassVar[Gaussians | None] = None

    @property
    def backward_passes(self) -> int:
        """See `Pass.backward_passes`; with `per: region` there is one for each region."""
        return 1

    def check(self, detector: Detector) -> None:
        """See `Pass.check`."""
        check_replay(self, detector)

    def learn(self, regions: Path) -> None:
        """See `Pass.learn`.

        Raises:
            ParameterError: the detector stores no features, or found nothing in the split.
        """
        if self.loss == "mahalanobis":
            vars(self)["_gaussians"] = class_gaussians(
                RegionsFolder(regions / self.split, self.min_score)
            )

    def identity(self) -> dict[str, object]:
        """See `Pass.identity`."""
        learned = self._gaussians
        if learned is None:
            return super().identity()
        return {
            **super().identity(),
            "gaussians": digest(learned.means.tobytes(), learned.precision.tobytes()),
        }

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        return self.after_step(detector.replay(prepared), image_ids, detector.header())

    def after_step(self, replay: Replay, image_ids: Sequence[str], header: Header) -> Regions:
        """The detections of a batch with the logits, features and latent columns of the images after the step.

        Raises:
            ParameterError: see `Replay.again`; or the loss is "mahalanobis", and there are no
                features, or `learn` was not called.
            DataError: the network gives numbers that are not finite.
        """
        regions = replay.regions(image_ids)
        if not len(regions):
            return regions
        images = [image.detach().clone().requires_grad_() for image in replay.images]
        outputs = replay.again(images)
        losses, columns = self.losses(outputs, header), _columns(outputs)
        for rows, taken in self._rounds(regions):
            total = losses[torch.from_numpy(rows).to(losses.device)].sum()
            gradients = torch.autograd.grad(total, images, retain_graph=True, allow_unused=True)
            moved = [
                self._moved(*each, replay.unit) for each in zip(images, gradients, strict=True)
            ]
            for name, values in _columns(replay.again(moved)).items():
                columns[name][taken] = values[taken]
        stored = {name: regions.array(name) for name in columns if regions.has(name)}
        return regions.with_columns(
            **{name: columns[name].astype(own.dtype) for name, own in stored.items()}
        )  # type: ignore[union-attr]

    def losses(self, outputs: RowOutputs, header: Header) -> Tensor:
        """L of each row, shape (N,); errors as in `after_step`."""
        if self.loss == "mahalanobis":
            return self._distances(outputs.features)
        if self.loss == "numerator":
            return -self._output(outputs, NUMERATOR).amax(1)
        if self.loss == "confidence":
            return softplus(-self._output(outputs, CONFIDENCE)[:, 0])
        keep = self.background == "keep"
        z = outputs.logits[
            :, [k for k in range(len(header.classes)) if keep or k != header.background_index]
        ]
        if self.loss == "max_logit":
            return -z.amax(1)
        scaled = z / self.temperature
        return cross_entropy(scaled, scaled.argmax(1), reduction="none")

    def _output(self, outputs: RowOutputs, column: str) -> Tensor:
        """The output of a classifier's head for each row."""
        if column not in outputs.latents:
            problem = (
                f"loss {self.loss!r} needs the output `{column}`, which this detector does not have"
            )
            raise ParameterError(problem)
        return outputs.latents[column]

    def _distances(self, features: Tensor | None) -> Tensor:
        if self._gaussians is None:
            raise ParameterError(
                "the loss 'mahalanobis' needs the run's training regions: call `learn` first"
            )
        if features is None:
            raise ParameterError(
                "loss 'mahalanobis' needs features, which this detector does not have"
            )
        dtype = torch.float32 if features.device.type == "mps" else torch.float64
        learned = self._gaussians.means, self._gaussians.precision
        means, precision = (
            torch.as_tensor(values, dtype=dtype, device=features.device) for values in learned
        )
        centred = features.to(dtype)[:, None] - means
        return ((centred @ precision) * centred).sum(2).amin(1)

    def _rounds(self, regions: Regions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each step to take: masks of the rows whose loss counts, and of those that are taken from its outputs."""
        counted = regions.score >= self.min_score
        if self.per == "image":
            yield counted, np.ones(len(regions), bool)
            return
        rank = regions.frame.select(pl.int_range(pl.len()).over("image_id")).to_series().to_numpy()
        for number in np.unique(rank[counted]):
            yield counted & (rank == number), counted & (rank == number)

    def _moved(self, image: Tensor, gradient: Tensor | None, unit: Tensor | float) -> Tensor:
        image = image.detach()
        gradient = torch.zeros_like(image) if gradient is None else gradient
        sign = (
            torch.where(gradient >= 0, 1.0, -1.0)
            if self.protocol == "published-code"
            else gradient.sign()
        )
        return image - (self.epsilon if self.direction == "down" else -self.epsilon) * unit * sign


def class_gaussians(regions: RegionsFolder) -> Gaussians:
    """Gaussians of the features of stored regions by their predicted classes; reads them twice.

    Raises:
        ParameterError: there are no features, or no regions.
    """
    if not regions.has("features"):
        raise ParameterError(
            "loss 'mahalanobis' needs features, which this detector does not store"
        )
    counts = np.zeros(len(regions.header.classes))
    sums: np.ndarray | float = 0.0
    for h, members in _features_by_class(regions):
        counts, sums = counts + members.sum(axis=1), sums + members @ h
    if not counts.any():
        raise ParameterError(
            f"loss 'mahalanobis' needs regions to learn from: none in {regions.path}"
        )
    means = sums / np.maximum(counts, 1)[:, None]
    scatter = sum(
        c.T @ c for c in (h - members.T @ means for h, members in _features_by_class(regions))
    )
    return Gaussians(means[counts > 0], np.linalg.pinv(scatter / counts.sum(), hermitian=True))


def _features_by_class(regions: RegionsFolder) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Features (n, D) of each batch, and 1 where a row is of a class (K, n)."""
    for batch in regions.batches(["features"]):
        if len(batch):
            members = batch.label == np.arange(len(regions.header.classes))[:, None]
            yield batch.array("features").astype(np.float64), members.astype(np.float64)  # type: ignore[union-attr]


def _columns(outputs: RowOutputs) -> dict[str, np.ndarray]:
    """The columns of outputs, which own their memory."""
    found = {"logits": outputs.logits, **outputs.latents}
    if outputs.features is not None:
        found["features"] = outputs.features
    return {name: to_numpy(values.detach()).copy() for name, values in found.items()}

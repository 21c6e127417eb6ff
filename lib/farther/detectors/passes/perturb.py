"""Input perturbation: one step of the image along the gradient of a loss."""

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

from farther.detectors.base import Detector, Fraction, recomputable
from farther.detectors.networks.replay import Replay, RowOutputs
from farther.detectors.passes.base import Pass, check_replay, register_pass
from farther.detectors.settings import to_numpy
from farther.errors import ParameterError
from farther.naming.registry import STRICT
from farther.tables import Header, Regions, RegionsFolder
from farther.tables.files import digest
from farther.tables.regions import BEFORE, CONFIDENCE, NUMERATOR
from farther.terms import Protocol


@plain_dataclass(frozen=True)
class Gaussians:
    """Means of the classes and the inverse of their shared covariance.

    Args:
        means: μ of the classes with regions, ndarray of shape (C, D).
        precision: Σ⁻¹, ndarray of shape (D, D); the pseudo-inverse if Σ is singular.
    """

    means: np.ndarray
    precision: np.ndarray


@plain_dataclass(frozen=True)
class Step:
    """A step of the images of a batch with N regions.

    Args:
        is_summed: Whether the loss of a region is in the sum whose gradient is followed, shape
            (N,), bool.
        is_updated: Whether a region gets its values after the step, shape (N,), bool.
    """

    is_summed: np.ndarray
    is_updated: np.ndarray


@register_pass("perturb")
@dataclass(config=STRICT, kw_only=True)
class Perturb(Pass):
    """Logits, features and latents after one step of the image along the sign of a loss's gradient.

    The step makes the network more certain of its prediction, more so for known classes (ODIN); in
    the opposite direction it is the fast gradient sign method, whose rows are the negatives of
    `safe`. Rows of a detector are those of its proposals, anchors or queries before the step.
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
        loss: Loss whose gradient the step follows: see the formula.
        temperature: Temperature T of the softmax in the loss "max_softmax".
        direction: Step "down" the loss, or "up".
        moved: "all" values of the image move, a value being a channel of a pixel; or only those
            with the "largest" or "smallest" gradients.
        share: Share of the values that are those, at least one: 0 is i-ODIN's, with "largest".
        per: "image": one step for the sum of the losses of all regions of an image; "region": a
            backward and a forward pass for each region of an image, by the gradient of the
            region's loss. No paper defines the step for objects.
        background: Whether the background logit counts as a class.
        min_score: Detections with a lower score have no loss: they count neither in the sum nor in
            the means, and with `per: region` they keep their values. t* is chosen after the passes,
            so it cannot be the default.
        before: Whether the features before the step are stored too, as `latent.before`, which the
            method `adascale` compares with those after it.
        split: The split that μ_c and Σ are estimated from, by predicted class, as in the method
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

        Regmi, "Going Beyond Conventional OOD Detection" (i-ODIN), 2024, arXiv:2411.10794: one value
        moves. Code of OpenOOD: https://github.com/Jingkang50/OpenOOD
    """

    needs_gradients: ClassVar[bool] = True
    epsilon: PositiveFloat = 0.0014
    loss: Literal["max_softmax", "max_logit", "mahalanobis", "numerator", "confidence"] = (
        "max_softmax"
    )
    temperature: PositiveFloat = 1000.0
    direction: Literal["down", "up"] = "down"
    moved: Literal["all", "largest", "smallest"] = "all"
    share: Fraction = 0.0
    per: Literal["image", "region"] = "image"
    background: Literal["drop", "keep"] = "drop"
    min_score: Fraction = 0.0
    before: bool = False
    split: str = "train"
    protocol: Protocol = "paper"

    def __post_init__(self) -> None:
        #: Fitted by `learn`.
        self._gaussians: Gaussians | None = None

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
            folder = RegionsFolder(regions / self.split, self.min_score)
            self._gaussians = class_gaussians(folder)

    def identity(self) -> dict[str, object]:
        """See `Pass.identity`."""
        identity = super().identity()
        if self._gaussians is not None:
            means = self._gaussians.means.tobytes()
            precision = self._gaussians.precision.tobytes()
            identity["gaussians"] = digest(means, precision)
        return identity

    @property
    def shares_forward(self) -> bool:
        """See `Pass.shares_forward`: the loss "mahalanobis" needs the training regions first."""
        return self.loss != "mahalanobis"

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        return self.after_detection(detector, recomputable(detector).replay(prepared), image_ids)

    def after_detection(self, detector: Detector, replay: Replay, image_ids: list[str]) -> Regions:
        """See `Pass.after_detection`."""
        return self.after_step(replay, image_ids, detector.header())

    def after_step(self, replay: Replay, image_ids: Sequence[str], header: Header) -> Regions:
        """The detections of a batch with logits, features and latents of the images after the step.

        Raises:
            ParameterError: see `Replay.recompute`; or the loss is "mahalanobis" or `before` is
                true, and there are no features; or `learn` was not called.
            DataError: the network gives numbers that are not finite.
        """
        regions = replay.regions(image_ids)
        if not len(regions):
            return regions
        images = [image.detach().clone().requires_grad_() for image in replay.images]
        outputs = replay.recompute(images)
        losses = self.losses(outputs, header)
        columns = _columns(outputs)
        for step in self._steps(regions):
            is_summed = torch.from_numpy(step.is_summed).to(losses.device)
            total = losses[is_summed].sum()
            gradients = torch.autograd.grad(total, images, retain_graph=True, allow_unused=True)
            moved_images = []
            for image, gradient in zip(images, gradients, strict=True):
                moved_images.append(self._moved(image, gradient, replay.unit))
            for name, values in _columns(replay.recompute(moved_images)).items():
                columns[name][step.is_updated] = values[step.is_updated]

        updated = {}
        for name, values in columns.items():
            stored = regions.array(name) if regions.has(name) else None
            if stored is not None:
                updated[name] = values.astype(stored.dtype)
        if self.before:
            features = regions.array("features") if regions.has("features") else None
            if features is None:
                raise ParameterError("before: this detector stores no features")
            updated[BEFORE] = features
        return regions.with_columns(**updated)

    def losses(self, outputs: RowOutputs, header: Header) -> Tensor:
        """L of each row, shape (N,); errors as in `after_step`."""
        if self.loss == "mahalanobis":
            return self._distances(outputs.features)
        if self.loss == "numerator":
            return -self._output(outputs, NUMERATOR).amax(1)
        if self.loss == "confidence":
            return softplus(-self._output(outputs, CONFIDENCE)[:, 0])
        columns = list(range(len(header.classes)))
        if self.background == "drop" and header.background_index is not None:
            columns.remove(header.background_index)
        z = outputs.logits[:, columns]
        if self.loss == "max_logit":
            return -z.amax(1)
        scaled = z / self.temperature
        return cross_entropy(scaled, scaled.argmax(1), reduction="none")

    def _output(self, outputs: RowOutputs, column: str) -> Tensor:
        """The output of a classifier's head for each row."""
        if column not in outputs.latents:
            raise ParameterError(
                f"loss {self.loss!r} needs the output `{column}`, which this detector does not have"
            )
        return outputs.latents[column]

    def _distances(self, features: Tensor | None) -> Tensor:
        """Squared Mahalanobis distance of features (N, D) to the nearest class mean, shape (N,)."""
        if self._gaussians is None:
            raise ParameterError(
                "the loss 'mahalanobis' needs the run's training regions: call `learn` first"
            )
        if features is None:
            raise ParameterError(
                "loss 'mahalanobis' needs features, which this detector does not have"
            )
        device = features.device
        dtype = torch.float32 if device.type == "mps" else torch.float64
        means = torch.as_tensor(self._gaussians.means, dtype=dtype, device=device)
        precision = torch.as_tensor(self._gaussians.precision, dtype=dtype, device=device)
        centred = features.to(dtype)[:, None] - means
        return ((centred @ precision) * centred).sum(2).amin(1)

    def _steps(self, regions: Regions) -> Iterator[Step]:
        """Yields one step for all images of a batch, or one for the n-th region of each image."""
        has_loss = regions.score >= self.min_score
        if self.per == "image":
            yield Step(has_loss, np.ones(len(regions), bool))
            return
        rank_expression = pl.int_range(pl.len()).over("image_id")
        rank = regions.frame.select(rank_expression).to_series().to_numpy()
        for number in np.unique(rank[has_loss]):
            is_region = has_loss & (rank == number)
            yield Step(is_region, is_region)

    def _moved(self, image: Tensor, gradient: Tensor | None, unit: Tensor | float) -> Tensor:
        """The image after the step; `unit` is the network's input for a pixel of 1."""
        image = image.detach()
        if gradient is None:
            gradient = torch.zeros_like(image)
        if self.protocol == "published-code":
            sign = torch.where(gradient >= 0, 1.0, -1.0)
        else:
            sign = gradient.sign()
        if self.moved != "all":
            sign = sign * self._is_moved(gradient)
        epsilon = self.epsilon if self.direction == "down" else -self.epsilon
        return image - epsilon * unit * sign

    def _is_moved(self, gradient: Tensor) -> Tensor:
        """Whether a value has one of the largest or smallest gradients, of the gradient's shape."""
        sizes = gradient.abs().flatten()
        count = max(1, int(self.share * len(sizes)))
        chosen = sizes.topk(count, largest=self.moved == "largest").indices
        is_moved = torch.zeros_like(sizes, dtype=torch.bool)
        is_moved[chosen] = True
        return is_moved.view_as(gradient)


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
    for features, membership in _features_by_class(regions):
        counts = counts + membership.sum(axis=1)
        sums = sums + membership @ features
    if not counts.any():
        raise ParameterError(
            f"loss 'mahalanobis' needs regions to learn from: none in {regions.path}"
        )

    means = sums / np.maximum(counts, 1)[:, None]
    scatter: np.ndarray | int = 0
    for features, membership in _features_by_class(regions):
        centred = features - membership.T @ means
        scatter = scatter + centred.T @ centred
    precision = np.linalg.pinv(scatter / counts.sum(), hermitian=True)
    return Gaussians(means[counts > 0], precision)


def _features_by_class(regions: RegionsFolder) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the features (n, D) of each batch, and 1 where a row is of a class (K, n)."""
    class_numbers = np.arange(len(regions.header.classes))
    for batch in regions.batches(["features"]):
        features = batch.array("features")
        if features is not None and len(batch):
            membership = batch.label == class_numbers[:, None]
            yield features.astype(np.float64), membership.astype(np.float64)


def _columns(outputs: RowOutputs) -> dict[str, np.ndarray]:
    """The columns of outputs, with memory of their own."""
    tensors = {"logits": outputs.logits, **outputs.latents}
    if outputs.features is not None:
        tensors["features"] = outputs.features
    return {name: to_numpy(values.detach()).copy() for name, values in tensors.items()}

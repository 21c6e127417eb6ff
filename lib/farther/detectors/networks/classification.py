"""Image classification that keeps the input of the last linear layer and the activations of an inner module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from farther.detectors.networks.detection import autocast, detect_by_shape, to_numpy
from farther.detectors.networks.taps import LATENT, Taps, latent_columns
from farther.detectors.scaling import Scaled
from farther.errors import DataError
from farther.tables import Header, Regions

#: Mean and standard deviation of each channel, of pixels from 0 to 1.
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]


class Seen(NamedTuple):
    """Output of a classifier for B images: logits (B, K), features (B, D), and averages (B, C) of inner modules."""

    logits: Tensor
    features: Tensor | None
    latent: Tensor | None
    latents: Mapping[str, Tensor]


class Classifier:
    """A network, its last linear layer, and the inner module that `latent` is pooled from.

    The last layer is the linear layer whose output is the network's. It is found by one pass over an image of zeros.

    Args:
        network: On its device, in evaluation mode: images (B, 3, H, W) → logits (B, K).
        sample: Height and width of an image that it takes.
        latent: Name of the inner module; None for no `latent`.
        normalisation: Of images that come as bytes.
        latents: Names of further modules, whose activations are the columns `latent.<name>`.
        channels_last: The inner module's maps are (B, H, W, C), not (B, C, H, W).

    Raises:
        ParameterError: the network has no such module, or its activations are not those of one image each.
    """

    def __init__(
        self,
        network: nn.Module,
        sample: tuple[int, int],
        latent: str | None = None,
        normalisation: Normalisation = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        *,
        latents: Sequence[str] = (),
        channels_last: bool = False,
    ):
        self.network = network
        self.device = next(network.parameters()).device
        self._latent = latent
        named = [] if latent is None else [latent]
        self._tap = Taps(network, named, LATENT, channels_last=channels_last)
        self._taps = Taps(network, latents, channels_last=channels_last)
        self._normalisation = normalisation
        self._last: nn.Linear | None = None
        # Two images: outputs of the inner module whose first dimension is not that of images are then refused.
        self.columns = self._find_last(torch.zeros((2, 3, *sample), device=self.device))

    def last_layer(self) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
        """Weight (K, D) and bias (K,) of the last linear layer; None where the last layer is another one."""
        if self._last is None:
            return None, None
        weight, bias = self._weight_and_bias(self._last)
        return to_numpy(weight), to_numpy(bias)

    def inputs(self, images: Sequence[Scaled]) -> Tensor:
        """Prepared images of one shape, on the device: bytes (H, W, 3) are normalised, floats (3, H, W) are not."""
        pixels = torch.from_numpy(np.stack([image.pixels for image in images])).to(self.device)
        if pixels.dtype != torch.uint8:
            return pixels
        mean, std = (torch.tensor(values, device=self.device)[:, None, None] for values in self._normalisation)
        return ((pixels.permute(0, 3, 1, 2).contiguous().float() / 255) - mean) / std

    @torch.inference_mode()
    def __call__(self, pixels: Tensor, precision: str = "float32") -> Seen:
        """Output for images (B, 3, H, W); whatever the precision, the last layer computes in float32."""
        kept: dict[str, Any] = {}
        hooks = []
        if self._last is not None:
            hooks.append(self._last.register_forward_pre_hook(lambda _, given: kept.update(features=given[0])))
        try:
            with self._tap, self._taps, autocast(self.device, precision):
                logits = _logits(self.network(pixels))
        finally:
            for hook in hooks:
                hook.remove()
        features = kept["features"].float() if self._last is not None else None
        if features is not None and self._last is not None and precision != "float32":
            logits = linear(features, *self._weight_and_bias(self._last))
        latent = None if self._latent is None else self._tap.over_images(len(pixels))[self._latent]
        return Seen(logits.float(), features, latent, self._taps.over_images(len(pixels)))

    @torch.inference_mode()
    def _find_last(self, sample: Tensor) -> int:
        """Finds the last linear layer and returns K; `sample` is a batch of images."""
        outputs: list[tuple[nn.Linear, Tensor]] = []
        layers = [module for module in self.network.modules() if isinstance(module, nn.Linear)]
        hooks = [layer.register_forward_hook(lambda layer, _, out: outputs.append((layer, out))) for layer in layers]
        try:
            logits = _logits(self.network(sample))
        finally:
            for hook in hooks:
                hook.remove()
        self._last = next((layer for layer, out in outputs if out is logits), None)
        self(sample)  # refuses activations that cannot be pooled before the first image is read
        return logits.shape[1]

    @staticmethod
    def _weight_and_bias(layer: nn.Linear) -> tuple[Tensor, Tensor]:
        weight = layer.weight.detach().float()
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().float()
        return weight, bias


def classify(
    classifier: Classifier,
    header: Header,
    images: Sequence[Scaled],
    image_ids: Sequence[str],
    precision: str,
    dtype: str,
) -> Regions:
    """One region per image of a batch; images of one shape go through the network together.

    Args:
        dtype: Type of `features` and `latent`.

    Raises:
        DataError: the network gives numbers that are not finite.
    """

    def detect(numbers: list[int]) -> list[dict[str, np.ndarray]]:
        group = [images[number] for number in numbers]
        seen = classifier(classifier.inputs(group), precision)
        if not torch.isfinite(seen.logits).all():
            raise DataError("the network gives logits that are not finite", field="logits")
        score, label = seen.logits.softmax(1).max(1)
        columns = {
            "box": np.array([[0, 0, width, height] for height, width in (image.original for image in group)]),
            "score": to_numpy(score),
            "label": to_numpy(label).astype(np.int16),
            "logits": to_numpy(seen.logits),
        }
        for name in ("features", "latent"):
            values = getattr(seen, name)
            if values is not None:
                columns[name] = to_numpy(values).astype(dtype)
        columns |= latent_columns(seen.latents, dtype)
        return [{name: values[row : row + 1] for name, values in columns.items()} for row in range(len(group))]

    return detect_by_shape(header, image_ids, [image.pixels.shape for image in images], detect)


def three_quarters_through(network: nn.Module) -> str | None:
    """Name of the module three quarters through the outermost list of modules; None where there is no list."""
    lists = ((name, len(m)) for name, m in network.named_modules() if isinstance(m, nn.ModuleList) and len(m) > 1)
    name, count = next(lists, ("", 0))
    return f"{name}.{math.ceil(0.75 * count) - 1}" if count else None


def _logits(output: Any) -> Tensor:
    """The logits of what a network returns: torchvision's return them, those of transformers hold them."""
    return getattr(output, "logits", output)

"""Image classifiers: the only region of an image is the whole image.

The base of their adapters, and classification that keeps the input of the last linear layer and the
activations of an inner module.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import linear

from farther.detectors.base import LayeredDetector, ReplayDetector
from farther.detectors.networks.classifier_heads import head_columns
from farther.detectors.networks.detection import autocast
from farther.detectors.networks.heads import ENERGY_HEAD, EnergyHead
from farther.detectors.networks.replay import Dropout, RowOutputs
from farther.detectors.networks.taps import Taps, kept_calls
from farther.detectors.scaling import Scaled
from farther.detectors.settings import NO_LAYERS, Layers, to_numpy
from farther.errors import DataError, ParameterError
from farther.images.device import inference_mode, ordinary_tensors
from farther.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.regions import LAYER, OUTPUTS

#: Mean and standard deviation of each channel, of pixels from 0 to 1.
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(config=STRICT, kw_only=True)
class ImageClassifier(ReplayDetector, LayeredDetector):
    """An image classifier. The region of an image is its frame, the score the largest probability, t* is 0.

    Args:
        latent: Name of the module whose activations, averaged per channel, are the column `latent`.
            None takes a module three quarters through the network where the adapter knows one;
            without a name there is no such column.
    """

    latent: str | None = None

    @property
    @abstractmethod
    def network(self) -> ClassifierNetwork:
        """See `Detector.network`."""

    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the logits."""

    @cached_property
    def _header(self) -> Header:
        names, columns = self.class_names(), self.network.columns
        if len(names) != columns:
            problem = f"{len(names)} classes are named, but the logits have {columns} columns"
            raise DataError(problem, file=self.weights, field="classes")
        weight, bias = self.network.last_layer()
        origin = dict(self.identity)
        energy_head = getattr(self.network.network, ENERGY_HEAD, None)
        if isinstance(energy_head, EnergyHead):
            origin["vos_head"] = energy_head.numbers()
        return Header(classes=names, whole_images=True, detector=origin, weight=weight, bias=bias)

    def header(self) -> Header:
        """See `Adapter.header`."""
        return self._header

    def detection(self, prepared: list) -> ClassifierReplay:
        """See `ReplayDetector.detection`."""
        settings = self.precision, self.features_dtype, self.computed
        return ClassifierReplay(self.network, self._header, prepared, *settings)


class ClassifierOutput(NamedTuple):
    """Output of a classifier for B images: logits (B, K), features (B, D), and columns of inner modules."""

    logits: Tensor
    features: Tensor | None
    latents: Mapping[str, Tensor]


class ClassifierNetwork:
    """A network, its last linear layer, and the inner module that `latent` is pooled from.

    The last layer is the linear layer whose output is the network's. It is found by one pass over
    an image of zeros.

    Args:
        network: On its device, in evaluation mode: images (B, 3, H, W) → logits (B, K).
        sample: Height and width of an image that it takes.
        latent: Name of the inner module; None for no `latent`.
        normalisation: Of the images: bytes are normalised here, floats were before.
        layers: Further modules, which give the columns `latent.<name>` and `gram.<name>`.
        channels_last: The inner module's maps are (B, H, W, C), not (B, C, H, W).

    Raises:
        ParameterError: the network has no such module, or its activations are not those of one
            image each.
    """

    def __init__(
        self,
        network: nn.Module,
        sample: tuple[int, int],
        latent: str | None = None,
        normalisation: Normalisation = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        *,
        layers: Layers = NO_LAYERS,
        channels_last: bool = False,
    ):
        self.network = network.requires_grad_(False)
        self.device = next(network.parameters()).device
        self._latent, self._layers, self._channels_last = latent, layers, channels_last
        self._heads = head_columns(network)
        self.normalisation = normalisation
        self._last: nn.Linear | None = None
        # Two images: outputs of the inner module whose first dimension is not that of images are
        # then refused.
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
        mean, std = (
            torch.tensor(values, device=self.device)[:, None, None] for values in self.normalisation
        )
        return ((pixels.permute(0, 3, 1, 2).contiguous().float() / 255) - mean) / std

    def __call__(
        self, pixels: Tensor, precision: str = "float32", only: Collection[str] | None = None
    ) -> ClassifierOutput:
        """Output for images (B, 3, H, W); whatever the precision, the last layer computes in float32.

        Args:
            only: Names of the columns that are pooled; None for all. The outputs of a head of its
                own are always there.
        """
        named = Layers(
            (self._latent,) if self._latent and (only is None or "latent" in only) else ()
        )
        tap = Taps(self.network, named, "latent", channels_last=self._channels_last)
        taps = Taps(self.network, self._layers.only(only), channels_last=self._channels_last)
        heads = Taps(self.network, Layers(tuple(self._heads.values())))
        last = [] if self._last is None else [self._last]
        with kept_calls(last) as kept, tap, taps, heads, autocast(self.device, precision):
            logits = _logits(self.network(pixels))
        features = None if self._last is None else kept[self._last][0].float()
        if features is not None and precision != "float32":
            logits = self.logits_of(features)
        columns = taps.over_images(len(pixels))
        for usual in tap.over_images(len(pixels)).values():  # of one module, or none
            columns["latent"] = usual
        outputs = heads.over_images(len(pixels))
        for column, module in self._heads.items():
            columns[column] = outputs[f"{LAYER}{module}"]
        return ClassifierOutput(logits.float(), features, columns)

    def logits_of(self, features: Tensor) -> Tensor:
        """Logits (B, K), float32, of inputs (B, D) of the last linear layer."""
        weight, bias = self._weight_and_bias(self._last)  # type: ignore[arg-type]
        return linear(features, weight, bias)

    def unit(self) -> Tensor:
        """Change of the network's input for a change of 1 in pixels from 0 to 1, shape (3, 1, 1)."""
        return 1 / torch.tensor(self.normalisation[1], device=self.device)[:, None, None]

    @inference_mode()
    def _find_last(self, sample: Tensor) -> int:
        """Finds the last linear layer and returns K; `sample` is a batch of images."""
        layers = [module for module in self.network.modules() if isinstance(module, nn.Linear)]
        with kept_calls(layers) as kept:
            logits = _logits(self.network(sample))
        self._last = next(
            (layer for layer in layers if layer in kept and kept[layer][1] is logits), None
        )
        self(sample)  # refuses activations that cannot be pooled before the first image is read
        return logits.shape[1]

    @staticmethod
    def _weight_and_bias(layer: nn.Linear) -> tuple[Tensor, Tensor]:
        weight = layer.weight.detach().float()
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().float()
        return weight, bias


class ClassifierReplay:
    """Classification of one batch, which can be computed again; see `Replay`.

    Images of one shape go through the network together. The usual place of dropout is the input of
    the last layer.

    Args:
        classifier: The network.
        header: Of the regions.
        prepared: The images.
        precision: Type of the activations.
        dtype: Type of `features` and `latent`.
        only: Names of the optional columns that are computed; None for all.
    """

    def __init__(
        self,
        classifier: ClassifierNetwork,
        header: Header,
        prepared: Sequence[Scaled],
        precision: str,
        dtype: str,
        only: Collection[str] | None = None,
    ):
        self._classifier, self._header, self._precision, self._dtype = (
            classifier,
            header,
            precision,
            dtype,
        )
        self._only = only
        frames = [[0, 0, width, height] for height, width in (image.original for image in prepared)]
        self.images = [classifier.inputs([image])[0] for image in prepared]
        self._boxes = torch.tensor(frames, dtype=torch.float32, device=classifier.device)

    @cached_property
    def unit(self) -> Tensor:
        """See `Replay.unit`."""
        return self._classifier.unit()

    @cached_property
    def _seen(self) -> RowOutputs:
        if (
            self._boxes.is_inference()
        ):  # made where no gradients are wanted: inference mode is faster
            return self._see(self.images)
        with ordinary_tensors():
            return self._see(self.images)

    def regions(self, image_ids: Sequence[str]) -> Regions:
        """One region per image.

        Raises:
            DataError: the network gives numbers that are not finite.
        """
        seen = self._seen
        if not torch.isfinite(seen.logits).all():
            raise DataError("the network gives logits that are not finite", field="logits")
        score, label = seen.logits.softmax(1).max(1)
        vectors = dict(seen.latents)
        for column in OUTPUTS & vectors.keys():
            if self._only is not None and column not in self._only:
                del vectors[column]
        if seen.features is not None and (self._only is None or "features" in self._only):
            vectors["features"] = seen.features
        return Regions(
            header=self._header,
            image_id=list(image_ids),
            region_id=np.arange(len(image_ids)),
            box=to_numpy(seen.boxes),
            score=to_numpy(score),
            label=to_numpy(label).astype(np.int16),
            logits=to_numpy(seen.logits),
            **{name: to_numpy(values, self._dtype) for name, values in vectors.items()},
        )

    def again(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.again`."""
        with ordinary_tensors(images or ()):
            if dropout is None:
                return self._seen if images is None else self._see(images)
            if dropout.where:
                with dropout.on(self._classifier.network, (), [1] * len(self.images)):
                    return self._see(self.images if images is None else images)
            seen = self._seen if images is None else self._see(images)
            if seen.features is None:
                problem = "the network does not end with a linear layer; name the modules to mask"
                raise ParameterError(f"parameter 'where': {problem}")
            masks = torch.stack(
                dropout.masks([seen.features.shape[1:]] * len(seen.features), "features")
            )
            masked = seen.features * masks.to(seen.features)
            return RowOutputs(self._classifier.logits_of(masked), seen.boxes, masked)

    def _see(self, images: Sequence[Tensor]) -> RowOutputs:
        """The output for images, those of one shape together, in the order given."""
        groups: dict[torch.Size, list[int]] = {}
        for number, image in enumerate(images):
            groups.setdefault(image.shape, []).append(number)
        batches = (torch.stack([images[n] for n in group]) for group in groups.values())
        parts = [self._classifier(batch, self._precision, self._only) for batch in batches]
        order = torch.tensor(
            [n for group in groups.values() for n in group], device=self._boxes.device
        ).argsort()
        together = lambda values: torch.cat(list(values))[order]  # noqa: E731
        features = None if parts[0].features is None else together(part.features for part in parts)
        latents = {
            name: together(part.latents[name] for part in parts) for name in parts[0].latents
        }
        return RowOutputs(together(part.logits for part in parts), self._boxes, features, latents)


def three_quarters_through(network: nn.Module) -> str | None:
    """Name of the module three quarters through the outermost list of modules; None where there is no list."""
    lists = (
        (name, len(m))
        for name, m in network.named_modules()
        if isinstance(m, nn.ModuleList) and len(m) > 1
    )
    name, count = next(lists, ("", 0))
    return f"{name}.{math.ceil(0.75 * count) - 1}" if count else None


def _logits(output: Any) -> Tensor:
    """The logits of what a network returns: torchvision's return them, those of transformers hold them."""
    return getattr(output, "logits", output)

"""Image classifiers: the only region of an image is the image itself.

The base of their adapters, and inference that stores the input of the last linear layer and the
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
from farther.detectors.networks.taps import Taps, recorded_calls
from farther.detectors.scaling import Scaled
from farther.detectors.settings import NO_LAYERS, Layers, to_numpy
from farther.errors import DataError, ParameterError
from farther.images.device import inference_mode, ordinary_tensors
from farther.naming.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.regions import LAYER, OUTPUTS

#: Mean and standard deviation of each channel, of pixels from 0 to 1.
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(config=STRICT, kw_only=True)
class ImageClassifier(ReplayDetector, LayeredDetector):
    """Base of image classifiers.

    The region of an image is its frame, the score is the largest probability, and t* is 0.

    Args:
        latent: Name of the module whose activations, averaged per channel, are the column `latent`.
            None takes a module three quarters through the network if the adapter knows one;
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
        names = self.class_names()
        columns = self.network.columns
        if len(names) != columns:
            problem = f"{len(names)} classes are named, but the logits have {columns} columns"
            raise DataError(problem, file=self.weights, field="classes")
        weight, bias = self.network.last_layer()
        detector = dict(self.identity)
        energy_head = getattr(self.network.network, ENERGY_HEAD, None)
        if isinstance(energy_head, EnergyHead):
            detector["vos_head"] = energy_head.numbers()
        return Header(classes=names, whole_images=True, detector=detector, weight=weight, bias=bias)

    def header(self) -> Header:
        """See `Adapter.header`."""
        return self._header

    def detection(self, prepared: list) -> ClassifierReplay:
        """See `ReplayDetector.detection`."""
        return ClassifierReplay(
            self.network,
            self._header,
            prepared,
            self.precision,
            self.features_dtype,
            self.computed,
        )


class ClassifierOutput(NamedTuple):
    """Output of a classifier for B images.

    Args:
        logits: Shape (B, K), float32.
        features: Input of the last linear layer, shape (B, D), float32; None without such a layer.
        latents: Columns of inner modules and of heads, by name, B rows each.
    """

    logits: Tensor
    features: Tensor | None
    latents: Mapping[str, Tensor]


class ClassifierNetwork:
    """A network, its last linear layer, and the inner module that `latent` is pooled from.

    The last layer is the linear layer whose output is the network's. It is found by a forward pass
    of an image of zeros.

    Args:
        network: On its device, in evaluation mode: images (B, 3, H, W) → logits (B, K).
        sample: Height and width of a valid input image.
        latent: Name of the inner module; None for no `latent`.
        normalisation: Normalisation of images of bytes; images of floats are normalised already.
        layers: Further modules, for the columns `latent.<name>` and `gram.<name>`.
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
        self.normalisation = normalisation
        self._latent = latent
        self._layers = layers
        self._channels_last = channels_last
        self._heads = head_columns(network)
        # Two images: an inner module whose first dimension is not that of images is then refused.
        images = torch.zeros((2, 3, *sample), device=self.device)
        self._last, self.columns = self._find_last_layer(images)
        self._check_inner_modules(images)

    def last_layer(self) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
        """Weight (K, D) and bias (K,) of the last layer; None if it is not a linear layer."""
        if self._last is None:
            return None, None
        weight, bias = self._weight_and_bias(self._last)
        return to_numpy(weight), to_numpy(bias)

    def inputs(self, images: Sequence[Scaled]) -> Tensor:
        """Prepared images of one shape as a batch on the device, shape (B, 3, H, W).

        Bytes of shape (H, W, 3) are normalised, floats of shape (3, H, W) are not.
        """
        pixels = torch.from_numpy(np.stack([image.pixels for image in images])).to(self.device)
        if pixels.dtype != torch.uint8:
            return pixels
        mean = torch.tensor(self.normalisation[0], device=self.device)[:, None, None]
        std = torch.tensor(self.normalisation[1], device=self.device)[:, None, None]
        return ((pixels.permute(0, 3, 1, 2).contiguous().float() / 255) - mean) / std

    def __call__(
        self, pixels: Tensor, precision: str = "float32", only: Collection[str] | None = None
    ) -> ClassifierOutput:
        """Output for images; the last layer computes in float32 for any precision.

        Args:
            pixels: Shape (B, 3, H, W).
            precision: Type of the activations.
            only: Names of the columns that are pooled; None for all. The outputs of added heads are
                always included.
        """
        latent_layers = NO_LAYERS
        if self._latent and (only is None or "latent" in only):
            latent_layers = Layers((self._latent,))
        head_layers = Layers(tuple(self._heads.values()))
        latent_tap = Taps(self.network, latent_layers, "latent", channels_last=self._channels_last)
        layer_taps = Taps(self.network, self._layers.only(only), channels_last=self._channels_last)
        head_taps = Taps(self.network, head_layers)
        last_layers = [] if self._last is None else [self._last]
        with (
            recorded_calls(last_layers) as calls,
            latent_tap,
            layer_taps,
            head_taps,
            autocast(self.device, precision),
        ):
            logits = _logits(self.network(pixels))

        features = None
        if self._last is not None:
            features = calls[self._last][0].float()
            if precision != "float32":
                logits = self.logits_of(features)

        columns = layer_taps.over_images(len(pixels))
        for values in latent_tap.over_images(len(pixels)).values():  # at most one
            columns["latent"] = values
        outputs = head_taps.over_images(len(pixels))
        for column, module in self._heads.items():
            columns[column] = outputs[f"{LAYER}{module}"]
        return ClassifierOutput(logits.float(), features, columns)

    def logits_of(self, features: Tensor) -> Tensor:
        """Logits (B, K), float32, of inputs (B, D) of the last linear layer."""
        weight, bias = self._weight_and_bias(self._last)  # type: ignore[arg-type]
        return linear(features, weight, bias)

    def unit(self) -> Tensor:
        """Change of the network's input per change of pixels from 0 to 1, shape (3, 1, 1)."""
        return 1 / torch.tensor(self.normalisation[1], device=self.device)[:, None, None]

    @inference_mode()
    def _find_last_layer(self, images: Tensor) -> tuple[nn.Linear | None, int]:
        """The linear layer whose output is the network's, if there is one, and K."""
        layers = [module for module in self.network.modules() if isinstance(module, nn.Linear)]
        with recorded_calls(layers) as calls:
            logits = _logits(self.network(images))
        for layer in layers:
            if layer in calls and calls[layer][1] is logits:
                return layer, logits.shape[1]
        return None, logits.shape[1]

    @inference_mode()
    def _check_inner_modules(self, images: Tensor) -> None:
        """Refuses activations that cannot be pooled, before the first image is read."""
        self(images)

    @staticmethod
    def _weight_and_bias(layer: nn.Linear) -> tuple[Tensor, Tensor]:
        """Weight and bias of a layer, float32; a missing bias is 0."""
        weight = layer.weight.detach().float()
        if layer.bias is None:
            return weight, weight.new_zeros(len(weight))
        return weight, layer.bias.detach().float()


class ClassifierReplay:
    """Classification of one batch, which can be recomputed; see `Replay`.

    Images of one shape share a forward pass. The default place of dropout is the input of the last
    layer.

    Args:
        classifier: The network.
        header: Header of the regions.
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
        self._classifier = classifier
        self._header = header
        self._precision = precision
        self._dtype = dtype
        self._only = only
        self.images = [classifier.inputs([image])[0] for image in prepared]
        frames = []
        for image in prepared:
            height, width = image.original
            frames.append([0, 0, width, height])
        self._boxes = torch.tensor(frames, dtype=torch.float32, device=classifier.device)

    @cached_property
    def unit(self) -> Tensor:
        """See `Replay.unit`."""
        return self._classifier.unit()

    @cached_property
    def _outputs(self) -> RowOutputs:
        """The network's output for the images."""
        # In inference mode no gradients can be computed, and it is faster.
        if self._boxes.is_inference():
            return self._forward(self.images)
        with ordinary_tensors():
            return self._forward(self.images)

    def regions(self, image_ids: Sequence[str]) -> Regions:
        """One region per image.

        Raises:
            DataError: the network gives numbers that are not finite.
        """
        outputs = self._outputs
        if not torch.isfinite(outputs.logits).all():
            raise DataError("the network gives logits that are not finite", field="logits")
        score, label = outputs.logits.softmax(1).max(1)

        columns = {}
        for name, values in outputs.latents.items():
            if name not in OUTPUTS or self._is_stored(name):
                columns[name] = to_numpy(values, self._dtype)
        if outputs.features is not None and self._is_stored("features"):
            columns["features"] = to_numpy(outputs.features, self._dtype)
        return Regions(
            header=self._header,
            image_id=list(image_ids),
            region_id=np.arange(len(image_ids)),
            box=to_numpy(outputs.boxes),
            score=to_numpy(score),
            label=to_numpy(label).astype(np.int16),
            logits=to_numpy(outputs.logits),
            **columns,
        )

    def _is_stored(self, column: str) -> bool:
        """True if an optional column is stored."""
        return self._only is None or column in self._only

    def recompute(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.recompute`."""
        with ordinary_tensors(images or ()):
            if dropout is None:
                return self._outputs_for(images)
            if dropout.where:
                with dropout.on(self._classifier.network, (), [1] * len(self.images)):
                    return self._forward(self.images if images is None else images)
            return self._with_masked_features(self._outputs_for(images), dropout)

    def _outputs_for(self, images: Sequence[Tensor] | None) -> RowOutputs:
        """The network's output for other images; for the batch's own if None."""
        if images is None:
            return self._outputs
        return self._forward(images)

    def _with_masked_features(self, outputs: RowOutputs, dropout: Dropout) -> RowOutputs:
        """Outputs with dropout at the input of the last layer.

        Raises:
            ParameterError: the last layer is not a linear layer.
        """
        features = outputs.features
        if features is None:
            problem = "the network does not end with a linear layer; name the modules to mask"
            raise ParameterError(f"parameter 'where': {problem}")
        masks = dropout.masks([features.shape[1:]] * len(features), "features")
        masked = features * torch.stack(masks).to(features)
        return RowOutputs(self._classifier.logits_of(masked), outputs.boxes, masked)

    def _forward(self, images: Sequence[Tensor]) -> RowOutputs:
        """The output for images, in their order; images of one shape share a forward pass."""
        numbers_by_shape: dict[torch.Size, list[int]] = {}
        for number, image in enumerate(images):
            numbers_by_shape.setdefault(image.shape, []).append(number)

        outputs = []
        image_numbers = []
        for numbers in numbers_by_shape.values():
            batch = torch.stack([images[number] for number in numbers])
            outputs.append(self._classifier(batch, self._precision, self._only))
            image_numbers += numbers

        order = torch.tensor(image_numbers, device=self._boxes.device).argsort()
        logits = torch.cat([output.logits for output in outputs])[order]
        features = None
        feature_parts = [output.features for output in outputs if output.features is not None]
        if feature_parts:
            features = torch.cat(feature_parts)[order]
        latents = {}
        for name in outputs[0].latents:
            latents[name] = torch.cat([output.latents[name] for output in outputs])[order]
        return RowOutputs(logits, self._boxes, features, latents)


def three_quarters_through(network: nn.Module) -> str | None:
    """Name of the module three quarters through the outermost list of modules; None without one."""
    for name, module in network.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) > 1:
            return f"{name}.{math.ceil(0.75 * len(module)) - 1}"
    return None


def _logits(output: Any) -> Tensor:
    """The logits in a network's output: an attribute in transformers, the output in torchvision."""
    return getattr(output, "logits", output)

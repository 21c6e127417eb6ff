"""torchvision's image classifiers, and OpenOOD's ResNets for small images."""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import Count, register
from farther.detectors.scaling import Scaled
from farther.detectors.whole_images import ImageClassifier
from farther.errors import DataError, ParameterError
from farther.images.bounds import network_errors
from farther.registry import STRICT, build

if TYPE_CHECKING:
    from farther.detectors.networks.classification import Classifier as Network
    from farther.detectors.networks.classifiers import Blueprint

Channels = tuple[float, float, float]
Deviations = tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]

#: Parameters of the preparation of images; a checkpoint of farther has them in its metadata.
PREPROCESSING = ("resize", "crop", "mean", "std", "interpolation")


Interpolation = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]
Side = Annotated[int, Field(ge=1, le=4096)]


@dataclass(config=STRICT, kw_only=True)
class Preprocessing:
    """Types and bounds of the preprocessing in a checkpoint's metadata; see `Classifier`."""

    resize: Side | tuple[Side, Side] | None = None
    crop: Side | None = None
    mean: Channels | None = None
    std: Deviations | None = None
    interpolation: Interpolation | None = None


@register("classifier")
@dataclass(config=STRICT, kw_only=True)
class Classifier(ImageClassifier):
    """A classifier of torchvision, or a ResNet in OpenOOD's layout, and its state dict.

    Logits are those of the network. `features` is the input of the last linear layer, which is the header's last layer;
    a network that does not end with one (SqueezeNet) has neither.

    Images are prepared as torchvision's presets do: resized with Pillow, cropped at the centre, scaled to 0 … 1 and
    normalised. Values that no parameter gives are those of the file's metadata, or else of the preset.

    Args:
        weights: A PyTorch file of weights, whole or below `state_dict`, `model`, `model_state_dict` or `net`; or a
            safetensors file.
        latent: See `ImageClassifier`.
        architecture: Name of torchvision's function ("resnet50", "vit_b_16", "convnext_tiny", …); or "ResNet18_32x32",
            "ResNet18_64x64" or "ResNet18_224x224" of OpenOOD; or "openood_resnet": their basic blocks behind a 3×3
            stem, of any width and depth, which are read from the weights. None takes the file's metadata.
        classes: In the order of the logits. None takes the file's metadata, or else the preset's (ImageNet's).
        preset: Name of torchvision's weights whose preprocessing applies; None is "DEFAULT".
        resize: Pixels of the shorter side, or height and width.
        crop: Side of the square that is cut from the centre; smaller images are padded with zeros.
        mean, std: Of each channel, for pixels from 0 to 1. OpenOOD's networks have no default.
        interpolation: Of the resizing.
    """

    architecture: str | None = None
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    preset: str | None = None
    resize: Count | tuple[Count, Count] | None = None
    crop: Count | None = None
    mean: Channels | None = None
    std: Deviations | None = None
    interpolation: Interpolation | None = None

    @cached_property
    def blueprint(self) -> Blueprint:
        """What the network is built from.

        Raises:
            DataError: the checkpoint is absent or damaged.
            ParameterError: the architecture is unknown, or parameters are missing.
        """
        from farther.detectors.networks.classifiers import Blueprint, describe, read_description

        found = read_description(self.weights)
        architecture = self.architecture or found.get("architecture")
        if architecture is None:
            raise ParameterError("detector 'classifier': give the parameter 'architecture'")
        try:
            described = asdict(build(Preprocessing, "preprocessing", found.get("preprocessing", {})))
            usual = describe(architecture, self.preset)
        except ParameterError as error:
            raise DataError(str(error), file=self.weights, field="preprocessing") if found else error from None
        said = {name: getattr(self, name) for name in PREPROCESSING if getattr(self, name) is not None}
        preprocessing = {**usual["preprocessing"], **{k: v for k, v in described.items() if v is not None}, **said}
        classes = self.classes or found.get("classes") or usual.get("classes", ())
        missing = [name for name in PREPROCESSING if name not in preprocessing] + ["classes"] * (not classes)
        if missing:
            raise ParameterError(f"detector 'classifier': {architecture} also needs {', '.join(missing)}")
        return Blueprint(architecture, tuple(classes), preprocessing)

    @cached_property
    def network(self) -> Network:
        """See `Detector.network`."""
        from farther.detectors.networks.classification import Classifier
        from farther.detectors.networks.classifiers import default_latent, load_network

        network = load_network(self.weights, self.blueprint).to(self.torch_device())
        preprocessing, architecture = self.blueprint.preprocessing, self.blueprint.architecture
        with network_errors(self.weights):
            return Classifier(
                network,
                sample=(preprocessing["crop"], preprocessing["crop"]),
                latent=self.latent or default_latent(architecture),
                normalisation=(preprocessing["mean"], preprocessing["std"]),
                layers=self.layers(),
                channels_last=architecture.startswith("swin"),
            )

    def class_names(self) -> tuple[str, ...]:
        """See `ImageClassifier.class_names`."""
        return self.blueprint.classes

    def prepare(self, image: np.ndarray) -> Scaled:
        """The image, resized and cropped."""
        from farther.detectors.networks.classifiers import resize_and_crop

        return resize_and_crop(image, self.blueprint.preprocessing)

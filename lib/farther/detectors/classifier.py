"""torchvision's image classifiers, and OpenOOD's ResNets and LeNet for small images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torchvision import models
from torchvision.models.resnet import BasicBlock
from torchvision.transforms import InterpolationMode, functional

from farther.detectors.base import register
from farther.detectors.networks.classifier_heads import (
    OPENOOD_HEADS,
    Similarity,
    from_openood,
    replace_head,
)
from farther.detectors.networks.heads import ENERGY_HEAD, EnergyHead
from farther.detectors.networks.weights import (
    BlankWeights,
    as_names,
    json_field,
    load_weights,
    read_metadata,
    read_weights,
    unwrapped,
    write_checkpoint,
)
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.detectors.scaling import Scaled
from farther.detectors.whole_images import ClassifierNetwork, ImageClassifier
from farther.errors import DataError, ParameterError, choose, shorten
from farther.images.bounds import network_errors
from farther.naming.registry import STRICT, Parameters, build
from farther.tables.header import unique_names

FORMAT = "farther.classifier"

#: OpenOOD's ResNets with a 3×3 stem, and the side of their images; None if the checkpoint or the
#: parameters give it.
STEM_3X3: dict[str, int | None] = {
    "ResNet18_32x32": 32,
    "ResNet18_64x64": 64,
    "openood_resnet": None,
}

#: OpenOOD's network for MNIST.
LENET = "LeNet"
#: Side of LeNet's images.
LENET_SIDE = 28
#: Mean and standard deviation of each channel of LeNet's images in OpenOOD.
LENET_NORMALISATION = (0.5, 0.5, 0.5)

#: torchvision's name of networks with another name in OpenOOD.
TORCHVISION_NAMES = {"ResNet18_224x224": "resnet18"}

#: torchvision's networks whose state dict does not contain how they transform their input.
REFUSED = ("googlenet", "inception_v3")

#: Module three quarters through a network of each family: the default of `latent`.
LATENTS = {
    r"(wide_)?resne.*|openood_resnet|ResNet18.*": "layer3",
    LENET: "block3",
    r"regnet.*": "trunk_output.block3",
    r"densenet.*": "features.denseblock3",
    r"(convnext|swin|efficientnet).*": "features.5",
    r"mobilenet_v2": "features.13",
    r"mobilenet_v3_large": "features.12",
    r"mobilenet_v3_small": "features.8",
    r"mnasnet.*": "layers.11",
    r"shufflenet.*": "stage3",
    r"maxvit.*": "blocks.2",
    r"squeezenet.*": "features.9",
    r"alexnet": "features.9",
    r"vgg11": "features.15",
    r"vgg13": "features.19",
    r"vgg16": "features.23",
    r"vgg19": "features.27",
    r"vgg11_bn": "features.21",
    r"vgg13_bn": "features.27",
    r"vgg16_bn": "features.33",
    r"vgg19_bn": "features.39",
    r"vit_b.*": "encoder.layers.encoder_layer_8",
    r"vit_l.*": "encoder.layers.encoder_layer_17",
    r"vit_h.*": "encoder.layers.encoder_layer_23",
}

Channels = tuple[float, float, float]
Deviations = tuple[
    Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]
]

Interpolation = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]
Side = Annotated[int, Field(ge=1, le=4096)]


@plain_dataclass(frozen=True)
class ClassifierBlueprint:
    """Description from which a classifier is built, without its weights.

    Args:
        architecture: A name of torchvision or OpenOOD.
        classes: Class names, in the order of the logits.
        preprocessing: resize, crop, mean, std and interpolation; see `Classifier`.
        similarity: Similarity in the numerator of a network that G-ODIN trained; see `Classifier`.
    """

    architecture: str
    classes: tuple[str, ...]
    preprocessing: dict[str, Any]
    similarity: Similarity | None = None


@dataclass(config=STRICT, kw_only=True)
class ClassifierPreprocessing(Parameters):
    """Preprocessing of images.

    It is given by parameters of the adapter, or by the field `preprocessing` of a checkpoint of
    farther.

    Args:
        resize: Length of the shorter side, or height and width, in pixels.
        crop: Side of the central crop, a square; smaller images are padded with zeros.
        mean, std: Of each channel, for pixels from 0 to 1. OpenOOD's networks have no default.
        interpolation: Interpolation of the resizing.
    """

    resize: Side | tuple[Side, Side] | None = None
    crop: Side | None = None
    mean: Channels | None = None
    std: Deviations | None = None
    interpolation: Interpolation | None = None


PREPROCESSING = tuple(field.name for field in fields(ClassifierPreprocessing))


@register("classifier")
@dataclass(config=STRICT, kw_only=True)
class Classifier(ClassifierPreprocessing, ImageClassifier):
    """A classifier of torchvision, or a ResNet in OpenOOD's layout, and its state dict.

    Logits are those of the network. `features` is the input of the last linear layer, which is the
    header's last layer; a network that does not end with one (SqueezeNet) has neither.

    Networks with added heads are read from the checkpoints of farther's trainer and from OpenOOD's.
    Of a confidence branch (`ConfBranchNet`), `latent.confidence` is its output before
    the sigmoid. Of G-ODIN (`GodinNet`), the logits are the quotients h(x) / g(x),
    `latent.numerator` is h and `latent.denominator` g; there are no `features`. If the
    checkpoint has the head that VOS trains, the header's `detector["vos_head"]` has its numbers.

    Images are prepared as in torchvision's presets: resized with Pillow, cropped at the centre,
    scaled to 0 … 1 and normalised. Values without a parameter are those of the file's metadata, or
    else of the preset.

    Args:
        weights: A PyTorch file of weights, whole or below `state_dict`, `model`, `model_state_dict`
            or `net`; or a safetensors file.
        latent: See `ImageClassifier`.
        architecture: Name of torchvision's function ("resnet50", "vit_b_16", "convnext_tiny", …);
            or "ResNet18_32x32", "ResNet18_64x64", "ResNet18_224x224" or "LeNet" of OpenOOD; or
            "openood_resnet": the basic blocks of its ResNets behind a 3×3 stem, of any width and
            depth, which are read from the weights. None takes the file's metadata.
        classes: Class names, in the order of the logits. None takes the file's metadata, else the
            preset's (ImageNet).
        preset: Name of torchvision's weights whose preprocessing applies; None is "DEFAULT".
        similarity: Similarity in the numerator of a network that G-ODIN trained: "inner",
            "euclidean" or "cosine" (OpenOOD's default). None takes the file's metadata, or "inner"
            if the numerator has a bias.
    """

    architecture: str | None = None
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    preset: str | None = None
    similarity: Similarity | None = None

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """Farther's own file; see `Adapter`. State dicts are recognised by `FasterRCNN`."""
        return cls.opened(path)

    @cached_property
    def blueprint(self) -> ClassifierBlueprint:
        """Description from which the network is built.

        Raises:
            DataError: the checkpoint is absent or damaged.
            ParameterError: the architecture is unknown, or parameters are missing.
        """
        metadata = read_description(self.weights)
        architecture = self.architecture or metadata.get("architecture")
        if architecture is None:
            raise ParameterError("detector 'classifier': give the parameter 'architecture'")
        try:
            stored = build(
                ClassifierPreprocessing, "preprocessing", metadata.get("preprocessing", {})
            )
            defaults = describe(architecture, self.preset)
        except ParameterError as error:
            if not metadata:
                raise
            raise DataError(str(error), file=self.weights, field="preprocessing") from None

        preprocessing = defaults["preprocessing"]
        for source in (stored, self):
            for name in PREPROCESSING:
                value = getattr(source, name)
                if value is not None:
                    preprocessing[name] = value
        classes = self.classes or metadata.get("classes") or defaults.get("classes", ())
        missing = [name for name in PREPROCESSING if name not in preprocessing]
        if not classes:
            missing.append("classes")
        if missing:
            raise ParameterError(
                f"detector 'classifier': {architecture} also needs {', '.join(missing)}"
            )
        similarity = self.similarity or metadata.get("similarity")
        return ClassifierBlueprint(architecture, tuple(classes), preprocessing, similarity)

    @cached_property
    def network(self) -> ClassifierNetwork:
        """See `Detector.network`."""
        network = self.to_device(load_network(self.weights, self.blueprint))
        preprocessing = self.blueprint.preprocessing
        architecture = self.blueprint.architecture
        with network_errors(self.weights):
            return ClassifierNetwork(
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
        return resize_and_crop(image, self.blueprint.preprocessing)


class OpenOODResNet(nn.Module):
    """OpenOOD's ResNet for small images, of basic blocks with a 3×3 stem (`ResNet18_32x32`).

    Args:
        widths: Number of channels of each stage; the stem has that of the first.
        blocks: Number of blocks of each stage.
        classes: Number of logits.

    Attributes:
        width: Number of features.
        fc: The last layer.
    """

    def __init__(self, widths: Sequence[int], blocks: Sequence[int], classes: int):
        super().__init__()
        self.stages = len(widths)
        self.width = widths[-1]
        self.conv1 = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU()
        input_width = widths[0]
        for number, (width, count) in enumerate(zip(widths, blocks, strict=True), start=1):
            stride = 1 if number == 1 else 2
            stage = _resnet_stage(input_width, width, stride, count)
            self.add_module(f"layer{number}", stage)
            input_width = width
        self.fc: nn.Module = nn.Linear(self.width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W)."""
        maps = self.relu(self.bn1(self.conv1(images)))
        for number in range(1, self.stages + 1):
            maps = self.get_submodule(f"layer{number}")(maps)
        return self.fc(maps.mean((2, 3)))


def _resnet_stage(input_width: int, width: int, stride: int, count: int) -> nn.Sequential:
    """A stage of `count` basic blocks, the first of which has the stride."""
    shortcut = None
    if stride > 1 or input_width != width:
        shortcut = nn.Sequential(
            nn.Conv2d(input_width, width, 1, stride, bias=False), nn.BatchNorm2d(width)
        )
    first_block = BasicBlock(input_width, width, stride, shortcut)
    further_blocks = [BasicBlock(width, width) for _ in range(count - 1)]
    return nn.Sequential(first_block, *further_blocks)


class OpenOODLeNet(nn.Module):
    """OpenOOD's LeNet for MNIST: images of 28 × 28 pixels, 84 features after a ReLU.

    Args:
        classes: Number of logits.
        channels: Number of channels of an image; OpenOOD repeats that of grey images three times.

    References:
        LeCun et al., "Gradient-based learning applied to document recognition", 1998,
        doi:10.1109/5.726791.
    """

    def __init__(self, classes: int, channels: int = 3):
        super().__init__()
        self.block1 = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.block2 = nn.Sequential(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.block3 = nn.Sequential(nn.Conv2d(16, 120, 5), nn.ReLU())
        self.width = 84
        self.classifier1 = nn.Linear(120, self.width)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(self.width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, channels, 28, 28)."""
        maps = self.block3(self.block2(self.block1(images)))
        features = self.relu(self.classifier1(maps.flatten(1)))
        return self.fc(features)


def save_checkpoint(
    path: str | Path,
    state: Mapping[str, Tensor],
    blueprint: ClassifierBlueprint,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Writes a state dict in half precision, its blueprint and notes."""
    write_checkpoint(path, state, FORMAT, blueprint, notes)


def read_description(path: Path) -> dict[str, Any]:
    """Fields of the blueprint in a file of `save_checkpoint`; empty for other files.

    Raises:
        DataError: a field is damaged.
    """
    if path.suffix.lower() != ".safetensors":
        return {}
    metadata = read_metadata(path)
    if metadata.get("format") != FORMAT:
        return {}
    preprocessing = json_field(path, metadata, "preprocessing")
    if not isinstance(preprocessing, dict):
        raise DataError(
            f"expected an object, found {shorten(preprocessing)}", file=path, field="preprocessing"
        )
    classes = as_names(path, json_field(path, metadata, "classes"))
    similarity = metadata.get("similarity", "null")
    if similarity not in ("null", *get_args(Similarity)):
        problem = f"expected {', '.join(get_args(Similarity))}, found {shorten(similarity)}"
        raise DataError(problem, file=path, field="similarity")
    return {
        "architecture": metadata.get("architecture"),
        "classes": classes,
        "preprocessing": preprocessing,
        "similarity": None if similarity == "null" else similarity,
    }


def describe(architecture: str, preset: str | None = None) -> dict[str, Any]:
    """Default preprocessing and classes of an architecture.

    Args:
        architecture: See `Classifier`.
        preset: Name of torchvision's weights; None takes its default ones.

    Returns:
        "preprocessing" and, for torchvision's networks, "classes".

    Raises:
        ParameterError: the architecture or the preset is unknown.
    """
    preprocessing: dict[str, Any] = {}
    if architecture == LENET:
        preprocessing["resize"] = LENET_SIDE
        preprocessing["crop"] = LENET_SIDE
        preprocessing["mean"] = LENET_NORMALISATION
        preprocessing["std"] = LENET_NORMALISATION
        preprocessing["interpolation"] = "bilinear"
        return {"preprocessing": preprocessing}
    if architecture in STEM_3X3:
        side = STEM_3X3[architecture]
        if side is not None:
            preprocessing["resize"] = side
            preprocessing["crop"] = side
        preprocessing["interpolation"] = "bilinear"
        return {"preprocessing": preprocessing}

    known = [name for name in models.list_models(module=models) if name not in REFUSED]
    name = TORCHVISION_NAMES.get(architecture, architecture)
    choose("architecture", name, [*known, LENET, *STEM_3X3, *TORCHVISION_NAMES])
    presets = models.get_model_weights(name)
    choose(f"preset of {name}", preset or "DEFAULT", ["DEFAULT", *presets.__members__])
    weights = presets[preset or "DEFAULT"]
    transform = weights.transforms()
    preprocessing = {
        "resize": transform.resize_size[0],
        "crop": transform.crop_size[0],
        "mean": tuple(transform.mean),
        "std": tuple(transform.std),
        "interpolation": transform.interpolation.value,
    }
    return {"preprocessing": preprocessing, "classes": unique_names(weights.meta["categories"])}


def resize_and_crop(image: np.ndarray, preprocessing: Mapping[str, Any]) -> Scaled:
    """An image (H, W, 3), uint8, resized and cropped at its centre as in torchvision's presets."""
    size = preprocessing["resize"]
    sides = [size] if isinstance(size, int) else list(size)
    mode = InterpolationMode(preprocessing["interpolation"])
    resized = functional.resize(Image.fromarray(image), sides, mode)
    cropped = functional.center_crop(resized, [preprocessing["crop"]])
    return Scaled(np.array(cropped), (image.shape[0], image.shape[1]))


def default_latent(architecture: str) -> str | None:
    """Name of the module three quarters through the network; None if it is not known."""
    for family, module in LATENTS.items():
        if re.fullmatch(family, architecture):
            return module
    return None


def load_network(path: Path, blueprint: ClassifierBlueprint) -> nn.Module:
    """A network with a file's weights, in evaluation mode and float32.

    Raises:
        DataError: the file is absent or damaged, or does not fit the network.
        ParameterError: the similarity of a network that G-ODIN trained is not known.
    """
    with BlankWeights():
        network, weights = _build_for(read_weights(path), path, blueprint)
    count = len(blueprint.classes)
    load_weights(network, path, weights, f"{blueprint.architecture} with {count} classes")
    return network.eval()


def _build_for(
    weights: dict[str, Tensor], path: Path, blueprint: ClassifierBlueprint
) -> tuple[nn.Module, dict[str, Tensor]]:
    """A network that has a file's weights, and these by the network's names."""
    count = len(blueprint.classes)
    name = TORCHVISION_NAMES.get(blueprint.architecture, blueprint.architecture)
    network: nn.Module
    if name == LENET:
        network = _lenet(path, blueprint)
        weights = unwrapped(path, weights, own_names(network, weights))
        weights = {_lenet_name(weight): tensor for weight, tensor in weights.items()}
    elif name in STEM_3X3:
        shallow = OpenOODResNet((1, 1, 1, 1), (1, 1, 1, 1), count)
        weights = unwrapped(path, weights, own_names(shallow, weights))
        weights = _with_torchvision_names(weights)
        network = _openood_resnet(path, weights, count)
    else:
        options = {}
        if name.startswith("vit"):
            options["image_size"] = blueprint.preprocessing["crop"]
        network = models.get_model(name, num_classes=count, **options)
        weights = unwrapped(path, weights, own_names(network, weights))
        weights = _with_torchvision_names(weights)
    replace_head(network, weights, count, blueprint.similarity, path)
    if any(weight.startswith(f"{ENERGY_HEAD}.") for weight in weights):
        network.add_module(ENERGY_HEAD, EnergyHead(count))
    return network, weights


def _lenet(path: Path, blueprint: ClassifierBlueprint) -> OpenOODLeNet:
    """LeNet; its images must have one size, which is that of its last convolution's input."""
    crop = blueprint.preprocessing["crop"]
    if crop != LENET_SIDE:
        problem = f"{LENET} takes images of {LENET_SIDE} pixels, found crop: {crop}"
        raise DataError(problem, file=path, field="crop")
    return OpenOODLeNet(len(blueprint.classes))


def _lenet_name(weight: str) -> str:
    """Name of a weight of LeNet; OpenOOD's first version had both linear layers in one module."""
    for old_prefix, new_prefix in (("classifier.0.", "classifier1."), ("classifier.2.", "fc.")):
        if weight.startswith(old_prefix):
            return new_prefix + weight.removeprefix(old_prefix)
    return weight


def _openood_resnet(path: Path, weights: Mapping[str, Tensor], classes: int) -> OpenOODResNet:
    """A network with the depth and widths of the weights, initialised at random.

    Raises:
        DataError: the weights are not those of such a network.
    """
    blocks_of_stage: dict[int, int] = {}
    for name in weights:
        match = re.match(r"layer(\d+)\.(\d+)\.", name)
        if match:
            stage = int(match[1])
            count = int(match[2]) + 1
            blocks_of_stage[stage] = max(blocks_of_stage.get(stage, 0), count)
    stages = range(1, len(blocks_of_stage) + 1)
    first_convolutions = [f"layer{stage}.0.conv1.weight" for stage in stages]
    missing = [name for name in ["conv1.weight", *first_convolutions] if name not in weights]
    if not blocks_of_stage and not missing:
        missing = ["layer1"]
    if missing:
        raise DataError(
            "the weight is missing: not a ResNet in OpenOOD's layout", file=path, field=missing[0]
        )
    for name in first_convolutions:
        if weights[name].ndim != 4:
            raise DataError("expected the weight of a convolution", file=path, field=name)
    widths = [len(weights[name]) for name in first_convolutions]
    blocks = [blocks_of_stage[stage] for stage in sorted(blocks_of_stage)]
    return OpenOODResNet(widths, blocks, classes)


def _with_torchvision_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights with torchvision's names instead of old ones of DenseNet and those of OpenOOD."""
    renamed = {}
    for name, tensor in from_openood(weights).items():
        name = re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.", r"\1\2.", name)
        name = re.sub(r"^(layer\d+\.\d+)\.shortcut\.", r"\1.downsample.", name)
        name = re.sub(r"^linear\.", "fc.", name)
        renamed[name] = tensor
    return renamed


def own_names(network: nn.Module, weights: Iterable[str]) -> set[str]:
    """Names that a classifier itself gives to its weights, see `unwrapped`.

    OpenOOD's networks with another head keep all but the head below `backbone`.

    Args:
        network: The classifier, without another head.
        weights: Names of the weights of a file.
    """
    names = set(network.state_dict())
    if any(name.endswith(OPENOOD_HEADS) for name in weights):
        names |= {f"backbone.{name}" for name in names}
    return names

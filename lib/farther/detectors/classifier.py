"""torchvision's image classifiers, and OpenOOD's ResNets and LeNet for small images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from dataclasses import dataclass as plain_dataclass
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
from farther.detectors.networks.classifier_heads import Similarity, from_openood, replace_head
from farther.detectors.networks.heads import ENERGY_HEAD, EnergyHead
from farther.detectors.networks.weights import (
    as_names,
    fill,
    json_field,
    read_metadata,
    read_weights,
    write_checkpoint,
)
from farther.detectors.scaling import Scaled
from farther.detectors.whole_images import ClassifierNetwork, ImageClassifier
from farther.errors import DataError, ParameterError, choose, shorten
from farther.images.bounds import network_errors
from farther.registry import STRICT, build
from farther.tables.header import numbered

FORMAT = "farther.classifier"

#: OpenOOD's ResNets with a 3×3 stem, and the side of their images; None where the checkpoint or the
#: parameters give it.
STEM_3X3: dict[str, int | None] = {
    "ResNet18_32x32": 32,
    "ResNet18_64x64": 64,
    "openood_resnet": None,
}

#: OpenOOD's network for MNIST, and the side of its images.
LENET, LENET_SIDE = "LeNet", 28

#: Mean, and standard deviation, of each channel of LeNet's images: OpenOOD has no others for MNIST.
LENET_NORMALISATION = (0.5, 0.5, 0.5)

#: OpenOOD's name of a network that torchvision has.
SAME_AS = {"ResNet18_224x224": "resnet18"}

#: torchvision's networks whose state dict does not say how they transform their input.
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

#: Names that wrap a network: of DataParallel, of torch.compile, and usual ones in PyTorch
#: Lightning's modules.
WRAPPERS = ("module.", "_orig_mod.", "model.", "net.")


Channels = tuple[float, float, float]
Deviations = tuple[
    Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]
]

Interpolation = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]
Side = Annotated[int, Field(ge=1, le=4096)]


@plain_dataclass(frozen=True)
class ClassifierBlueprint:
    """Description from which a classifier is built; its weights are stored beside it.

    Args:
        architecture: A name that torchvision knows, or one of OpenOOD's.
        classes: Class names, in the order of the logits.
        preprocessing: resize, crop, mean, std and interpolation; see `Classifier`.
        similarity: Of the numerator of a network that G-ODIN trained; see `Classifier`.
    """

    architecture: str
    classes: tuple[str, ...]
    preprocessing: dict[str, Any]
    similarity: Similarity | None = None


@dataclass(config=STRICT, kw_only=True)
class ClassifierPreprocessing:
    """Preparation of images: parameters of the adapter, or the field `preprocessing` of a checkpoint of farther.

    Args:
        resize: Pixels of the shorter side, or height and width.
        crop: Side of the square that is cut from the centre; smaller images are padded with zeros.
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

    Networks with a head of their own are read from the checkpoints of farther's trainer and from
    OpenOOD's. Of a confidence branch (`ConfBranchNet`), `latent.confidence` is its output before
    the sigmoid. Of G-ODIN (`GodinNet`), the logits are the quotients h(x) / g(x),
    `latent.numerator` is h and `latent.denominator` g; there are no `features`. Where the
    checkpoint holds the head that VOS trains, the header's `detector["vos_head"]` has its numbers.

    Images are prepared as torchvision's presets do: resized with Pillow, cropped at the centre,
    scaled to 0 … 1 and normalised. Values that no parameter gives are those of the file's metadata,
    or else of the preset.

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
        similarity: Of the numerator of a network that G-ODIN trained: "inner", "euclidean" or
            "cosine" (OpenOOD's default). None takes the file's metadata, or "inner" where the
            numerator has a bias.
    """

    architecture: str | None = None
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    preset: str | None = None
    similarity: Similarity | None = None

    @cached_property
    def blueprint(self) -> ClassifierBlueprint:
        """What the network is built from.

        Raises:
            DataError: the checkpoint is absent or damaged.
            ParameterError: the architecture is unknown, or parameters are missing.
        """
        found = read_description(self.weights)
        architecture = self.architecture or found.get("architecture")
        if architecture is None:
            raise ParameterError("detector 'classifier': give the parameter 'architecture'")
        try:
            described = asdict(
                build(ClassifierPreprocessing, "preprocessing", found.get("preprocessing", {}))
            )
            usual = describe(architecture, self.preset)
        except ParameterError as error:
            raise (
                DataError(str(error), file=self.weights, field="preprocessing") if found else error
            ) from None
        said = {
            name: getattr(self, name) for name in PREPROCESSING if getattr(self, name) is not None
        }
        preprocessing = {
            **usual["preprocessing"],
            **{k: v for k, v in described.items() if v is not None},
            **said,
        }
        classes = self.classes or found.get("classes") or usual.get("classes", ())
        missing = [name for name in PREPROCESSING if name not in preprocessing] + ["classes"] * (
            not classes
        )
        if missing:
            raise ParameterError(
                f"detector 'classifier': {architecture} also needs {', '.join(missing)}"
            )
        similarity = self.similarity or found.get("similarity")
        return ClassifierBlueprint(architecture, tuple(classes), preprocessing, similarity)

    @cached_property
    def network(self) -> ClassifierNetwork:
        """See `Detector.network`."""
        network = self.placed(load_network(self.weights, self.blueprint))
        preprocessing, architecture = self.blueprint.preprocessing, self.blueprint.architecture
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
    """A ResNet of basic blocks with a 3×3 stem, as OpenOOD builds it for small images (`ResNet18_32x32`).

    Args:
        widths: Channels of each stage; the stem has those of the first.
        blocks: Blocks of each stage.
        classes: Number of logits.

    Attributes:
        width: Number of features.
        fc: The last layer.
    """

    def __init__(self, widths: Sequence[int], blocks: Sequence[int], classes: int):
        super().__init__()
        before = widths[0]
        self.conv1 = nn.Conv2d(3, before, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(before)
        self.relu = nn.ReLU()
        for number, (width, count) in enumerate(zip(widths, blocks, strict=True), start=1):
            stride = 1 if number == 1 else 2
            shortcut = None
            if stride > 1 or before != width:
                shortcut = nn.Sequential(
                    nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width)
                )
            first = BasicBlock(before, width, stride, shortcut)
            self.add_module(
                f"layer{number}",
                nn.Sequential(first, *(BasicBlock(width, width) for _ in range(count - 1))),
            )
            before = width
        self.stages, self.width = len(widths), before
        self.fc: nn.Module = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W)."""
        maps = self.relu(self.bn1(self.conv1(images)))
        for number in range(1, self.stages + 1):
            maps = self.get_submodule(f"layer{number}")(maps)
        return self.fc(maps.mean((2, 3)))


class OpenOODLeNet(nn.Module):
    """LeNet as OpenOOD builds it for MNIST: images of 28 × 28 pixels, 84 features behind a ReLU.

    Args:
        classes: Number of logits.
        channels: Channels of an image; OpenOOD repeats grey ones three times.

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
    """Fields of the blueprint in a safetensors file that `save_checkpoint` wrote; nothing for other files."""
    metadata = read_metadata(path) if path.suffix == ".safetensors" else {}
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
    """Preprocessing and, for torchvision's networks, class names that belong to an architecture.

    Args:
        preset: Name of torchvision's weights; None takes its default ones.

    Raises:
        ParameterError: the architecture or the preset is unknown.
    """
    if architecture == LENET:
        normalisation = {"mean": LENET_NORMALISATION, "std": LENET_NORMALISATION}
        sizes = {"resize": LENET_SIDE, "crop": LENET_SIDE}
        return {"preprocessing": {**sizes, **normalisation, "interpolation": "bilinear"}}
    if architecture in STEM_3X3:
        side = STEM_3X3[architecture]
        sizes = {} if side is None else {"resize": side, "crop": side}
        return {"preprocessing": {**sizes, "interpolation": "bilinear"}}
    known = [name for name in models.list_models(module=models) if name not in REFUSED]
    name = SAME_AS.get(architecture, architecture)
    choose("architecture", name, [*known, LENET, *STEM_3X3, *SAME_AS])
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
    return {"preprocessing": preprocessing, "classes": numbered(weights.meta["categories"])}


def resize_and_crop(image: np.ndarray, preprocessing: Mapping[str, Any]) -> Scaled:
    """An image (H, W, 3), uint8, resized with Pillow and cropped at its centre, as torchvision's presets do."""
    size = preprocessing["resize"]
    mode = InterpolationMode(preprocessing["interpolation"])
    resized = functional.resize(
        Image.fromarray(image), [size] if isinstance(size, int) else list(size), mode
    )
    cropped = functional.center_crop(resized, [preprocessing["crop"]])
    return Scaled(np.array(cropped), (image.shape[0], image.shape[1]))


def default_latent(architecture: str) -> str | None:
    """Name of the module three quarters through the network, None where it is not known."""
    return next(
        (module for family, module in LATENTS.items() if re.fullmatch(family, architecture)), None
    )


def load_network(path: Path, blueprint: ClassifierBlueprint) -> nn.Module:
    """A network with a file's weights, in evaluation mode and float32.

    Raises:
        DataError: the file is absent or damaged, or does not fit the network.
        ParameterError: the similarity of a network that G-ODIN trained is not known.
    """
    weights = _renamed(read_weights(path))
    count, name = (
        len(blueprint.classes),
        SAME_AS.get(blueprint.architecture, blueprint.architecture),
    )
    if name == LENET:
        weights = {_lenet_name(weight): tensor for weight, tensor in weights.items()}
        network: nn.Module = _lenet(path, blueprint)
    elif name in STEM_3X3:
        network = _openood_resnet(path, weights, count)
    else:
        side = blueprint.preprocessing["crop"]
        network = models.get_model(
            name, num_classes=count, **({"image_size": side} if name.startswith("vit") else {})
        )
    replace_head(network, weights, count, blueprint.similarity, path)
    if any(weight.startswith(f"{ENERGY_HEAD}.") for weight in weights):
        network.add_module(ENERGY_HEAD, EnergyHead(count))
    fill(network, path, weights, f"{blueprint.architecture} with {count} classes")
    return network.eval()


def _lenet(path: Path, blueprint: ClassifierBlueprint) -> OpenOODLeNet:
    """LeNet; its images have one size, since its last convolution has the size of what it sees."""
    if blueprint.preprocessing["crop"] != LENET_SIDE:
        problem = f"{LENET} takes images of {LENET_SIDE} pixels, found crop: {blueprint.preprocessing['crop']}"
        raise DataError(problem, file=path, field="crop")
    return OpenOODLeNet(len(blueprint.classes))


def _lenet_name(weight: str) -> str:
    """Name of a weight of LeNet: OpenOOD's first version kept both linear layers in one module."""
    for earlier, later in (("classifier.0.", "classifier1."), ("classifier.2.", "fc.")):
        if weight.startswith(earlier):
            return later + weight.removeprefix(earlier)
    return weight


def _openood_resnet(path: Path, weights: Mapping[str, Tensor], classes: int) -> OpenOODResNet:
    """A network of the depth and width of the weights, which may be random."""
    blocks: dict[int, int] = {}
    for name in weights:
        if match := re.match(r"layer(\d+)\.(\d+)\.", name):
            blocks[int(match[1])] = max(blocks.get(int(match[1]), 0), int(match[2]) + 1)
    firsts = [f"layer{number}.0.conv1.weight" for number in range(1, len(blocks) + 1)]
    missing = [name for name in ["conv1.weight", *firsts] if name not in weights]
    if missing or not blocks:
        raise DataError(
            "the weight is missing: not a ResNet in OpenOOD's layout",
            file=path,
            field=(missing or ["layer1"])[0],
        )
    if flat := [name for name in firsts if weights[name].ndim != 4]:
        raise DataError("expected the weight of a convolution", file=path, field=flat[0])
    return OpenOODResNet(
        [len(weights[name]) for name in firsts],
        [blocks[number] for number in sorted(blocks)],
        classes,
    )


def _renamed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights under torchvision's names: without wrappers, and with the newer names of DenseNet's and OpenOOD's."""
    while wrapper := next(
        (w for w in WRAPPERS if weights and all(name.startswith(w) for name in weights)), ""
    ):
        weights = {name.removeprefix(wrapper): tensor for name, tensor in weights.items()}
    weights = from_openood(weights)
    renamed = {}
    for name, tensor in weights.items():
        name = re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.", r"\1\2.", name)
        name = re.sub(r"^(layer\d+\.\d+)\.shortcut\.", r"\1.downsample.", name)
        renamed[re.sub(r"^linear\.", "fc.", name)] = tensor
    return renamed

"""torchvision's image classifiers and OpenOOD's ResNets: their checkpoints, preprocessing and networks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor, nn
from torchvision import models
from torchvision.models.resnet import BasicBlock
from torchvision.transforms import InterpolationMode, functional

from farther.detectors.networks.weights import (
    as_names,
    fill,
    json_field,
    numbered,
    read_metadata,
    read_weights,
    write_checkpoint,
)
from farther.detectors.scaling import Scaled
from farther.errors import DataError, choose, shorten

FORMAT = "farther.classifier"

#: OpenOOD's ResNets with a 3×3 stem, and the side of their images; None where the checkpoint or the parameters give it.
STEM_3X3: dict[str, int | None] = {"ResNet18_32x32": 32, "ResNet18_64x64": 64, "openood_resnet": None}

#: OpenOOD's name of a network that torchvision has.
SAME_AS = {"ResNet18_224x224": "resnet18"}

#: torchvision's networks whose state dict does not say how they transform their input.
REFUSED = ("googlenet", "inception_v3")

#: Module three quarters through a network of each family: the default of `latent`.
LATENTS = {
    r"(wide_)?resne.*|openood_resnet|ResNet18.*": "layer3",
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

#: Names that wrap a network: of DataParallel, of torch.compile, and usual ones in PyTorch Lightning's modules.
WRAPPERS = ("module.", "_orig_mod.", "model.", "net.")


@dataclass(frozen=True)
class Blueprint:
    """Description from which a classifier is built; its weights are stored beside it.

    Args:
        architecture: A name that torchvision knows, or one of OpenOOD's.
        classes: In the order of the logits.
        preprocessing: resize, crop, mean, std and interpolation; see `farther.detectors.classifier.Classifier`.
    """

    architecture: str
    classes: tuple[str, ...]
    preprocessing: dict[str, Any]


class OpenOODResNet(nn.Module):
    """A ResNet of basic blocks with a 3×3 stem, as OpenOOD builds it for small images (`ResNet18_32x32`).

    Args:
        widths: Channels of each stage; the stem has those of the first.
        blocks: Blocks of each stage.
        classes: Number of logits.
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
                shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            first = BasicBlock(before, width, stride, shortcut)
            self.add_module(
                f"layer{number}", nn.Sequential(first, *(BasicBlock(width, width) for _ in range(count - 1)))
            )
            before = width
        self.stages = len(widths)
        self.fc = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W)."""
        maps = self.relu(self.bn1(self.conv1(images)))
        for number in range(1, self.stages + 1):
            maps = self.get_submodule(f"layer{number}")(maps)
        return self.fc(maps.mean((2, 3)))


def save_checkpoint(
    path: str | Path, state: Mapping[str, Tensor], blueprint: Blueprint, notes: Mapping[str, str] | None = None
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
        raise DataError(f"expected an object, found {shorten(preprocessing)}", file=path, field="preprocessing")
    classes = as_names(path, json_field(path, metadata, "classes"))
    return {"architecture": metadata.get("architecture"), "classes": classes, "preprocessing": preprocessing}


def describe(architecture: str, preset: str | None = None) -> dict[str, Any]:
    """Preprocessing and, for torchvision's networks, class names that belong to an architecture.

    Args:
        preset: Name of torchvision's weights; None takes its default ones.

    Raises:
        ParameterError: the architecture or the preset is unknown.
    """
    if architecture in STEM_3X3:
        side = STEM_3X3[architecture]
        sizes = {} if side is None else {"resize": side, "crop": side}
        return {"preprocessing": {**sizes, "interpolation": "bilinear"}}
    known = [name for name in models.list_models(module=models) if name not in REFUSED]
    name = SAME_AS.get(architecture, architecture)
    choose("architecture", name, [*known, *STEM_3X3, *SAME_AS])
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
    resized = functional.resize(Image.fromarray(image), [size] if isinstance(size, int) else list(size), mode)
    cropped = functional.center_crop(resized, [preprocessing["crop"]])
    return Scaled(np.array(cropped), (image.shape[0], image.shape[1]))


def default_latent(architecture: str) -> str | None:
    """Name of the module three quarters through the network, None where it is not known."""
    return next((module for family, module in LATENTS.items() if re.fullmatch(family, architecture)), None)


def load_network(path: Path, blueprint: Blueprint) -> nn.Module:
    """A network with a file's weights, in evaluation mode and float32.

    Raises:
        DataError: the file is absent or damaged, or does not fit the network.
    """
    weights = _renamed(read_weights(path))
    count, name = len(blueprint.classes), SAME_AS.get(blueprint.architecture, blueprint.architecture)
    if name in STEM_3X3:
        network: nn.Module = _openood_resnet(path, weights, count)
    else:
        side = blueprint.preprocessing["crop"]
        network = models.get_model(name, num_classes=count, **({"image_size": side} if name.startswith("vit") else {}))
    fill(network, path, weights, f"{blueprint.architecture} with {count} classes")
    return network.eval()


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
            "the weight is missing: not a ResNet in OpenOOD's layout", file=path, field=(missing or ["layer1"])[0]
        )
    if flat := [name for name in firsts if weights[name].ndim != 4]:
        raise DataError("expected the weight of a convolution", file=path, field=flat[0])
    return OpenOODResNet(
        [len(weights[name]) for name in firsts], [blocks[number] for number in sorted(blocks)], classes
    )


def _renamed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights under torchvision's names: without wrappers, and with the newer names of DenseNet's and OpenOOD's."""
    while wrapper := next((w for w in WRAPPERS if weights and all(name.startswith(w) for name in weights)), ""):
        weights = {name.removeprefix(wrapper): tensor for name, tensor in weights.items()}
    renamed = {}
    for name, tensor in weights.items():
        name = re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.", r"\1\2.", name)
        name = re.sub(r"^(layer\d+\.\d+)\.shortcut\.", r"\1.downsample.", name)
        renamed[re.sub(r"^linear\.", "fc.", name)] = tensor
    return renamed

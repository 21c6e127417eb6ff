"""torchvision's builders of detectors, told apart by the names and shapes of their weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torchvision.models import detection, mobilenet_v3_large
from torchvision.models._api import WeightsEnum
from torchvision.models.detection._utils import retrieve_out_channels
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.ssd import SSD
from torchvision.models.detection.ssdlite import SSDLiteHead, _mobilenet_extractor

from farther.detectors.networks.architectures import MOBILE, MOBILE_320
from farther.detectors.networks.weights import (
    BOX_PREDICTOR,
    DENSE_HEAD,
    SSD_HEAD,
    SSDLITE_HEAD,
    other_shapes,
    refuse_misfit,
)
from farther.errors import DataError
from farther.tables.files import open_binary
from farther.tables.header import unique_names

#: Names of the weights that Mask R-CNN and Keypoint R-CNN have besides those of their boxes.
MASK_BRANCH = ("roi_heads.mask_head.", "roi_heads.mask_predictor.")
KEYPOINT_BRANCH = ("roi_heads.keypoint_head.", "roi_heads.keypoint_predictor.")

#: ε of normalisations that were not trained with 0.
USUAL_EPSILON = 1e-5

#: Counter of batches in normalisations, which frozen ones do not have.
COUNTER = "num_batches_tracked"


@dataclass(frozen=True)
class Builder:
    """A function of `torchvision.models.detection`.

    Args:
        adapter: The adapter that computes its network.
        architecture: Value of the adapter's parameter `architecture`; "" where it has none.
        build: Returns an untrained network with a number of logits columns.
        last_layer: Name of the weight whose rows are the logits.
        rows: Rows of `last_layer` for each column: its anchors per cell.
        published: torchvision's weights of COCO.
        without_epsilon: These were trained with normalisations whose ε is 0.
        branch: Beginnings of the names of weights that the adapter leaves out.
    """

    adapter: str
    architecture: str
    build: Callable[[int], nn.Module]
    last_layer: str
    rows: int
    published: WeightsEnum
    without_epsilon: bool = False
    branch: tuple[str, ...] = ()

    @property
    def categories(self) -> tuple[str, ...]:
        """Classes of torchvision's weights, without the background.

        Those called "N/A" get their number in COCO as part of the name.
        """
        return unique_names(self.published.meta["categories"])[1:]


@dataclass(frozen=True)
class Fit:
    """Fit of weights to a builder's network.

    Args:
        builder: The builder's name.
        columns: Number of logits columns.
        missing: Names of weights that the network has and the file has not.
        unexpected: Names of weights that the file has and the network has not.
        reshaped: Names of weights of another shape, with both shapes.
    """

    builder: str
    columns: int
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    reshaped: list[str] = field(default_factory=list)

    @property
    def misfits(self) -> int:
        """Number of weights that do not fit."""
        return len(self.missing) + len(self.unexpected) + len(self.reshaped)

    def refuse(self, path: str | Path) -> None:
        """Raises a DataError that lists the weights of a file that do not fit, if there are any."""
        closest = f"{self.builder} with {self.columns} outputs"
        description = f"any of torchvision's detectors. The closest is {closest}"
        problems = {
            "missing": self.missing,
            "unexpected": self.unexpected,
            "of another shape": self.reshaped,
        }
        refuse_misfit(path, description, problems)

    def refuse_other_adapter(self, path: str | Path, adapters: Sequence[str]) -> None:
        """Raises a DataError if none of these adapters computes the network of the weights."""
        adapter = BUILDERS[self.builder].adapter
        if adapter not in adapters:
            raise DataError(
                f"these are weights of {self.builder}: take the adapter {adapter!r}", file=path
            )


def build_ssdlite(columns: int, *, reduced_tail: bool) -> SSD:
    """torchvision's `ssdlite320_mobilenet_v3_large`, untrained.

    Args:
        columns: Number of its logits, the background's in column 0.
        reduced_tail: The backbone's last layers have half the channels, as in torchvision's network
            of COCO. A network that begins from a classifier's weights, as by default, has all.
    """
    normalisation = partial(nn.BatchNorm2d, eps=0.001, momentum=0.03)
    classifier = mobilenet_v3_large(
        weights=None, norm_layer=normalisation, reduced_tail=reduced_tail
    )
    backbone = _mobilenet_extractor(classifier, 6, normalisation)
    anchors = DefaultBoxGenerator([[2, 3]] * 6, min_ratio=0.2, max_ratio=0.95)
    size = (320, 320)
    channels = retrieve_out_channels(backbone, size)
    head = SSDLiteHead(channels, anchors.num_anchors_per_location(), columns, normalisation)
    half = [0.5, 0.5, 0.5]
    return SSD(backbone, anchors, size, columns, head=head, image_mean=half, image_std=half)


def _untrained(name: str) -> Callable[[int], nn.Module]:
    """A builder of torchvision as a function of the number of columns."""
    function = getattr(detection, name)

    def build(columns: int) -> nn.Module:
        return function(weights=None, weights_backbone=None, num_classes=columns)

    return build


def _region_based(
    name: str,
    architecture: str,
    published: WeightsEnum,
    branch: tuple[str, ...] = (),
    *,
    without_epsilon: bool = False,
) -> Builder:
    """A builder of the family of Faster R-CNN."""
    adapter = "mask_rcnn" if branch else "faster_rcnn"
    return Builder(
        adapter,
        architecture,
        _untrained(name),
        BOX_PREDICTOR,
        1,
        published,
        without_epsilon=without_epsilon,
        branch=branch,
    )


#: By torchvision's name. Of two that fit alike, the first is taken where nothing tells them apart.
BUILDERS: dict[str, Builder] = {
    "fasterrcnn_resnet50_fpn": _region_based(
        "fasterrcnn_resnet50_fpn",
        "resnet50_fpn",
        detection.FasterRCNN_ResNet50_FPN_Weights.COCO_V1,
        without_epsilon=True,
    ),
    "fasterrcnn_resnet50_fpn_v2": _region_based(
        "fasterrcnn_resnet50_fpn_v2",
        "resnet50_fpn_v2",
        detection.FasterRCNN_ResNet50_FPN_V2_Weights.COCO_V1,
    ),
    "fasterrcnn_mobilenet_v3_large_fpn": _region_based(
        "fasterrcnn_mobilenet_v3_large_fpn",
        MOBILE,
        detection.FasterRCNN_MobileNet_V3_Large_FPN_Weights.COCO_V1,
    ),
    "fasterrcnn_mobilenet_v3_large_320_fpn": _region_based(
        "fasterrcnn_mobilenet_v3_large_320_fpn",
        MOBILE_320,
        detection.FasterRCNN_MobileNet_V3_Large_320_FPN_Weights.COCO_V1,
    ),
    "maskrcnn_resnet50_fpn": _region_based(
        "maskrcnn_resnet50_fpn",
        "resnet50_fpn",
        detection.MaskRCNN_ResNet50_FPN_Weights.COCO_V1,
        MASK_BRANCH,
        without_epsilon=True,
    ),
    "maskrcnn_resnet50_fpn_v2": _region_based(
        "maskrcnn_resnet50_fpn_v2",
        "resnet50_fpn_v2",
        detection.MaskRCNN_ResNet50_FPN_V2_Weights.COCO_V1,
        MASK_BRANCH,
    ),
    "keypointrcnn_resnet50_fpn": _region_based(
        "keypointrcnn_resnet50_fpn",
        "resnet50_fpn",
        detection.KeypointRCNN_ResNet50_FPN_Weights.COCO_V1,
        KEYPOINT_BRANCH,
        without_epsilon=True,
    ),
    "retinanet_resnet50_fpn": Builder(
        "retinanet",
        "resnet50_fpn",
        _untrained("retinanet_resnet50_fpn"),
        DENSE_HEAD,
        9,
        detection.RetinaNet_ResNet50_FPN_Weights.COCO_V1,
        without_epsilon=True,
    ),
    "retinanet_resnet50_fpn_v2": Builder(
        "retinanet",
        "resnet50_fpn_v2",
        _untrained("retinanet_resnet50_fpn_v2"),
        DENSE_HEAD,
        9,
        detection.RetinaNet_ResNet50_FPN_V2_Weights.COCO_V1,
    ),
    "fcos_resnet50_fpn": Builder(
        "fcos",
        "",
        _untrained("fcos_resnet50_fpn"),
        DENSE_HEAD,
        1,
        detection.FCOS_ResNet50_FPN_Weights.COCO_V1,
    ),
    "ssd300_vgg16": Builder(
        "ssd", "", _untrained("ssd300_vgg16"), SSD_HEAD, 4, detection.SSD300_VGG16_Weights.COCO_V1
    ),
    "ssdlite320_mobilenet_v3_large": Builder(
        "ssd",
        "",
        partial(build_ssdlite, reduced_tail=True),
        SSDLITE_HEAD,
        6,
        detection.SSDLite320_MobileNet_V3_Large_Weights.COCO_V1,
    ),
    "ssdlite320_mobilenet_v3_large, all channels": Builder(
        "ssd",
        "",
        partial(build_ssdlite, reduced_tail=False),
        SSDLITE_HEAD,
        6,
        detection.SSDLite320_MobileNet_V3_Large_Weights.COCO_V1,
    ),
}


def closest_builders(weights: Mapping[str, Tensor]) -> list[Fit]:
    """Fits of weights to the builders that they fit best.

    Args:
        weights: A state dict, by torchvision's names of any version.

    Returns:
        Several fits with equally few misfits where networks have the same shapes; empty where the
        weights have no last layer of such a detector.
    """
    branch = _branch_of(weights)
    fits = []
    for name, builder in BUILDERS.items():
        if builder.last_layer == BOX_PREDICTOR and builder.branch != branch:
            continue
        last_layer = weights.get(builder.last_layer)
        if last_layer is None or len(last_layer) == 0 or len(last_layer) % builder.rows:
            continue
        fits.append(_fit(name, len(last_layer) // builder.rows, weights))
    fewest = min((fit.misfits for fit in fits), default=0)
    return [fit for fit in fits if fit.misfits == fewest]


def published_builder(path: str | Path, fits: Sequence[Fit]) -> str:
    """The builder whose weights of COCO a file has, as torchvision publishes them.

    It is "" where torchvision did not publish the file. Names of torchvision's files end in the
    first digits of their SHA-256.

    Args:
        path: The file.
        fits: Of the possible builders.
    """
    with open_binary(path) as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    for fit in fits:
        digits = Path(BUILDERS[fit.builder].published.url).stem.rpartition("-")[2]
        if checksum.startswith(digits):
            return fit.builder
    return ""


def epsilon_of(path: str | Path, fits: Sequence[Fit]) -> float:
    """ε of the normalisations of a file's network.

    It is 0 for files of torchvision that were trained with 0, else 1e-5.

    Args:
        path: The file.
        fits: Of the possible builders.
    """
    without_epsilon = [fit for fit in fits if BUILDERS[fit.builder].without_epsilon]
    if without_epsilon and published_builder(path, without_epsilon):
        return 0.0
    return USUAL_EPSILON


def check_columns(
    path: str | Path, classes: Sequence[str], columns: int, *, optional_background: bool = False
) -> None:
    """Refuses names of classes that are not as many as a network's outputs without the background.

    Args:
        path: The file, for the message.
        classes: Names, without the background.
        columns: Outputs of the network.
        optional_background: There may be no output for the background.

    Raises:
        DataError: the numbers do not fit; names both.
    """
    count = len(classes)
    if columns == count + 1 or (optional_background and columns == count):
        return
    outputs = f"{columns - 1} classes after the background, which is not named"
    if optional_background:
        outputs += f", or {columns} classes without one"
    named = f"{count} classes are named, but the logits have {columns} columns"
    raise DataError(f"{named}: {outputs}", file=path, field="classes")


def has_counters(weights: Mapping[str, Tensor]) -> bool:
    """True if the backbone's normalisations counted batches.

    Then they were trained, with an ε of 1e-5, and not frozen.
    """
    return any(name.startswith("backbone.body.") and name.endswith(COUNTER) for name in weights)


def _branch_of(weights: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Beginnings of names of the branch for masks or keypoints; empty if weights have neither."""
    for branch in (MASK_BRANCH, KEYPOINT_BRANCH):
        if any(name.startswith(branch) for name in weights):
            return branch
    return ()


@cache
def _without_memory(build: Callable[[int], nn.Module], columns: int) -> nn.Module:
    """A builder's network whose weights have shapes and no values."""
    with torch.device("meta"):
        return build(columns)


def _fit(name: str, columns: int, weights: Mapping[str, Tensor]) -> Fit:
    """Fit of weights to the network of a builder.

    Counters of batches are ignored, and weights that the adapter leaves out.
    """
    branch = BUILDERS[name].branch
    network = _without_memory(BUILDERS[name].build, columns)
    shapes = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    used = {}
    fitting = {}
    for key, tensor in weights.items():
        if _is_ignored(key, branch):
            continue
        used[key] = torch.empty(tensor.shape, device="meta")
        if shapes.get(key, tensor.shape) == tuple(tensor.shape):
            fitting[key] = used[key]
    reshaped = other_shapes(shapes, used)
    for key, shape in shapes.items():
        if key.endswith(COUNTER):
            fitting[key] = torch.empty(shape, device="meta")
    try:
        # torchvision renames the layers of its older checkpoints while it loads.
        loaded = network.load_state_dict(fitting, strict=False)
    except RuntimeError as error:  # a layer that was renamed has another shape
        return Fit(name, columns, reshaped=[*reshaped, *str(error).splitlines()[1:]])
    missing = [
        key for key in loaded.missing_keys if not _is_ignored(key, branch) and key not in used
    ]
    return Fit(name, columns, missing, list(loaded.unexpected_keys), reshaped)


def _is_ignored(name: str, branch: tuple[str, ...]) -> bool:
    """True for a counter of batches, and for a weight of a branch that the adapter leaves out."""
    return name.endswith(COUNTER) or name.startswith(branch)

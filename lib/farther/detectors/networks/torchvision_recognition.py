"""The adapter of a state dict of torchvision, recognised by the names and shapes of its weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torchvision import models

from farther.detectors.imported.formats import CLASSES
from farther.detectors.networks.detectron2_import import is_detectron2
from farther.detectors.networks.heads import ENERGY_HEAD, VARIANCE_HEAD
from farther.detectors.networks.torchvision_builders import (
    BUILDERS,
    Builder,
    Fit,
    closest_builders,
    has_counters,
    published_builder,
)
from farther.detectors.networks.weights import (
    BOX_PREDICTOR,
    LAST_LAYERS,
    read_weights,
    unwrapped,
)
from farther.detectors.recognition import COMPARED, UNNAMED, IdClasses, RecognisedFile
from farther.errors import DataError, shorten
from farther.tables.files import is_file, read_text

#: Classes of ImageNet, whose names the adapter of classifiers knows.
IMAGENET = 1000
#: How to name the classes of a state dict.
ADVICE = (
    f"write the names of its classes into {CLASSES} beside the file, one per line, "
    "in the order of its outputs"
)
ADVICE_WITHOUT_BACKGROUND = f"{ADVICE} and without the background"


@dataclass
class _State:
    """A state dict, as it was recognised.

    Args:
        adapter: The adapter that computes its network.
        params: The adapter's parameters.
        assumed: Assumptions about what the file does not say, in a few words each.
    """

    adapter: str
    params: dict[str, Any] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)


def recognise_state_dict(path: Path, id_classes: IdClasses) -> RecognisedFile | None:
    """Adapter and parameters of a state dict of torchvision; None for unknown networks.

    Args:
        path: The file.
        id_classes: The classes of the ID dataset.

    Raises:
        DataError: no known list of classes has the number of its outputs; or it is of a detector
            whose weights fit none of torchvision's builders: says which do not fit the closest one.
    """
    state = _recognise(path, id_classes)
    if state is None:
        return None
    return RecognisedFile(state.params, assumed="; ".join(state.assumed), adapter=state.adapter)


def _recognise(path: Path, id_classes: IdClasses) -> _State | None:
    """The network of a state dict; see `recognise_state_dict`."""
    try:
        stored = read_weights(path)
    except DataError:
        return None
    state = unwrapped(path, stored, LAST_LAYERS)
    if is_detectron2(state):
        return _detectron2(path, state, id_classes)
    added_heads = (f"{ENERGY_HEAD}.", f"{VARIANCE_HEAD}.")
    names = [name for name in state if not name.startswith(added_heads)]
    fits = closest_builders({name: state[name] for name in names})
    if fits:
        recognised = _detector(path, state, fits, id_classes)
        recognised.assumed += _left_out(path, stored, LAST_LAYERS)
        return recognised
    classifier = _fitting_classifier(path, stored)
    if classifier is not None:
        recognised = _classifier(path, classifier, id_classes)
        recognised.assumed += _left_out(path, stored, classifier.weights)
        return recognised
    return None


def _left_out(path: Path, stored: Iterable[str], own: Iterable[str]) -> list[str]:
    """The assumption that weights without the network's prefix are not the network's.

    Args:
        path: The file.
        stored: Names of all weights of the file.
        own: See `unwrapped`.
    """
    names = list(stored)
    used = set(unwrapped(path, {name: name for name in names}, own).values())
    left_out = sorted(set(names) - used)
    if not left_out:
        return []
    return [
        f"{len(left_out)} of {len(names)} tensors are not of the network, as "
        f"{shorten(left_out[0])}, and are left out"
    ]


def _detectron2(path: Path, state: Mapping[str, Any], id_classes: IdClasses) -> _State | None:
    """Detectron2's Faster R-CNN, whose background comes last; None for its other networks."""
    if BOX_PREDICTOR not in state:
        return None
    output_count = len(state[BOX_PREDICTOR])
    classes = _class_names(path, output_count, id_classes, optional_background=False)
    return _State("faster_rcnn", {"classes": classes.names}, classes.assumed)


def _detector(
    path: Path, state: Mapping[str, Any], fits: Sequence[Fit], id_classes: IdClasses
) -> _State:
    """A detector of torchvision.

    Args:
        path: The file.
        state: Its weights.
        fits: The builders that they fit best.
        id_classes: The classes of the ID dataset.
    """
    best_fit = fits[0]
    if best_fit.misfits:
        best_fit.refuse(path)
    published = published_builder(path, fits)
    if published:
        builder = BUILDERS[published]
        return _State(builder.adapter, {"classes": list(builder.categories)})

    builder = BUILDERS[best_fit.builder]
    recognised = _State(builder.adapter)
    if len(fits) > 1:
        builder = _by_file_name(path, fits)
        recognised.params["architecture"] = builder.architecture
        architectures = " and ".join(BUILDERS[fit.builder].architecture for fit in fits)
        recognised.assumed.append(
            f"the weights fit {architectures} alike: assumed {builder.architecture}"
        )
    coco_names = list(builder.categories)
    classes = _class_names(
        path,
        best_fit.columns,
        id_classes,
        optional_background=builder.adapter in ("retinanet", "fcos"),
        coco_names=coco_names,
    )
    recognised.params["classes"] = classes.names
    recognised.assumed += classes.assumed
    if builder.without_epsilon and not has_counters(state):
        _set_epsilon(recognised, is_coco=classes.names == coco_names)
    return recognised


def _by_file_name(path: Path, fits: Sequence[Fit]) -> Builder:
    """The builder whose size of images is in the file's name, or else the first.

    Args:
        path: The file.
        fits: Builders that its weights fit alike.
    """
    for fit in fits:
        if "320" in fit.builder and "320" in path.name:
            return BUILDERS[fit.builder]
    return BUILDERS[fits[0].builder]


def _set_epsilon(recognised: _State, *, is_coco: bool) -> None:
    """Sets `norm_epsilon` of a network whose architecture torchvision trained with 0.

    Args:
        recognised: The network; gets the parameter and the assumption about it.
        is_coco: Whether its classes are those of torchvision's weights.
    """
    if is_coco:
        recognised.params["norm_epsilon"] = 0.0
        recognised.assumed.append("norm_epsilon 0, with which torchvision trained these")
    else:
        recognised.assumed.append(
            "norm_epsilon 1e-5 "
            "(write norm_epsilon: 0 if it began from torchvision's weights COCO_V1)"
        )


@dataclass(frozen=True)
class _ClassNames:
    """Names of the classes of a network, without the background, and assumptions about them."""

    names: list[str]
    assumed: list[str] = field(default_factory=list)


def _class_names(
    path: Path,
    output_count: int,
    id_classes: IdClasses,
    *,
    optional_background: bool,
    coco_names: Sequence[str] = (),
) -> _ClassNames:
    """Names of the classes of a state dict.

    Args:
        path: The file. Names may be in a `classes.txt` beside it.
        output_count: Number of outputs of its network.
        id_classes: The classes of the ID dataset.
        optional_background: Whether there may be no output for the background.
        coco_names: Names of the classes of torchvision's weights; none where they are impossible.

    Raises:
        DataError: no known list of names has this length; says the numbers.
    """
    counts = [output_count - 1]
    if optional_background:
        counts.append(output_count)
    outputs = _outputs(output_count, optional_background=optional_background)
    file_beside = path.parent / CLASSES
    if is_file(file_beside):
        names = _names_beside(file_beside)
        if names and names[0].strip("_").casefold() == "background":
            names = names[1:]
        if len(names) not in counts:
            problem = f"{len(names)} names, but {path.name} has {outputs}"
            raise DataError(problem, file=file_beside)
        return _ClassNames(names)

    id_names = list(id_classes.categories)
    if len(id_names) in counts:
        assumed = COMPARED
        if optional_background and len(id_names) == output_count:
            assumed += "; no output for the background"
        return _ClassNames(id_names, [assumed])
    if coco_names and len(coco_names) + 1 == output_count:
        assumed = f"it names no classes: its {output_count} outputs are assumed to be torchvision's"
        return _ClassNames(list(coco_names), [assumed])
    problem = (
        f"a state dict names no classes: it has {outputs}, but the ID dataset has "
        f"{len(id_names)} classes"
    )
    raise DataError(f"{problem}; {ADVICE_WITHOUT_BACKGROUND}", file=path)


def _outputs(output_count: int, *, optional_background: bool) -> str:
    """The outputs of a network in words."""
    outputs = f"{output_count} outputs, which are the background and {output_count - 1} classes"
    if optional_background:
        outputs += f" (or {output_count} classes)"
    return outputs


@dataclass(frozen=True)
class _Classifier:
    """A classifier of torchvision: its architecture, number of classes, and names of weights."""

    architecture: str
    count: int
    weights: tuple[str, ...]


def _classifier(path: Path, classifier: _Classifier, id_classes: IdClasses) -> _State:
    """A classifier of torchvision with the names of its classes."""
    count = classifier.count
    params: dict[str, Any] = {"architecture": classifier.architecture}
    file_beside = path.parent / CLASSES
    if is_file(file_beside):
        names = _names_beside(file_beside)
        if len(names) != count:
            problem = f"{len(names)} names, but {path.name} has {count} outputs"
            raise DataError(problem, file=file_beside)
        return _State("classifier", {**params, "classes": names})
    if count == IMAGENET:
        return _State("classifier", params)
    if count != len(id_classes.categories):
        problem = (
            f"a state dict names no classes, and its {count} cannot be the "
            f"{len(id_classes.categories)} of the ID dataset"
        )
        raise DataError(f"{problem}: {ADVICE}", file=path)
    return _State("classifier", {**params, "classes": id_classes.categories}, [UNNAMED])


def _names_beside(file: Path) -> list[str]:
    """The names in a file, one per line."""
    lines = [line.strip() for line in read_text(file).splitlines()]
    return [line for line in lines if line]


def _fitting_classifier(path: Path, stored: Mapping[str, Any]) -> _Classifier | None:
    """The classifier of torchvision whose weights have these names and shapes.

    Networks are built without memory, which GoogLeNet, Inception and RegNet cannot be. To build all
    takes a quarter of a minute, so of a family of networks with other names one is built.
    """
    shapes = _shapes(stored)
    count = _class_count(shapes)
    if not count:
        return None
    other_families: set[str] = set()
    with torch.device("meta"):
        for architecture in _possible_architectures(shapes):
            family = models.get_model_builder(architecture).__module__
            if family in other_families:
                continue
            network = models.get_model(architecture, weights=None, num_classes=count)
            expected = _shapes(network.state_dict())
            if not _has_ends(shapes, list(expected)):
                other_families.add(family)
                continue
            if len(expected) > len(shapes):
                continue
            try:
                is_fitting = unwrapped(path, shapes, expected) == expected
            except DataError:
                if _are_repeated(expected, shapes):
                    raise
                continue
            if is_fitting:
                return _Classifier(architecture, count, tuple(expected))
    return None


def _possible_architectures(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The architectures that do not have more parameters than a state dict, largest first.

    Args:
        shapes: Shapes of the weights of the state dict.
    """
    total = sum(math.prod(shape) for shape in shapes.values())
    last_layer = next(shape for shape in reversed(list(shapes.values())) if len(shape) == 2)
    beyond_imagenet = (last_layer[0] - IMAGENET) * (last_layer[1] + 1)
    parameter_count: dict[str, int] = {}
    for architecture in models.list_models(
        module=models, exclude=("googlenet", "inception*", "regnet*")
    ):
        published = models.get_model_weights(architecture).DEFAULT
        count = published.meta["num_params"] + beyond_imagenet
        if count <= total + last_layer[0]:  # the last layer may have no bias
            parameter_count[architecture] = count
    return sorted(parameter_count, key=lambda name: parameter_count[name], reverse=True)


def _has_ends(stored: Iterable[str], expected: Sequence[str]) -> bool:
    """Whether the first and the last of expected names end stored names.

    All architectures of a family call their first and their last layer alike.
    """
    names = list(stored)
    for end in (expected[0], expected[-1]):
        if not any(name == end or name.endswith(f".{end}") for name in names):
            return False
    return True


def _are_repeated(expected: Iterable[str], names: Iterable[str]) -> bool:
    """Whether each expected name ends two names or more."""
    counts = Counter[str]()
    for stored in names:
        start = stored.find(".") + 1
        while start:
            counts[stored[start:]] += 1
            start = stored.find(".", start) + 1
    return min(counts[name] for name in expected) > 1


def _shapes(state: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _class_count(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Number of rows of the last matrix among weights; 0 without one."""
    for shape in reversed(list(shapes.values())):
        if len(shape) == 2:
            return shape[0]
    return 0

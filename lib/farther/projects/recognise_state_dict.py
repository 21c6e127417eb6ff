"""The adapter of a state dict of torchvision, recognised from the names and shapes of its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torchvision import models

from farther.detectors.imported.formats import CLASSES
from farther.detectors.networks.detectron2_import import is_detectron2
from farther.detectors.networks.heads import ENERGY_HEAD, VARIANCE_HEAD
from farther.detectors.networks.torchvision_builders import (
    BOX_PREDICTOR,
    BUILDERS,
    Builder,
    Fit,
    closest_builders,
    has_counters,
    published_builder,
)
from farther.detectors.networks.weights import read_weights
from farther.errors import DataError
from farther.projects.recognise import Dataset
from farther.projects.recognise_detector import COMPARED, UNNAMED
from farther.tables.files import is_file, read_text

#: Classes of ImageNet, whose names the adapter of classifiers knows.
IMAGENET = 1000
#: How to name the classes of a state dict.
ADVICE = (
    f"write the names of its classes into {CLASSES} beside the file, one per line, in the order of its outputs and "
    "without the background"
)


@dataclass
class RecognisedState:
    """A state dict, as it was recognised.

    Args:
        adapter: The adapter that computes its network.
        params: The adapter's parameters.
        assumed: What the file does not say and was assumed, in a few words each.
    """

    adapter: str
    params: dict[str, Any] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)


def recognise_state_dict(path: Path, dataset: Dataset) -> RecognisedState | None:
    """Adapter and parameters of a state dict of torchvision; None where it is of no network that is known.

    Args:
        path: The file.
        dataset: The ID dataset.

    Raises:
        DataError: its outputs are as many as no list of classes that is known; or it is of a
            detector whose weights fit none of torchvision's builders: says which do not fit the
            closest one.
    """
    try:
        state = read_weights(path)
    except DataError:
        return None
    if is_detectron2(state):
        return _of_detectron2(path, state, dataset)
    heads = (f"{ENERGY_HEAD}.", f"{VARIANCE_HEAD}.")
    fits = closest_builders(
        {name: tensor for name, tensor in state.items() if not name.startswith(heads)}
    )
    if fits:
        return _of_detector(path, state, fits, dataset)
    if classifier := _architecture(state):
        return _of_classifier(path, *classifier, dataset)
    return None


def _of_detectron2(
    path: Path, state: Mapping[str, Any], dataset: Dataset
) -> RecognisedState | None:
    """Detectron2's Faster R-CNN, whose background comes last; None for its other networks."""
    if BOX_PREDICTOR not in state:
        return None
    names, assumed = _names(path, len(state[BOX_PREDICTOR]), dataset, optional_background=False)
    return RecognisedState("faster_rcnn", {"classes": names}, assumed)


def _of_detector(
    path: Path, state: Mapping[str, Any], fits: Sequence[Fit], dataset: Dataset
) -> RecognisedState:
    """A detector of torchvision.

    Args:
        path: The file.
        state: Its weights.
        fits: The builders that they fit best.
        dataset: The ID dataset.
    """
    if fits[0].misfits:
        fits[0].refuse(path)
    published = published_builder(path, fits)
    chosen = BUILDERS[published or fits[0].builder]
    found = RecognisedState(chosen.adapter)
    if not published and len(fits) > 1:
        chosen = _by_file_name(path, fits)
        found.params["architecture"] = chosen.architecture
        architectures = " and ".join(BUILDERS[fit.builder].architecture for fit in fits)
        found.assumed.append(
            f"the weights fit {architectures} alike: assumed {chosen.architecture}"
        )

    is_coco = False
    if published:
        found.params["classes"] = list(chosen.categories)
    else:
        optional = chosen.adapter in ("retinanet", "fcos")
        names_of_coco = list(chosen.categories)
        names, assumed = _names(
            path,
            fits[0].columns,
            dataset,
            optional_background=optional,
            names_of_coco=names_of_coco,
        )
        is_coco = names == names_of_coco
        found.params["classes"] = names
        found.assumed += assumed
        found.assumed += _set_epsilon(found, chosen, state, is_coco=is_coco)
    return found


def _by_file_name(path: Path, fits: Sequence[Fit]) -> Builder:
    """Of builders that weights fit alike, the one whose size of images is in the file's name, or else the first."""
    for fit in fits:
        if "320" in fit.builder and "320" in path.name:
            return BUILDERS[fit.builder]
    return BUILDERS[fits[0].builder]


def _set_epsilon(
    found: RecognisedState, builder: Builder, state: Mapping[str, Any], *, is_coco: bool
) -> list[str]:
    """Sets `norm_epsilon` of a network that torchvision trained with 0, and says what was assumed of one that may be.

    Args:
        found: Gets the parameter.
        builder: Of the network.
        state: Its weights.
        is_coco: Whether its classes were taken to be those of torchvision's weights.
    """
    if not builder.without_epsilon or has_counters(state):
        return []
    if is_coco:
        found.params["norm_epsilon"] = 0.0
        return ["norm_epsilon 0, with which torchvision trained these"]
    return [
        "norm_epsilon 1e-5 (write norm_epsilon: 0 if it began from torchvision's weights COCO_V1)"
    ]


def _names(
    path: Path,
    columns: int,
    dataset: Dataset,
    *,
    optional_background: bool,
    names_of_coco: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Names of the classes of a state dict, without the background, and what was assumed.

    Args:
        path: The file. Names may be in a `classes.txt` beside it.
        columns: Outputs of its network.
        dataset: The ID dataset.
        optional_background: Whether there may be no output for the background.
        names_of_coco: Names of the classes of torchvision's weights; none where they cannot be
            meant.

    Raises:
        DataError: no list of names is known that is as long; says the numbers.
    """
    counts = [columns - 1, columns] if optional_background else [columns - 1]
    beside = path.parent / CLASSES
    if is_file(beside):
        names = _names_beside(beside)
        if names and names[0].strip("_").casefold() == "background":
            names = names[1:]
        if len(names) not in counts:
            problem = f"{len(names)} names, but {path.name} has {_outputs(columns, optional_background=optional_background)}"
            raise DataError(problem, file=beside)
        return names, []
    if len(dataset.categories) in counts:
        assumed = COMPARED
        if optional_background and len(dataset.categories) == columns:
            assumed += "; no output for the background"
        return list(dataset.categories), [assumed]
    if names_of_coco and len(names_of_coco) + 1 == columns:
        return list(names_of_coco), [
            f"it names no classes: its {columns} outputs are assumed to be torchvision's"
        ]
    outputs = _outputs(columns, optional_background=optional_background)
    problem = f"a state dict names no classes: it has {outputs}, but the ID dataset has {len(dataset.categories)} classes"
    raise DataError(f"{problem}; {ADVICE}", file=path)


def _outputs(columns: int, *, optional_background: bool) -> str:
    """The outputs of a network in words."""
    outputs = f"{columns} outputs, which are the background and {columns - 1} classes"
    if optional_background:
        outputs += f" (or {columns} classes)"
    return outputs


def _of_classifier(path: Path, architecture: str, count: int, dataset: Dataset) -> RecognisedState:
    """A classifier of torchvision with a number of classes."""
    params: dict[str, Any] = {"architecture": architecture}
    beside = path.parent / CLASSES
    if is_file(beside):
        names = _names_beside(beside)
        if len(names) != count:
            raise DataError(f"{len(names)} names, but {path.name} has {count} outputs", file=beside)
        return RecognisedState("classifier", {**params, "classes": names})
    if count == IMAGENET:
        return RecognisedState("classifier", params)
    if count != len(dataset.categories):
        problem = f"a state dict names no classes, and its {count} cannot be the {len(dataset.categories)} of the ID dataset"
        advice = f"write the names of its classes into {CLASSES} beside the file, one per line, in the order of its outputs"
        raise DataError(f"{problem}: {advice}", file=path)
    return RecognisedState("classifier", {**params, "classes": dataset.categories}, [UNNAMED])


def _names_beside(file: Path) -> list[str]:
    """The names in a file, one per line."""
    return [line.strip() for line in read_text(file).splitlines() if line.strip()]


def _architecture(state: Mapping[str, Any]) -> tuple[str, int] | None:
    """The classifier of torchvision whose weights have these names and shapes, and its number of classes.

    Networks are built without memory, which GoogLeNet, Inception and RegNet cannot be.
    """
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    count = next((shape[0] for shape in reversed(shapes.values()) if len(shape) == 2), 0)
    with torch.device("meta"):
        for name in (
            models.list_models(module=models, exclude=("googlenet", "inception*", "regnet*"))
            if count
            else ()
        ):
            network = models.get_model(name, weights=None, num_classes=count)
            if {key: tuple(value.shape) for key, value in network.state_dict().items()} == shapes:
                return name, count
    return None

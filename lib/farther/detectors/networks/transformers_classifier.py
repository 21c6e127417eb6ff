"""Image classifiers in folders of the `transformers` library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from farther.detectors.networks.classification import Classifier, Normalisation, three_quarters_through
from farther.detectors.networks.detr import quiet
from farther.detectors.networks.pretrained import load_pretrained
from farther.detectors.networks.transformers_files import (
    CONFIG,
    PROCESSOR,
    class_names,
    fetched,
    read_description,
    weight_files,
)
from farther.detectors.settings import NO_LAYERS, Layers
from farther.errors import DataError, ParameterError
from farther.images.bounds import MOST_PIXELS, network_errors, refuse_larger

# After `detr`, which turns the hub's reports of use off.
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification  # isort: skip


def find_folder(weights: Path, revision: str | None, *, local_files_only: bool) -> Path:
    """The folder of a model's files, fetched from the hub where it is a name there.

    Raises:
        DataError: it does not exist, or lacks a file.
    """
    folder = fetched(weights, revision, local_files_only=local_files_only)
    if not folder.is_dir():
        raise DataError("expected a folder as transformers saves it, or the name of a model on the hub", file=weights)
    for path in files_of(folder):
        if not path.is_file():
            raise DataError(f"the file does not exist: a model needs {CONFIG}, {PROCESSOR} and safetensors", file=path)
    return folder


def files_of(folder: Path) -> tuple[Path, ...]:
    """All files that a model depends on: of weights, configuration, and processor."""
    return (*weight_files(folder), folder / CONFIG, folder / PROCESSOR)


def classes_in(folder: Path) -> tuple[str, ...]:
    """The classes that a folder's configuration names; errors as in `class_names`."""
    return tuple(class_names(folder / CONFIG, read_description(folder / CONFIG)))


def load_processor(folder: Path) -> Any:
    """The image processor of a folder.

    Raises:
        DataError: transformers does not know it, or refuses its fields.
    """
    read_description(folder / PROCESSOR, MOST_PIXELS)
    try:
        with quiet():
            return AutoImageProcessor.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # each processor raises different errors
        problem = f"transformers cannot load this image processor: {str(error).strip()[:400]}"
        raise DataError(problem, file=folder / PROCESSOR) from None


def load_classifier(
    folder: Path, device: torch.device, sample: tuple[int, int], latent: str | None, layers: Layers = NO_LAYERS
) -> Classifier:
    """The network of a folder, in float32.

    Args:
        sample, latent, layers: See `Classifier`; without a `latent`, the module three quarters through the outermost
            list of modules, if its output can be averaged over an image.

    Raises:
        DataError: transformers cannot load it, or the weights do not fit.
        ParameterError: see `Classifier`.
    """
    read_description(folder / CONFIG)
    with network_errors(folder / CONFIG, "built"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    refuse_larger(folder / CONFIG, weight_files(folder), lambda: AutoModelForImageClassification.from_config(config))
    network = load_pretrained(AutoModelForImageClassification, folder, weight_files(folder)[0])
    network, normalisation = network.to(device), normalisation_of(load_processor(folder))
    if latent is not None:
        return Classifier(network, sample, latent, normalisation, layers=layers)
    try:
        return Classifier(network, sample, three_quarters_through(network), normalisation, layers=layers)
    except ParameterError:
        return Classifier(network, sample, None, normalisation, layers=layers)


def normalisation_of(processor: Any) -> Normalisation:
    """Mean and standard deviation by which an image processor normalises pixels from 0 to 1."""
    largest = 255 * (processor.rescale_factor if processor.do_rescale else 1)
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ((0.0,) * 3, (1.0,) * 3)
    return tuple(value / largest for value in mean), tuple(value / largest for value in std)

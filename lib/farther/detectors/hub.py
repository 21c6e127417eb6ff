"""Base of the adapters of the `transformers` library: its folders, and models of the hub."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers
from huggingface_hub import snapshot_download
from pydantic.dataclasses import dataclass
from torch import Tensor
from transformers.image_processing_utils import BaseImageProcessor

from farther.detectors.base import Detector
from farther.detectors.networks.square_resize import SquareResizeImageProcessor
from farther.detectors.networks.weights import (
    as_float32,
    read_names,
    read_tensors,
    refuse_misfit,
    unwrapped,
)
from farther.errors import DataError, ParameterError, first_line, shorten
from farther.images.bounds import MOST, check_description, network_errors
from farther.naming.registry import STRICT
from farther.tables.documents import read_json
from farther.tables.files import inside, is_file, is_present, regular_file
from farther.tables.header import unique_names

CONFIG = "config.json"
PROCESSOR = "preprocessor_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

#: Names of models on the hub.
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
#: Endings of file names that look like names of models.
FILES = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")

#: Weights that may be of another shape: with "class heads" they are initialised at random.
Tolerated = Literal["nothing", "class heads"]


def architecture(folder: Path) -> str:
    """Name of the network of a folder that `save_pretrained` wrote; "" where it names none.

    Raises:
        DataError: its configuration is not an object of JSON.
    """
    config = read_config(folder)
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        return str(architectures[0])
    return ""


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration in a folder that `save_pretrained` wrote.

    Raises:
        DataError: it is not an object of JSON.
    """
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict):
        problem = f"expected the object that transformers writes, found {shorten(config)}"
        raise DataError(problem, file=folder / CONFIG)
    return config


@plain_dataclass(frozen=True)
class Prepared:
    """An image as the input of a network.

    Args:
        pixels: Shape (3, H, W), float32.
        mask: Shape (H, W): 1 in the image, 0 in the padding; None if the processor returns none.
        original: Height and width of the image before resizing.
    """

    pixels: Tensor
    mask: Tensor | None
    original: tuple[int, int]


def masks(images: Sequence[Prepared], device: torch.device) -> Tensor:
    """The masks of images of one shape, (B, H, W), on a device; ones if the processor has none."""
    image_masks = [image.mask for image in images if image.mask is not None]
    if not image_masks:
        return torch.ones(len(images), *images[0].pixels.shape[1:], device=device)
    return torch.stack(image_masks).to(device)


@dataclass(config=STRICT, kw_only=True)
class HubDetector(Detector):
    """A network of transformers, in a folder or on the hub.

    Args:
        revision: Branch, tag or commit of a model on the hub.
        local_files_only: Use a model on the hub only if it is already cached.
    """

    FROM_HUB = True
    PLACES = (*Detector.PLACES, "revision", "local_files_only")

    revision: str | None = None
    local_files_only: bool = False

    @property
    @abstractmethod
    def processor(self) -> BaseImageProcessor:
        """The checkpoint's image processor, which is loaded at first use.

        Raises:
            DataError, ParameterError: it is unknown to transformers, or a field is wrong.
        """

    def files(self) -> tuple[Path, ...]:
        """See `Detector.files`: includes the list of the shards, if there is one."""
        files = self.content()
        index = files[0].parent / INDEX
        if is_file(index):
            return (*files, index)
        return files

    def prepare(self, image: np.ndarray) -> Any:
        """The image after the checkpoint's image processor."""
        with network_errors(self.weights):
            return prepare(self.processor, image)


def prepare(processor: BaseImageProcessor, image: np.ndarray) -> Prepared:
    """An image (H, W, 3), uint8, resized, rescaled, normalised and padded by an image processor."""
    prepared = processor(
        images=[np.ascontiguousarray(image)], input_data_format="channels_last", return_tensors="pt"
    )
    mask = None
    if prepared.get("pixel_mask") is not None:
        mask = prepared["pixel_mask"][0]
    return Prepared(prepared["pixel_values"][0], mask, image.shape[:2])


def make_processor(processor: dict[str, Any]) -> BaseImageProcessor:
    """The image processor that a `preprocessor_config.json` describes, or the package rfdetr's.

    Args:
        processor: Content of the file.

    Raises:
        ParameterError: it is not a processor for detection, or one of its fields is wrong.
    """
    type_name = processor.get("image_processor_type")
    class_name = str(processor.get("image_processor_type", ""))
    class_name = class_name.removesuffix("Fast").removesuffix("Pil")
    processor_class: Any = None
    if class_name == SquareResizeImageProcessor.__name__:
        processor_class = SquareResizeImageProcessor
    elif class_name.endswith("ImageProcessor"):
        processor_class = getattr(transformers, class_name, None)
        is_class = isinstance(processor_class, type)
        if not is_class or not hasattr(processor_class, "post_process_object_detection"):
            processor_class = None
    if processor_class is None:
        raise ParameterError(
            f"image_processor_type {type_name!r} is not one of transformers' processors for "
            "detection"
        )
    try:
        return processor_class.from_dict(processor)
    except Exception as error:  # each processor raises different errors
        raise ParameterError(
            f"transformers refuses the image processor: {str(error).strip()[:400]}"
        ) from None


@contextmanager
def silenced_transformers() -> Iterator[None]:
    """Keeps transformers from writing to the terminal in a block."""
    log = transformers.logging
    level = log.get_verbosity()
    has_progress_bar = log.is_progress_bar_enabled()
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if has_progress_bar:
            log.enable_progress_bar()


def fetch_model(
    weights: Path,
    revision: str | None = None,
    *,
    local_files_only: bool = False,
    more: Sequence[str] = (),
) -> Path:
    """The file or folder `weights`, or the folder of the fetched model of that name on the hub.

    Args:
        weights: A file, a folder, or the name of a model.
        revision: Branch, tag or commit of a model on the hub.
        local_files_only: Use a model on the hub only if it is already cached.
        more: Names of further files to fetch, if the model has them.

    Raises:
        DataError: it is the name of a model, and the model cannot be fetched.
    """
    name = weights.as_posix()
    if is_present(weights) or not HUB_NAME.fullmatch(name) or weights.suffix.lower() in FILES:
        return weights
    patterns = [CONFIG, PROCESSOR, "*.safetensors", INDEX, *more]
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=patterns, local_files_only=local_files_only
        )
    # No network, no such model, no access, or not cached: the errors have no common base.
    except Exception as error:
        problem = f"no such file or folder, and no such model on the hub: {first_line(error)}"
        raise DataError(problem, file=name) from None
    return Path(folder)


def model_folder(detector: HubDetector, more: Sequence[str] = ()) -> Path:
    """The folder of a detector's files; a model on the hub is fetched, see `fetch_model`.

    Raises:
        DataError: it is not a folder, or cannot be fetched.
    """
    folder = fetch_model(
        detector.weights,
        detector.revision,
        local_files_only=detector.local_files_only,
        more=more,
    )
    if not folder.is_dir():
        problem = "expected a folder as transformers saves it, or the name of a model on the hub"
        raise DataError(problem, file=detector.weights)
    return folder


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The file of weights in a folder, or all its shards."""
    if not is_file(folder / INDEX):
        return (folder / WEIGHTS,)
    index = read_json(folder / INDEX)
    file_of_weight = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(file_of_weight, dict):
        file_of_weight = {}
    names = list(file_of_weight.values())
    if not names or not all(isinstance(name, str) for name in names):
        raise DataError(
            "expected the file of each weight, by name", file=folder / INDEX, field="weight_map"
        )
    return tuple(inside(folder, name) for name in sorted(set(names)))


def require_files(files: Sequence[Path], needed: str) -> None:
    """Refuses a folder that lacks one of its files; `needed` lists them, for the message."""
    for file in files:
        regular_file(file, f"the file does not exist: {needed}")


def read_description(path: Path, most: float = MOST) -> Any:
    """Content of a configuration whose numbers are within bounds; see `check_description`."""
    content = read_json(path)
    check_description(path, content, most)
    return content


def class_names(path: Path, config: Any) -> list[str]:
    """The classes of a configuration, in the order of its logits; repeated names get numbers.

    Raises:
        DataError: the classes are not numbered from 0.
    """
    name_by_number = config.get("id2label") if isinstance(config, dict) else None
    if not isinstance(name_by_number, dict):
        name_by_number = {}
    numbers = [str(number) for number in range(len(name_by_number))]
    if not numbers or not all(number in name_by_number for number in numbers):
        problem = "expected names for the numbers 0, 1, …; give them with the parameter 'classes'"
        raise DataError(problem, file=path, field="id2label")
    names = [str(name_by_number[number]) for number in numbers]
    return list(unique_names(names))


def load_folder(
    built: transformers.PreTrainedModel, config: Any, folder: Path
) -> transformers.PreTrainedModel:
    """The network of a folder of transformers, in float32, in evaluation mode.

    Names of wrappers around the network, as `torch.compile` leaves them in files, are removed.

    Args:
        built: The network without weights.
        config: Its configuration.
        folder: The folder.

    Raises:
        DataError: see `load_pretrained`, or a file of weights is absent or damaged.
    """
    own = set(built.state_dict())
    files = weight_files(folder)
    names: dict[str, None] = {}
    for file in files:
        names |= dict.fromkeys(read_names(file))
    if unwrapped(files[0], names, own) == names:
        return load_pretrained(type(built), folder, files[0], config=config)
    weights: dict[str, torch.Tensor] = {}
    for file in files:
        weights |= read_tensors(file)
    state = as_float32(unwrapped(files[0], weights, own))
    return load_pretrained(type(built), None, files[0], config=config, state_dict=state)


def load_pretrained(
    network_class: Any,
    folder: Path | None,
    file: Path,
    *,
    tolerated: Tolerated = "nothing",
    what: str = "",
    **given: Any,
) -> transformers.PreTrainedModel:
    """A network of transformers in float32, in evaluation mode.

    Args:
        network_class: Its class, or one of transformers' Auto classes.
        folder: Folder of configuration and safetensors; None if both are `given`, as `config` and
            `state_dict`.
        file: The file, for messages.
        tolerated: With "class heads", weights whose shape depends on the number of classes or
            queries are initialised at random.
        what: Name of the network in errors; its class by default.
        given: Further arguments of transformers' `from_pretrained`.

    Raises:
        DataError: transformers cannot load it, or weights are missing, unexpected or of another
            shape.
    """
    try:
        with silenced_transformers():
            network, info = network_class.from_pretrained(
                folder,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                **given,
            )
    except MemoryError:
        raise
    except Exception as error:  # each network raises different errors
        raise DataError(
            f"transformers cannot load this network: {str(error).strip()[:400]}", file=file
        ) from None
    mismatches = {}
    for name, stored_shape, shape in info["mismatched_keys"]:
        mismatches[name] = f"{name} {tuple(stored_shape)} instead of {tuple(shape)}"
    missing = set(info["missing_keys"])
    if tolerated == "class heads":
        missing -= mismatches.keys()
        mismatches = {}
    problems = {
        "missing": sorted(missing),
        "unexpected": sorted(info["unexpected_keys"]),
        "of another shape": sorted(mismatches.values()),
        "in error": [str(error) for error in info.get("error_msgs", [])],
    }
    refuse_misfit(file, what or type(network).__name__, problems)
    return network.eval()

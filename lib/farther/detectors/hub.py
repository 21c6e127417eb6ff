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
from farther.detectors.networks.weights import refuse_misfit
from farther.errors import DataError, ParameterError, first_line
from farther.images.bounds import MOST, check_description, network_errors
from farther.registry import STRICT
from farther.tables.documents import read_json
from farther.tables.files import inside, is_file, is_present, regular_file
from farther.tables.header import numbered

CONFIG, PROCESSOR, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
INDEX = "model.safetensors.index.json"

#: Names of models on the hub, and endings of file names that look like them.
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
FILES = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")

#: Which weights may fail to fit: those of another shape start at random with "class heads".
Tolerated = Literal["nothing", "class heads"]


@plain_dataclass(frozen=True)
class Prepared:
    """An image as the network takes it.

    Args:
        pixels: Shape (3, H, W), float32.
        mask: Shape (H, W): 1 in the image, 0 in the padding; None if the processor returns none.
        original: Height and width of the image before resizing.
    """

    pixels: Tensor
    mask: Tensor | None
    original: tuple[int, int]


def masks(images: Sequence[Prepared], device: torch.device) -> Tensor:
    """The masks of images of one shape, (B, H, W), on a device; of ones if the processor returns none."""
    given = [image.mask for image in images if image.mask is not None]
    if not given:
        return torch.ones(len(images), *images[0].pixels.shape[1:], device=device)
    return torch.stack(given).to(device)


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
        """The checkpoint's image processor; loaded at first use, then kept.

        Raises:
            DataError, ParameterError: transformers does not know it, or refuses its fields.
        """

    def files(self) -> tuple[Path, ...]:
        """See `Detector.files`: the list of the shards is one of them, where there is one."""
        index = self.content()[0].parent / INDEX
        return (*self.content(), index) if is_file(index) else self.content()

    def prepare(self, image: np.ndarray) -> Any:
        """The image, resized, rescaled, normalised and padded by the checkpoint's image processor."""
        with network_errors(self.weights):
            return prepare(self.processor, image)


def prepare(processor: BaseImageProcessor, image: np.ndarray) -> Prepared:
    """The image (H, W, 3), uint8, resized, rescaled, normalised and padded by its checkpoint's processor."""
    prepared = processor(
        images=[np.ascontiguousarray(image)], input_data_format="channels_last", return_tensors="pt"
    )
    mask = prepared.get("pixel_mask")
    return Prepared(prepared["pixel_values"][0], None if mask is None else mask[0], image.shape[:2])


def make_processor(processor: dict[str, Any]) -> BaseImageProcessor:
    """The image processor of a detector that a `preprocessor_config.json` describes, or that of the package rfdetr.

    Raises:
        ParameterError: it names another kind of processor, or one of its fields is wrong.
    """
    named = str(processor.get("image_processor_type", "")).removesuffix("Fast").removesuffix("Pil")
    found: Any = getattr(transformers, named, None) if named.endswith("ImageProcessor") else None
    if named == SquareResizeImageProcessor.__name__:
        found = SquareResizeImageProcessor
    elif not (isinstance(found, type) and hasattr(found, "post_process_object_detection")):
        name = processor.get("image_processor_type")
        raise ParameterError(
            f"image_processor_type {name!r} is not one of transformers' processors for detection"
        )
    try:
        return found.from_dict(processor)
    except Exception as error:  # each processor raises different errors
        raise ParameterError(
            f"transformers refuses the image processor: {str(error).strip()[:400]}"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers from writing to the terminal for a while."""
    log = transformers.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def fetched(
    weights: Path,
    revision: str | None = None,
    *,
    local_files_only: bool = False,
    more: Sequence[str] = (),
) -> Path:
    """The file or folder `weights`, or the folder that the hub's model of that name was fetched to.

    Args:
        revision: Branch, tag or commit of a model on the hub.
        local_files_only: Use a model on the hub only if it is already cached.
        more: Names of further files to fetch, if the model has them.

    Raises:
        DataError: it is the name of a model, and the model cannot be fetched.
    """
    name = weights.as_posix()
    if is_present(weights) or not HUB_NAME.fullmatch(name) or weights.suffix in FILES:
        return weights
    wanted = [CONFIG, PROCESSOR, "*.safetensors", INDEX, *more]
    try:
        found = snapshot_download(
            name, revision=revision, allow_patterns=wanted, local_files_only=local_files_only
        )
    except (
        Exception
    ) as error:  # no network, no such model, no access, not fetched before: each has its error
        problem = f"no such file or folder, and no such model on the hub: {first_line(error)}"
        raise DataError(problem, file=name) from None
    return Path(found)


def folder_of(detector: HubDetector, more: Sequence[str] = ()) -> Path:
    """The folder of a detector's files, fetched from the hub where it is a name there; see `fetched`.

    Raises:
        DataError: it is not a folder, or cannot be fetched.
    """
    settings = {"local_files_only": detector.local_files_only, "more": more}
    folder = fetched(detector.weights, detector.revision, **settings)  # type: ignore[arg-type]
    if not folder.is_dir():
        problem = "expected a folder as transformers saves it, or the name of a model on the hub"
        raise DataError(problem, file=detector.weights)
    return folder


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The one file of weights in a folder, or all its shards."""
    if not is_file(folder / INDEX):
        return (folder / WEIGHTS,)
    index = read_json(folder / INDEX)
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if (
        not isinstance(shards, dict)
        or not shards
        or not all(isinstance(name, str) for name in shards.values())
    ):
        raise DataError(
            "expected the file of each weight, by name", file=folder / INDEX, field="weight_map"
        )
    return tuple(inside(folder, name) for name in sorted(set(shards.values())))


def require(files: Sequence[Path], needed: str) -> None:
    """Refuses a folder that lacks one of its files; the error says what is needed."""
    for file in files:
        regular_file(file, f"the file does not exist: {needed}")


def read_description(path: Path, most: float = MOST) -> Any:
    """Content of a configuration whose numbers are within bounds; see `check_description`."""
    content = read_json(path)
    check_description(path, content, most)
    return content


def class_names(path: Path, config: Any) -> list[str]:
    """The classes that a configuration names, in the order of its logits; a name that comes twice gets its number."""
    named = config.get("id2label") if isinstance(config, dict) else None
    numbers = [str(number) for number in range(len(named))] if isinstance(named, dict) else []
    if not isinstance(named, dict) or not named or any(number not in named for number in numbers):
        problem = "expected names for the numbers 0, 1, …; give them with the parameter 'classes'"
        raise DataError(problem, file=path, field="id2label")
    return list(numbered([str(named[number]) for number in numbers]))


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
        folder: Where configuration and safetensors are; None where both are `given`, as `config`
            and `state_dict`.
        file: Is named in errors.
        tolerated: "class heads" lets weights whose shape depends on the number of classes or
            queries start at random.
        what: Name of the network in errors; its class by default.
        given: Further arguments of transformers' `from_pretrained`.

    Raises:
        DataError: transformers cannot load it, or weights are missing, unexpected or of another
            shape.
    """
    try:
        with quiet():
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
    shapes = {
        name: f"{name} {tuple(found)} instead of {tuple(to)}"
        for name, found, to in info["mismatched_keys"]
    }
    missing = set(info["missing_keys"])
    if tolerated == "class heads":
        missing, shapes = missing - set(shapes), {}
    problems = {
        "missing": sorted(missing),
        "unexpected": sorted(info["unexpected_keys"]),
        "of another shape": sorted(shapes.values()),
        "in error": [str(error) for error in info.get("error_msgs", [])],
    }
    refuse_misfit(file, what or type(network).__name__, problems)
    return network.eval()

"""Files that exporters write beside an ONNX graph: transformers' and MMDeploy's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from farther.detectors.networks.onnx_input import (
    ONES,
    ZEROS,
    Channels,
    Preprocessing,
    Resize,
    Triple,
)
from farther.errors import DataError, shorten
from farther.tables.documents import read_json
from farther.tables.files import is_file

#: MMDeploy's file of its preprocessing, which --dump-info writes.
PIPELINE = "pipeline.json"

#: transformers' file of its preprocessing.
PROCESSOR = "preprocessor_config.json"

#: transformers' file of its classes.
CONFIG = "config.json"

#: Files beside a graph that are read, by layout.
SIDECARS: Mapping[str, tuple[str, ...]] = {
    "detr": (PROCESSOR, CONFIG),
    "mmdeploy": (PIPELINE,),
}


@dataclass(frozen=True)
class Settings:
    """Settings in the files beside a graph.

    Args:
        preprocessing: Preprocessing of images.
        size: Height and width of the input, the shorter side twice for "shortest_edge"; None if the
            files do not store them.
        classes: Names of the classes; None if the files do not store them.
    """

    preprocessing: Preprocessing
    size: tuple[int, int] | None = None
    classes: tuple[str, ...] | None = None


def sidecars(graph: Path, layout: str) -> list[Path]:
    """The files beside a graph that are read with it."""
    files = []
    for name in SIDECARS.get(layout, ()):
        file = graph.parent / name
        if is_file(file):
            files.append(file)
    return files


def read_sidecars(graph: Path, layout: str, preprocessing: Preprocessing) -> Settings:
    """Reads the settings in the files beside a graph.

    Args:
        graph: File of the graph.
        layout: Name of its layout.
        preprocessing: The layout's own, which the files override.

    Raises:
        DataError: a file is damaged, or has a setting that is not known.
    """
    settings = Settings(preprocessing)
    for file in sidecars(graph, layout):
        content = read_json(file)
        if not isinstance(content, dict):
            raise DataError(f"expected an object, found {shorten(content)}", file=file)
        try:
            settings = READERS[file.name](content, settings)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise DataError(
                f"not as its exporter writes it ({type(error).__name__}: {shorten(str(error))}): "
                "move it away, and give size, mean and std as parameters",
                file=file,
            ) from None
    return settings


def _read_processor(content: Mapping[str, Any], settings: Settings) -> Settings:
    """The settings with those of transformers' image processor."""
    mean = ZEROS
    std = ONES
    if content.get("do_normalize", True) and "image_mean" in content:
        mean = _triple(content["image_mean"])
        std = _triple(content["image_std"])
    preprocessing = replace(settings.preprocessing, mean=mean, std=std)
    size = content.get("size")
    if not isinstance(size, dict):
        return replace(settings, preprocessing=preprocessing)
    if "height" in size:
        pixels = (int(size["height"]), int(size["width"]))
        return replace(settings, preprocessing=preprocessing, size=pixels)
    edge = int(size["shortest_edge"])
    longest = size.get("longest_edge")
    if longest is not None:
        longest = int(longest)
    preprocessing = replace(preprocessing, resize="shortest_edge", longest=longest)
    return replace(settings, preprocessing=preprocessing, size=(edge, edge))


def _read_config(content: Mapping[str, Any], settings: Settings) -> Settings:
    """The settings with transformers' names of classes."""
    names = content.get("id2label")
    if not isinstance(names, dict) or not names:
        return settings
    classes = tuple(str(names[key]) for key in sorted(names, key=int))
    if all(name == f"LABEL_{number}" for number, name in enumerate(classes)):
        return settings
    return replace(settings, classes=classes)


def _read_pipeline(content: Mapping[str, Any], settings: Settings) -> Settings:
    """The settings with MMDeploy's transforms Resize, Pad and Normalize of its preprocessing."""
    for task in content["pipeline"]["tasks"]:
        if task.get("name") == "Preprocess":
            for transform in task["transforms"]:
                settings = _with_transform(settings, transform)
    return settings


def _with_transform(settings: Settings, transform: Mapping[str, Any]) -> Settings:
    """The settings with one of MMDeploy's transforms."""
    preprocessing = settings.preprocessing
    kind = transform.get("type")
    if kind == "Resize":
        resize: Resize = "letterbox_corner" if transform.get("keep_ratio", False) else "stretch"
        preprocessing = replace(preprocessing, resize=resize, pixel_range=255)
        width, height = transform["size"]
        return replace(settings, preprocessing=preprocessing, size=(int(height), int(width)))
    if kind == "Pad" and "size" in transform:
        return replace(settings, preprocessing=replace(preprocessing, padding=_padding(transform)))
    if kind == "Pad" and transform.get("size_divisor", 1) > 1:
        # It follows the normalisation: its zeros are pixels of the mean.
        red, green, blue = preprocessing.mean
        if preprocessing.channels == "bgr":
            red, blue = blue, red
        divisor = int(transform["size_divisor"])
        preprocessing = replace(preprocessing, padding=(red, green, blue), divisor=divisor)
        return replace(settings, preprocessing=preprocessing)
    if kind == "Normalize":
        channels: Channels = "rgb" if transform.get("to_rgb", False) else "bgr"
        preprocessing = replace(
            preprocessing,
            channels=channels,
            pixel_range=255,
            mean=_triple(transform["mean"]),
            std=_triple(transform["std"]),
        )
        return replace(settings, preprocessing=preprocessing)
    return settings


def _padding(transform: Mapping[str, Any]) -> float:
    """Value of the padded pixels of MMDeploy's transform Pad."""
    value = transform.get("pad_val", 0)
    if isinstance(value, dict):
        value = value.get("img", 0)
    if isinstance(value, (list, tuple)):
        value = value[0]
    return float(value)


def _triple(values: Any) -> Triple:
    """Three numbers.

    Raises:
        ValueError: they are not three.
    """
    red, green, blue = (float(value) for value in values)
    return red, green, blue


READERS = {PROCESSOR: _read_processor, CONFIG: _read_config, PIPELINE: _read_pipeline}

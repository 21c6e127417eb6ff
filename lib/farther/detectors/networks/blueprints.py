"""Descriptions of torchvision's networks in the metadata of farther's checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from farther.detectors.networks.weights import (
    as_names,
    as_pixels,
    json_field,
    read_metadata,
    refuse_format,
)
from farther.errors import DataError


@dataclass(frozen=True)
class Blueprint:
    """Description from which a network is built; its weights are stored beside it.

    Args:
        architecture: Name of a network.
        classes: The known classes, without the background, in the order of the logits.
        min_size: Images are scaled so that their shorter side has this many pixels …
        max_size: … unless the longer one would then have more than this.

    Attributes:
        FORMAT: Name of the checkpoint's format.
    """

    FORMAT: ClassVar[str]

    architecture: str
    classes: tuple[str, ...]
    min_size: int
    max_size: int

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads the blueprint of a checkpoint's network from its metadata; no weights are read.

        Raises:
            DataError: the file is absent or not a safetensors file, or its metadata lacks a field
                or holds a wrong one.
        """
        metadata = read_metadata(path)
        refuse_format(path, metadata, cls.FORMAT)
        if "architecture" not in metadata:
            problem = "the field is missing from the checkpoint's metadata"
            raise DataError(problem, file=path, field="architecture")
        return cls(
            architecture=metadata["architecture"],
            classes=as_names(path, json_field(path, metadata, "classes")),
            min_size=as_pixels(path, json_field(path, metadata, "min_size"), "min_size"),
            max_size=as_pixels(path, json_field(path, metadata, "max_size"), "max_size"),
        )

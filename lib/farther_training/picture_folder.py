"""A folder of pictures that training draws from, besides the labelled images."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic.dataclasses import dataclass

from farther.errors import DataError
from farther.images.read import load
from farther.naming.registry import STRICT, Parameters
from farther.tables.endings import IMAGES, is_image
from farther.tables.files import digest
from farther.tables.folders import listed


@dataclass(config=STRICT, kw_only=True)
class PictureFolder(Parameters):
    """The pictures of a folder.

    Args:
        folder: The folder; its pictures may be at any depth.
    """

    folder: Path

    @cached_property
    def files(self) -> list[Path]:
        """The image files, sorted.

        Raises:
            DataError: there is none.
        """
        pictures = []
        for path in listed(self.folder, "**/*"):
            if is_image(path):
                pictures.append(path)
        if not pictures:
            raise DataError(
                f"no images here; known extensions: {', '.join(IMAGES)}", file=self.folder
            )
        return pictures

    def content(self) -> str:
        """Digest of all files."""
        return digest(*self.files)

    def images(self, count: int, random: np.random.Generator) -> list[np.ndarray]:
        """Random images, uint8 (H, W, 3) each; DataError if one cannot be read."""
        rows = random.integers(len(self.files), size=count)
        return [load(self.files[row]) for row in rows]

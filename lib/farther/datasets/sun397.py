"""SUN397 (Xiao et al., 2010): scenes in nested folders."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import Collector, register
from farther.datasets.image_folder import ENDINGS, ImageFolder
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.folders import files_below, in_unicode


@register("sun397")
@dataclass(config=STRICT, kw_only=True)
class SUN397(ImageFolder):
    """SUN397: each folder with images is a class, `a/abbey` or `a/apartment_building/outdoor`.

    Its name is the path without the letter in front, as Places365 calls its classes: `apartment_building/outdoor`.

    Errors: no folder with images below a letter.

    Args:
        folders: Folder of each subset within the root; all images are the subset `all`.
        See `farther.datasets.image_folder.ImageFolder` for the others.
    """

    SOURCE: ClassVar[str] = "vision.princeton.edu/projects/2010/SUN (Xiao et al., 2010, doi:10.1109/CVPR.2010.5539970)"

    folders: dict[str, str] = Field(default_factory=lambda: {"all": "."})

    def _classes(self, folder: Path, found: Collector) -> dict[str, str]:
        """Name of the class of each folder with images."""
        names = {}
        images = (in_unicode(path) for path in files_below(folder) if path.name.lower().endswith(ENDINGS))
        for parts in sorted({path.parent.relative_to(folder).parts for path in images}):
            if len(parts) > 1:
                name = "/".join(parts[1:])
                names["/".join(parts)] = self.renamed.get(name, name)
        if not names:
            raise DataError("no folder of a class, such as a/abbey", file=folder)
        return names

"""Cut-outs from files: a folder of images with an alpha channel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PIL import Image
from pydantic.dataclasses import dataclass

from farther.curation.sources import Categories
from farther.derived.cutouts import CutOut, CutOuts, CutOutSource, register
from farther.errors import DataError
from farther.images.orientation import upright
from farther.images.read import RAISE, excess, open_image, problem_with
from farther.naming.registry import STRICT
from farther.tables.endings import has_ending
from farther.tables.folders import listed

#: File types with an alpha channel.
SUFFIXES = (".png", ".webp", ".tif", ".tiff")


@register("folder")
@dataclass(config=STRICT, kw_only=True)
class CutOutFolder(CutOutSource):
    """Images in `<root>/<category>/`, as PNG, WebP or TIFF, transparent around the object."""

    def read(self) -> CutOuts:
        """The images of all sub-folders, by name; see `CutOutSource`.

        Raises:
            DataError: there is none, or one is damaged, too large, or without alpha channel.
        """
        if not self.root.is_dir():
            raise DataError(
                "the folder does not exist; expected one with one sub-folder per category",
                file=self.root,
            )
        paths = [path for path in listed(self.root, "*/*") if has_ending(path, SUFFIXES)]
        large = []
        for path in paths:
            if min(_opened(path, self.max_pixels).size) >= self.smallest:
                large.append(path)
        if not large:
            raise DataError(
                f"no image ({', '.join(SUFFIXES)}) of at least {self.smallest} pixels in a "
                "sub-folder; lower 'smallest'?",
                file=self.root,
            )

        entries = []
        for row, path in enumerate(large):
            name = path.relative_to(self.root).as_posix()
            entries.append(CutOut(path.parent.name, name, row))
        names = dict.fromkeys(cutout.category for cutout in entries)
        return CutOuts(Categories(tuple(names)), entries, partial(_picture, large, self.max_pixels))


def _picture(paths: Sequence[Path], max_pixels: int, cutout: CutOut) -> Image.Image:
    """The RGBA image of a cut-out of one of the files."""
    path = paths[cutout.row]
    try:
        return upright(_opened(path, max_pixels)).convert("RGBA")
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"cannot be read: {error}", file=path) from None


def _opened(path: Path, max_pixels: int) -> Image.Image:
    """An image with its header read and checked; its pixels are not decoded."""
    try:
        image = open_image(path)
    except (OSError, ValueError, SyntaxError, DataError) as error:
        raise DataError(problem_with(error, path), file=path) from None
    problem = excess(image.size, max_pixels, RAISE)
    if problem:
        raise DataError(problem, file=path)
    if not image.has_transparency_data:
        problem = "no alpha channel to mark the object; delete the image or cut the object out"
        raise DataError(problem, file=path)
    return image

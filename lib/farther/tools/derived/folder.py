"""Cut-outs that somebody made: a folder of pictures with an alpha channel."""

from __future__ import annotations

import warnings
from pathlib import Path

from PIL import Image
from pydantic.dataclasses import dataclass

from farther.curation.sources import Categories
from farther.errors import DataError
from farther.images.read import MAX_PIXELS
from farther.registry import STRICT
from farther.tools.derived.cutouts import CutOut, CutOuts, Source, register

#: Kinds of files that have an alpha channel.
SUFFIXES = (".png", ".webp", ".tif", ".tiff")


@register("folder")
@dataclass(config=STRICT, kw_only=True)
class Folder(Source):
    """Pictures in `<root>/<category>/`, as PNG, WebP or TIFF. What is transparent is not the object."""

    def read(self) -> CutOuts:
        """The pictures of all sub-folders, by name; see `Source`.

        Raises:
            DataError: there is no picture, or one is damaged or has no alpha channel.
        """
        if not self.root.is_dir():
            raise DataError("the folder does not exist; expected one with a sub-folder a category", file=self.root)
        paths = [path for path in sorted(self.root.glob("*/*")) if path.suffix.lower() in SUFFIXES]
        large = [path for path in paths if min(_opened(path).size) >= self.smallest]
        if not large:
            kinds = ", ".join(SUFFIXES)
            problem = f"no picture ({kinds}) of {self.smallest} pixels or more in a sub-folder; lower 'smallest'?"
            raise DataError(problem, file=self.root)
        found = [
            CutOut(path.parent.name, path.relative_to(self.root).as_posix(), row) for row, path in enumerate(large)
        ]
        categories = Categories(tuple(dict.fromkeys(one.category for one in found)))
        return CutOuts(categories, found, lambda one: _loaded(large[one.row]))


def _opened(path: Path) -> Image.Image:
    """A picture whose header was read and checked, but not its pixels."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `MAX_PIXELS` decides
            image = Image.open(path)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"cannot be read: {error}", file=path) from None
    if image.width * image.height > MAX_PIXELS:
        raise DataError(f"more than {MAX_PIXELS} pixels; make it smaller", file=path)
    if not image.has_transparency_data:
        problem = "no alpha channel, so nothing says what is the object; delete the picture or cut the object out"
        raise DataError(problem, file=path)
    return image


def _loaded(path: Path) -> Image.Image:
    try:
        return _opened(path).convert("RGBA")
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"cannot be read: {error}", file=path) from None

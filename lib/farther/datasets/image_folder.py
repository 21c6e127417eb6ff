"""Folders of labelled images: one folder per class, as torchvision's ImageFolder reads them, or one class for all."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    WHOLE_IMAGE,
    Annotations,
    Collector,
    Expected,
    Reader,
    below,
    register,
)
from farther.datasets.records import Location
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import is_file, is_folder
from farther.tables.folders import files_below, in_unicode, listed

#: Endings of the files that are images, in any case; those of torchvision.
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@register("image_folder")
@dataclass(config=STRICT, kw_only=True)
class ImageFolder(Reader):
    """Image labels by folder: `<subset>/<class>/**/image`. An image is one object as large as the image.

    With `category`, a subset has no class folders and all its images are of that class: sets of OOD
    images whose classes have no meaning. The image id is the path within the subset's folder. Files
    that are not images by their ending are ignored; links are followed, as torchvision does.

    Tolerated and listed: images beside the class folders (ignored). Errors: a subset without a
    class folder, unless `category` is given; a class folder, or a subset, without images.

    Args:
        folders: Folder of each subset within the root, "." for the root itself. When empty, each
            folder of the root is a subset.
        category: The class of all images.
        renamed: Names of classes by the names of their folders; several may become one.
    """

    SOURCE: ClassVar[str] = "pytorch.org/vision, torchvision.datasets.ImageFolder"

    folders: dict[str, str] = Field(default_factory=dict)
    category: str = ""
    renamed: dict[str, str] = Field(default_factory=dict)

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        self._check_root()
        found = list(self.subset_names or self.folders) or _folders(self.root)
        if not found:
            problem = "no folder of a subset; parameter 'folders' names them: folders: {test: .}"
            raise DataError(problem, file=self.root)
        return found

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        what = "images" if self.category else "one folder of images per class"
        return [Expected(what, (self.folders.get(subset, subset),), subset)]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        name = self.folders.get(subset, subset)
        folder = below(self.root, name)
        if not folder.is_dir():
            raise DataError(
                "the folder does not exist; parameter 'folders' names the folder of a subset",
                file=folder,
            )
        found = Collector(self.root)
        classes = {".": self.category} if self.category else self._classes(folder, found)
        categories = list(dict.fromkeys(classes.values()))
        for inner, category in classes.items():
            images = _images(below(folder, inner))
            if not images:
                raise DataError(
                    f"no images here; known extensions: {', '.join(ENDINGS)}", file=folder / inner
                )
            for path in images:
                file = path.relative_to(self.root).as_posix()
                row = found.add_image(path.relative_to(folder).as_posix(), file, Location(path))
                found.add_object(row, WHOLE_IMAGE, categories.index(category), row)
        return found.annotations(
            unit="image",
            categories=categories,
            files=[name],
            row="{image_id}",
            box_field="the whole image",
        )

    def _classes(self, folder: Path, found: Collector) -> dict[str, str]:
        """Name of the class of each class folder; images beside them are listed."""
        names = _folders(folder)
        if not names:
            problem = "no folder of a class; for images of one class write: category: <its name>"
            raise DataError(problem, file=folder)
        beside = sum(
            path.suffix.lower() in ENDINGS for path in listed(folder, "*") if is_file(path)
        )
        if beside:
            found.warn(Location(folder), "images without a class", f"{beside} images", "ignored")
        found.warn_not_renamed(Location(folder), names, self.renamed)
        return {name: self.renamed.get(name, name) for name in names}


@register("sun397")
@dataclass(config=STRICT, kw_only=True)
class SUN397(ImageFolder):
    """SUN397 (Xiao et al., 2010): each folder with images is a class, `a/abbey` or `a/apartment_building/outdoor`.

    Its name is the path without the letter in front, as Places365 calls its classes:
    `apartment_building/outdoor`.

    Errors: no folder with images below a letter.

    Args:
        folders: Folder of each subset within the root; all images are the subset `all`.
        See `farther.datasets.image_folder.ImageFolder` for the others.
    """

    SOURCE: ClassVar[str] = (
        "vision.princeton.edu/projects/2010/SUN (Xiao et al., 2010, doi:10.1109/CVPR.2010.5539970)"
    )

    folders: dict[str, str] = Field(default_factory=lambda: {"all": "."})

    def _classes(self, folder: Path, found: Collector) -> dict[str, str]:
        """Name of the class of each folder with images."""
        parts = sorted({path.parent.relative_to(folder).parts for path in _images(folder)})
        names = {"/".join(one): "/".join(one[1:]) for one in parts if len(one) > 1}
        if not names:
            raise DataError("no folder of a class, such as a/abbey", file=folder)
        found.warn_not_renamed(Location(folder), names.values(), self.renamed)
        return {inner: self.renamed.get(name, name) for inner, name in names.items()}


def _folders(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted, without hidden ones; DataError for a broken link."""
    return [path.name for path in listed(folder, "*") if is_folder(path)]


def _images(folder: Path) -> list[Path]:
    """The images at any depth below a folder, in torchvision's order."""
    images = (
        in_unicode(path) for path in files_below(folder) if path.name.lower().endswith(ENDINGS)
    )
    return sorted(images, key=lambda path: (str(path.parent), path.name))

"""Folders of labelled images: one folder per class, as in torchvision's ImageFolder."""

from __future__ import annotations

from collections.abc import Sequence, Set
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
    no_images,
    register,
    warn_of_unread_images,
)
from farther.datasets.recognition import Evidence, Recognised
from farther.datasets.records import Location
from farther.datasets.subset_keys import subset_keys
from farther.datasets.subset_names import is_neutral, read_names, subset_of_path
from farther.datasets.unread_boxes import refuse_all_boxes
from farther.errors import DataError
from farther.naming.registry import STRICT
from farther.tables.endings import is_image
from farther.tables.files import is_file, is_folder
from farther.tables.folders import files_below, in_unicode, listed


@register("image_folder")
@dataclass(config=STRICT, kw_only=True)
class ImageFolder(Reader):
    """Image labels by folder: `<subset>/<class>/**/image`.

    An image is one object as large as the image. With `category`, a subset has no class folders and
    all its images are of that class: sets of OOD images whose classes have no meaning. The image id
    is the path within the subset's folder. Files that are not images by their ending are ignored;
    links are followed, as torchvision does.

    Tolerated and listed: images beside the class folders, and those in formats that are not read
    (ignored). Errors: a subset without a
    class folder, unless `category` is given; a class folder, or a subset, without images.

    Args:
        folders: Folder of each subset within the root, "." for the root itself. When empty, each
            folder of the root is a subset.
        category: The class of all images.
        renamed: Names of classes by the names of their folders; several may become one.
    """

    SOURCE: ClassVar[str] = "pytorch.org/vision, torchvision.datasets.ImageFolder"
    EVIDENCE: ClassVar[Evidence] = "folders"

    folders: dict[str, str] = Field(default_factory=dict)
    category: str = ""
    renamed: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def recognises(cls, folder: Path) -> Recognised | None:
        """A folder whose images are in `<subset>/<class>/`; see `Reader`."""
        return _recognise(folder)

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        self._check_root()
        names = self.subset_names or self.folders or _folder_names(self.root)
        if not names:
            problem = "no folder of a subset; parameter 'folders' names them: folders: {test: .}"
            raise DataError(problem, file=self.root)
        return list(names)

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        content = "images" if self.category else "one folder of images per class"
        return [Expected(content, (self.folders.get(subset, subset),), subset)]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        name = self.folders.get(subset, subset)
        folder = below(self.root, name)
        if not folder.is_dir():
            raise DataError(
                "the folder does not exist; parameter 'folders' names the folder of a subset",
                file=folder,
            )
        collector = Collector(self.root)
        if self.category:
            class_by_folder = {".": self.category}
        else:
            class_by_folder = self._class_by_folder(folder, collector)
        categories = list(dict.fromkeys(class_by_folder.values()))

        for class_folder, category in class_by_folder.items():
            images = _images_below(below(folder, class_folder))
            if not images:
                raise no_images(below(folder, class_folder))
            for path in images:
                image_id = path.relative_to(folder).as_posix()
                file = path.relative_to(self.root).as_posix()
                row = collector.add_image(image_id, file, Location(path))
                collector.add_object(row, WHOLE_IMAGE, categories.index(category), row)
        warn_of_unread_images(collector, folder, files_below(folder))
        return collector.annotations(
            unit="image",
            categories=categories,
            files=[name],
            row="{image_id}",
            box_field="the whole image",
        )

    def _class_by_folder(self, folder: Path, collector: Collector) -> dict[str, str]:
        """Name of the class by class folder; adds a warning about images beside the folders."""
        names = _folder_names(folder)
        if not names:
            problem = "no folder of a class; for images of one class write: category: <its name>"
            raise DataError(problem, file=folder)

        location = Location(folder)
        images = [path for path in listed(folder, "*") if is_file(path) and is_image(path)]
        if images:
            example = f"{len(images)} images"
            collector.warn(location, "images without a class", example, "ignored")
        collector.warn_not_renamed(location, names, self.renamed)
        return {name: self.renamed.get(name, name) for name in names}


@register("sun397")
@dataclass(config=STRICT, kw_only=True)
class SUN397(ImageFolder):
    """SUN397 (Xiao et al., 2010): each folder with images is a class.

    Folders are `a/abbey` or `a/apartment_building/outdoor`. The name of the class is the path
    without the letter in front, as in Places365: `apartment_building/outdoor`.

    Errors: no folder with images below a letter.

    Args:
        folders: Folder of each subset within the root; all images are the subset `all`.
        See `farther.datasets.image_folder.ImageFolder` for the others.
    """

    SOURCE: ClassVar[str] = (
        "vision.princeton.edu/projects/2010/SUN (Xiao et al., 2010, doi:10.1109/CVPR.2010.5539970)"
    )

    folders: dict[str, str] = Field(default_factory=lambda: {"all": "."})

    def _class_by_folder(self, folder: Path, collector: Collector) -> dict[str, str]:
        """Name of the class by folder with images."""
        folders = {path.parent.relative_to(folder) for path in _images_below(folder)}
        name_by_folder = {}
        for parts in sorted(path.parts for path in folders):
            if len(parts) > 1:
                name_by_folder["/".join(parts)] = "/".join(parts[1:])
        if not name_by_folder:
            raise DataError("no folder of a class, such as a/abbey", file=folder)
        collector.warn_not_renamed(Location(folder), name_by_folder.values(), self.renamed)
        return {path: self.renamed.get(name, name) for path, name in name_by_folder.items()}


def _recognise(root: Path) -> Recognised | None:
    """A folder whose images are in `<subset>/<class>/`, or further down.

    Further down, as in `data/<subset>/<class>/`, only where the folders above the classes name
    subsets.

    Raises:
        DataError: a file beside them has boxes, which would be lost.
    """
    paths = _image_paths(root)
    depth = _depth_of_subsets(paths)
    if not depth:
        return None
    refuse_all_boxes(root)
    places = sorted({parts[:depth] for parts in paths if len(parts) > depth + 1})
    keys = subset_keys(places)
    folders: dict[str, str] = {}
    for key, place in zip(keys.keys, places, strict=True):
        folders[key] = "/".join(place)
    beside = [parts for parts in paths if parts[:depth] not in places]
    notes: tuple[str, ...] = ()
    if beside:
        notes = (
            f"{len(beside)} images are in no folder of a class and are not read, such as "
            f"{'/'.join(beside[0])}",
        )
    return Recognised({"folders": folders}, keys, notes)


def recognise_classes(root: Path) -> Recognised | None:
    """A folder with one folder of images per class, as in torchvision's ImageFolder.

    None where an image lies beside the folders, or where the folders have the names of subsets. The
    files do not tell classes from folders that photographs were sorted into, so the caller has to.

    Raises:
        DataError: a file beside them has boxes, which would be lost.
    """
    paths = _image_paths(root)
    if not paths or min(map(len, paths)) < 2 or _have_no_classes({parts[0] for parts in paths}):
        return None
    refuse_all_boxes(root)
    return Recognised({"folders": {"all": "."}})


def _depth_of_subsets(paths: Sequence[tuple[str, ...]]) -> int:
    """Number of folders in the path of a subset whose images are in folders of classes; 0 for none.

    Where the folders name subsets, up to half of the images may be beside those of classes.

    Args:
        paths: The paths of the images.
    """
    deepest = max(map(len, paths), default=0) - 2
    for depth in range(1, deepest + 1):
        in_classes = [parts for parts in paths if len(parts) > depth + 1]
        name_subsets = all(subset_of_path(parts[:depth]) for parts in in_classes)
        if not name_subsets and (depth > 1 or len(in_classes) < len(paths)):
            continue
        if 2 * len(in_classes) < len(paths):
            continue
        if not _have_no_classes({parts[depth] for parts in in_classes}):
            return depth
    return 0


def _have_no_classes(folders: Set[str]) -> bool:
    """Whether folders have the names of subsets, or names without a meaning, such as `images`.

    One that is called as a subset is a class beside folders of other names, such as `bus` and
    `train`.
    """
    with_meaning = sorted(name for name in folders if not is_neutral(name))
    return not with_meaning or read_names(with_meaning).are_subsets


def _image_paths(root: Path) -> list[tuple[str, ...]]:
    """The path of each image in a folder: the names of the folders, and of the file."""
    files = files_below(root)
    return [file.relative_to(root).parts for file in files if is_image(file)]


def _folder_names(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted, without hidden ones.

    Raises:
        DataError: an entry is a broken link.
    """
    return [path.name for path in listed(folder, "*") if is_folder(path)]


def _images_below(folder: Path) -> list[Path]:
    """The images at any depth below a folder, in torchvision's order."""
    paths = [path for path in files_below(folder) if is_image(path)]
    return sorted((in_unicode(path) for path in paths), key=_folder_and_name)


def _folder_and_name(path: Path) -> tuple[str, str]:
    return str(path.parent), path.name

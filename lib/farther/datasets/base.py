"""Interface of the readers of dataset formats."""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.recognition import Evidence, Recognised
from farther.datasets.records import Location
from farther.errors import DataError, shorten
from farther.naming.registry import STRICT, Parameters, Registry
from farther.tables.endings import IMAGES, is_unread_image, why_unread
from farther.tables.files import inside, is_present, path_inside
from farther.tables.folders import files_below, find_file

#: Edges of a box: xmin, ymin, xmax, ymax.
Edges = tuple[float, float, float, float]

#: The pixels that boxes refer to: those of the image as it is displayed (turned by its EXIF
#: orientation), or as it is stored. With "auto" the annotated size of the image decides, and boxes
#: refer to the displayed image where that size fits both.
AnnotatedOn = Literal["displayed", "stored", "auto"]

#: Kind of the warning about images in formats that are not read.
UNREAD_IMAGES = "images in a format that is not read"

#: Subject of a warning: an image, an object, or the entire dataset.
About = Literal["image", "object", "dataset"]

#: Box that covers an image, with `unit` "image": the object that the label of an image describes.
WHOLE_IMAGE: Edges = (0.0, 0.0, 1.0, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class DataWarning:
    """A problem in the data that does not stop a run, and the action taken.

    Args:
        kind: The kind of problem, in a few words; warnings are counted by it.
        about: Whether it concerns an image, an object, or the entire dataset.
        file: Path within the dataset's root.
        row: A line (from 1) of a text file, `annotations[5]` (from 0) in JSON and XML; None for the
            entire file.
        field: Name of the field, None for the entire row.
        found: The value in the file.
        action: The action taken.
    """

    kind: str
    about: About
    file: str
    row: str | None
    field: str | None
    found: str
    action: str


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """A file or a folder that a subset is read from.

    Args:
        what: Its content, in a few words: "boxes".
        paths: Alternative paths within the dataset's root; one of them is enough.
        source: Its name on the dataset's home page.
    """

    what: str
    paths: tuple[str, ...]
    source: str


@dataclasses.dataclass(frozen=True, slots=True)
class Credit:
    """Licence, author and origin of an image; "" where the dataset's files do not give them.

    Args:
        license: The licence by its name, or by its address.
        license_url: Address of the licence's text.
        author: Name of the author.
        source_url: Address that the image comes from.
    """

    license: str = ""
    license_url: str = ""
    author: str = ""
    source_url: str = ""

    def __bool__(self) -> bool:
        return self != Credit()


@dataclasses.dataclass(frozen=True, slots=True)
class SecondFile:
    """A second file that annotates objects of a subset.

    Args:
        first_object: Index of its first object; all objects from there on are in this file.
        file: Path within the dataset's root.
    """

    first_object: int
    file: str


class ImageAttribute(NamedTuple):
    """Value of an attribute of an image: the weather, the time of day."""

    image_id: str
    attribute: str
    value: str


@dataclasses.dataclass(frozen=True)
class AnnotatedImages:
    """The images that the annotations name, as columns of length N.

    Args:
        image_id: The dataset's own id as text, unique. Object array of `str`.
        file: Path within the dataset's root, with forward slashes. Object array of `str`.
        width, height: Size in pixels as annotated, 0 where the annotations do not give it. int64.
    """

    image_id: np.ndarray
    file: np.ndarray
    width: np.ndarray
    height: np.ndarray

    def __len__(self) -> int:
        return len(self.image_id)


@dataclasses.dataclass(frozen=True)
class AnnotatedObjects:
    """Objects as annotated, as columns of length M.

    Args:
        image: Row of the object's image among the `AnnotatedImages`; an integer.
        box: Edges xmin, ymin, xmax, ymax, float64 of shape (M, 4), in pixels or, with `unit`
            "image", in widths and heights of the image.
        category: Index into the categories; an integer.
        object_id: Unique number. int64.
        row: Number of the object's row in the file, see `Annotations.row`.
        is_crowd, is_difficult: See `farther.tables.Objects`.
        unit: Of the boxes.
    """

    image: np.ndarray
    box: np.ndarray
    category: np.ndarray
    object_id: np.ndarray
    row: np.ndarray
    is_crowd: np.ndarray
    is_difficult: np.ndarray
    unit: Literal["pixel", "image"] = "pixel"

    def __len__(self) -> int:
        return len(self.image)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Annotations:
    """One subset of a dataset as its annotations describe it, before any image is opened.

    Args:
        images, objects: See there.
        categories: Names of the classes, in the dataset's order.
        parents: Ancestors of each class in the dataset's class hierarchy, nearest first; empty
            where there is none.
        warnings: Problems that were tolerated.
        files: Paths, within the root, of the files that annotate the objects: a single file, or one
            file per image.
        row: Name of a row in messages; `{row}` and `{image_id}` are filled in.
        box_field: Name of the box's field.
        root: The dataset's folder.
        embedded: For annotations that contain the images: yields row and file content of each such
            image, a few in memory at a time. `images.file` then gives the paths that `ingest`
            writes.
        image_root: The folder that `images.file` is relative to; the root by default.
        second: The second file that annotates objects, where there is one.
        unlabelled: Rows of the images that nobody annotated. Their content is unknown, which is
            not the same as an image without objects: `ingest` gives each a crowd as large as the
            image, of category `UNLABELLED`. By COCO's rule for crowds a detection within it is
            neither right nor wrong, and no object is missed there.
        attributes: Attributes of the images, such as the weather.

    Raises:
        DataError: a box is not finite or ends before it starts, or an image is named twice.
    """

    images: AnnotatedImages
    objects: AnnotatedObjects
    categories: list[str]
    parents: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    warnings: list[DataWarning] = dataclasses.field(default_factory=list)
    files: Sequence[str]
    row: str
    box_field: str
    root: Path
    embedded: Callable[[], Iterator[tuple[int, bytes]]] | None = None
    image_root: Path | None = None
    second: SecondFile | None = None
    unlabelled: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    attributes: list[ImageAttribute] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        box = self.objects.box
        is_finite = np.isfinite(box).all(axis=1)
        if not is_finite.all():
            raise self._box_error(int(np.argmin(is_finite)), "expected finite numbers, found")

        is_ordered = (box[:, :2] <= box[:, 2:]).all(axis=1)
        if not is_ordered.all():
            problem = "the size is negative: edges (xmin, ymin, xmax, ymax)"
            raise self._box_error(int(np.argmin(is_ordered)), problem)

    def error(self, index: int, problem: str) -> DataError:
        """An error about the box of an object."""
        file, row = self.location(index)
        return DataError(problem, file=self.root / file, row=row, field=self.box_field)

    def image_path(self, row: int) -> Path:
        """Path of an image's file."""
        return (self.image_root or self.root) / self.images.file[row]

    def location(self, index: int) -> tuple[str, str]:
        """File (within the root) and row of an object."""
        image = int(self.objects.image[index])
        row = self.row.replace("{row}", str(self.objects.row[index]))
        row = row.replace("{image_id}", self.images.image_id[image])
        if self.second is not None and index >= self.second.first_object:
            return self.second.file, row
        return self.file(image), row

    def file(self, image: int) -> str:
        """File (within the root) that annotates an image, by the image's row."""
        if len(self.files) > 1:
            return self.files[image]
        return self.files[0]

    def warning(self, index: int, kind: str, found: str, action: str) -> DataWarning:
        """A warning about the box of an object."""
        file, row = self.location(index)
        return DataWarning(kind, "object", file, row, self.box_field, found, action)

    def _box_error(self, index: int, problem: str) -> DataError:
        """An error that repeats the edges of an object's box."""
        edges = ", ".join(f"{edge:g}" for edge in self.objects.box[index])
        return self.error(index, f"{problem} {edges}; correct or delete the row")


class _ImageRow(NamedTuple):
    """An image that `Collector` holds; see `AnnotatedImages`."""

    file: str
    width: int
    height: int


class _ObjectRow(NamedTuple):
    """An object that `Collector` holds; see `AnnotatedObjects`."""

    image: int
    box: Edges
    category: int
    object_id: int
    row: int
    is_crowd: bool
    is_difficult: bool


_IMAGE_TYPES = {"file": object, "width": np.int64, "height": np.int64}
_OBJECT_TYPES = {
    "image": np.int64,
    "box": np.float64,
    "category": np.int64,
    "object_id": np.int64,
    "row": np.int64,
    "is_crowd": bool,
    "is_difficult": bool,
}


class Collector:
    """Gathers the images, the objects and the warnings of a subset one at a time.

    Attributes:
        rows: Row of each image by its id.
        warnings: Problems that were tolerated.
        attributes: See `Annotations`.
    """

    def __init__(self, root: Path):
        self.root = root
        self.attributes: list[ImageAttribute] = []
        self.rows: dict[str, int] = {}
        self.warnings: list[DataWarning] = []
        self._images: list[_ImageRow] = []
        self._files: list[str] = []
        self._objects: list[_ObjectRow] = []

    def add_image(
        self, image_id: str, file: str, location: Location, *, width: int = 0, height: int = 0
    ) -> int:
        """Adds an image and returns its row.

        Args:
            image_id, file, width, height: See `AnnotatedImages`.
            location: Where the annotations name it.

        Raises:
            DataError: another image has this id.
        """
        if image_id in self.rows:
            first_file = self._images[self.rows[image_id]].file
            raise location.error(
                f"image {image_id!r} occurs twice, first with the file {first_file}"
            )
        row = len(self._images)
        self.rows[image_id] = row
        self._images.append(_ImageRow(file, width, height))
        return row

    def warn(
        self, location: Location, kind: str, found: str, action: str, about: About = "dataset"
    ) -> None:
        """Adds a warning about the value at a location; for the others see `DataWarning`."""
        file = location.file.relative_to(self.root).as_posix()
        self.warnings.append(
            DataWarning(kind, about, file, location.row, location.field, found, action)
        )

    def warn_oriented(self, location: Location, count: int) -> None:
        """Adds a warning about oriented boxes, of which the upright boxes around them are read.

        Args:
            location: Of the first one.
            count: Number of the boxes.
        """
        self.warn(location, "oriented boxes", f"{count:,}", "read as the upright boxes around them")

    def warn_not_renamed(
        self, location: Location, names: Iterable[str], renamed: Mapping[str, str]
    ) -> None:
        """Adds a warning for each name in `renamed` that no class has.

        Args:
            location: Where the names of classes are.
            names: The names of the classes.
            renamed: New name by name.
        """
        for name in sorted(renamed.keys() - set(names)):
            self.warn(location, "no category to rename", f"none called {name!r}", "ignored")

    def annotated_by(self, path: Path) -> None:
        """Records the annotation file of the last image, for formats with one file per image."""
        self._files.append(path.relative_to(self.root).as_posix())

    @property
    def files(self) -> list[str]:
        """File of each image so far, within the root."""
        return [image.file for image in self._images]

    @property
    def object_count(self) -> int:
        """Number of objects so far."""
        return len(self._objects)

    def add_object(
        self,
        image: int,
        box: Edges,
        category: int,
        row: int,
        *,
        object_id: int | None = None,
        is_crowd: bool = False,
        is_difficult: bool = False,
    ) -> None:
        """Adds an object; see `AnnotatedObjects`.

        Objects are numbered in the order of adding unless the dataset numbers its objects.
        """
        if object_id is None:
            object_id = len(self._objects)
        self._objects.append(
            _ObjectRow(image, box, category, object_id, row, is_crowd, is_difficult)
        )

    def annotations(
        self, *, unit: Literal["pixel", "image"] = "pixel", **fields: Any
    ) -> Annotations:
        """The annotations with all images and objects so far.

        Args:
            unit: Unit of the boxes.
            fields: The other fields of `Annotations`.
        """
        image_columns = _columns(self._images, _IMAGE_TYPES)
        object_columns = _columns(self._objects, _OBJECT_TYPES)
        object_columns["box"] = object_columns["box"].reshape(-1, 4)
        fields.setdefault("files", self._files)
        return Annotations(
            images=AnnotatedImages(
                image_id=np.array(list(self.rows), dtype=object), **image_columns
            ),
            objects=AnnotatedObjects(**object_columns, unit=unit),
            root=self.root,
            warnings=self.warnings,
            attributes=self.attributes,
            **fields,
        )


def _columns(rows: Sequence[tuple[Any, ...]], types: dict[str, Any]) -> dict[str, np.ndarray]:
    """The columns of rows whose fields have the names and the order of `types`."""
    if not rows:
        return {name: np.array([], dtype=dtype) for name, dtype in types.items()}
    columns = {}
    for name, values in zip(types, zip(*rows, strict=True), strict=True):
        columns[name] = np.array(values, dtype=types[name])
    return columns


FORMATS: Registry[Reader] = Registry(
    "dataset format", "farther.datasets", listed_by="farther list datasets"
)
register = FORMATS.register


@dataclass(config=STRICT, kw_only=True)
class Reader(Parameters, ABC):
    """Reads the annotations of one dataset format.

    Args:
        root: The dataset's folder; all files are below it.
        missing_images: "error": an annotated image without a file is an error; "drop": it is
            dropped and listed. A missing folder of images is always an error.
        max_warnings: Share of images, or of objects, with a warning above which `ingest` fails.
        orientation: The pixels that boxes refer to where images have an EXIF orientation: those of
            the image as it is "displayed", or as it is "stored"; "auto" finds out.
        subset_names: Subsets to read. When empty, all that are present.
        combined: Subsets that consist of several others, which are then read in them only:
            `{trainval: [train, val]}`. Image ids are those of the others, after the other's name
            and a slash where two have the same.
        brightness: Whether to measure the brightness of each image (dark, medium or bright), by
            which results are divided. Images are decoded for it: 2 ms each.
    """

    REGISTRY: ClassVar[Registry[Any]] = FORMATS
    name: ClassVar[str]
    #: Where the dataset, or tools that write the format, are described.
    SOURCE: ClassVar[str]
    #: What `recognises` goes by; a format with more certain evidence is asked first.
    EVIDENCE: ClassVar[Evidence] = "annotations"
    #: Whether image files beside annotated ones that no annotations name are counted by `init`.
    COUNTS_UNLISTED: ClassVar[bool] = False
    #: Names of the subsets that the dataset is published with.
    ORIGINALS: ClassVar[tuple[str, ...]] = ()

    root: Path
    missing_images: Literal["error", "drop"] = "error"
    max_warnings: float = Field(default=0.05, ge=0, le=1)
    orientation: AnnotatedOn = "auto"
    subset_names: tuple[str, ...] = ()
    combined: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    brightness: bool = False

    @classmethod
    def recognises(cls, folder: Path) -> Recognised | None:
        """How to read a folder in this format; None for a folder in another one.

        `farther init` asks each class that has this method in its own body.

        Args:
            folder: A folder that exists.

        Raises:
            DataError: the folder is in this format, and a file in it is damaged or contradicts
                another one.
        """
        return None

    @abstractmethod
    def expects(self, subset: str) -> list[Expected]:
        """Files and folders that a subset is read from, present or not.

        A subset is present where the first of them exists.
        """

    def subsets(self) -> list[str]:
        """Names of the subsets: `subset_names`, else those `ORIGINALS` that are present.

        Raises:
            DataError: there is none.
        """
        if self.subset_names:
            return list(self.subset_names)
        return self._present(self.ORIGINALS)

    def absent_subsets(self) -> dict[str, str]:
        """Subsets that a description names and `subsets` leaves out because their files are absent.

        Returns:
            The file or folder within the root that is absent, by subset.
        """
        return {}

    def class_numbers(self, categories: Sequence[str]) -> dict[int, str]:
        """Number of a class in the dataset's files → its name; {} where classes have no numbers.

        Args:
            categories: Names of the classes, in the dataset's order.

        Raises:
            DataError: a file is damaged.
        """
        return {}

    @abstractmethod
    def read(self, subset: str) -> Annotations:
        """The annotations of one subset.

        Raises:
            DataError: a file is absent, damaged, or has content that the reader's description lists
                as an error.
        """

    def credits(self, subset: str) -> Iterator[tuple[str, Credit]]:
        """Image id and credit of the images of a subset whose credit is in the dataset's files.

        Raises:
            DataError: a file is damaged.
        """
        return iter(())

    def _present(self, names: Iterable[str]) -> list[str]:
        """The subsets whose annotations exist.

        Raises:
            DataError: there is none, or the annotations are a broken link.
        """
        self._check_root()
        present = []
        absent_paths: list[str] = []
        for subset in names:
            paths = self.expects(subset)[0].paths
            if any(is_present(find_file(inside(self.root, path))) for path in paths):
                present.append(subset)
            else:
                absent_paths.extend(paths)
        if not present:
            files = ", ".join(dict.fromkeys(absent_paths))
            raise DataError(f"no annotations found; looked for {files}", file=self.root)
        return present

    def _check_root(self) -> None:
        if not self.root.is_dir():
            raise DataError(
                "the folder does not exist; parameter 'root' says where the dataset is",
                file=self.root,
            )
        if not os.access(self.root, os.R_OK | os.X_OK):
            raise DataError("the folder cannot be read: permission denied", file=self.root)

    def _first_present(self, patterns: Sequence[str], subset: str, parameter: str) -> Path:
        """The first of several possible files that exists.

        Raises:
            DataError: none exists.
        """
        paths = [inside(self.root, fill(pattern, subset)) for pattern in patterns]
        for path in paths:
            file = find_file(path)
            if is_present(file):
                return file
        also = "".join(f" (nor does {path.name})" for path in paths[1:])
        raise DataError(
            f"the file does not exist{also}; parameter {parameter!r} says where it is",
            file=paths[0],
        )


def warn_of_unread_images(collector: Collector, folder: Path, files: Iterable[Path]) -> None:
    """Adds a warning where a folder has images in formats that are not read.

    Args:
        collector: Takes the warning.
        folder: The folder.
        files: Files below it.
    """
    unread = sorted(file for file in files if is_unread_image(file))
    if unread:
        example = f"{len(unread)} files, such as {shorten(unread[0].name)}: {why_unread(unread[0])}"
        collector.warn(Location(folder), UNREAD_IMAGES, example, "left out")


def no_images(folder: Path) -> DataError:
    """The error about a folder without images."""
    unread = sorted(file for file in files_below(folder) if is_unread_image(file))
    if unread:
        return DataError(f"no images that are read: {why_unread(unread[0])}", file=unread[0])
    return DataError(f"no images here; known extensions: {', '.join(IMAGES)}", file=folder)


def below(root: Path, name: str) -> Path:
    """Path of a file or folder below a root; "." is the root itself.

    Raises:
        DataError: the name leads out of the root.
    """
    return root if name == "." else inside(root, name)


def fill(pattern: str, subset: str) -> str:
    """`pattern` with the subset's name in place of `{subset}`."""
    return pattern.replace("{subset}", subset)


def fill_all(patterns: Sequence[str], subset: str) -> tuple[str, ...]:
    """Each pattern filled in."""
    return tuple(fill(pattern, subset) for pattern in patterns)


def image_file(root: Path, folder: str, name: str, location: Location) -> str:
    """Path of an image within the root, with forward slashes.

    Args:
        folder: The images' folder, within the root; "." for the root itself.
        name: The image's name in it, as the annotations give it.
        location: Where they give it.

    Raises:
        DataError: the name leads out of the folder.
    """
    try:
        path = path_inside(root / folder, name)
        if folder == ".":
            return path
        return f"{path_inside(root, folder)}/{path}"
    except DataError as error:
        raise location.error(error.problem) from None

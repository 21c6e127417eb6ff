"""Interface of the readers of dataset formats."""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.records import Location
from farther.errors import DataError
from farther.registry import STRICT, Registry
from farther.tables.files import inside, is_present

#: Edges of a box: xmin, ymin, xmax, ymax.
Edges = tuple[float, float, float, float]

#: What boxes refer to: the image as it is displayed (turned as its EXIF orientation says), or its
#: stored pixels; "auto": what the size of the image as annotated says, and the displayed image
#: where it does not tell.
AnnotatedOn = Literal["displayed", "stored", "auto"]

#: What a warning concerns: an image, an object, or a dataset as a whole.
About = Literal["image", "object", "dataset"]

#: Edges of a whole image's box, with `unit` "image": the object that an image's label describes.
WHOLE_IMAGE: Edges = (0.0, 0.0, 1.0, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class DataWarning:
    """A problem in the data that does not stop a run, and the action taken.

    Args:
        kind: The kind of problem, in a few words; warnings are counted by it.
        about: The image, object, or whole dataset that it concerns.
        file: Path within the dataset's root.
        row: A line (from 1) of a text file, `annotations[5]` (from 0) in JSON and XML; None for the
            whole file.
        field: Name of the field, None for the whole row.
        found, action: The value in the file, and what was done.
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
    """Licence, address of its text, author and origin of an image, "" where the dataset's files do not give them."""

    license: str = ""
    license_url: str = ""
    author: str = ""
    source_url: str = ""

    def __bool__(self) -> bool:
        return self != Credit()


@dataclasses.dataclass(frozen=True)
class AnnotatedImages:
    """Images as the annotations name them: columns of one length N.

    Args:
        image_id: The dataset's own id as text, unique. Object array of `str`.
        file: Path within the dataset's root, with forward slashes. Object array of `str`.
        width, height: Pixels as annotated, 0 where the annotations do not give it. int64.
    """

    image_id: np.ndarray
    file: np.ndarray
    width: np.ndarray
    height: np.ndarray

    def __len__(self) -> int:
        return len(self.image_id)


@dataclasses.dataclass(frozen=True)
class AnnotatedObjects:
    """Objects as annotated: columns of one length M.

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
    """One subset of a dataset as its annotations describe it. No image was opened yet.

    Args:
        images, objects: See there.
        categories: Names of the classes, in the dataset's order.
        parents: Ancestors of each class in the dataset's class hierarchy, nearest first; empty
            where there is none.
        warnings: Problems that were tolerated.
        files: Paths, within the root, of the files that annotate the objects: one, or one per
            image.
        row: Name of a row in messages; `{row}` and `{image_id}` are filled in.
        box_field: Name of the box's field.
        root: The dataset's folder.
        embedded: For annotations that contain the images: yields row and file content of each such
            image, a few in memory at a time. `images.file` then gives the paths that `ingest`
            writes.
        image_root: The folder that `images.file` is relative to; the root unless said otherwise.
        second: Place of the first object that a second file annotates, and that file within the
            root.
        unlabelled: Rows of the images that nobody annotated. What they show is not known, which is
            not the same as that they show nothing: `ingest` gives each a crowd as large as the
            image, of category `UNLABELLED`. By COCO's rule for crowds a detection within it is
            neither right nor wrong, and nothing is missed there.
        attributes: Image id, attribute and value of each attribute of images.

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
    second: tuple[int, str] | None = None
    unlabelled: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    attributes: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        box = self.objects.box
        for fits, problem in (
            (np.isfinite(box).all(axis=1), "expected finite numbers, found"),
            (
                (box[:, :2] <= box[:, 2:]).all(axis=1),
                "the size is negative: edges (xmin, ymin, xmax, ymax)",
            ),
        ):
            if not fits.all():
                index = int(np.argmin(fits))
                problem = f"{problem} {', '.join(f'{edge:g}' for edge in box[index])}; correct or delete the row"
                raise self.error(index, problem)

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
        row = self.row.replace("{row}", str(self.objects.row[index])).replace(
            "{image_id}", self.images.image_id[image]
        )
        return self.file(image) if self.second is None or index < self.second[0] else self.second[
            1
        ], row

    def file(self, image: int) -> str:
        """File (within the root) that annotates an image, by the image's row."""
        return self.files[image if len(self.files) > 1 else 0]

    def warning(self, index: int, kind: str, found: str, action: str) -> DataWarning:
        """A warning about the box of an object."""
        file, row = self.location(index)
        return DataWarning(kind, "object", file, row, self.box_field, found, action)


class Collector:
    """Gathers the images and objects of a subset one at a time, and what was tolerated.

    Attributes:
        rows: Row of each image by its id.
        warnings: Problems that were tolerated.
        attributes: See `Annotations`.
    """

    def __init__(self, root: Path):
        self.root = root
        self.attributes: list[tuple[str, str, str]] = []
        self.rows: dict[str, int] = {}
        self.warnings: list[DataWarning] = []
        self._images: list[tuple[Any, ...]] = []
        self._files: list[str] = []
        self._objects: list[tuple[Any, ...]] = []

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
        row = self.rows.setdefault(image_id, len(self._images))
        if row < len(self._images):
            raise location.error(
                f"image {image_id!r} occurs twice, first with the file {self._images[row][0]}"
            )
        self._images.append((file, width, height))
        return row

    def warn(
        self, location: Location, kind: str, found: str, action: str, about: About = "dataset"
    ) -> None:
        """Adds a warning; `location` is where the problem is, for the others see `DataWarning`."""
        file = location.file.relative_to(self.root).as_posix()
        self.warnings.append(
            DataWarning(kind, about, file, location.row, location.field, found, action)
        )

    def warn_not_renamed(
        self, location: Location, names: Iterable[str], renamed: Mapping[str, str]
    ) -> None:
        """Adds a warning for each name that `renamed` gives another one and that no class has.

        Args:
            location: Where the names of classes are.
            names: These names.
            renamed: Other names for some.
        """
        for name in sorted(renamed.keys() - set(names)):
            self.warn(location, "no category to rename", f"none called {name!r}", "ignored")

    def annotated_by(self, path: Path) -> None:
        """Records the file that annotates the image added last, where each image has its own file."""
        self._files.append(path.relative_to(self.root).as_posix())

    @property
    def files(self) -> list[str]:
        """File of each image so far, within the root."""
        return [image[0] for image in self._images]

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
        """Adds an object; numbered in the order of adding unless the dataset numbers its objects."""
        number = len(self._objects) if object_id is None else object_id
        self._objects.append((image, box, category, number, row, is_crowd, is_difficult))

    def annotations(
        self, *, unit: Literal["pixel", "image"] = "pixel", **others: Any
    ) -> Annotations:
        """All images and objects so far; `unit` is that of the boxes, for the other fields see `Annotations`."""
        images, objects = _columns(_IMAGE, self._images), _columns(_OBJECT, self._objects)
        objects["box"] = objects["box"].reshape(-1, 4)
        return Annotations(
            images=AnnotatedImages(image_id=np.array(list(self.rows), dtype=object), **images),
            objects=AnnotatedObjects(**objects, unit=unit),
            root=self.root,
            warnings=self.warnings,
            attributes=self.attributes,
            **{"files": self._files, **others},
        )


#: Types of the columns that `Collector` gathers.
_IMAGE = {"file": object, "width": np.int64, "height": np.int64}
_OBJECT = {
    **{
        "image": np.int64,
        "box": np.float64,
        "category": np.int64,
        "object_id": np.int64,
        "row": np.int64,
    },
    **{"is_crowd": bool, "is_difficult": bool},
}


def _columns(types: dict[str, Any], rows: list[tuple[Any, ...]]) -> dict[str, np.ndarray]:
    """The columns of rows whose fields have the order of `types`."""
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return {
        name: np.array(column, dtype=types[name])
        for name, column in zip(types, columns, strict=True)
    }


FORMATS: Registry[Reader] = Registry("dataset format", "farther.datasets")
register = FORMATS.register


@dataclass(config=STRICT, kw_only=True)
class Reader(ABC):
    """Reads the annotations of one dataset format.

    Args:
        root: The dataset's folder; all files are below it.
        missing_images: "error": an annotated image without a file is an error; "drop": it is
            dropped and listed.
        max_warnings: Share of images, or of objects, with a warning above which `ingest` fails.
        orientation: What boxes refer to where images have an EXIF orientation; see `AnnotatedOn`.
        subset_names: Subsets to read. When empty, all that are present.
    """

    REGISTRY: ClassVar[Registry[Any]] = FORMATS
    #: Where the dataset, or tools that write the format, are described.
    SOURCE: ClassVar[str]
    #: Names of the subsets that the dataset is published with.
    ORIGINALS: ClassVar[tuple[str, ...]] = ()

    root: Path
    missing_images: Literal["error", "drop"] = "error"
    max_warnings: float = Field(default=0.05, ge=0, le=1)
    orientation: AnnotatedOn = "auto"
    subset_names: tuple[str, ...] = ()

    @abstractmethod
    def expects(self, subset: str) -> list[Expected]:
        """Files and folders that a subset is read from, present or not; the first one tells whether it is there."""

    def subsets(self) -> list[str]:
        """Names of the subsets that can be read: `subset_names`, else the `ORIGINALS` that are present.

        Raises:
            DataError: there is none.
        """
        return list(self.subset_names) or self._present(self.ORIGINALS)

    def absent_subsets(self) -> dict[str, str]:
        """Subsets that a description names, and `subsets` leaves out because their files are not there.

        Returns:
            The file or folder within the root that is absent, by subset.
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
        """Licence and author of a subset's images by image id, as far as the dataset's files contain them.

        Raises:
            DataError: a file is damaged.
        """
        return iter(())

    def _present(self, names: Iterable[str]) -> list[str]:
        """Those of some subsets whose annotations are there; DataError where they are a broken link."""
        self._check_root()
        looked = {subset: self.expects(subset)[0].paths for subset in names}
        present = []
        for name, paths in looked.items():
            if any(is_present(inside(self.root, path)) for path in paths):
                present.append(name)
        if not present:
            files = ", ".join(dict.fromkeys(path for paths in looked.values() for path in paths))
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
        """The first of several possible files that exists; an error when there is none."""
        paths = [inside(self.root, fill(pattern, subset)) for pattern in patterns]
        for path in paths:
            if is_present(path):
                return path
        also = "".join(f" (nor does {path.name})" for path in paths[1:])
        raise DataError(
            f"the file does not exist{also}; parameter {parameter!r} says where it is",
            file=paths[0],
        )


def names() -> list[str]:
    """Names of the formats that can be read."""
    return FORMATS.names()


def create(format: str = "", **params: Any) -> Reader:
    """A reader of a dataset.

    Args:
        format: One of `names()`. Leaving it out is an error that lists them.
        params: `root` and the format's own parameters.

    Raises:
        ParameterError: the name or a parameter is unknown, or a value does not fit.
    """
    return FORMATS.create(format, **params)


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
        return inside(below(root, folder), name).relative_to(root).as_posix()
    except DataError as error:
        raise location.error(error.problem) from None

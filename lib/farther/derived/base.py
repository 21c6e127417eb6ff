"""Kinds of derived datasets, their source images, and the COCO files that they are written to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from PIL import Image
from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass as checked

from farther.curation import LabelledImages, Rules, TablesFolder, select_id_classes
from farther.datasets.coco_writer import write_coco
from farther.errors import DataError, shorten
from farther.images.read import MAX_PIXELS, load
from farther.naming.registry import STRICT, Parameters, Registry, build
from farther.tables import Objects
from farther.tables.documents import write_json
from farther.tables.files import inside

#: Largest number of characters of a line about a file that cannot be read.
LINE = 400
#: Number of files that cannot be read that an error lists.
LISTED_FAILURES = 5
#: Largest side of a JPEG in pixels, by libjpeg.
JPEG_SIDE = 65_500

Share = Annotated[float, Field(ge=0, le=1)]


@checked(config=STRICT, kw_only=True)
class SceneSelection(Parameters):
    """The images that a dataset is derived from.

    Args:
        dataset, subset: Dataset and subset of the images.
        most: Largest number of images, selected as by a benchmark's `most`; all when None.
        rules: A class mapping: only images of its ID classes, labelled by their names.
        vocabulary: Key of the dataset's names in the class mapping; by default the dataset's name.
    """

    dataset: str
    subset: str
    most: PositiveInt | None = None
    rules: Path | None = None
    vocabulary: str | None = None

    def read(self, tables: TablesFolder) -> tuple[LabelledImages, tuple[str, ...]]:
        """The images and the categories of their objects.

        Raises:
            ParameterError: a dataset, subset or vocabulary is unknown.
            DataError: a table or the class mapping is damaged.
        """
        images = tables.source(self.dataset, self.subset)
        categories = tables.categories(self.dataset)
        if self.rules is None:
            return images.at_most(self.most), categories.names
        rules = Rules(self.rules)
        rule_by_category = rules.by_category(self.vocabulary or self.dataset, categories)
        images = select_id_classes(images, rule_by_category)
        return images.at_most(self.most), rules.id_classes


@dataclass(frozen=True)
class Scenes:
    """The images that a dataset is derived from.

    Args:
        source: The selected images and their objects.
        root: Folder of the image files.
        categories: The dataset's categories.

    Raises:
        DataError: an object is of no category.
    """

    source: LabelledImages
    root: Path
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        unknown = set(self.source.objects.category) - set(self.categories)
        if unknown:
            problem = f"{shorten(min(unknown))} is not a category of the dataset, or no ID class"
            raise DataError(problem, file=self.source.name, field="category")

    def __len__(self) -> int:
        return len(self.source.images)

    def objects(self, row: int) -> Objects:
        """The objects of the image of a row."""
        return self.source.objects[self._object_rows[row]]

    @cached_property
    def _object_rows(self) -> list[np.ndarray]:
        """Rows of the objects of each image."""
        image_row = self.source.image_row
        order = np.argsort(image_row, kind="stable")
        starts = np.searchsorted(image_row[order], np.arange(1, len(self)))
        return np.split(order, starts)

    def file(self, row: int) -> Path:
        """The file of the image of a row.

        Raises:
            DataError: it is outside of the folder.
        """
        return inside(self.root, self.source.images.file[row])

    def pixels(self, row: int, max_pixels: int = MAX_PIXELS) -> np.ndarray:
        """The image of a row, uint8 of shape (height, width, 3).

        Args:
            row: The row.
            max_pixels: See `farther.images.read.load`.

        Raises:
            DataError: the file cannot be read.
        """
        return load(self.file(row), max_pixels)


@checked(config=STRICT, kw_only=True)
class Derived(Parameters, ABC):
    """A dataset derived from images of an ID dataset.

    Args:
        images: The images to start from.
        seed: Seed of all random choices.
        file_type: "jpeg", or "png" for images without further loss.
        quality: Quality of JPEG files, 1 to 100.
        max_failures: Share of the files that may be unreadable before it is an error.
        max_pixels: Images with more are not decoded, and count as unreadable.
    """

    images: SceneSelection
    seed: NonNegativeInt = 0
    file_type: Literal["jpeg", "png"] = "jpeg"
    quality: Annotated[int, Field(ge=1, le=100)] = 95
    max_failures: Share = 0.01
    max_pixels: PositiveInt = MAX_PIXELS

    @classmethod
    def parts(cls) -> dict[str, type]:
        """The parameters that have parameters themselves, and their classes."""
        return {"images": SceneSelection}

    @abstractmethod
    def write(self, scenes: Scenes, out: Path) -> dict[str, Any]:
        """Writes the dataset in COCO's format and returns counts.

        Args:
            scenes: The images that `images` names.
            out: Folder to write, aside first and then renamed:
                `annotations/instances_<subset>.json`, the files of each subset in `<subset>/`, a
                CSV file with the origin of each image, and `summary.json`.

        Raises:
            DataError: too many files cannot be read, or no image is left.
        """

    def save(self, pixels: np.ndarray, path: Path) -> None:
        """Writes one image.

        Raises:
            DataError: it is larger than the type of file supports.
        """
        image = Image.fromarray(pixels)
        if self.file_type == "png":
            image.save(path)
            return
        if max(image.size) > JPEG_SIDE:
            raise DataError(
                f"{image.width} × {image.height} pixels: a JPEG has at most {JPEG_SIDE:,} a side; "
                "write file_type: png",
                file=path.name,
            )
        image.save(path, quality=self.quality)

    def finish(
        self, folder: Path, counts: dict[str, Any], failures: list[dict[str, str]], attempts: int
    ) -> dict[str, Any]:
        """Writes `summary.json` and returns the counts in it.

        Args:
            folder: The dataset's folder.
            counts: Numbers of images, objects, …
            failures: `name` and `reason` of each file that cannot be read.
            attempts: Number of files.

        Raises:
            DataError: more than `max_failures` of the files cannot be read; names the first five.
        """
        if len(failures) > self.max_failures * attempts:
            lines = [
                f"  {failure['name']}: {failure['reason']}"[:LINE]
                for failure in failures[:LISTED_FAILURES]
            ]
            raise DataError(
                f"{len(failures)} of {attempts} files cannot be read, more than max_failures = "
                f"{self.max_failures:g} allows. Fix them, or raise it. The first:\n"
                + "\n".join(lines),
                file=f"{self.images.dataset}/{self.images.subset}",
            )
        counts = {**counts, "failures": len(failures)}
        write_json(folder / "summary.json", {**counts, "failed": failures})
        return counts

    @property
    def suffix(self) -> str:
        """Ending of the image files, with the dot."""
        if self.file_type == "jpeg":
            return ".jpg"
        return ".png"


KINDS: Registry[Derived] = Registry("kind of derived dataset", "farther.derived", "KINDS.register")


def derived(kind: str, name: str, params: Mapping[str, Any]) -> Derived:
    """The entry `derived.<kind>.<name>` of params.yaml, checked.

    Raises:
        ParameterError: the kind or a parameter is unknown, or a value does not fit.
    """
    cls = KINDS.get(kind)
    title = f"derived {name!r}"
    values = dict(params)
    for parameter, parameter_class in cls.parts().items():
        if isinstance(values.get(parameter), Mapping):
            nested = dict(values[parameter])
            values[parameter] = build(parameter_class, f"{title}: {parameter}", nested)
    return build(cls, title, values)


class CocoFile:
    """The annotations of one subset, collected image by image."""

    def __init__(self, categories: tuple[str, ...], description: str):
        self._id_by_category = {name: id_ for id_, name in enumerate(categories, start=1)}
        self._description = description
        self.images: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []

    def add_image(self, image_id: str, file: str, width: int, height: int) -> None:
        """Adds an image."""
        self.images.append({"id": image_id, "file_name": file, "width": width, "height": height})

    def add_object(
        self, image_id: str, category: str, box: np.ndarray, area: float, **flags: int
    ) -> int:
        """Adds an object of an image, and returns its id.

        Args:
            image_id: The image's id.
            category: Name of the object's category.
            box: Edges xmin, ymin, xmax, ymax, shape (4,).
            area: Area in pixels.
            flags: Further fields, such as `iscrowd`.
        """
        left, top, right, bottom = box.tolist()
        object_id = len(self.annotations) + 1
        annotation = {
            "id": object_id,
            "image_id": image_id,
            "category_id": self._id_by_category[category],
            "bbox": [left, top, right - left, bottom - top],
            "area": area,
            "iscrowd": 0,
            **flags,
        }
        self.annotations.append(annotation)
        return object_id

    def add_objects(self, objects: Objects, boxes: np.ndarray | None = None) -> None:
        """Adds objects of the ID dataset.

        Args:
            objects: N objects.
            boxes: New boxes of the objects, shape (N, 4); None where they do not change.
        """
        if boxes is None:
            boxes = objects.box
        for row, box in enumerate(boxes):
            left, top, right, bottom = box
            self.add_object(
                objects.image_id[row],
                objects.category[row],
                box,
                float((right - left) * (bottom - top)),
                iscrowd=int(objects.is_crowd[row]),
                is_difficult=int(objects.is_difficult[row]),
            )

    def write(self, folder: Path, subset: str) -> None:
        """Writes `annotations/instances_<subset>.json`."""
        categories = [{"id": id_, "name": name} for name, id_ in self._id_by_category.items()]
        write_coco(
            folder / "annotations" / f"instances_{subset}.json",
            {"description": self._description},
            licenses=[],
            categories=categories,
            images=self.images,
            annotations=self.annotations,
        )

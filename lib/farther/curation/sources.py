"""The ingested tables that a benchmark draws its images from."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError, ParameterError
from farther.tables import ImageAttributes, Images, Objects
from farther.tables.arguments import booleans, instance, texts, whole_number
from farther.tables.files import digest, inside, is_file
from farther.tables.folders import listed
from farther.tables.schema import read_typed
from farther.tables.stored import ATTRIBUTES, DatasetCategories


@dataclass(frozen=True)
class Categories:
    """The categories of a dataset and the ancestors of each in its class hierarchy.

    Args:
        names: The categories, in the dataset's order.
        parents: Category → its ancestors, wholes of which it is a part included; {} without a
            hierarchy.
    """

    names: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(texts(self.names, "names").tolist()))
        parents = {}
        for name, ancestors in instance(self.parents, Mapping, "parents").items():
            parents[name] = tuple(texts(ancestors, f"parents.{name}").tolist())
        object.__setattr__(self, "parents", parents)

    def above(self, name: str) -> tuple[str, ...]:
        """The ancestors of a category."""
        return self.parents.get(name, ())

    def nearest_above(self, name: str, among: Container[str]) -> list[str]:
        """The lowest ancestors of a category among some names, which are in lower case."""
        ancestors = [ancestor for ancestor in self.above(name) if ancestor.casefold() in among]
        lowest = [name for name in ancestors if not self._is_above_another(name, ancestors)]
        return lowest or ancestors  # classes in a circle have no lowest one

    def _is_above_another(self, name: str, names: Sequence[str]) -> bool:
        return any(other != name and name in self.above(other) for other in names)

    def all(self) -> set[str]:
        """The categories and all their ancestors."""
        return set(self.names).union(*self.parents.values())


class LabelledImages:
    """The images and objects of one subset of a dataset.

    Args:
        images: The images.
        objects: Their objects.
        name: Its name in messages.
        attributes: Attributes of the images, such as the weather; none by default.

    Attributes:
        image_row: ndarray of shape (number of objects,): the row of the image that shows each
            object.

    Raises:
        DataError: the image of an object is not in `images`; names the row. Or a table is of
            another class.
    """

    def __init__(
        self,
        images: Images,
        objects: Objects,
        name: str | Path = "objects",
        attributes: ImageAttributes | None = None,
    ):
        self.attributes = attributes if attributes is not None else ImageAttributes.empty()
        self.images = instance(images, Images, "images")
        self.objects = instance(objects, Objects, "objects")
        self.name = name
        row_by_image = images.frame.select("image_id", row=pl.int_range(pl.len(), dtype=pl.Int64))
        joined = objects.frame.select("image_id").join(
            row_by_image, on="image_id", how="left", maintain_order="left"
        )
        image_rows = joined["row"]
        if image_rows.null_count():
            row = int(image_rows.is_null().arg_max() or 0)
            problem = f"{objects.frame['image_id'][row]!r} is not in the images table"
            raise DataError(problem, file=name, row=row, field="image_id")
        self.image_row = image_rows.to_numpy()

    def shows(self, objects: np.ndarray) -> np.ndarray:
        """Whether each image shows a selected object.

        Args:
            objects: Mask of shape (number of objects,).

        Returns:
            ndarray of shape (number of images,), bool.

        Raises:
            DataError: it is no such mask.
        """
        objects = booleans(objects, "objects", shape=(len(self.objects),))
        return np.bincount(self.image_row[objects], minlength=len(self.images)) > 0

    def select(self, rows: np.ndarray) -> LabelledImages:
        """The images of a mask of shape (number of images,), with their objects, in their order.

        Raises:
            DataError: it is no such mask.
        """
        rows = booleans(rows, "rows", shape=(len(self.images),))
        images = self.images[rows]
        is_of_images = self.attributes.frame["image_id"].is_in(images.image_id.tolist())
        return LabelledImages(
            images,
            self.objects[rows[self.image_row]],
            self.name,
            self.attributes[is_of_images.to_numpy()],
        )

    def with_objects(self, objects: Objects) -> LabelledImages:
        """The same images with other objects."""
        return LabelledImages(self.images, objects, self.name, self.attributes)

    def at_most(self, count: int | None) -> LabelledImages:
        """At most `count` images (None: all): those whose names have the smallest digests.

        The images keep their order.

        Raises:
            ParameterError: `count` is not a whole number from 0 on.
        """
        if count is not None:
            count = whole_number(count, "count", at_least=0)
        if count is None or count >= len(self.images):
            return self
        image_ids = smallest_by_digest(self.images.image_id, count)
        return self.select(self.images.frame["image_id"].is_in(image_ids).to_numpy())


def smallest_by_digest(image_ids: Iterable[str], count: int) -> list[str]:
    """At most `count` names, those with the smallest digests, in their order.

    Any subset of the names that contains them gives the same selection.
    """
    names = list(image_ids)
    selected = set(heapq.nsmallest(count, names, key=digest))
    return [name for name in names if name in selected]


class TablesFolder:
    """The folder that `ingest` writes.

    Args:
        path: The folder. It contains `<dataset>/categories.json`, and `images.parquet` and
            `objects.parquet` in `<dataset>/<subset>/`.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def source(self, dataset: str, subset: str) -> LabelledImages:
        """Images and objects of a subset of a dataset.

        Raises:
            ParameterError: there is no such dataset or subset; the message lists the existing ones.
            DataError: a table is damaged.
        """
        dataset_folder = _existing(self.path, dataset, "dataset")
        folder = _existing(dataset_folder, subset, f"subset of {dataset!r}")
        images = Images.read(folder / "images.parquet")
        objects_file = folder / "objects.parquet"
        attributes = None
        if is_file(folder / ATTRIBUTES):
            attributes = ImageAttributes.read(folder / ATTRIBUTES)
        return LabelledImages(images, Objects.read(objects_file), objects_file, attributes)

    def categories(self, dataset: str) -> Categories:
        """The categories of a dataset.

        Raises:
            ParameterError: there is no such dataset.
            DataError: `categories.json` is absent or has another form.
        """
        file = _existing(self.path, dataset, "dataset") / "categories.json"
        content = read_typed(DatasetCategories, file)
        parents = {name: tuple(ancestors) for name, ancestors in content.parents.items()}
        return Categories(tuple(content.categories), parents)


def _existing(folder: Path, name: str, kind: str) -> Path:
    """The folder of a dataset or subset; ParameterError, with the known names, if it is absent."""
    path = inside(folder, name)
    if path.is_dir():
        return path
    names = [entry.name for entry in listed(folder, "*") if entry.is_dir()]
    known = ", ".join(names) or f"none, {folder} does not contain a folder"
    raise ParameterError(f"no {kind} is called {name!r}. Known: {known}")

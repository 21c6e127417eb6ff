"""The ingested tables that a benchmark draws its images from."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError, ParameterError
from farther.tables import Images, Objects
from farther.tables.files import digest, inside
from farther.tables.folders import listed
from farther.tables.schema import read_typed
from farther.tables.stored import DatasetCategories


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

    def above(self, name: str) -> tuple[str, ...]:
        """The ancestors of a category."""
        return self.parents.get(name, ())

    def nearest_above(self, name: str, among: Container[str]) -> list[str]:
        """The ancestors of a category that are `among` some names (in lower case), the lowest of them only."""
        found = [above for above in self.above(name) if above.casefold() in among]
        return [a for a in found if not any(a in self.above(b) for b in found if b != a)] or found

    def all(self) -> set[str]:
        """The categories and all their ancestors."""
        return set(self.names).union(*self.parents.values())


class LabelledImages:
    """The images and objects of one subset of a dataset.

    Args:
        images: The images.
        objects: Their objects.
        name: Its name in messages.

    Attributes:
        image_row: ndarray of shape (number of objects,): the row of the image that shows each
            object.

    Raises:
        DataError: the image of an object is not in `images`; names the row.
    """

    def __init__(self, images: Images, objects: Objects, name: str | Path = "objects"):
        self.images = images
        self.objects = objects
        self.name = name
        row_of = images.frame.select("image_id", row=pl.int_range(pl.len(), dtype=pl.Int64))
        rows = objects.frame.select("image_id").join(
            row_of, on="image_id", how="left", maintain_order="left"
        )["row"]
        if rows.null_count():
            row = int(rows.is_null().arg_max() or 0)
            problem = f"{objects.frame['image_id'][row]!r} is not in the images table"
            raise DataError(problem, file=name, row=row, field="image_id")
        self.image_row = rows.to_numpy()

    def shows(self, objects: np.ndarray) -> np.ndarray:
        """Whether each image shows one of the objects that a mask of shape (number of objects,) selects, bool."""
        return np.bincount(self.image_row[objects], minlength=len(self.images)) > 0

    def select(self, rows: np.ndarray) -> LabelledImages:
        """The images that a mask of shape (number of images,) selects, with their objects, in their order."""
        return LabelledImages(self.images[rows], self.objects[rows[self.image_row]], self.name)

    def at_most(self, count: int | None) -> LabelledImages:
        """At most `count` images (None: all), those whose names have the smallest digests, in their order."""
        if count is None or count >= len(self.images):
            return self
        return self.select(
            self.images.frame["image_id"].is_in(smallest(self.images.image_id, count)).to_numpy()
        )


def smallest(image_ids: Iterable[str], count: int) -> list[str]:
    """At most `count` names, those with the smallest digests, in their order.

    The same are selected from any part of the names that holds them.
    """
    names = list(image_ids)
    chosen = set(heapq.nsmallest(count, names, key=digest))
    return [name for name in names if name in chosen]


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
        folder = _known(_known(self.path, dataset, "dataset"), subset, f"subset of {dataset!r}")
        objects = folder / "objects.parquet"
        return LabelledImages(
            Images.read(folder / "images.parquet"), Objects.read(objects), objects
        )

    def categories(self, dataset: str) -> Categories:
        """The categories of a dataset.

        Raises:
            ParameterError: there is no such dataset.
            DataError: `categories.json` is absent or has another form.
        """
        content = read_typed(
            DatasetCategories, _known(self.path, dataset, "dataset") / "categories.json"
        )
        return Categories(
            tuple(content.categories),
            {name: tuple(above) for name, above in content.parents.items()},
        )


def _known(folder: Path, name: str, what: str) -> Path:
    path = inside(folder, name)
    if not path.is_dir():
        known = (
            ", ".join(path.name for path in listed(folder, "*") if path.is_dir())
            or f"none, {folder} does not contain a folder"
        )
        raise ParameterError(f"no {what} is called {name!r}. Known: {known}")
    return path

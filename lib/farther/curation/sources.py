"""The ingested tables that a benchmark draws its images from."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from farther.errors import DataError, ParameterError
from farther.tables import Images, Objects
from farther.tables.files import digest, inside, read_json


@dataclass(frozen=True)
class Categories:
    """The categories of a dataset and what lies above each in its class hierarchy.

    Args:
        names: The categories, in the dataset's order.
        parents: Category → all that lies above it, wholes of which it is a part included; {} without a hierarchy.
    """

    names: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def above(self, name: str) -> tuple[str, ...]:
        """All that lies above a category, () where nothing does."""
        return self.parents.get(name, ())

    def nearest_above(self, name: str, among: Container[str]) -> list[str]:
        """What lies above a category and is `among` the names asked for (in lower case), the lowest of them only."""
        found = [above for above in self.above(name) if above.casefold() in among]
        return [a for a in found if not any(a in self.above(b) for b in found if b != a)] or found

    def all(self) -> set[str]:
        """The categories and all that lies above one."""
        return set(self.names).union(*self.parents.values())


class LabelledImages:
    """The images and objects of one subset of a dataset.

    Args:
        images: The images.
        objects: Their objects.
        name: What messages call it.

    Attributes:
        image_row: ndarray of shape (number of objects,): the row of the image that shows each object.

    Raises:
        DataError: an object stands for an image that is not in `images`; names the row.
    """

    def __init__(self, images: Images, objects: Objects, name: str | Path = "objects"):
        self.images = images
        self.objects = objects
        row_of = images.frame.select("image_id", row=pl.int_range(pl.len(), dtype=pl.Int64))
        rows = objects.frame.select("image_id").join(row_of, on="image_id", how="left", maintain_order="left")["row"]
        if rows.null_count():
            row = int(rows.is_null().arg_max() or 0)
            problem = f"{objects.frame['image_id'][row]!r} is not in the images table"
            raise DataError(problem, file=name, row=row, field="image_id")
        self.image_row = rows.to_numpy()

    def select(self, rows: np.ndarray) -> LabelledImages:
        """The images that a mask of shape (number of images,) selects, with their objects, in their order."""
        return LabelledImages(self.images[rows], self.objects[rows[self.image_row]])

    def at_most(self, count: int | None) -> LabelledImages:
        """At most `count` images, those whose names have the smallest digests, in their order; all when None."""
        if count is None or count >= len(self.images):
            return self
        digests = pl.Series([digest(image_id) for image_id in self.images.image_id])
        return self.select((digests.rank("ordinal") <= count).to_numpy())


class Tables(Protocol):
    """Where `curate` gets its tables from."""

    def source(self, dataset: str, subset: str) -> LabelledImages:
        """Images and objects of a subset of a dataset."""

    def categories(self, dataset: str) -> Categories:
        """The categories of a dataset."""


class TablesFolder:
    """The folder that `ingest` writes.

    Args:
        path: The folder. It holds `<dataset>/categories.json`, and `images.parquet` and `objects.parquet` in
            `<dataset>/<subset>/`.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def source(self, dataset: str, subset: str) -> LabelledImages:
        """Images and objects of a subset of a dataset.

        Raises:
            ParameterError: there is no such dataset or subset; the message lists those there are.
            DataError: a table is damaged.
        """
        folder = _known(self._dataset(dataset), subset, f"subset of {dataset!r}")
        objects = folder / "objects.parquet"
        return LabelledImages(Images.read(folder / "images.parquet"), Objects.read(objects), objects)

    def categories(self, dataset: str) -> Categories:
        """The categories of a dataset.

        Raises:
            ParameterError: there is no such dataset.
            DataError: `categories.json` is absent or has another form.
        """
        file = self._dataset(dataset) / "categories.json"
        content = read_json(file)
        if not isinstance(content, dict) or not _is_words(content.get("categories")):
            raise DataError("expected a list of names", file=file, field="categories")
        parents = content.get("parents", {})
        if not isinstance(parents, dict) or not all(_is_words(above) for above in parents.values()):
            raise DataError("expected, for a category, the list of what lies above it", file=file, field="parents")
        return Categories(tuple(content["categories"]), {name: tuple(above) for name, above in parents.items()})

    def _dataset(self, dataset: str) -> Path:
        return _known(self.path, dataset, "dataset")


def _is_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _known(folder: Path, name: str, what: str) -> Path:
    path = inside(folder, name)
    if not path.is_dir():
        known = ", ".join(_folders(folder)) or f"none, {folder} holds no folder"
        raise ParameterError(f"no {what} is called {name!r}. Known: {known}")
    return path


def _folders(folder: Path) -> Iterable[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else ()

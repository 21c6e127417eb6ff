"""Detections in the order in which they were read, as plain columns on disk, to be picked from in another order."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from farther.detectors.imported.base import Imported, Placed, Source
from farther.errors import DataError
from farther.tables import Header, Regions
from farther.tables.writing import delete_work


class Spool:
    """Rows of all sources. The names of the images and one number per row are in memory; the rest is mapped from files.

    Args:
        columns: Columns of the regions table but `image_id` and `region_id`, N rows each.
        image: Row of `names`, ndarray of shape (N,), int32.
        names: Source and name of each image, in the order of their first row.
    """

    def __init__(self, columns: dict[str, np.ndarray], image: np.ndarray, names: list[tuple[Source, str]]):
        self.columns = columns
        self.image = image
        self.names = names

    def __len__(self) -> int:
        return len(self.image)

    def take(self, rows: np.ndarray, image_id: np.ndarray, region_id: np.ndarray, header: Header) -> Regions:
        """These rows under these names."""
        picked = {name: np.asarray(values[rows]) for name, values in self.columns.items()}
        return Regions(header=header, image_id=image_id, region_id=region_id, **picked)


@contextmanager
def spooled(adapter: Imported, header: Header, folder: Path) -> Iterator[Spool]:
    """All detections of an adapter, in a folder that is deleted afterwards, as is the rest of a killed run.

    Raises:
        DataError: a row is wrong, or two sources differ in their columns; names file, row and field.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with ExitStack() as files:
            filled = _Filling(folder, files)
            for source in adapter.sources():
                filled.add_images(source)
                for placed in adapter.batches(source):
                    filled.add(source, placed, adapter.score_threshold)
        yield filled.spool(header)
    finally:
        delete_work(folder)


class _Filling:
    """A spool that is being filled."""

    def __init__(self, folder: Path, files: ExitStack):
        self._folder = folder
        self._open = files
        self._files: dict[str, IO[bytes]] = {}
        self._shapes: dict[str, tuple[np.dtype[Any], int]] | None = None
        self._rows: dict[tuple[str, str], int] = {}
        self._names: list[tuple[Source, str]] = []
        self._count = 0

    def add_images(self, source: Source) -> None:
        """Images that a source knows whether it has detections of them or not."""
        for number in range(len(source.image_files or ())):
            self._row(source, str(number))

    def add(self, source: Source, placed: Placed, threshold: float) -> None:
        """Rows that reach the threshold."""
        shapes = _shapes(placed.regions)
        if self._shapes is None:
            self._shapes = shapes
            self._files = {
                name: self._open.enter_context((self._folder / name).open("wb")) for name in [*shapes, "image"]
            }
        self._refuse_others(shapes, placed)
        regions = placed.regions.above(threshold)
        for name, (dtype, _) in self._shapes.items():
            self._files[name].write(np.ascontiguousarray(getattr(regions, name), dtype).tobytes())
        rows = [self._row(source, name) for name in regions.image_id]
        self._files["image"].write(np.array(rows, np.int32).tobytes())
        self._count += len(regions)

    def spool(self, header: Header) -> Spool:
        """The finished spool; all files must be closed."""
        if self._shapes is None or not self._count:
            empty = Regions.empty(header).columns()
            kept = {name: values for name, values in empty.items() if name not in ("image_id", "region_id", "logits")}
            return Spool(kept, np.zeros(0, np.int32), self._names)
        columns = {name: self._mapped(name, *shape) for name, shape in self._shapes.items()}
        return Spool(columns, np.fromfile(self._folder / "image", np.int32), self._names)

    def _mapped(self, name: str, dtype: np.dtype[Any], width: int) -> np.ndarray:
        shape = (self._count, width) if width else (self._count,)
        return np.memmap(self._folder / name, dtype, "r", shape=shape)

    def _row(self, source: Source, name: str) -> int:
        row = self._rows.setdefault((source.name, name), len(self._names))
        if row == len(self._names):
            self._names.append((source, name))
        return row

    def _refuse_others(self, shapes: dict[str, tuple[np.dtype[Any], int]], placed: Placed) -> None:
        expected = self._shapes or {}
        for name in [*expected, *shapes]:
            if name not in shapes or name not in expected:
                which = "rows before have it" if name in expected else "rows before do not have it"
                raise placed.place.error(DataError(f"all rows or none must have it, and {which}", row=0, field=name))
            if shapes[name][1] != expected[name][1]:
                problem = f"{shapes[name][1]} values, but rows before have {expected[name][1]}"
                raise placed.place.error(DataError(problem, row=0, field=name))


def _shapes(regions: Regions) -> dict[str, tuple[np.dtype[Any], int]]:
    """Type and width of each column; 0 for a single value."""
    columns = {name: values for name, values in regions.columns().items() if name not in ("image_id", "region_id")}
    return {name: (values.dtype, values.shape[1] if values.ndim == 2 else 0) for name, values in columns.items()}

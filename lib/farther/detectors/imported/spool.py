"""Detections in the order in which they were read, as plain columns on disk, to be picked from in another order."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from farther.detectors.imported.base import DetectionsSource, Imported, Placed
from farther.errors import DataError
from farther.tables import Header, Regions
from farther.tables.writing import delete_work


@dataclass(frozen=True)
class Spool:
    """Rows of all sources. The names of the images and one number per row are in memory; the rest is mapped from files.

    Args:
        columns: Columns of the regions table but `image_id` and `region_id`, N rows each.
        image: Row of `names`, ndarray of shape (N,), int32.
        names: Source and name of each image, in the order of their first row.
    """

    columns: dict[str, np.ndarray]
    image: np.ndarray
    names: list[tuple[DetectionsSource, str]]

    def __len__(self) -> int:
        return len(self.image)

    def take(
        self,
        rows: np.ndarray,
        image_id: np.ndarray,
        region_id: np.ndarray,
        header: Header,
        unit: np.ndarray,
    ) -> Regions:
        """These rows under these names, boxes times `unit`."""
        picked = {name: np.asarray(values[rows]) for name, values in self.columns.items()}
        picked["box"] = picked["box"] * unit
        return Regions(header=header, image_id=image_id, region_id=region_id, **picked)


@contextmanager
def spooled(adapter: Imported, header: Header, folder: Path) -> Iterator[Spool]:
    """All detections of an adapter, in a folder that is deleted afterwards, as is the rest of a killed run.

    Raises:
        DataError: a row is wrong, or two sources differ in their columns; names file, row and
            field.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield _filled(adapter, header, folder)
    finally:
        delete_work(folder)


def _filled(adapter: Imported, header: Header, folder: Path) -> Spool:
    """The rows that reach the threshold, their columns in files of the folder."""
    names: dict[tuple[DetectionsSource, str], int] = {}
    shapes: dict[str, tuple[np.dtype[Any], int]] = {}
    files: dict[str, IO[bytes]] = {}
    count = 0
    with ExitStack() as stack:
        for source in adapter.sources():
            for number in range(
                len(source.image_files or ())
            ):  # known whether there are detections of them or not
                names.setdefault((source, str(number)), len(names))
            for placed in adapter.batches(source):
                found = _shapes(placed.regions)
                if not shapes:
                    shapes = found
                    files = {
                        name: stack.enter_context((folder / name).open("wb"))
                        for name in [*shapes, "image"]
                    }
                _refuse_others(shapes, found, placed)
                regions = placed.regions.above(adapter.score_threshold)
                for name, (dtype, _) in shapes.items():
                    files[name].write(np.ascontiguousarray(getattr(regions, name), dtype).tobytes())
                rows = [names.setdefault((source, name), len(names)) for name in regions.image_id]
                files["image"].write(np.array(rows, np.int32).tobytes())
                count += len(regions)
    if not count:
        empty = Regions.empty(header).columns()
        kept = {
            name: values
            for name, values in empty.items()
            if name not in ("image_id", "region_id", "logits")
        }
        return Spool(kept, np.zeros(0, np.int32), list(names))
    columns: dict[str, np.ndarray] = {
        name: np.memmap(folder / name, dtype, "r", shape=(count, width) if width else (count,))
        for name, (dtype, width) in shapes.items()
    }
    return Spool(columns, np.fromfile(folder / "image", np.int32), list(names))


def _refuse_others(
    expected: dict[str, tuple[np.dtype[Any], int]],
    found: dict[str, tuple[np.dtype[Any], int]],
    placed: Placed,
) -> None:
    """Refuses a batch whose columns are others than those of the first, or have another width."""
    for name in [*expected, *found]:
        if name not in found or name not in expected:
            which = "rows before have it" if name in expected else "rows before do not have it"
            raise placed.place.error(
                DataError(f"all rows or none must have it, and {which}", row=0, field=name)
            )
        if found[name][1] != expected[name][1]:
            problem = f"{found[name][1]} values, but rows before have {expected[name][1]}"
            raise placed.place.error(DataError(problem, row=0, field=name))


def _shapes(regions: Regions) -> dict[str, tuple[np.dtype[Any], int]]:
    """Type and width of each column; 0 for a single value."""
    columns = {
        name: values
        for name, values in regions.columns().items()
        if name not in ("image_id", "region_id")
    }
    return {
        name: (values.dtype, values.shape[1] if values.ndim == 2 else 0)
        for name, values in columns.items()
    }

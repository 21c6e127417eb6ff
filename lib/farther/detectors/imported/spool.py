"""Detections in the order in which they were read, as plain columns on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from farther.detectors.imported.base import DetectionBatch, DetectionsSource, Imported
from farther.errors import DataError, shorten
from farther.tables import Header, Regions
from farther.tables.writing import delete_work

#: Columns of the regions table that are not spooled.
NOT_SPOOLED = ("image_id", "region_id")
#: Most names of columns that a note lists.
LISTED = 10


@dataclass(frozen=True)
class Spool:
    """Rows of all sources; splits take theirs from it.

    The names of the images and one number per row are in memory; the columns are memory-mapped.

    Args:
        columns: Columns of the regions table except `image_id` and `region_id`, N rows each.
        image: Place of each row's image in `names`, ndarray of shape (N,), int32.
        names: Source and name of each image, in the order of their first row.
        oriented: Number of rows read whose box is the envelope of an oriented box or an outline.
        unread: Names of columns or fields that were not read.
    """

    columns: dict[str, np.ndarray]
    image: np.ndarray
    names: list[tuple[DetectionsSource, str]]
    oriented: int = 0
    unread: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.image)

    def notes(self) -> list[str]:
        """Sentences about boxes that were changed, and about what was not read."""
        return notes_of(self.oriented, self.unread)

    def take(
        self,
        rows: np.ndarray,
        image_id: np.ndarray,
        region_id: np.ndarray,
        header: Header,
        unit: np.ndarray,
    ) -> Regions:
        """Some rows as regions.

        Args:
            rows: Numbers of the rows, shape (n,).
            image_id, region_id: Their names and numbers, shape (n,).
            header: Header of the regions.
            unit: Pixels per unit of the boxes, shape (n, 4) or (1,).
        """
        columns = {name: np.asarray(values[rows]) for name, values in self.columns.items()}
        columns["box"] = columns["box"] * unit
        return Regions(header=header, image_id=image_id, region_id=region_id, **columns)


@dataclass(frozen=True)
class ColumnType:
    """Type and width of a column; the width is 0 for a single value."""

    dtype: np.dtype[Any]
    width: int

    def shape(self, rows: int) -> tuple[int, ...]:
        """Shape of the column's array."""
        if self.width:
            return (rows, self.width)
        return (rows,)


@contextmanager
def spooled(
    adapter: Imported, header: Header, folder: Path, most: int | None = None
) -> Iterator[Spool]:
    """The detections of an adapter, in a folder that is deleted when the block ends.

    The folder of a killed run is deleted first.

    Args:
        adapter: Reads the detections.
        header: Header of the regions.
        folder: The folder.
        most: Number of detections of each source after which no more are read; None for all.

    Raises:
        DataError: a row is wrong, or two sources differ in their columns; names file, row and
            field.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield _spool(adapter, header, folder, most)
    finally:
        delete_work(folder)


def _spool(adapter: Imported, header: Header, folder: Path, most: int | None) -> Spool:
    """Writes the rows that reach the score threshold to files, one per column."""
    numbers: dict[tuple[DetectionsSource, str], int] = {}
    types: dict[str, ColumnType] = {}
    files: dict[str, IO[bytes]] = {}
    count = 0
    oriented = 0
    unread: set[str] = set()
    with ExitStack() as stack:
        for source in adapter.sources():
            # Images of the annotations count, with or without detections.
            for place in range(len(source.image_files or ())):
                numbers.setdefault((source, str(place)), len(numbers))
            of_source = 0
            for batch in adapter.batches(source):
                batch_types = _column_types(batch.regions)
                if not types:
                    types = batch_types
                    for name in (*types, "image"):
                        files[name] = stack.enter_context((folder / name).open("wb"))
                _check_types(types, batch_types, batch)

                oriented += batch.oriented
                unread |= batch.unread
                regions = batch.regions.above(adapter.score_threshold)
                for name, column_type in types.items():
                    values = np.ascontiguousarray(getattr(regions, name), column_type.dtype)
                    files[name].write(values.tobytes())
                image_ids = regions.image_id.tolist()
                number_by_id: dict[str, int] = {}
                for image_id in dict.fromkeys(image_ids):
                    number_by_id[image_id] = numbers.setdefault((source, image_id), len(numbers))
                images = [number_by_id[image_id] for image_id in image_ids]
                files["image"].write(np.array(images, np.int32).tobytes())
                count += len(regions)
                of_source += len(batch.regions)
                if most is not None and of_source >= most:
                    break

    names = list(numbers)
    if count == 0:
        empty = np.zeros(0, np.int32)
        return Spool(_empty_columns(header), empty, names, oriented, frozenset(unread))
    columns: dict[str, np.ndarray] = {}
    for name, column_type in types.items():
        columns[name] = np.memmap(
            folder / name, column_type.dtype, "r", shape=column_type.shape(count)
        )
    image = np.fromfile(folder / "image", np.int32)
    return Spool(columns, image, names, oriented, frozenset(unread))


def notes_of(oriented: int, unread: Iterable[str]) -> list[str]:
    """Sentences about detections as they were read.

    Args:
        oriented: Number of boxes that are envelopes of oriented boxes or outlines.
        unread: Names of columns or fields that were not read.
    """
    notes = []
    if oriented:
        notes.append(f"upright boxes around oriented boxes or outlines: {oriented:,}")
    names = sorted(unread)
    if names:
        listed = ", ".join(shorten(name) for name in names[:LISTED])
        if len(names) > LISTED:
            listed += f" and {len(names) - LISTED} more"
        notes.append(f"not read: {listed}")
    return notes


def _empty_columns(header: Header) -> dict[str, np.ndarray]:
    """The required columns without rows."""
    columns = Regions.empty(header).columns()
    for name in (*NOT_SPOOLED, "logits"):
        columns.pop(name, None)
    return columns


def _check_types(
    expected: dict[str, ColumnType], types: dict[str, ColumnType], batch: DetectionBatch
) -> None:
    """Refuses a batch whose columns differ from those of the first in names or width."""
    for name in [*expected, *types]:
        if name not in types or name not in expected:
            before = "rows before have it" if name in expected else "rows before do not have it"
            raise batch.location.error(
                DataError(f"all rows or none must have it, and {before}", row=0, field=name)
            )
        width = types[name].width
        if width != expected[name].width:
            problem = f"{width} values, but rows before have {expected[name].width}"
            raise batch.location.error(DataError(problem, row=0, field=name))


def _column_types(regions: Regions) -> dict[str, ColumnType]:
    """Type of each column that is spooled."""
    types = {}
    for name, values in regions.columns().items():
        if name not in NOT_SPOOLED:
            types[name] = ColumnType(values.dtype, values.shape[1] if values.ndim == 2 else 0)
    return types

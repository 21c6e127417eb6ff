"""Regions folders of a run and of its passes as one table; see `Regions.beside`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from farther.errors import DataError
from farther.tables.header import WithHeader
from farther.tables.regions import Regions, RegionsFolder, own_name, pass_column


class JoinedFolder(WithHeader):
    """A run's regions folder whose rows have the columns of passes beside their own.

    Has what `RegionsFolder` has for code that streams.

    Args:
        path: The run's folder of a split.
        passes: The folder of the same split of each pass, by its name.
        min_score: Rows with a lower detector score are left out.

    Raises:
        DataError: a folder is absent or damaged.
    """

    def __init__(self, path: Path, passes: Mapping[str, Path], min_score: float = 0.0):
        self.path = path
        self.min_score = min_score
        self._run = RegionsFolder(path)
        self._paths = dict(passes)
        self._passes = {name: RegionsFolder(folder) for name, folder in passes.items()}
        headers = {name: folder.header for name, folder in self._passes.items()}
        self.header = replace(self._run.header, passes=headers)
        self.info: dict[str, Any] = self._run.info

    @property
    def folders(self) -> dict[str, RegionsFolder]:
        """The folder of each pass, by its name, and that of the run, called ""."""
        return {"": self._run, **self._passes}

    def __len__(self) -> int:
        """Number of stored rows, whatever `min_score` is."""
        return len(self._run)

    def has(self, column: str) -> bool:
        """True if the rows have this column (or, for `last_layer`, the header)."""
        for name, folder in self._passes.items():
            if column == pass_column(name, own_name(column)):
                return folder.has(own_name(column))
        return self._run.has(column)

    def above(self, threshold: float) -> JoinedFolder:
        """The same rows, without those whose detector score is below `threshold`."""
        return JoinedFolder(self.path, self._paths, max(threshold, self.min_score))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The rows in batches, in stored order; see `RegionsFolder.batches`.

        Raises:
            DataError: see there; or the rows of a pass are not those of the run.
        """
        rows_by_pass = {}
        for name, folder in self._passes.items():
            names = None
            if columns is not None:
                names = columns_of_pass(name, columns)
            rows_by_pass[name] = _Rows(folder, names)
        for batch in self._run.batches(columns):
            of_passes = {name: rows.take(len(batch)) for name, rows in rows_by_pass.items()}
            try:
                joined = batch.beside(of_passes)
            except DataError as error:
                raise error.within(self.path) from None
            yield joined.above(self.min_score)


class _Rows:
    """The rows of a folder in order, some at a time."""

    def __init__(self, folder: RegionsFolder, columns: Sequence[str] | None):
        self._batches = folder.batches(columns)
        self._rest = Regions.empty(folder.header)

    def take(self, count: int) -> Regions:
        """The next rows; fewer where there are no more."""
        rows = [self._rest]
        while sum(map(len, rows)) < count:
            batch = next(self._batches, None)
            if batch is None:
                break
            rows.append(batch)
        with_rows = [part for part in rows if len(part)] or rows[-1:]
        available = Regions.concatenate(with_rows)
        self._rest = available[count:]
        return available[:count]


def columns_of_pass(pass_name: str, columns: Sequence[str]) -> list[str]:
    """The columns of a pass among those of joined rows, under their own names.

    Args:
        pass_name: Its name; "" for the columns of no pass.
        columns: Names in the joined rows.
    """
    own_columns = []
    for column in columns:
        own = own_name(column)
        if column == (pass_column(pass_name, own) if pass_name else own):
            own_columns.append(own)
    return own_columns

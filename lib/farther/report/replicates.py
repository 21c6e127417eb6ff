"""Tables of bootstrap replicates that pages read, each from its file once."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from farther.tables.parquet import read_batches

#: Columns that pages read, as far as a table has them.
COLUMNS = (
    "unknown_objects",
    "tp_u",
    "fn_misclassified",
    "fn_missed",
    "nose",
    "ap_u",
    "r_u",
    "auroc",
)


class Replicates:
    """The tables of one run that were read so far.

    They belong to the run's other results, which are read once, too: a report that is written again
    reads its runs again.
    """

    def __init__(self) -> None:
        self._frames: dict[Path, pl.DataFrame | None] = {}

    def read(self, file: Path) -> pl.DataFrame | None:
        """The columns `COLUMNS` of a table, as far as it has them; None where there is no file.

        Raises:
            DataError: the file is damaged.
        """
        if file not in self._frames:
            frame = None
            if file.exists():
                frame = pl.concat(read_batches(file, COLUMNS))
            self._frames[file] = frame
        return self._frames[file]

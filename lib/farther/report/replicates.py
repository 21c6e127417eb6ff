"""Tables of bootstrap replicates that pages read, each from its file once."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from farther.evaluation.replicates import read_replicates

#: Metrics that pages read, as far as a file has them.
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
        """Replicates of the metrics `COLUMNS`, one column each, as far as the file has them.

        Returns:
            None if the file does not exist.

        Raises:
            DataError: the file is damaged.
        """
        if file not in self._frames:
            frame = None
            if file.exists():
                frame = pl.DataFrame(read_replicates(file, COLUMNS))
            self._frames[file] = frame
        return self._frames[file]

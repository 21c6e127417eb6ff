"""Tables of bootstrap replicates that pages read, each from its file once."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
        self._read: dict[Path, dict[str, np.ndarray] | None] = {}

    def read(self, file: Path) -> dict[str, np.ndarray] | None:
        """Replicates of the metrics `COLUMNS`, as far as the file has them.

        Returns:
            Metric → ndarray of shape (B,); None if the file does not exist.

        Raises:
            DataError: the file is damaged.
        """
        if file not in self._read:
            self._read[file] = read_replicates(file, COLUMNS) if file.exists() else None
        return self._read[file]

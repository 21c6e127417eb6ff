"""Differences between two evaluations on the same images, from their stored replicates.

Two methods of one run, one method of two detectors, or the same at two commits: replicates of the
same draws of images are paired, so that image difficulty cancels out of their difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.evaluation.files import RunFiles
from farther.evaluation.results import read_evaluation
from farther.metrics.statistics import bootstrap
from farther.tables.files import inside
from farther.tables.parquet import read_parquet


@dataclass(frozen=True)
class Replicates:
    """Replicates of the metrics of one method in one OOD split of one run.

    Args:
        draws: Everything that the draws of images depend on, by name; replicates of equal draws
            are paired.
        metrics: {metric: ndarray of shape (B,)}.
    """

    draws: dict[str, Any]
    metrics: dict[str, np.ndarray]


class StoredEvaluation:
    """The evaluation of a run, as the stage `evaluate` stored it.

    Args:
        root: The artifacts folder.
        run: Name of the run.

    Attributes:
        report: The content of `evaluation/<run>.json`.

    Raises:
        DataError: the run was not evaluated, or the file is damaged.
    """

    def __init__(self, root: Path, run: str):
        self._file = inside(root / "evaluation", f"{run}.json")
        self.report = read_evaluation(self._file)
        self._files = RunFiles(run, self.report.benchmark, root)

    def replicates(self, method: str, split: str) -> Replicates:
        """Replicates of a method's metrics in an OOD split.

        Raises:
            DataError: the run was evaluated without replicates, or by another version.
        """
        settings = self.report.settings
        file = self._files.replicates(method, split)
        if not settings.replicates:
            problem = "evaluated without replicates: set evaluate.replicates in params.yaml"
            raise DataError(problem, file=self._file)

        try:
            draws = {
                "ID images": self.report.splits[settings.id_split].inputs["readable"],
                "OOD images": self.report.splits[split].inputs["readable"],
                "number of replicates": settings.replicates,
                "seed": settings.seed,
            }
            frame = read_parquet(file)
        except (KeyError, DataError):
            advice = f"run `farther repro evaluate@{self.report.run}`"
            raise DataError(f"no replicates of {method}: {advice}", file=file) from None
        return Replicates(draws, {column.name: column.to_numpy() for column in frame})


def compare(first: Replicates, second: Replicates) -> dict[str, dict[str, Any]]:
    """The 95% interval and p of the difference second − first in each metric that both have.

    See `farther.metrics.statistics.bootstrap.compare`.

    Raises:
        DataError: the two are of different draws of images, so they are not paired.
    """
    different = []
    for name, value in first.draws.items():
        if second.draws.get(name) != value:
            different.append(name)
    if different:
        raise DataError(f"the two differ in {' and '.join(different)}, so they are not paired")

    differences = {}
    for name in first.metrics:
        if name in second.metrics:
            differences[name] = bootstrap.compare(second.metrics[name], first.metrics[name])
    return differences

"""The results of a run, each file read when it is first needed, and once."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import polars as pl

from farther.evaluation.long_table import SCHEMA, LongTable, long_table, read_long_table
from farther.evaluation.metric_files import Values, metrics_of_detector
from farther.evaluation.paths import RunFiles
from farther.evaluation.recovery import RecoveredRun
from farther.evaluation.results import (
    Evaluation,
    RunDescription,
    read_description,
)
from farther.metrics.catalogue import COMPARED, METRICS
from farther.tables.folders import listed
from farther.tables.schema import read_typed


class StoredResults:
    """The results of a run.

    Values come from the long table. Where it is not on this machine, such as in a clone without
    `dvc pull`, they come from the files of metrics that git has, without intervals and counts.

    Args:
        files: The run's files.
    """

    def __init__(self, files: RunFiles):
        self.files = files

    @classmethod
    def of(cls, evaluation: Evaluation, recovered: RecoveredRun | None = None) -> StoredResults:
        """The results of a run that are in memory.

        Args:
            evaluation: All metrics of the run.
            recovered: Results of its proposals; None where it has none.
        """
        results = cls(RunFiles(evaluation.run, evaluation.benchmark))
        results.table = LongTable(long_table(evaluation, recovered))
        proposals = None if recovered is None else recovered.drawings
        results.description = RunDescription.of(evaluation, proposals)
        return results

    @cached_property
    def table(self) -> LongTable:
        """All values.

        Raises:
            DataError: a file is damaged.
        """
        if self.files.long_table.exists():
            return LongTable(read_long_table(self.files.long_table))
        return LongTable(_table_of_metrics(self.files))

    @cached_property
    def detector(self) -> Values:
        """Metrics of the detector itself; {} where the run is not evaluated.

        Raises:
            DataError: a file is damaged.
        """
        if self.description is None:
            return read_metrics(self.files.metrics / "detector.json")
        return metrics_of_detector(self.table.frame, self.description.settings.id_split)

    @cached_property
    def description(self) -> RunDescription | None:
        """How the run was evaluated; None where that is not on this machine.

        Raises:
            DataError: the file is damaged.
        """
        if not self.files.description.exists():
            return None
        return read_description(self.files.description)


def _table_of_metrics(files: RunFiles) -> pl.DataFrame:
    """The values of methods on OOD splits that files of metrics have, as a long table."""
    rows = []
    for file in listed(files.metrics, "*/*.json"):
        method = file.stem
        if method == "detector":
            continue
        metrics = read_metrics(file)
        for name in COMPARED:
            row = {
                "run": files.run,
                "split": file.parent.name,
                "method": method,
                "group": METRICS[name].group,
                "metric": name,
                "part": "",
                "value": metrics.get(name),
                "no_interval": "",
            }
            rows.append(row)
    return pl.DataFrame(rows, schema=SCHEMA)


def read_metrics(file: Path) -> dict[str, float | None]:
    """The content of a file of metrics, {} where it is absent.

    Raises:
        DataError: the file is damaged.
    """
    if not file.exists():
        return {}
    return read_typed(dict[str, float | None], file)

"""Stored bootstrap replicates of a method's metrics in one OOD split.

One row per metric with a vector of its replicates: one column per metric takes four times as long
to read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.tables.parquet import read_parquet, write_parquet


def write_replicates(path: Path, replicates: Mapping[str, np.ndarray]) -> None:
    """Writes the replicates of each metric, ndarrays of shape (B,)."""
    table = np.zeros((0, 1))
    if replicates:
        table = np.array(list(replicates.values()), dtype=np.float64)
    metric = pl.Series(list(replicates), dtype=pl.String)
    values = pl.Series(table, dtype=pl.Array(pl.Float64, table.shape[1]))
    write_parquet(pl.DataFrame({"metric": metric, "values": values}), path)


def read_replicates(path: Path, metrics: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """What `write_replicates` wrote: metric → ndarray of shape (B,).

    Args:
        path: The file.
        metrics: The metrics to return, as far as the file has them; None for all.

    Raises:
        DataError: the file is absent or damaged, or written by another version.
    """
    frame = read_parquet(path, ("metric", "values"))
    if frame.schema["metric"] != pl.String or not isinstance(frame.schema["values"], pl.Array):
        raise DataError("expected one vector of replicates per metric", file=path)
    table = frame["values"].to_numpy()
    replicates = {}
    for row, metric in enumerate(frame["metric"]):
        if metrics is None or metric in metrics:
            replicates[metric] = table[row].copy()  # a view keeps all metrics in memory
    return replicates

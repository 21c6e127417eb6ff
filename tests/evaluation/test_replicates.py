"""Stored replicates."""

import numpy as np
import polars as pl
import pytest

from farther.errors import DataError
from farther.evaluation.replicates import read_replicates, write_replicates
from farther.tables.parquet import write_parquet

VALUES = {"auroc": np.array([0.5, np.nan, 0.25]), "aose": np.array([3, 0, 2])}


def test_replicates_are_read_as_they_were_written_in_their_order(tmp_path):
    write_replicates(tmp_path / "far.parquet", VALUES)
    stored = read_replicates(tmp_path / "far.parquet")
    assert list(stored) == ["auroc", "aose"]
    for name, values in VALUES.items():
        assert np.array_equal(stored[name], values, equal_nan=True)


def test_only_the_metrics_that_are_wanted_and_stored_are_returned(tmp_path):
    write_replicates(tmp_path / "far.parquet", VALUES)
    assert list(read_replicates(tmp_path / "far.parquet", ("aose", "nose"))) == ["aose"]


def test_without_replicates_nothing_is_stored(tmp_path):
    write_replicates(tmp_path / "far.parquet", {})
    assert read_replicates(tmp_path / "far.parquet") == {}


@pytest.mark.parametrize(
    "columns", [{"auroc": [0.5]}, {"metric": ["auroc"], "values": [0.5]}, {"metric": [1]}]
)
def test_a_file_of_another_version_is_refused_by_name(tmp_path, columns):
    file = tmp_path / "far.parquet"
    write_parquet(pl.DataFrame(columns), file)
    with pytest.raises(DataError, match=r"far\.parquet"):
        read_replicates(file)

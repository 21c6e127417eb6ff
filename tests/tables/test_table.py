"""Rows and columns of tables, and registered names."""

import multiprocessing
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic.dataclasses import dataclass
from tests.tables.examples import objects

from farther.errors import ParameterError
from farther.naming.registry import STRICT, Registry, build
from farther.tables import Objects, Regions, Scores, table
from farther.tables.columns import SMALL_TABLE


def test_rows_are_selected_by_mask_index_and_slice():
    table = objects()
    assert list(table[table.category == "cat"].object_id) == [1, 3]
    assert list(table[np.array([2, 0])].object_id) == [3, 1]
    assert list(table[1:].image_id) == ["a", "b"]
    assert list(table[0].object_id) == [1]
    assert list(table[-1].category) == ["cat"]
    assert [len(row) for row in table] == [1, 1, 1]


def test_a_table_is_shown_by_its_class_and_its_number_of_rows():
    assert f"{objects()}, {objects()[:0]!r}" == "Objects(3 rows), Objects(0 rows)"


def test_rows_that_are_not_there_are_refused():
    table = objects()
    assert list(table[np.array([-1])].object_id) == [3]
    for wrong in (np.array([3]), np.array([True, False])):
        with pytest.raises(IndexError):
            table[wrong]


def _selected_in_child(table: Objects, queue: multiprocessing.Queue) -> None:
    kept = table[table.category == "cat"].with_columns(is_crowd=[True, False])
    queue.put(list(Objects.concatenate([kept, table[np.array([1])]]).object_id))


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
def test_a_forked_process_selects_changes_and_joins_rows():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_selected_in_child, args=(objects(), queue), daemon=True)
    child.start()
    assert queue.get(timeout=600) == [1, 3, 2]
    child.join()


def test_a_column_can_be_taken_away_again():
    table = Regions(
        image_id=["a"],
        region_id=[0],
        box=[[0, 0, 1, 1]],
        score=[0.5],
        label=[0],
        logits=[[1.0, 0.0]],
    )
    with_latent = table.with_columns(latent=[[1.0]])
    assert with_latent.latent.shape == (1, 1)
    assert with_latent.with_columns(latent=None).latent is None


@pytest.mark.parametrize(
    "sizes", [(3, 5), (SMALL_TABLE, SMALL_TABLE + 1, 2), (0, 4, 0, 300), (400, 300), (0, 0)]
)
def test_tables_are_joined_in_order_whether_they_have_few_rows_or_many(sizes):
    random = np.random.default_rng(1)
    parts = [
        {
            "image_id": [f"image {n}" for n in random.integers(0, 9, size)],
            "region_id": random.integers(0, 99, size),
            "score": random.normal(size=size),
        }
        for size in sizes
    ]
    joined = Scores.concatenate([Scores(**part) for part in parts])
    assert len(joined) == sum(sizes)
    for name, values in joined.columns().items():
        assert values.tolist() == [value for part in parts for value in part[name]]
    assert_frame_equal(joined.frame, pl.concat(Scores(**part).frame for part in parts))


def test_no_tables_cannot_be_joined():
    with pytest.raises(ValueError, match="nothing to concatenate"):
        Scores.concatenate([])


def test_tables_survive_the_disk(tmp_path: Path):
    objects().write(tmp_path / "objects.parquet")
    again = Objects.read(tmp_path / "objects.parquet")
    for name, values in objects().columns().items():
        assert (again.columns()[name] == values).all()
    Objects.empty().write(tmp_path / "empty.parquet")
    assert len(Objects.read(tmp_path / "empty.parquet")) == 0


@dataclass(config=STRICT, kw_only=True)
class Toy:
    k: int = 3


def test_an_unknown_parameter_is_refused_with_the_known_ones():
    with pytest.raises(ParameterError, match=r"toy: unknown parameter 'j'\. Known: k"):
        build(Toy, "toy", {"j": 1})
    with pytest.raises(ParameterError, match=r"toy: parameter 'k'.*found 'many'"):
        build(Toy, "toy", {"k": "many"})


def test_an_unknown_name_is_refused_with_the_known_ones():
    known: Registry = Registry("toy", "farther.tables")
    known.register("wooden_horse")(Toy)
    assert known.create("wooden_horse", k=4).k == 4
    with pytest.raises(
        ParameterError, match=r"unknown toy 'wooden_house'. Did you mean 'wooden_horse'\?"
    ):
        known.create("wooden_house")


@pytest.mark.parametrize(
    "texts", [["a"] * 30, list("aabbbc") * 5, list("abcdefgh") * 4, [f"{n}" for n in range(30)]]
)
def test_texts_of_long_columns_are_those_of_short_ones(texts, monkeypatch):
    series, expected = pl.Series("x", texts), np.array(texts, dtype=object)
    for few in (8, 29, 30, 31):
        monkeypatch.setattr(table, "SMALL_TABLE", few)
        found = table.as_numpy(series)
        assert found.dtype == object and (found == expected).all()

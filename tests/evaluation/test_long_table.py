"""One long table with every value of a run."""

import json

import polars as pl
import pytest
from tests.evaluation.evaluated_runs import evaluated_run as evaluated_run

from farther.errors import DataError
from farther.evaluation.long_table import SCHEMA, read_long_table
from farther.metrics.catalogue import METRICS

KEY = ["run", "split", "method", "group", "metric", "part"]


@pytest.fixture(scope="module")
def run(evaluated_run):
    files, evaluation = evaluated_run
    return files, evaluation, read_long_table(files.long_table)


def one(table, **selected):
    rows = table.filter(**selected).to_dicts()
    assert len(rows) == 1, rows
    return rows[0]


def test_each_value_is_one_row(run):
    _, _, table = run
    assert dict(table.schema) == SCHEMA
    assert not table.select(KEY).is_duplicated().any()


def test_a_metric_of_a_method_on_a_split_has_value_interval_images_and_unit(run):
    _, evaluation, table = run
    results = evaluation.methods["msp"].splits["far"]
    row = one(table, split="far", method="msp", metric="r_u", part="")
    low, high = results.interval(METRICS["r_u"])
    assert row == {
        "run": "r",
        "split": "far",
        "method": "msp",
        "group": "open_set",
        "metric": "r_u",
        "part": "",
        "value": results.value(METRICS["r_u"]),
        "low": low,
        "high": high,
        "n": 2,  # of three images, two show unknown objects
        "unit": "fraction",
    }


def test_every_value_of_every_group_is_there_under_the_name_of_its_metric(run):
    _, evaluation, table = run
    whole = table.filter(split="far", method="msp", part="")
    for name, group in evaluation.methods["msp"].splits["far"].groups.items():
        for key, value in group.values.items():
            rows = whole.filter(pl.col("metric").str.ends_with(key), group=name)
            assert value in rows["value"].to_list()


def test_a_metric_of_the_catalogue_is_of_one_group(run):
    _, _, table = run
    for metric, group in table.select("metric", "group").unique().iter_rows():
        if metric in METRICS:
            assert group == METRICS[metric].group


def test_parts_say_what_of(run):
    _, evaluation, table = run
    results = evaluation.methods["msp"].splits["far"]
    row = one(table, split="far", method="msp", part="category=fox", metric="tp_u")
    assert row["value"] == results.by_category["fox"].values["tp_u"]
    assert row["unit"] == "count"


def test_the_detectors_metrics_have_the_names_that_files_of_metrics_have(run):
    files, _, table = run
    stored = json.loads((files.metrics / "detector.json").read_text())
    for name, value in stored.items():
        assert one(table, group="detector", metric=name, part="")["value"] == value
    assert one(table, metric="threshold")["unit"] == "score"


def test_the_files_of_metrics_are_selections(run):
    files, _, table = run
    stored = json.loads((files.metrics / "far" / "msp.json").read_text())
    selected = table.filter(split="far", method="msp", part="")
    for name, value in stored.items():
        assert one(selected, metric=name)["value"] == value


def test_users_query_it_with_polars(run):
    files, _, _ = run
    results = pl.read_parquet(files.root / "results" / "*.parquet")
    best = results.filter(metric="auroc", part="", split="far").sort("value", descending=True)
    assert best["method"].to_list() == ["msp"]


def test_a_damaged_table_is_refused(run, tmp_path):
    files, _, _ = run
    file = tmp_path / "r.parquet"
    file.write_bytes(files.long_table.read_bytes()[:-20])
    with pytest.raises(DataError) as error:
        read_long_table(file)
    assert error.value.file == str(file)

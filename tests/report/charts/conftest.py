"""A run of the miniature project, and the data of a chart."""

import csv

import pytest

from farther.evaluation.plots import SCHEMAS
from farther.report.results import Run, read_runs


@pytest.fixture
def run(built, params) -> Run:
    return read_runs(params, built / "artifacts")[0]


@pytest.fixture
def plots(built):
    folder = built / "artifacts" / "plots"
    return {kind: folder / kind / "pets-net.csv" for kind in SCHEMAS}


def rows(chart) -> list[dict]:
    values = chart.spec["data"]["values"]
    return list(csv.DictReader(values.splitlines())) if isinstance(values, str) else values


def points(chart) -> list[tuple[str, float, float]]:
    return [(row["series"], float(row["x"]), float(row["y"])) for row in rows(chart)]

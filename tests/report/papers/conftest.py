"""The papers' tables of the miniature project."""

from pathlib import Path

import pytest
from tests.report.conftest import PARAMS

from farther.report.pages.papers import PAPERS, content
from farther.report.papers.table import Sources
from farther.report.results import read_runs

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def sources(evaluated):
    return Sources(read_runs(PARAMS, evaluated / "artifacts")[:1], PARAMS, evaluated)


def rows_by_table(sources, name):
    """Number of each table of a paper that has values → the rows of all its listings."""
    (paper,) = [paper for paper in PAPERS if paper.name == name]
    tables_on_page = content(paper, paper.tables(sources))["tables"].values()
    rows = {}
    for table in tables_on_page:
        rows[table.number] = []
        for listing in table.listings:
            rows[table.number] += listing.frame.to_dicts()
    return rows

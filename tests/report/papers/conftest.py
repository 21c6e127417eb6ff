"""The papers' tables of the miniature project, and small long tables."""

from pathlib import Path

import polars as pl
import pytest
from tests.report.conftest import PARAMS

from farther.report.papers.frames import FRAME, Sources
from farther.report.papers.layout import TableLayout, read_paper
from farther.report.papers.render import LongTables, render
from farther.report.results import read_runs

ROOT = Path(__file__).parents[3]

#: Where the test of a small table says nothing else.
LAYOUT = {
    "number": "Table 1",
    "title": "Values",
    "caption": "Values.",
    "select": [{"metrics": ["auroc"], "splits": ["ood"]}],
    "rows": {"method": "Method"},
    "column": "{split}",
}
VALUE = {
    "run": "net",
    "detector": "Net",
    "algorithm": "Net (pets)",
    "dataset": "pets",
    "split": "far",
    "role": "ood",
    "method": "msp",
    "group": "ood",
    "metric": "auroc",
    "part": "",
    "unit": "fraction",
    "is_classifier": False,
    "run_position": 0,
    "split_position": 0,
    "kind": "ood",
    "network": "Net",
}


class GivenTables(LongTables):
    """Long tables that a test wrote."""

    def __init__(self, frame, sources):
        super().__init__(sources)
        self._frames["results"] = frame


def long_table(*rows):
    """A long table with labels; a row says what differs from `VALUE`."""
    empty = {name: "" if dtype == pl.String else None for name, dtype in FRAME.items()}
    return pl.DataFrame([{**empty, **VALUE, **row} for row in rows], schema=FRAME)


def layout_of(**changed):
    return TableLayout.model_validate({**LAYOUT, **changed})


def listings_of(layout, *rows, sources=None):
    """The tables of a layout with the rows of a long table."""
    sources = sources or Sources([], {}, ROOT)
    return [
        part.listing for part in render(layout, GivenTables(long_table(*rows), sources)).listings
    ]


def texts_of(listing):
    """Heading of each column → its text, per row."""
    heads = [head.replace("\N{NO-BREAK SPACE}", " ") for head, _ in listing.heads]
    return [dict(zip(heads, [text for text, _ in row], strict=True)) for row in listing.rows]


@pytest.fixture(scope="session")
def sources(evaluated):
    return sources_of(evaluated)


def sources_of(root):
    """Sources of a project with the first of its runs."""
    return Sources(read_runs(PARAMS, root / "artifacts")[:1], PARAMS, root)


def rows_by_table(sources, name):
    """Number of each table of a paper that has values → the rows of all its listings."""
    tables = LongTables(sources)
    rows = {}
    for layout in read_paper(name).tables:
        listings = render(layout, tables).listings
        if listings:
            rows[layout.number] = [row for part in listings for row in texts_of(part.listing)]
    return rows

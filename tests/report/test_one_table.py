"""Every value that the report prints comes from the long table of its run."""

from dataclasses import replace

import polars as pl
import pytest
from tests.report.conftest import evaluation_in
from tests.support.evaluations import recovered_run

from farther.evaluation.long_table import LongTable
from farther.evaluation.stored_results import StoredResults
from farther.report import metric_groups, subsets, tables
from farther.report.charts import error_budget
from farther.report.charts.results import confusion_at_recall
from farther.report.confusion import Confusion
from farther.report.links import GalleryLinks
from farther.report.pages import classes, missed, self_awareness, wilderness
from farther.report.results import read_run

LINKS = GalleryLinks("pets-net", "")


def rows_of(result_tables):
    """The rows of some tables."""
    return [table.rows for table in result_tables]


#: What is printed of a run, by groups of the long table.
PRINTED = {
    "wilderness": (["wilderness"], wilderness.of_run),
    "causes of errors": (["wilderness_errors"], wilderness.of_run),
    "operating points": (["operating_points"], wilderness.of_run),
    "confusion at a recall": (
        ["wilderness"],
        lambda run: confusion_at_recall(run, 10, of_known=True),
    ),
    "self-awareness": (["self_awareness"], lambda run: self_awareness.of_run(run, [])),
    "classes": (["classes"], classes.of_run),
    "errors on known objects": (["errors"], error_budget.known),
    "gains on known objects": (["error_budget"], error_budget.known),
    "errors on unknown objects": (["open_set"], lambda run: error_budget.unknown(run, "msp")),
    "covered objects": (["with_proposals"], lambda run: error_budget.listing(run, "msp")),
    "subsets": (["open_set"], lambda run: subsets.tables(run, "msp", LINKS)),
    "unknown confusion": (["open_set"], lambda run: Confusion.of(run, "msp").unknown),
    "known confusion": (["known_objects"], lambda run: Confusion.of(run, "msp").known),
    "tables": (["ood", "open_set"], lambda run: rows_of(tables.run_tables(run))),
    "costs": (["costs"], lambda run: rows_of(metric_groups.cost_tables("pets", [run]))),
    "further metrics": (["open_world"], lambda run: rows_of(metric_groups.further_tables(run))),
    "means over IoU": (["open_set"], lambda run: list(metric_groups.parts(run, "msp"))),
    "A-OSE by class": (["open_world"], lambda run: list(metric_groups.parts(run, "msp"))),
    "known classes": (["detector"], lambda run: list(metric_groups.parts(run, "msp"))),
    "proposals": (["proposals"], lambda run: missed.content([(run, "msp")], {run.name: LINKS})),
    "with proposals": (
        ["with_proposals"],
        lambda run: missed.content([(run, "msp")], {run.name: LINKS}),
    ),
}


@pytest.fixture
def run(evaluated, params):
    run = read_run("pets-net", params, evaluated / "artifacts")
    results = StoredResults.of(evaluation_in(evaluated), recovered_run())
    return replace(run, results=results)


def with_other_values(run, groups):
    """The run with other values of some groups in its long table, and the same description."""
    value = pl.col("value")
    other = pl.when(unit="count").then(2 * value + 1).otherwise(value / 2 + 0.01)
    is_changed = pl.col("group").is_in(groups)
    frame = run.results.table.frame
    results = StoredResults(run.results.files)
    results.description = run.description
    results.table = LongTable(
        frame.with_columns(value=pl.when(is_changed).then(other).otherwise(value))
    )
    return replace(run, results=results)


@pytest.mark.parametrize("name", PRINTED)
def test_a_value_of_the_long_table_is_the_one_that_is_printed(run, name):
    groups, section = PRINTED[name]
    shown = repr(section(run))
    assert repr(section(replace(run))) == shown
    assert repr(section(with_other_values(run, groups))) != shown

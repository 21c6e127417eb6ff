"""Proposals in the report: their page, the shade of the first figure, and the sentence."""

import re
from dataclasses import replace

import polars as pl
import pytest
from tests.report.conftest import evaluation_in
from tests.support.evaluations import recovered_run, with_proposals

from farther.evaluation.stored_results import StoredResults
from farther.evaluation.with_proposals import FOUND_BY_PROPOSALS as PROPOSED
from farther.report.charts import error_budget
from farther.report.charts.distances import figure, panels
from farther.report.charts.error_budget import COVERED_KIND
from farther.report.charts.figures import FORMATS, draw
from farther.report.charts.results import outcomes, outcomes_by_split
from farther.report.distances import Distances
from farther.report.links import GalleryLinks
from farther.report.outcomes import COVERED, PARTS
from farther.report.pages.missed import content
from farther.report.results import read_runs

NO_LINKS = GalleryLinks("pets-net", "")


@pytest.fixture
def run(evaluated, params):
    runs = read_runs(params, evaluated / "artifacts")
    evaluated_run = next(run for run in runs if run.is_evaluated)
    return with_recovered(evaluated_run, recovered_run(), evaluated)


def with_recovered(run, recovered, project):
    """The run of a project with results of proposals."""
    results = StoredResults.of(evaluation_in(project), recovered)
    results.files = run.results.files
    return replace(run, results=results)


def test_what_proposals_cover_is_a_part_of_what_is_missed(run, evaluated):
    distances = Distances([run], evaluated / "artifacts", "msp")
    shares = {}
    for row in distances.rows.filter(method="MSP").iter_rows(named=True):
        shares[row["distance"], row["part"]] = row["share"]
    assert shares["near", COVERED] == shares["near", "missed"] == 0.25
    assert (shares["far", COVERED], shares["far", "missed"]) == (0, 0.5)
    totals = distances.rows.group_by("distance", "method").agg(pl.col("share").sum())
    assert totals["share"].to_list() == pytest.approx([1] * 4)
    assert all(draw(figure(distances.rows), kind) for kind in FORMATS)


def test_covered_objects_are_missed_in_each_chart_and_named_with_their_false_alarms(run, evaluated):
    rows = Distances([run], evaluated / "artifacts", "msp").rows
    groups = [panels(rows), outcomes(run, "msp"), outcomes_by_split([(run, "msp")])]
    for group in groups:
        spec = group.charts[0].spec
        near = [row for row in spec["data"]["values"] if row["bar"] == 0]
        assert [row["part"] for row in near] == list(PARTS)
        assert [row["outcome"] for row in near] == ["found", "misclassified", "missed", "missed"]
        assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == list(PARTS)
        names = [key.name for key in group.legend]
        assert names[2] == f"{COVERED} (at 0.22 false alarms per ID image)"
        assert names[:2] + names[3:] == ["found", "misclassified", "missed"]
        assert (
            "50% missed (proposals cover 25% of all objects, at 0.22 false alarms per ID image)"
            in (group.charts[0].description)
        )
    subtitle = figure(rows)["title"]["subtitle"]
    assert subtitle == f"Hatched: {COVERED}, at 0.22 false alarms per ID image"


def test_missed_in_the_sentence_is_the_sum_of_the_grey_parts_of_the_chart(run, evaluated):
    distances = Distances([run], evaluated / "artifacts", "msp")
    first, second, *_ = distances.sentences()
    near = panels(distances.rows).charts[0].spec["data"]["values"]
    grey = sum(row["share"] for row in near if row["bar"] == 0 and row["outcome"] == "missed")
    assert re.search(r"misses (\d+)%", first)[1] == f"{100 * grey:.0f}"
    assert re.search(r"misses (\d+)%", second)[1] == f"{100 * grey:.0f}"
    covered = sum(row["share"] for row in near if row["bar"] == 0 and row["part"] == COVERED)
    assert f"cover {100 * covered:.0f}%" in second


def test_the_error_budget_has_what_they_find_in_its_own_row(run, evaluated):
    budget = error_budget.unknown_errors(run, "photos_near", "msp")
    without = evaluation_in(evaluated).methods["msp"].splits["photos_near"].error_budget
    # All missed objects remain in the row of missed ones.
    expected = {**without, COVERED_KIND: with_proposals().error_budget[PROPOSED]}
    assert budget.keys() == expected.keys()
    for kind, errors in budget.items():
        assert {key: result.value for key, result in errors.items()} == expected[kind].values
    for key in ("count", "r_u"):
        assert budget[COVERED_KIND][key].value < budget["missed"][key].value
    rows = [row[0][0] for row in error_budget.listing(run, "msp").rows]
    assert rows == list(error_budget.ORDER)
    _, unknown = error_budget.overview([(run, "msp")]).charts
    gains = {row["kind"]: row["gain"] for row in unknown.spec["data"]["values"]}
    assert gains[COVERED_KIND] == pytest.approx(0.25)  # of the split with proposals


def test_a_sentence_says_what_they_cover_and_at_what_price(run, evaluated):
    sentences = Distances([run], evaluated / "artifacts", "msp").sentences()
    (sentence,) = [text for text in sentences if "proposals" in text]
    assert sentence == (
        "Of the near unknown objects, net (pets) misses 50%: at 0.22 false alarms per ID image, "
        "its proposals (boxes) cover 25%; 25% [10, 40] have neither a detection nor a proposal."
    )
    without = Distances([with_recovered(run, None, evaluated)], evaluated).sentences()
    assert not any("proposals" in text for text in without)


def test_the_page_begins_with_what_proposals_cover_and_at_what_price(run, evaluated):
    assert content([(run, "msp")], {run.name: NO_LINKS})["message"] == (
        "net (pets) misses 50% of the near unknown objects. Its proposals (boxes) cover 25% "
        "(the highest of 2 pairs of run and distance; the lowest: 0%), at 0.22 false alarms per ID "
        "image; 25% [10, 40] have neither a detection nor a proposal."
    )
    recovered = recovered_run()
    (name, source), *_ = recovered.sources.items()
    nothing = source.model_copy(update={"distances": {"far": source.distances["far"]}})
    recovered = recovered.model_copy(update={"sources": {name: nothing}})
    run = with_recovered(run, recovered, evaluated)
    message = content([(run, "msp")], {run.name: NO_LINKS})["message"]
    assert message == "Proposals cover none of the unknown objects that the detectors miss."
    assert content([], {})["message"] == ""


def test_the_axis_of_the_curves_ends_above_the_data(run):
    for chart in content([(run, "msp")], {run.name: NO_LINKS})["curves"].charts:
        assert chart.spec["encoding"]["y"]["scale"]["domain"] == [0, 0.5]


def test_the_page_lists_what_is_missed_at_each_rate_and_says_where_nothing_is_covered(run):
    page = content([(run, "msp")], {run.name: NO_LINKS})
    missed = page["missed"].frame
    assert missed.columns[-2:] == ["Not covered at 0.1", "Not covered at 1"]
    assert missed["Not covered at 0.1"].to_list() == ["50.0 [0.0, 100.0]"] * 2
    (sentence,) = page["nothing"]
    assert "covers none of the missed far unknown objects" in sentence
    alarms = page["operating"].frame["False alarms per ID image"]
    assert alarms.to_list() == ["0.22 [0.10, 0.30]"]
    assert len(page["sizes"]) == 2
    assert "25.0 → 50.0 [40.0, 60.0]" in page["together"].frame.row(0)
    assert len(page["together_by_size"]) == 1
    titles = [chart.title for chart in page["curves"].charts]
    assert titles == [f"{run.full_title}: near", f"{run.full_title}: far"]

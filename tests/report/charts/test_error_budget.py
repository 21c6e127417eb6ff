"""Charts and table of the error budget: the evaluation's values."""

from dataclasses import replace

import pytest
from tests.report.conftest import evaluation_in

from farther.evaluation.stored_results import StoredResults
from farther.metrics.errors.error_budget import KINDS
from farther.report.charts import error_budget
from farther.report.results import read_run


@pytest.fixture
def run(evaluated, params):
    return read_run("pets-net", params, evaluated / "artifacts")


def test_the_charts_have_the_gains_of_the_evaluation(run, evaluated):
    stored = evaluation_in(evaluated)
    drawn = {row["kind"]: row["gain"] for row in error_budget.known(run).spec["data"]["values"]}
    expected = {kind: of.gain for kind, of in stored.error_budget.kinds.items()}
    assert drawn == pytest.approx(expected, abs=1e-4)
    assert list(drawn) == list(KINDS)
    budget = {split: of.error_budget for split, of in stored.methods["msp"].splits.items()}
    group = error_budget.unknown(run, "msp")
    for metric, chart in zip(("ap_u", "r_u", "nose"), group.charts, strict=True):
        found = {(row["split"], row["kind"]): row["gain"] for row in chart.spec["data"]["values"]}
        assert found == pytest.approx(
            {
                (split.replace("_", " "), kind): of.values[metric]
                for split, kinds in budget.items()
                for kind, of in kinds.items()
            },
            abs=1e-4,
        )


def test_correcting_the_class_finds_the_lynx_that_was_taken_for_a_cat(run):
    near = error_budget.unknown_errors(run, "photos_near", "msp")
    values = {key: result.value for key, result in near["classification"].items()}
    assert values == {"count": 1, "ap_u": 0.25, "r_u": 0.25, "nose": 0.25}
    assert (near["missed"]["count"].value, near["missed"]["r_u"].value) == (2, 0.5)


def test_all_detectors_are_side_by_side_with_means_over_splits(run):
    known, unknown = error_budget.overview([(run, "msp")]).charts
    gains = {row["kind"]: row["gain"] for row in unknown.spec["data"]["values"]}
    assert gains["missed"] == pytest.approx((2 / 4 + 1 / 2) / 2)
    assert {row["run"] for row in known.spec["data"]["values"]} == {"net (pets)"}


def test_the_table_has_the_same_numbers_in_percentage_points(run):
    listing = error_budget.listing(run, "msp")
    rows = {row[0][0]: [text for text, _ in row] for row in listing.rows}
    assert list(rows) == list(KINDS)
    heads = [head for head, _ in listing.heads]
    assert rows["missed"][heads.index("photos near: R_U")] == "50.0"


def test_without_an_error_budget_there_is_nothing_to_draw(make_run):
    run = make_run({})
    assert error_budget.known(run) is error_budget.unknown(run, "msp") is None
    assert not error_budget.listing(run, "msp")
    assert error_budget.overview([(run, "msp")]) is None


def test_a_metric_without_a_value_has_no_chart(run, evaluated):
    evaluation = evaluation_in(evaluated)
    for split in evaluation.methods["msp"].splits.values():
        for error in split.error_budget.values():
            error.values["ap_u"] = None
    group = error_budget.unknown(replace(run, results=StoredResults.of(evaluation)), "msp")
    assert [chart.title for chart in group.charts] == ["R_U gained", "nOSE avoided"]

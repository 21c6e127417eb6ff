"""Proposals in the report: their page, the shade of the first figure, and the sentence."""

from dataclasses import replace

import pytest

from farther.evaluation.proposals import FrocPoint, RecoveredObjects, RecoveredRun, SourceResults
from farther.evaluation.results import MetricValues
from farther.evaluation.with_proposals import FOUND_BY_PROPOSALS as PROPOSED
from farther.evaluation.with_proposals import MethodWithProposals
from farther.report.charts import error_budget
from farther.report.charts.distances import figure, panels
from farther.report.charts.figures import as_files
from farther.report.distances import Distances
from farther.report.pages.proposals import content
from farther.report.results import read_runs


def objects(missed, still):
    """Results of four unknown objects."""
    values = {
        "objects": 4,
        "missed": missed,
        "still_missed": still,
        "recovered": missed - still,
        "ar@10": 0.25,
    }
    points = [
        FrocPoint(alarms=rate, recovered=0.0, still_missed=missed, interval=(0, 1))
        for rate in (0.1, 1.0)
    ]
    sizes = {"small": {"objects": 4, "missed": missed, "still_missed": still}}
    return RecoveredObjects(
        values=values, intervals={"still_missed": (0.1, 0.4)}, froc=points, curve=[(0.0, missed), (1.0, still)],
        by_size=sizes,
    )  # fmt: skip


def together():
    """A method with the proposals, which find one of its two missed objects."""
    part = MetricValues(values={"unknown_objects": 4, "r_u": 0.5})
    found = {
        kind: MetricValues(values={"count": 1, "r_u": 0.25, "ap_u": 0, "nose": 0})
        for kind in ("missed", PROPOSED)
    }
    values = {"nose": 0.25, "r_u": 0.5, "p_u": 0.6, "ap_u": 0.4, "u_recall": 0.75}
    return MethodWithProposals(
        values=values, intervals={"r_u": (0.4, 0.6)}, without={**values, "r_u": 0.25}, by_size={"small": part},
        error_budget=found,
    )  # fmt: skip


@pytest.fixture
def run(evaluated, params):
    found = next(run for run in read_runs(params, evaluated / "artifacts") if run.is_evaluated)
    near, far = objects(0.5, 0.25), objects(0.5, 0.5)
    source = SourceResults(
        kind="rpn", threshold=0.5, alarms=0.22, alarms_interval=(0.1, 0.3), proposals=7,
        splits={"photos_near": near}, distances={"near": near, "far": far},
        methods={"msp": {"photos_near": together()}},
    )  # fmt: skip
    return replace(
        found, recovered=RecoveredRun(asked_alarms=0.2, iou=0.5, sources={"boxes": source})
    )


def test_what_proposals_find_is_a_part_of_what_is_missed(run, evaluated):
    distances = Distances([run], evaluated / "artifacts", "msp")
    shares = {
        (row["distance"], row["outcome"]): row["share"]
        for row in distances.rows.iter_rows(named=True)
    }
    assert shares["near", "found by proposals"] == shares["near", "missed"] == 0.25
    assert (shares["far", "found by proposals"], shares["far", "missed"]) == (0, 0.5)
    for distance in ("near", "far"):
        assert sum(share for (of, _), share in shares.items() if of == distance) == pytest.approx(1)
    names = [key.name for key in panels(distances.rows).legend]
    assert names == ["found", "found by proposals", "misclassified", "missed"]
    assert all(as_files(figure(distances.rows)).values())


def test_the_error_budget_has_what_they_find_in_its_own_row(run):
    budget = error_budget.of_unknown(run, "photos_near", "msp")
    alone = run.details("photos_near", "msp").error_budget
    assert {kind: of for kind, of in budget.items() if kind not in ("missed", PROPOSED)} == {
        kind: of for kind, of in alone.items() if kind != "missed"
    }
    for value in ("count", "r_u"):
        assert (
            budget["missed"].values[value] + budget[PROPOSED].values[value]
            == alone["missed"].values[value]
        )
    rows = [row[0][0] for row in error_budget.listing(run, "msp").rows]
    assert rows == list(error_budget.ORDER)
    _, unknown = error_budget.overview([(run, "msp")]).charts
    gains = {row["kind"]: row["gain"] for row in unknown.spec["data"]["values"]}
    assert gains[PROPOSED] == pytest.approx(0.25)  # of the split with proposals


def test_a_sentence_says_what_they_recover_and_at_what_price(run, evaluated):
    said = Distances([run], evaluated / "artifacts", "msp").sentences()
    (sentence,) = [text for text in said if "proposals" in text]
    assert "0.22 false alarms per ID image" in sentence
    assert "from 50% to 25% [10, 40]" in sentence
    assert not any(
        "proposals" in text
        for text in Distances([replace(run, recovered=None)], evaluated).sentences()
    )


def test_the_page_lists_what_is_missed_at_each_rate_and_says_where_nothing_is_recovered(run):
    found = content([(run, "msp")])
    heads = [name for name, _ in found["missed"].heads]
    assert heads[-2:] == ["At 0.1", "At 1"]
    assert [row[5][0] for row in found["missed"].rows] == ["50.0 (0.0 to 100.0)"] * 2
    (text,) = found["nothing"]
    assert "recovers none of the far unknown objects" in text
    assert [row[4][0] for row in found["operating"].rows] == ["0.22 (0.10 to 0.30)"]
    assert len(found["sizes"]) == 2
    (row,) = found["together"].rows
    assert "25.0 → 50.0 (40.0 to 60.0)" in [text for text, _ in row]
    assert len(found["together_by_size"]) == 1
    near, far = found["charts"][run.full_title]
    assert near.charts and far.charts

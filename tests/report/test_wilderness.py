"""The page of wilderness: its message, tables and charts."""

import pytest
from tests.support.evaluations import impact_of, wilderness_of

from farther.evaluation.results import ErrorCauses, OperatingPoints, read_evaluation
from farther.report.pages.wilderness import content

CAUSES = (
    "correct",
    "localisation",
    "similar",
    "other_class",
    "background",
    "unknown_unknown",
    "mixed_unknown",
)


def wild(unknown=0.25, f=(0.9, 0.8, 0.7), kept=(0.9, 0.6, 0.5), background=None):
    """Section `wilderness` of an evaluation: at recall 0.9 one class fewer is left than at the others."""
    shares = {name: [0.0, 0.0, 0.0] for name in CAUSES}
    shares |= {"correct": [1.0, 1 - unknown, 0.1], "unknown_unknown": [0.0, unknown, 0.9]}
    mean = {
        "f": list(f),
        "precision": [1, 1, 1],
        "recall": [1, 1, 1],
        "threshold": [0.5, 0.6, 0.7],
        "f_of_closed": kept,
    }
    return wilderness_of(
        ratio=2.0,
        map_closed=0.8,
        map_open=0.7,
        at_recall={"0.3": impact_of(average_impact=0.125)},
        errors=ErrorCauses(
            ratio=1.0,
            similar=[["cat", "dog"]],
            recalls=[0.1, 0.3, 0.9],
            classes=[2, 2, 1],
            detections=[10, 20, 90],
            shares=shares,
            intervals={name: [(0.1, 0.4)] * 3 for name in CAUSES},
        ),
        operating_points={
            "ratios": [0.0, 1.0, 2.0],
            "betas": {"1": {"mean": mean, "classes": {"cat": mean}}},
        },
        background=background,
    )


@pytest.fixture
def page(make_run, tmp_path):
    def make(**runs):
        made = []
        for name, section in runs.items():
            run = make_run({}, {"wilderness": section})
            object.__setattr__(run, "name", name)
            made.append(run)
        return content(made, dict.fromkeys(runs, tmp_path))

    return make


def test_the_message_names_the_runs_that_lose_least_and_most(page):
    found = page(a=wild(0.25), b=wild(0.05, kept=(0.9, 0.75, 0.5)))["message"]
    assert "5.0 [b (voc)] to 25.0 [a (voc)] per cent of the detections are unknown objects" in found
    assert "lose 15.0 [b (voc)] to 30.0 [a (voc)] points of F1" in found


def test_the_message_has_one_value_for_one_run(page):
    found = page(a=wild(0.25))["message"]
    assert "found, 25.0 per cent of the detections" in found
    assert "lose 30.0 points of F1" in found


def test_the_overview_has_what_new_thresholds_still_lose(page):
    (row,) = page(a=wild())["overview"].frame.to_dicts()
    assert row["F1 lost (%)"] == pytest.approx(0.3)
    assert row["F1 lost, new thresholds (%)"] == pytest.approx(0.1)
    assert row["Unknown objects (%)"] == "25.0 (10.0 to 40.0)"
    assert row["WI at recall 0.3 (%)"] == 0.125
    assert row["Known rejected (%)"] is None


def test_errors_are_drawn_as_far_as_all_classes_reach_the_recall(page):
    errors, f1 = page(a=wild())["runs"]["a (voc)"]["charts"]
    rows = errors.charts[0].spec["data"]["values"]
    assert [(row["recall"], row["cause"], row["share"]) for row in rows] == [
        (0.1, "unknown object", 0.0),
        (0.3, "unknown object", 0.25),
    ]
    assert [key.name for key in errors.legend] == [
        "unknown object"
    ]  # what never happens is not in the legend
    assert len(f1.charts[0].spec["data"]["values"].splitlines()) == 1 + 2 * 3


def test_the_background_is_drawn_cumulated(page):
    side = {
        "histogram": [0.25] * 2 + [0.0] * 37 + [0.5],
        "classes": {"cat": {"mean": 0.1, "sd": 0.2, "rejected": 0.5}},
    }
    background = {
        "values": {"rejected_known": 0.1, "rejected_unknown": 0.5},
        "known": side,
        "unknown": side,
    }
    found = page(a=wild(background=background))["runs"]["a (voc)"]
    rows = found["charts"][2].charts[0].spec["data"]["values"].splitlines()
    assert rows[2].endswith("-0.9000,0.5000") and rows[40].endswith("1.0000,1.0000")


def test_with_few_wild_images_there_is_no_message_and_without_any_no_chart(page):
    alone = wild()
    alone.operating_points = OperatingPoints(
        ratios=[0.0], betas={"1": {"mean": None, "classes": {}}}
    )
    alone.errors.shares = {name: [None] * 3 for name in CAUSES}
    alone.errors.classes = [0, 0, 0]
    found = page(a=alone)
    assert found["message"] == ""
    few = wild()
    few.errors.ratio, few.operating_points.ratios = 0.5, [0.0, 0.25, 0.5]
    found_few = page(a=few)
    assert found_few["message"] == ""
    assert found_few["overview"].frame["Unknown objects (%)"].to_list() == ["—"]
    assert found["runs"]["a (voc)"]["charts"] == []
    assert not page()["overview"]


def test_the_page_of_an_evaluated_run_has_its_values(report, evaluated, read):
    found = read_evaluation(evaluated / "artifacts/evaluation/pets-net.json").wilderness
    html = read(report / "wilderness.html")
    assert any("net (pets)" in text for text in html.texts("h2"))
    assert {"wilderness-1", "wild-1-1"} <= set(html.charts())
    assert f"{100 * found.map_closed:.1f}" in html.texts("td")

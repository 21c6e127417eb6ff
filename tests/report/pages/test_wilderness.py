"""Sections on wilderness: their message, tables and charts."""

from dataclasses import replace

import pytest
from tests.report.conftest import evaluation_in
from tests.support.evaluations import impact_of, wilderness_of

from farther.evaluation.results import ErrorCauses, OperatingPoints
from farther.report.pages.wilderness import content, of_run

CAUSES = (
    "correct",
    "localisation",
    "similar",
    "other_class",
    "background",
    "unknown_unknown",
    "mixed_unknown",
)


def wild(unknown=0.25, f_of_closed=(0.9, 0.6, 0.5), background=None):
    """Section `wilderness` of an evaluation: at recall 0.9 one class fewer is left."""
    shares = {name: [0.0, 0.0, 0.0] for name in CAUSES}
    shares |= {"correct": [1.0, 1 - unknown, 0.1], "unknown_unknown": [0.0, unknown, 0.9]}
    mean = {
        "f": [0.9, 0.8, 0.7],
        "precision": [1, 1, 1],
        "recall": [1, 1, 1],
        "threshold": [0.5, 0.6, 0.7],
        "f_of_closed": f_of_closed,
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
def section_of(make_run):
    """The section of a detector's page, from section `wilderness` of its evaluation."""

    def make(section):
        run = make_run({}, {"wilderness": section})
        return of_run(replace(run, name="a"))

    return make


@pytest.fixture
def compared(make_run, tmp_path):
    """The section of the comparison, from section `wilderness` of each run."""

    def make(**runs):
        named_runs = []
        for name, section in runs.items():
            run = make_run({}, {"wilderness": section})
            named_runs.append(replace(run, name=name))
        return content(named_runs, dict.fromkeys(runs, tmp_path / "wilderness.csv"))

    return make


def test_the_message_names_the_run_that_loses_most(compared):
    message = compared(a=wild(0.25), b=wild(0.05, f_of_closed=(0.9, 0.75, 0.5)))["message"]
    first, second = message.split(". ")
    assert first == (
        "With one OOD image per ID image, 25.0% [10.0, 40.0] of the detections of a (voc) are "
        "unknown objects (the highest of 2 runs; the lowest: 5.0%), at the confidence where 30% of "
        "the known objects are found"
    )
    assert "the F1 of a (voc) is 30.0 points lower" in second
    assert second.endswith("(the highest of 2 runs; the lowest: 15.0).")


def test_the_message_has_one_value_for_one_run(section_of):
    message = section_of(wild(0.25))["message"]
    assert "25.0% [10.0, 40.0] of the detections of a (voc) are unknown objects, at" in message
    assert message.endswith("is 30.0 points lower there than on ID images alone.")
    assert "highest" not in message


def test_the_overview_has_what_new_thresholds_still_lose(section_of):
    (row,) = section_of(wild())["overview"].frame.to_dicts()
    assert row["F1 lost (%)"] == pytest.approx(0.3)
    assert row["F1 lost, new thresholds (%)"] == pytest.approx(0.1)
    assert row["Unknown objects (%)"] == "25.0 [10.0, 40.0]"
    assert row["WI at recall 0.3 (%)"] == 0.125
    assert row["Known rejected (%)"] is None


def test_errors_are_drawn_as_far_as_all_classes_reach_the_recall(section_of):
    errors, f1 = section_of(wild())["charts"]
    rows = errors.charts[0].spec["data"]["values"]
    assert [(row["recall"], row["cause"], row["share"]) for row in rows] == [
        (0.1, "unknown object", 0.0),
        (0.3, "unknown object", 0.25),
    ]
    # Causes that never occur are not in the legend.
    assert [key.name for key in errors.legend] == ["unknown object"]
    assert len(f1.charts[0].spec["data"]["values"].splitlines()) == 1 + 2 * 3


def test_the_background_is_drawn_cumulated(section_of):
    side = {
        "histogram": [0.25] * 2 + [0.0] * 37 + [0.5],
        "classes": {"cat": {"mean": 0.1, "sd": 0.2, "rejected": 0.5}},
    }
    background = {
        "values": {"rejected_known": 0.1, "rejected_unknown": 0.5},
        "known": side,
        "unknown": side,
    }
    _, _, group = section_of(wild(background=background))["charts"]
    rows = group.charts[0].spec["data"]["values"].splitlines()
    assert rows[2].endswith("-0.9000,0.5000")
    assert rows[40].endswith("1.0000,1.0000")


def test_without_wild_images_there_is_no_message_and_no_chart(section_of):
    section = wild()
    section.operating_points = OperatingPoints(
        ratios=[0.0], betas={"1": {"mean": None, "classes": {}}}
    )
    section.errors.shares = {name: [None] * 3 for name in CAUSES}
    section.errors.classes = [0, 0, 0]
    variables = section_of(section)
    assert variables["message"] == ""
    assert variables["charts"] == []


def test_with_fewer_wild_than_id_images_there_is_no_message(section_of):
    section = wild()
    section.errors.ratio = 0.5
    section.operating_points.ratios = [0.0, 0.25, 0.5]
    variables = section_of(section)
    assert variables["message"] == ""
    assert variables["overview"].frame["Unknown objects (%)"].to_list() == ["—"]


def test_without_runs_there_is_no_table(compared):
    assert not compared()["overview"]


def test_a_classifier_has_no_section(make_run):
    assert of_run(make_run({}, {}, {"accuracy": 0.5})) is None


def test_the_pages_of_an_evaluated_run_and_of_the_comparison_have_its_values(
    report_of_two, evaluated, read
):
    evaluation = evaluation_in(evaluated)
    detector = read(report_of_two / "detectors/pets-net.html")
    comparison = read(report_of_two / "compare.html")
    assert "wild-1" in detector.charts()
    assert "wilderness-1" in comparison.charts()
    for page in (detector, comparison):
        assert "Images without known objects" in page.texts("h2")
        assert f"{100 * evaluation.wilderness.map_closed:.1f}" in page.texts("td")

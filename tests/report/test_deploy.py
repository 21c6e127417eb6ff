"""The page of what to deploy."""

import json
from dataclasses import replace

import pytest
from tests.evaluation.deployable import lay
from tests.report.conftest import run_of

from farther.errors import DataError
from farther.evaluation.deploy.choose import write_choice
from farther.evaluation.deploy.results import Budget, DeployChoices
from farther.evaluation.deploy.search import NOTHING_FLAGGED
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.report.pages import deploy


def content(tmp_path, **budget):
    """The page of a run called as in `run_of`."""
    lay(tmp_path, test=("far", "near"))
    for path in [
        *tmp_path.glob("artifacts/*/r"),
        *tmp_path.glob("artifacts/*/r.json"),
        tmp_path / "artifacts/splits/b",
    ]:
        path.rename(
            path.with_name(path.name.replace("r", "net", 1) if path.name[0] == "r" else "voc")
        )
    files = RunFiles("net", "voc", tmp_path / "artifacts")
    inputs = RunInputs(files, files.roles, EvaluationSettings(replicates=20))
    write_choice(inputs, Budget(**budget))
    run = run_of({"one": {"auroc": 0.5}, "two": {"auroc": 0.5}})
    return deploy.content([run], tmp_path / "artifacts")


def test_tables_have_limits_values_intervals_and_n(tmp_path):
    page = content(tmp_path, max_misclassified=0.1, max_false_alarms=0, choose_on="far")
    run = page["runs"]["net (voc)"]
    assert run["answer"].startswith(
        "No method reaches at most 10% of the unknown objects misclassified and at most 0"
    )
    axes, alone = run["tables"]
    rows = {row[0][0]: [text for text, _ in row[1:]] for row in axes.rows}
    limit, chosen, measured, interval, n, within = rows["unknown objects misclassified"]
    assert (limit, chosen, measured, n) == ("10.0%", "75.0%", "25.0%", "1 of 4")
    assert interval.startswith("0.0 to ") and within == "undecided"
    assert rows["mAP50 lost"][4] == ""
    (row,) = page["overview"].frame.to_dicts()
    assert (row["Detector"], row["Method"], row["n"], row["Reached"]) == (
        "net (voc)",
        "one",
        "4 / 4",
        "no",
    )
    assert alone.frame["Limit"].to_list() == ["Misclassified 10%", "Alarms 0"]


def test_the_chart_has_a_curve_and_a_point_per_method_the_limits_and_the_front(tmp_path):
    page = content(tmp_path, max_false_alarms=25, choose_on="far")
    (chart,) = page["runs"]["net (voc)"]["chart"].charts
    front, limit, _, settings, chosen = chart.spec["layer"]
    assert limit["encoding"] == {"x": {"datum": 25}, "tooltip": limit["encoding"]["tooltip"]}
    assert {row["series"] for row in settings["data"]["values"]} == {"one", "two"}
    (place,) = chosen["data"]["values"]
    assert place == next(
        row for row in settings["data"]["values"] if row["series"] == place["series"]
    )
    lines = [line.split(",") for line in chart.spec["data"]["values"].splitlines()[1:]]
    one = [(float(x), float(y)) for series, _, x, y in lines if series == "one"]
    # Test detections 0.1, 0.5 and 0.7 in four images; elks 0.15 and 0.95 of four.
    assert (one[0], one[-1]) == ((0, 0.5), (75, 0))
    assert (25, 0.25) in one
    falling = [row["y"] for row in front["data"]["values"]]
    assert falling == sorted(falling, reverse=True)
    assert "Deploy" in chart.description


def test_a_limit_that_holds_only_where_the_setting_was_chosen_is_remarked(tmp_path):
    content(tmp_path, max_false_alarms=25, choose_on="far")
    found = DeployChoices.read(tmp_path / "artifacts/choices/net.json")
    assert deploy.remarks(found) == []  # 50 of 100, but of four images
    alarms = replace(found.choice.measured["false_alarms"], interval=(30.0, 70.0))
    choice = replace(found.choice, measured={**found.choice.measured, "false_alarms": alarms})
    assert deploy.remarks(replace(found, choice=choice)) == [
        "Over the limit on held-out images: false alarms per 100 ID images (25.0 where chosen, "
        "50.0 measured). The two sets of images differ, or are too small."
    ]


def test_labels_that_exceed_a_limit_by_themselves_are_said(tmp_path):
    content(tmp_path, max_misclassified=0.1, max_false_alarms=0, choose_on="far")
    found = DeployChoices.read(tmp_path / "artifacts/choices/net.json")
    labelled = replace(found, choice=replace(found.choice, tau=NOTHING_FLAGGED, reached=False))
    said = deploy.answer(labelled)
    assert "The closest setting is one with t* = " in said
    assert "nothing flagged but what the detector labels as unknown." in said
    alarms = replace(found.choice.measured["false_alarms"], value=0.0)
    silent = replace(labelled.choice, measured={**labelled.choice.measured, "false_alarms": alarms})
    said = deploy.answer(replace(labelled, choice=silent))
    assert "The closest setting within at most 0 false alarms per 100 ID images is one with" in said
    assert "and nothing flagged. Measured" in said


def test_a_run_that_nothing_was_chosen_for_is_named(tmp_path):
    page = deploy.content([run_of({"one": {}})], tmp_path)
    assert page["runs"] == {}
    assert page["not_chosen"] == ["net"]


def test_a_damaged_choice_names_the_file(tmp_path):
    content(tmp_path, max_false_alarms=25)
    file = tmp_path / "artifacts/choices/net.json"
    file.write_text(json.dumps({"run": "net"}))
    with pytest.raises(DataError, match=r"choices/net\.json"):
        deploy.content([run_of({"one": {}})], tmp_path / "artifacts")

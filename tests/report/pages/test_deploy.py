"""The page of what to deploy."""

import json
from dataclasses import replace

import pytest
from pydantic_core import to_jsonable_python
from tests.evaluation.deployable import lay
from tests.report.conftest import run_of

from farther.errors import DataError
from farther.evaluation.deploy.choose import write_choice
from farther.evaluation.deploy.knobs import NOTHING_FLAGGED
from farther.evaluation.deploy.results import Budget, DeployChoice, DeployChoices, MethodGain
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.report.pages import deploy


def content(tmp_path, **budget):
    """The page of a run with the name and the benchmark of `run_of`."""
    lay(tmp_path, test=("far", "near"))
    artifacts = tmp_path / "artifacts"
    for folder in artifacts.glob("*/r"):
        folder.rename(folder.with_name("net"))
    for file in artifacts.glob("*/r.json"):
        file.rename(file.with_name("net.json"))
    (artifacts / "splits/b").rename(artifacts / "splits/voc")
    files = RunFiles("net", "voc", artifacts)
    inputs = RunInputs(files, files.roles, EvaluationSettings(replicates=100))
    write_choice(inputs, Budget(**{"guarantee": "none", **budget}))
    run = run_of({"one": {"auroc": 0.5}, "two": {"auroc": 0.5}})
    return deploy.content([run], artifacts)


def read_choices(tmp_path) -> DeployChoices:
    return DeployChoices.read(tmp_path / "artifacts/choices/net.json")


def with_alarms(choice: DeployChoice, **changes) -> DeployChoice:
    """The choice with another measured share of images with a false alarm."""
    alarms = replace(choice.measured["false_alarms"], **changes)
    return replace(choice, measured={**choice.measured, "false_alarms": alarms})


def test_tables_have_limits_values_intervals_and_n(tmp_path):
    page = content(tmp_path, max_misclassified=0.1, max_false_alarms=0, choose_on="far")
    run = page["runs"]["net (voc)"]
    assert run["answer"].startswith(
        "No setting keeps at most 10% of the unknown objects misclassified and at most 0%"
    )
    axes, limits = run["tables"]
    rows = {}
    for row in axes.rows:
        title, *texts = (text for text, _ in row)
        rows[title] = texts
    limit, chosen, met, measured, interval, n, met_elsewhere = rows["unknown objects misclassified"]
    assert (limit, chosen, measured, n) == ("10%", "75.0%", "25.0%", "1 of 4")
    assert interval.startswith("[0.0, ")
    assert (met, met_elsewhere) == ("no", "undecided")
    assert rows["mAP50 lost"][5] == ""
    (row,) = page["overview"].frame.to_dicts()
    assert (row["Run"], row["Method"]) == ("net (voc)", "one")
    assert (row["Met where chosen"], row["Met on held-out"]) == ("no", "undecided")
    assert limits.frame["Limit"].to_list() == ["Misclassified 10%", "Alarms 0%"]
    assert limits.frame["Met where chosen"].to_list() == ["yes", "yes"]
    assert all(listing.frame.columns[0] for listing in (axes, limits, page["overview"]))


def test_the_page_says_how_many_runs_keep_the_budget_on_held_out_images(tmp_path):
    page = content(tmp_path, max_false_alarms=0.25, choose_on="far")
    assert page["message"] == (
        "A setting meets the budget where it was chosen. "
        "The 4 held-out images are too few to tell whether it does there, too."
    )
    (tmp_path / "b").mkdir()
    refused = content(tmp_path / "b", max_misclassified=0.1, max_false_alarms=0, choose_on="far")
    assert refused["message"] == "No setting meets the budget where it was chosen."


def test_the_counts_of_several_runs_add_up(tmp_path):
    content(tmp_path, max_false_alarms=0.25, choose_on="far")
    artifacts = tmp_path / "artifacts"
    choices = read_choices(tmp_path)
    run = run_of({"one": {"auroc": 0.5}})
    runs = [replace(run, name=name) for name in ("net", "exceeding", "unmet")]
    exceeding = replace(with_alarms(choices.choice, interval=(0.3, 0.9)), reached=True)
    unmet = replace(choices.choice, reached=False)
    for name, choice in (("exceeding", exceeding), ("unmet", unmet)):
        content_of_run = to_jsonable_python(replace(choices, choice=choice))
        (artifacts / f"choices/{name}.json").write_text(json.dumps(content_of_run))
    assert deploy.content(runs, artifacts)["message"] == (
        "2 of 3 runs have a setting that meets the budget where it was chosen. "
        "On held-out images 0 of these meet it, 1 exceeds it, and 1 is undecided."
    )


def test_the_chart_has_a_curve_and_a_point_per_method_the_limits_and_the_front(tmp_path):
    page = content(tmp_path, max_false_alarms=0.25, choose_on="far")
    (chart,) = page["runs"]["net (voc)"]["chart"].charts
    front, limit, _, settings, chosen = chart.spec["layer"]
    assert limit["encoding"] == {"x": {"datum": 0.25}, "tooltip": limit["encoding"]["tooltip"]}
    points_by_method = {row["series"]: row for row in settings["data"]["values"]}
    assert set(points_by_method) == {"one", "two"}
    (chosen_point,) = chosen["data"]["values"]
    assert chosen_point == points_by_method[chosen_point["series"]]

    curve = []
    for line in chart.spec["data"]["values"].splitlines()[1:]:
        series, _, x, y = line.split(",")
        if series == "one":
            curve.append((float(x), float(y)))
    # Test detections 0.1, 0.5 and 0.7 in four images; elks 0.15 and 0.95 of four.
    assert (curve[0], curve[-1]) == ((0, 0.5), (0.75, 0))
    assert (0.25, 0.25) in curve
    falling = [row["y"] for row in front["data"]["values"]]
    assert falling == sorted(falling, reverse=True)
    assert "Deploy" in chart.description
    assert chart.title == "net (voc): misclassified objects against false alarms"
    assert page["runs"]["net (voc)"]["name"] == "net"


def test_a_limit_that_holds_only_where_the_setting_was_chosen_is_said_first(tmp_path):
    content(tmp_path, max_false_alarms=0.25, choose_on="far")
    choices = read_choices(tmp_path)
    assert deploy.remarks(choices) == []  # in half of the images, but of four
    assert deploy.is_within(choices)
    beyond = replace(choices, choice=with_alarms(choices.choice, interval=(0.3, 0.7)))
    assert deploy.answer(beyond).startswith(
        "Over the limit on held-out images: 50.0% [30.0, 70.0] of the ID images with a false alarm "
        "(limit 25%). The setting is "
    )
    (advice,) = deploy.remarks(beyond)
    assert "Choose with a lower limit" in advice
    assert not deploy.is_within(beyond)
    assert deploy.next_budget(beyond) == {"max_false_alarms": 0.125}
    assert deploy.status(beyond.choice, beyond.budget) == "exceeded"


def test_the_gain_over_the_cheapest_method_stands_beside_the_false_alarms_of_both(tmp_path):
    content(tmp_path, max_false_alarms=0.25)
    choices = read_choices(tmp_path)
    gain = MethodGain(method="two", than="one", axis="found", value=0.1, interval=(0.05, 0.2))
    methods = {
        "one": with_alarms(choices.methods["one"], value=0.06),
        "two": with_alarms(choices.methods["two"], value=0.148),
    }
    (reason, *_) = deploy.reasons(replace(choices, methods=methods, over_cheapest=gain))
    assert reason.endswith(
        "it finds +10.0 [+5.0, +20.0] points more of the unknown objects, "
        "with a false alarm in 14.8% of the ID images instead of 6.0%."
    )
    fewer_alarms = replace(gain, axis="false_alarms")
    (reason, *_) = deploy.reasons(replace(choices, methods=methods, over_cheapest=fewer_alarms))
    assert reason.endswith("it alarms in +10.0 [+5.0, +20.0] points fewer of the ID images.")


def test_a_method_that_was_chosen_on_a_half_of_the_images_only_is_named(tmp_path):
    content(tmp_path, max_false_alarms=0.25)
    choices = read_choices(tmp_path)
    first, second = choices.choice.folds
    own = replace(
        choices.choice,
        method="one",
        folds=(replace(first, method="one"), replace(second, method="one")),
    )
    assert deploy.remarks(replace(choices, choice=own, notes=[])) == []
    mixed = replace(own, folds=(replace(first, method="one"), replace(second, method="two")))
    assert deploy.remarks(replace(choices, choice=mixed, notes=[]), {"two": "Two"}) == [
        "Half of the OOD images by itself preferred Two, so this choice is uncertain."
    ]
    other = replace(
        own, folds=(replace(first, method="two"), replace(second, method="two", tau=0.0))
    )
    (remark,) = deploy.remarks(replace(choices, choice=other, notes=[]))
    assert remark.startswith("Each half of the OOD images by itself preferred two")


def test_what_a_limit_promises_is_said(tmp_path):
    content(tmp_path, max_false_alarms=0.6, guarantee="confidence")
    choices = read_choices(tmp_path)
    assert (
        deploy.answer(choices)
        .split(": ", 1)[1]
        .startswith(
            "at most 60% of the ID images with a false alarm on new images like those it was "
            "chosen on, with 95% confidence. Measured"
        )
    )
    in_expectation = replace(choices.budget, guarantee="expected")
    assert "in expectation on new" in deploy.answer(replace(choices, budget=in_expectation))


def test_images_that_are_too_few_for_a_limit_are_the_first_sentence(tmp_path):
    content(tmp_path, max_false_alarms=0.25, guarantee="confidence")
    choices = read_choices(tmp_path)
    (row,) = [row for row in deploy.axis_rows(choices) if row["Limit"]]
    assert row[deploy.WHERE_CHOSEN] == "yes"  # nothing is flagged
    assert deploy.answer(choices).startswith(
        "4 ID validation images cannot show a limit of 0.25: 11 are needed; 0.53 is the smallest "
        "that they can show. Deploy "
    )


def test_the_parts_of_proposals_are_said(tmp_path):
    content(tmp_path, max_false_alarms=0.25)
    choices = read_choices(tmp_path)
    measured = dict(choices.choice.measured)
    measured["found_by_proposals"] = replace(measured["found"], value=0.111)
    measured["alarms_of_proposals"] = replace(measured["false_alarms"], value=0.012)
    both = replace(choices.choice, alarms="both", source="rpn", objectness=0.75, measured=measured)
    text = deploy.answer(replace(choices, choice=both))
    assert ", and proposals of rpn above 0.75 called unknown: at most 25%" in text
    assert "of the unknown objects found (11.1% by proposals)" in text
    assert "of the ID images with a false alarm (1.2% by proposals)" in text
    (row,) = deploy.setting_rows({"x": both}, "Run", {}, choices.budget)
    assert row["Proposals"] == "rpn above 0.75"
    alone = replace(both, alarms="proposals", tau=NOTHING_FLAGGED)
    text = deploy.answer(replace(choices, choice=alone))
    assert "Deploy proposals alone: t* = 0.5, nothing flagged, proposals of rpn above" in text
    (row,) = deploy.setting_rows({"x": alone}, "Run", {}, choices.budget)
    assert row["Method"] == "proposals alone"
    cheapest = replace(choices, choice=alone, cheapest=alone.method, passed_over=None)
    (reason,) = deploy.reasons(replace(cheapest, over_cheapest=None))
    assert reason == "Where they were chosen, no method's scores find more within the limits."


def test_labels_that_exceed_a_limit_by_themselves_are_said(tmp_path):
    content(tmp_path, max_misclassified=0.1, max_false_alarms=0, choose_on="far")
    choices = read_choices(tmp_path)
    labelled = replace(choices.choice, tau=NOTHING_FLAGGED, reached=False)
    text = deploy.answer(replace(choices, choice=labelled))
    assert "The closest setting is one with t* = " in text
    assert "nothing flagged but what the detector labels as unknown." in text
    silent = with_alarms(labelled, value=0.0)
    text = deploy.answer(replace(choices, choice=silent))
    assert "The closest setting within at most 0% of the ID images with a false alarm is" in text
    assert "and nothing flagged. Measured" in text


def test_a_run_that_nothing_was_chosen_for_is_named(tmp_path):
    page = deploy.content([run_of({"one": {}})], tmp_path)
    assert page["runs"] == {}
    assert page["not_chosen"] == ["net"]


def test_a_damaged_choice_names_the_file(tmp_path):
    content(tmp_path, max_false_alarms=0.25)
    file = tmp_path / "artifacts/choices/net.json"
    file.write_text(json.dumps({"run": "net"}))
    with pytest.raises(DataError, match=r"choices/net\.json"):
        deploy.content([run_of({"one": {}})], tmp_path / "artifacts")

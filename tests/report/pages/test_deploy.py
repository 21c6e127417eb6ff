"""The page of what to deploy."""

import json
from dataclasses import replace

import pytest
from tests.evaluation.deployable import choose
from tests.report.conftest import run_of

from farther.errors import DataError
from farther.evaluation.deploy.dial import DialData
from farther.evaluation.deploy.results import DeployChoices
from farther.report.pages import deploy
from farther.report.pages.deploy import RunChoices
from farther.tables.schema import read_typed


def run_choices(tmp_path, **budget) -> RunChoices:
    choose(tmp_path, **budget)
    choices = DeployChoices.read(tmp_path / "artifacts/choices/net.json")
    return RunChoices(run_of({"one": {"auroc": 0.5}, "two": {"auroc": 0.5}}), choices)


def of_page(tmp_path, item: RunChoices):
    data = read_typed(DialData, tmp_path / "artifacts/dials/net.json")
    return deploy.choices_of(item, data)


def test_the_title_of_a_single_run_is_its_setting_or_why_there_is_none(tmp_path):
    item = run_choices(tmp_path, max_false_alarms=0.25, choose_on="far")
    page = deploy.content([item])
    assert page["heading"] == (
        "net (voc) with one finds 25.0% of the unknown objects and raises a false alarm in at most "
        "25% of the ID images"
    )
    assert page["overview"] is None
    few = replace(item, choices=replace(item.choices, too_few="4 are too few."))
    assert "too few images to show that a setting raises" in deploy.content([few])["heading"]
    choice = replace(item.choices.choice, reached=False)
    unmet = replace(item, choices=replace(item.choices, choice=choice))
    assert "no setting raises a false alarm in at most 25%" in deploy.content([unmet])["heading"]


def test_the_title_of_several_runs_counts_those_that_keep_the_limit(tmp_path):
    item = run_choices(tmp_path, max_false_alarms=0.25, choose_on="far")
    choice = replace(item.choices.choice, reached=False)
    other_run = replace(item.run, name="other")
    unmet = RunChoices(other_run, replace(item.choices, choice=choice))
    few = RunChoices(other_run, replace(item.choices, too_few="4 are too few."))
    page = deploy.content([item, unmet, few])
    assert page["heading"].startswith("1 of 3 detectors has a setting that raises a false alarm")
    assert [row["Limit"] for row in page["overview"].frame.to_dicts()] == [
        "holds",
        "not kept",
        "too few images",
    ]


def test_a_run_that_nothing_could_be_chosen_for_is_named_with_the_reason(tmp_path):
    item = run_choices(tmp_path, max_false_alarms=0.25)
    nothing = replace(item.choices, choice=None, notes=["Nothing can be chosen: so."])
    page = deploy.content([RunChoices(item.run, nothing)], ["later"])
    assert page["without"] == {"net (voc)": "Nothing can be chosen: so."}
    assert (page["index"], page["not_chosen"], page["heading"]) == ([], ["later"], "")


def test_each_stop_of_the_limit_names_stops_of_the_thresholds(tmp_path):
    item = run_choices(tmp_path, max_false_alarms=0.25)
    data = read_typed(DialData, tmp_path / "artifacts/dials/net.json")
    page = of_page(tmp_path, item)
    assert page["stops"][page["budget"]]["limit"] == 0.25
    for stop, shown in zip(item.choices.dial, page["stops"], strict=True):
        taus = data.methods[stop.choice.method].taus
        assert taus[shown["tau"]] == stop.choice.tau
        assert data.operating[shown["operating"]] == stop.choice.operating
        assert shown["objectness"] == -1
        assert shown["bars"]["found"]["value"] == stop.choice.measured["found"].value
        assert shown["command"] == f"farther bundle net deployed --max-false-alarms={stop.limit:g}"


def test_a_stop_says_what_it_promises(tmp_path):
    item = run_choices(tmp_path, max_false_alarms=0.6, guarantee="confidence")
    stops = of_page(tmp_path, item)["stops"]
    by_limit = {stop["limit"]: stop for stop in stops}
    assert by_limit[0.01]["status"] == "too few"
    assert by_limit[0.01]["verdict"].startswith("Too few images. 4 ID validation images cannot")
    assert by_limit[0.6]["status"] == "holds"
    assert by_limit[0.6]["verdict"] == (
        "Holds on new images like those it was chosen on, with 95% confidence: 0 of 4 ID "
        "validation images with a false alarm (upper bound 52.7%)."
    )


def test_other_limits_of_the_budget_stay_in_the_command(tmp_path):
    item = run_choices(tmp_path, max_misclassified=0.1, max_false_alarms=0.25, choose_on="far")
    page = of_page(tmp_path, item)
    assert page["axis"] == "false_alarms"
    assert page["stops"][0]["command"].endswith("--max-misclassified=0.1 --max-false-alarms=0.01")
    assert {stop["status"] for stop in page["stops"]} == {"not kept"}


def test_a_damaged_choice_names_the_file(tmp_path):
    run_choices(tmp_path, max_false_alarms=0.25)
    (tmp_path / "artifacts/choices/net.json").write_text(json.dumps({"run": "net"}))
    with pytest.raises(DataError, match=r"choices/net\.json"):
        deploy.read_choices([run_of({"one": {}})], tmp_path / "artifacts")


def test_a_run_without_choices_is_not_chosen_for(tmp_path):
    assert deploy.read_choices([run_of({"one": {}})], tmp_path) == ([], ["net"])

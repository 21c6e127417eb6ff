"""`farther choose`, on a run whose choices can be worked out by hand."""

import json
import re

import pytest
from tests.evaluation.deployable import PARAMS, lay

from farther.command import main
from farther.evaluation.deploy.choose import write_choice
from farther.evaluation.deploy.results import Budget, DeployChoices
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The current folder: a run that was evaluated."""
    lay(tmp_path, test=("far", "near"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(capsys, *arguments):
    assert main(["choose", "r", "--json", *arguments]) == 0
    return DeployChoices(**json.loads(capsys.readouterr().out))


def test_the_budget_is_that_of_params_yaml_and_limits_that_are_given_replace_all_of_it(
    project, capsys
):
    assert found(capsys).budget == Budget(max_false_alarms=0.25, guarantee="none")
    assert found(capsys, "--choose-on", "far").budget == Budget(
        max_false_alarms=0.25, choose_on="far", guarantee="none"
    )
    assert found(capsys, "--max-misclassified", "0.25").budget == Budget(
        max_misclassified=0.25, guarantee="none"
    )
    asked = found(capsys, "--max-recall-loss", "0.5", "--guarantee", "expected", "--method", "two")
    assert asked.budget == Budget(max_recall_loss=0.5, guarantee="expected")
    assert list(asked.methods) == ["two"]


def test_the_stored_choice_is_printed_and_another_budget_is_computed(project, capsys):
    files = RunFiles("r", "b")
    inputs = RunInputs(files, files.roles, EvaluationSettings(**PARAMS["evaluate"]))
    write_choice(inputs, Budget(**PARAMS["deploy"]))
    stored = json.loads(files.choice.read_text())
    stored["notes"] = ["from the file"]
    files.choice.write_text(json.dumps(stored))
    assert found(capsys).notes == ["from the file"]
    assert found(capsys, "--max-false-alarms", "0.5").notes == []


def test_it_prints_the_answer_the_costs_with_n_and_what_each_limit_costs_alone(project, capsys):
    asked = ["--max-misclassified", "0.1", "--max-false-alarms", "0", "--choose-on", "far"]
    assert main(["choose", "r", *asked]) == 0
    shown = capsys.readouterr().out
    said = " ".join(shown.split())
    assert (
        "r No setting keeps at most 10% of the unknown objects misclassified and at most 0% of the "
        "ID images with a false alarm where it was chosen. The closest setting within at most 0% "
        "of the ID images with a false alarm is one with t* = 0.5 and τ = 0.2. Measured on "
        "held-out images: 25.0% ["
    ) in said
    assert "Each alone can be met: at most 0% of the ID images with a false alarm" in said
    assert "for unknown objects, chosen on far and measured on the other OOD splits" in said
    lines = [line.split() for line in shown.splitlines()]
    # Of the elks, 0.95 is kept, 0.15 flagged, and two are not detected.
    assert ["unknown", "misclassified", "10%", "no,", "75.0%", "undecided,", "25.0%"] in lines
    assert ["unknown", "misclassified", "25.0%"] in [line[:3] for line in lines]
    assert ["unknown", "missed", "50.0%"] in [line[:3] for line in lines]
    assert ["misclassified", "10%", "one"] in [line[:3] for line in lines]
    assert all(len(line) <= 81 for line in shown.splitlines())


def test_a_setting_that_meets_the_budget_is_to_be_deployed(project, capsys):
    assert main(["choose", "r", "--method", "one"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    setting = "Deploy one with t* = 0.5 and τ = 0.6"
    assert f"{setting}: at most 25% of the ID images with a false alarm where it was" in said


def test_a_guarantee_is_of_images(project, capsys):
    assert (
        main(
            [
                "choose",
                "r",
                "--method",
                "one",
                "--max-false-alarms",
                "0.3",
                "--guarantee",
                "expected",
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    # Four images: with a fifth, the worst, one more alarm than none would be two of five.
    setting = "Deploy one with t* = 0.5 and τ = 0.2"
    limit = "at most 30% of the ID images with a false alarm in expectation on"
    assert f"{setting}: {limit}" in " ".join(shown.split())
    rows = [line.split() for line in shown.splitlines()]
    assert [
        "ID",
        "images",
        "with",
        "a",
        "false",
        "alarm",
        "30%",
        "yes,",
        "0.0%",
        "undecided,",
        "25.0%",
    ] in rows


@pytest.mark.parametrize(
    ("adapter", "command"), [("coco_results", ""), ("yolo", "Next: farther bundle r one deployed")]
)
def test_a_bundle_is_suggested_only_of_a_network(project, capsys, adapter, command):
    entry = {"adapter": adapter, "benchmark": "b", "weights": "r"}
    params = {**PARAMS, "detectors": {"r": entry}}
    (project / "params.yaml").write_text(json.dumps(params))
    assert main(["choose", "r", "--method", "one"]) == 0
    printed = capsys.readouterr()
    assert "Deploy one" in printed.out
    assert printed.err.startswith(command)
    assert ("farther bundle" in printed.err) == bool(command)


def test_an_answer_out_of_budget_says_what_to_do_instead_of_bundling_it(project, capsys):
    asked = ["--max-misclassified", "0.1", "--max-false-alarms", "0", "--choose-on", "far"]
    assert main(["choose", "r", *asked]) == 0
    printed = capsys.readouterr()
    assert "Raise a limit, or change the detector" in " ".join(printed.out.split())
    assert "farther bundle" not in printed.err
    assert printed.err == "Next: farther choose r --max-false-alarms=0 --choose-on=far\n"


def test_the_first_line_says_that_a_limit_is_exceeded_on_held_out_images(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    lay(tmp_path, {"test": [("cat", 0.9, 0.1, 0.4)] * 20}, test=("far", "near"))
    assert main(["choose", "r", "--method", "one", "--max-false-alarms", "0.25"]) == 0
    printed = capsys.readouterr()
    name, first, *_ = printed.out.splitlines()
    assert name == "r"
    assert first.startswith("Over the limit on held-out images: 100.0% [")
    said = " ".join(printed.out.split())
    assert "ID images with a false alarm (limit 25%). The setting is one with t* = 0.5" in said
    assert "ID images with a false alarm 25% yes, 25.0% no, 100.0%" in said
    assert "Choose with a lower limit" in said
    assert printed.err == "Next: farther choose r --method=one --max-false-alarms=0.125\n"


def test_the_rule_that_takes_the_cheaper_method_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cats = [("cat", 0.9, 0.95, 0.95)] * 20
    foxes = [("fox", 0.9, 0.99, score) for score in [0.1] + [0.99] * 19]
    lay(tmp_path, {"val": cats, "test": cats, "far": foxes})
    assert main(["choose", "r", "--max-false-alarms", "0"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Deploy one with t* = 0.5" in said
    assert "two would find +5.0 [" in said
    assert (
        "] points more of the unknown objects than one: not significant, so the cheaper one is "
        "taken."
    ) in said


def test_the_gain_over_the_cheapest_method_is_said_with_its_interval(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(PARAMS["evaluate"], "replicates", 200)
    monkeypatch.chdir(tmp_path)
    cats = [("cat", 0.9, 0.95, 0.95)] * 20
    foxes = [("fox", 0.9, 0.99, 0.1)] * 18 + [("fox", 0.9, 0.99, 0.99)] * 2
    lay(tmp_path, {"val": cats, "test": cats, "far": foxes})
    assert main(["choose", "r", "--max-false-alarms", "0"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"On held-out images two is significantly better than one, the cheapest method, both set "
        r"for the same limits: it finds \+90.0 \[\+[\d.]+, \+100.0\] points more of the unknown "
        r"objects, with a false alarm in 0.0% of the ID images instead of 0.0%\.",
        said,
    )


def test_a_stored_answer_of_another_version_says_what_to_run(project, capsys):
    files = RunFiles("r", "b")
    inputs = RunInputs(files, files.roles, EvaluationSettings(**PARAMS["evaluate"]))
    write_choice(inputs, Budget(**PARAMS["deploy"]))
    stored = json.loads(files.choice.read_text())
    stored["budget"]["max_false_alarms"] = 25.0
    files.choice.write_text(json.dumps(stored))
    assert main(["choose", "r"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "choices/r.json: field 'budget.max_false_alarms'" in message
    assert message.endswith(": run `farther repro choose`")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x"], "unknown run 'x'"),
        (["r", "--method", "three"], "unknown method 'three'"),
        (["r", "--choose-on", "test"], "unknown OOD split 'test'"),
        (
            ["r", "--max-misclassified", "2"],
            "'max_misclassified': Input should be less than or equal to 1, found 2",
        ),
        (["r", "--max-false-alarms", "many"], "for '--max-false-alarms'"),
        (
            ["r", "--max-false-alarms", "5"],
            "--max-false-alarms: parameter 'max_false_alarms': it is a share of the ID images, "
            "below 1: for 5 of 100 ID images write 0.05",
        ),
        (["r", "--max-false-alarms", "inf"], "Input should be a finite number"),
        (["r", "--guarantee", "sure"], "'sure' is not one of"),
        (
            ["r", "--max-recall-loss", "0", "--guarantee", "expected"],
            "max_recall_loss is 0, which no number of images can show",
        ),
    ],
)
def test_wrong_input_is_refused_in_plain_words(project, capsys, arguments, message):
    assert main(["choose", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_without_scores_the_absent_file_is_named(project, capsys):
    (project / "artifacts/scores/r/one/val.parquet").unlink()
    assert main(["choose", "r"]) == 2
    assert "scores/r/one/val.parquet" in capsys.readouterr().err


def test_without_a_budget_it_says_what_may_be_limited(project, capsys):
    text = (
        (project / "params.yaml").read_text().replace("max_false_alarms: 0.25", "confidence: 0.9")
    )
    (project / "params.yaml").write_text(text)
    assert main(["choose", "r"]) == 2
    assert "a budget limits something: give max_misclassified" in capsys.readouterr().err

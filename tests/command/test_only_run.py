"""Commands in a project with one run, or one benchmark, which need not be named."""

import json

import pytest
import yaml
from tests.evaluation.deployable import PARAMS, lay

from farther.command import main
from farther.command.bundle import _arguments as bundle_arguments
from farther.command.bundle import _names as bundle_names
from farther.command.explain import _names_of_number as number_names
from farther.command.project import Project
from farther.errors import ParameterError
from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.naming.registry import build
from farther.scoring.inputs import FitSection


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The current folder: a project with one run, `r`."""
    lay(tmp_path, test=("far", "near"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_two_runs(folder):
    detectors = {**PARAMS["detectors"], "s": PARAMS["detectors"]["r"]}
    (folder / "params.yaml").write_text(yaml.safe_dump({**PARAMS, "detectors": detectors}))


def printed(capsys, *arguments):
    capsys.readouterr()
    assert main(list(arguments)) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments):
    capsys.readouterr()
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and error.count("\n") == 1
    return error


def test_choose_answers_for_the_only_run(project, capsys):
    assert printed(capsys, "choose", "--json") == printed(capsys, "choose", "r", "--json")


def test_explain_uncertainty_is_of_the_only_run(project, capsys):
    asked = ["--split", "far", "--aggregate", "min", "--json"]
    assert printed(capsys, "explain", "uncertainty", *asked)["run"] == "r"


def test_explain_number_is_of_the_only_run_and_by_any_name(project, capsys):
    files = RunFiles("r", "b")
    inputs = RunInputs(files, files.roles, EvaluationSettings(replicates=100))
    evaluate_run(inputs, build(FitSection, "fit", {}).tau_settings(), EvaluationCode(""))
    exact = printed(capsys, "explain", "number", "r", "one", "far", "r_u", "--json")
    assert printed(capsys, "explain", "number", "ONE", "far", "R-U", "--json") == exact
    own = printed(capsys, "explain", "number", "-", "-", "mAP", "--json")
    assert own["metric"] == "map"
    pair = printed(capsys, "compare", "--methods", "One", "two", "--split", "far", "--json")
    assert (pair["a"], pair["b"]) == ("one", "two")
    asked = ["--run", "r", "--split", "far", "--split", "far", "--json"]
    assert printed(capsys, "compare", "--methods", "one", "TWO", *asked) == pair
    error = refused(capsys, "compare", "--methods", "one", "ONE")
    assert "--methods compares two methods; one was named twice" in error
    error = refused(capsys, "compare", "--methods", "one", "two", "--metric", "mAP")
    assert "map is not one of the metrics that are compared here" in error
    error = refused(capsys, "explain", "number", "-", "far", "r_u")
    assert "r_u is a metric of a method: name a method in the place of -" in error
    error = refused(capsys, "explain", "number", "one", "-", "r_u")
    assert "r_u is a metric of an OOD split: name an OOD split in the place of -" in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["choose"],
        ["explain", "uncertainty"],
        ["explain", "number", "one", "far", "nose"],
        ["explain", "image", "x", "--method", "one"],
        ["compare", "--methods", "one", "two"],
        ["bundle", "out"],
    ],
)
def test_with_several_runs_a_run_must_be_named_and_all_are_listed(project, capsys, arguments):
    with_two_runs(project)
    assert "name a run, as there are 2: r, s" in refused(capsys, *arguments)


def test_without_runs_the_section_is_named(project, capsys):
    (project / "params.yaml").write_text("methods: {one: {method: msp}}\n")
    assert "params.yaml: section 'detectors' has no entry" in refused(capsys, "choose")


def test_the_only_benchmark_need_not_be_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("benchmarks: {b: {}, c: {}}\n")
    for command in ("review", "duplicates"):
        error = refused(capsys, "benchmark", command)
        assert "name a benchmark, as there are 2: b, c" in error
    (tmp_path / "params.yaml").write_text("benchmarks: {b: {}}\n")
    assert main(["benchmark", "duplicates"]) == 2  # its entry is empty
    assert "benchmark 'b': parameter 'id' is missing" in capsys.readouterr().err


def test_a_method_that_is_not_listed_says_what_to_write(project, capsys):
    error = refused(capsys, "choose", "--method", "GEN")
    assert "unknown method 'GEN'" in error and "write `gen: {}` under 'methods'" in error
    error = refused(capsys, "choose", "--method", "ODIN")
    assert "temperature_scaling" in error and "'passes' of a detector" in error


def test_a_name_of_the_method_of_several_entries_is_refused_with_both(project, capsys):
    assert "'MSP' may mean 'one' or 'two'" in refused(capsys, "choose", "--method", "MSP")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["out"], ("r", None, "out")),
        (["one", "out"], ("r", "one", "out")),
        (["ONE", "out"], ("r", "one", "out")),
        (["r", "out"], ("r", None, "out")),
        (["r", "one", "out"], ("r", "one", "out")),
        (["r", "Two", "out"], ("r", "two", "out")),
    ],
)
def test_bundle_takes_run_method_and_folder_in_this_order(project, words, expected):
    assert bundle_arguments(Project(), words) == expected


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["x", "out"], "unknown method 'x'"),
        (["x", "one", "out"], "unknown run 'x'"),
        (["r", "one", "out", "more"], "expected RUN, METHOD and OUT, found 4 arguments"),
        (["on", "out"], "unknown method 'on'"),
    ],
)
def test_wrong_arguments_of_bundle_say_what_is_expected(project, words, problem):
    with pytest.raises(ParameterError, match=problem):
        bundle_arguments(Project(), words)


def test_with_two_runs_the_first_of_two_arguments_of_bundle_is_the_run(project):
    with_two_runs(project)
    assert bundle_arguments(Project(), ["s", "out"]) == ("s", None, "out")
    with pytest.raises(ParameterError, match="unknown run 'one'"):
        bundle_arguments(Project(), ["one", "out"])


@pytest.mark.parametrize("names", [["nose"], ["far", "nose"], ["r", "one", "far", "nose", "x"]])
def test_explain_number_says_which_names_it_expects(project, capsys, names):
    error = refused(capsys, "explain", "number", *names)
    assert "expected [RUN] METHOD SPLIT METRIC" in error and "- for METHOD or SPLIT" in error


def test_the_shell_completes_what_comes_next(project):
    only = Project()
    assert list(bundle_names(only, set())) == ["r", "one", "two"]
    assert list(bundle_names(only, {"r"})) == ["one", "two"]
    assert list(number_names(only, set())) == ["r", "one", "two"]
    assert list(number_names(only, {"r"})) == ["one", "two"]
    with_two_runs(project)
    several = Project()
    assert list(bundle_names(several, set())) == ["r", "s"]
    assert list(number_names(several, set())) == ["r", "s"]
    assert "nose" in number_names(several, {"s", "one", "-"})
    assert "nose" in number_names(several, {"s", "-"})


@pytest.mark.parametrize("word", ["r", "one"])
def test_a_name_where_the_folder_of_a_bundle_belongs_is_not_taken_for_the_folder(word, project):
    with pytest.raises(ParameterError, match=f"is missing after '{word}'.* write ./{word}"):
        bundle_arguments(Project(), [word])
    assert bundle_arguments(Project(), [f"./{word}"]) == ("r", None, f"./{word}")
    (project / word).mkdir()  # an earlier bundle, which is replaced
    assert bundle_arguments(Project(), [word]) == ("r", None, word)


def test_choose_names_a_method_once_and_says_why_it_cannot_choose_it(project, capsys):
    once = printed(capsys, "choose", "--method", "one", "--json")
    assert printed(capsys, "choose", "--method", "ONE", "--method", "one", "--json") == once
    params = {**PARAMS, "methods": {**PARAMS["methods"], "gen": {}}}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    error = refused(capsys, "choose", "--method", "GEN")
    assert "gen is not fitted for r yet: run `farther repro choose`" in error
    (project / "artifacts/fitted/r/one/method.json").write_text(
        json.dumps({"name": "msp", "not_applicable": "it needs logits"})
    )
    error = refused(capsys, "choose", "--method", "one")
    assert "one does not apply to r: it needs logits" in error
    assert printed(capsys, "choose", "--method", "one", "--method", "two", "--json")["choice"]


def test_a_run_without_results_brings_the_command_that_makes_them(project, capsys):
    with_two_runs(project)
    assert "s has no t* yet: run `farther repro choose`" in refused(capsys, "choose", "s")
    error = refused(capsys, "explain", "uncertainty", "s")
    assert "s has no detections yet: run `farther repro infer@s`" in error

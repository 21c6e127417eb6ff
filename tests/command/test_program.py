"""The command itself: help, statuses, errors, output."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from tests.support.cases import slow_but

from farther.command import main, output
from farther.command.program import GROUPS, SUBCOMMANDS

ROOT = Path(__file__).parents[2]
COMMANDS = [[name] for name in SUBCOMMANDS if name != "explain"]
COMMANDS += [[group, name] for group, (_, commands) in GROUPS.items() for name in commands]
COMMANDS += [["explain", "image"], ["explain", "number"], ["explain", "uncertainty"]]


def test_help_imports_nothing_slow():
    code = (
        "import sys; from farther.command import main; main(['--help']);"
        "print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    slow = ["numpy", "polars", "torch", "sklearn", "pyarrow", "pydantic", "yaml", "dvc", "rich"]
    process = subprocess.run(
        [sys.executable, "-c", code, *slow], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert process.stdout.splitlines()[-1] == "[]"


def test_the_module_is_the_command():
    process = subprocess.run(
        [sys.executable, "-m", "farther", "--help"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0
    assert process.stdout.startswith("Usage: farther ")


def test_without_a_subcommand_it_lists_them_in_the_order_of_the_work_and_the_groups(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    section = printed.split("\nCommands, in the order of the work:\n")[1].split("\n\n")[0]
    assert [line.split()[0] for line in section.splitlines()] == list(SUBCOMMANDS)
    more = printed.split("\nMore:\n")[1]
    assert all(
        name in more for group, (_, commands) in GROUPS.items() for name in (group, *commands)
    )
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples_that_name_it(command, capsys):
    assert main([*command, "--help"]) == 0
    printed = capsys.readouterr().out
    examples = printed.split("Examples:\n")[1].splitlines()
    assert any(line.startswith(f"    farther {' '.join(command)}") for line in examples)
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["explain", "picture"], "picture"),
        (["doktor"], "Did you mean 'doctor'?"),
        (
            ["benchmark", "publish", "voc", "out", "--format", "zip"],
            "'coco', 'parquet', 'huggingface'",
        ),
        (["doctor", "--sample", "many"], "--sample"),
        (["remote", "check", "origin", "--cache"], "not both"),
    ],
)
def test_wrong_usage_ends_with_status_2_and_says_what_is_wrong(arguments, problem, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert problem in error and "Traceback" not in error


def test_the_version_is_that_of_the_package(capsys):
    import farther

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"farther {farther.__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        ["doctor"],
        ["explain", "image", "1"],
        ["compare"],
        ["benchmark", "review", "voc"],
        ["summary"],
        ["benchmark", "duplicates", "voc"],
    ],
)
def test_outside_a_project_a_line_says_so_and_no_traceback(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    said = capsys.readouterr().err
    name = " ".join(command[: 2 if command[0] == "benchmark" else 1])
    assert said.startswith(f"farther {name}: ") and "Traceback" not in said


@pytest.mark.parametrize("command", slow_but(("doctor",), ["summary", "doctor"]))
def test_a_folder_that_may_not_be_read_is_named(command, tmp_path):
    """Root gives up the privilege to read everything."""
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    (tmp_path / "artifacts").mkdir(mode=0)
    without = (
        ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    )
    words = [*without, sys.executable, "-m", "farther", command]
    process = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    (tmp_path / "artifacts").chmod(0o700)
    assert process.returncode == 2
    assert process.stderr.startswith(f"farther {command}: artifacts/") and process.stderr.endswith(
        ": permission denied\n"
    )


def test_a_traceback_comes_when_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (["--traceback", "doctor"], ["doctor", "--traceback"]):
        with pytest.raises(Exception, match=r"params\.yaml"):
            main(arguments)


@pytest.mark.parametrize(
    ("kind", "nearly", "meant"),
    [("methods", "kn", "knn"), ("detectors", "yolov8", "yolo"), ("datasets", "coc", "coco")],
)
def test_a_name_that_is_nearly_right_brings_the_right_one(kind, nearly, meant, capsys):
    assert main(["list", kind, nearly]) == 2
    assert f"Did you mean '{meant}'?" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["methods", "detectors", "datasets", "metrics"])
def test_lists_name_everything_one_line_each(kind, capsys):
    assert main(["list", kind]) == 0
    heads, *lines = capsys.readouterr().out.splitlines()
    assert main(["list", kind, "--json"]) == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)]
    assert len(names) >= 7
    assert [line.split()[0] for line in lines[: len(names)]] == names
    assert heads.startswith("name ")


def test_parameters_come_with_their_defaults_and_what_they_are(capsys):
    assert main(["list", "methods", "knn", "--json"]) == 0
    (knn,) = json.loads(capsys.readouterr().out)
    by_name = {parameter["name"]: parameter for parameter in knn["parameters"]}
    assert by_name["k"]["default"] == "10"
    assert by_name["k"]["description"].startswith("Rank of the neighbour")
    assert main(["list", "datasets", "voc", "--json"]) == 0
    (voc,) = json.loads(capsys.readouterr().out)
    by_name = {parameter["name"]: parameter for parameter in voc["parameters"]}
    assert by_name["root"]["default"] == "(required)"
    assert by_name["max_warnings"]["default"] == "0.05"
    assert "image" in by_name["max_warnings"]["description"]  # said by the class that it comes from


@pytest.mark.parametrize(
    ("kind", "name", "registered"),
    [("methods", "EBO", "energy"), ("methods", "k-NN", "knn"), ("metrics", "R-U", "r_u")],
)
def test_a_list_describes_a_name_by_its_aliases(kind, name, registered, capsys):
    assert main(["list", kind, name, "--json"]) == 0
    (by_alias,) = json.loads(capsys.readouterr().out)
    assert by_alias["name"] == registered and by_alias["aliases"]
    assert main(["list", kind, name]) == 0
    assert "also called" in capsys.readouterr().out.lower()


def test_a_method_over_a_pass_is_listed_as_the_entry_to_write(capsys):
    assert main(["list", "methods", "ODIN"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "`odin: {method: temperature_scaling, temperature: 1000, pass: perturbed}`" in text
    assert main(["list", "methods", "ODIN", "--json"]) == 2


def test_a_metric_says_in_words_whether_higher_is_better(capsys):
    answers = {"nOSE": "no", "AUROC": "yes", "Missed": "neither direction is better"}
    for name, answer in answers.items():
        assert main(["list", "metrics", name]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(maxsplit=3)[3] for line in lines if line.startswith("higher")] == [
            answer
        ]
        assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_usage_names_arguments_without_their_types(command, capsys):
    assert main([*command, "--help"]) == 0
    usage, _, rest = capsys.readouterr().out.partition("\n\n")
    assert not any(character in usage for character in "{}<>")
    assert "<list" not in rest and "......" not in usage


def on_terminal(monkeypatch):
    """Output goes to a terminal of 80 columns with colours."""
    monkeypatch.setattr(sys, "stdout", StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


LONG = (("name", "what"), [("[a]", "word " * 40)])


def test_a_long_cell_is_wrapped_in_its_column_on_a_terminal(monkeypatch):
    on_terminal(monkeypatch)
    heads, *lines = output.table(*LONG).splitlines()
    assert "\033[1m" in heads
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) > 2 and all(line.startswith("      word") for line in lines[1:])


def test_elsewhere_a_row_is_one_line_without_colours():
    assert output.table(*LONG).splitlines() == ["name  what", f"[a]   {'word ' * 40}".rstrip()]
    assert output.coloured("x", "missing") == "x"


def test_numbers_stand_under_each_other():
    assert output.table(("", "n"), [("one", "1"), ("ten", "10")], 1).splitlines() == [
        "      n",
        "one   1",
        "ten  10",
    ]


def test_colours_are_for_terminals_that_want_them(monkeypatch):
    on_terminal(monkeypatch)
    assert output.coloured("x", "missing") == "\033[31mx\033[0m"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert output.coloured("x", "missing") == "x"
            assert "\033" not in output.table(*LONG)


def test_json_has_null_where_a_number_is_none():
    assert json.loads(output.as_json({"a": float("nan"), "b": [float("inf"), 1.5]})) == {
        "a": None,
        "b": [None, 1.5],
    }

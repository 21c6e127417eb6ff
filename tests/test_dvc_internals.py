"""Whether this DVC has what stages that run side by side need of it."""

import inspect

import pytest
from dvc.repo import Repo
from dvc.stage import run
from dvc.utils import strictyaml

from farther import dvc_internals
from farther.dvc_internals import make_command, planned_stages, unsupported


def test_this_dvc_is_supported():
    assert unsupported() is None


@pytest.mark.parametrize("name", ["_make_cmd", "unlocked_repo", "prepare_kwargs", "get_executable"])
def test_a_dvc_without_a_name_that_is_used_is_not_supported_and_the_name_is_said(monkeypatch, name):
    monkeypatch.delattr(run, name)
    assert f"has no dvc.stage.run.{name}" in unsupported()


@pytest.mark.parametrize(
    "other",
    [
        lambda cmd: cmd,
        lambda executable, cmd, shell: [executable, shell, cmd],
        lambda cmd, executable=None, *, options: cmd,
    ],
    ids=["fewer parameters", "one more parameter", "one more keyword"],
)
def test_a_dvc_whose_function_takes_other_parameters_is_not_supported(monkeypatch, other):
    monkeypatch.setattr(run, "_make_cmd", other)
    assert "has another dvc.stage.run._make_cmd than one of (executable, cmd)" in unsupported()


def test_a_dvc_that_runs_commands_without_the_replaced_function_is_not_supported(monkeypatch):
    usual = run.unlocked_repo

    def run_stage(stage, dry=False, force=False, run_env=None, **kwargs):
        usual(lambda *arguments, **options: None)

    monkeypatch.setattr(run, "run_stage", run_stage)
    assert "runs the commands of stages in another way" in unsupported()
    assert run.unlocked_repo is usual


def test_a_dvc_that_makes_something_else_of_a_command_is_not_supported(monkeypatch):
    monkeypatch.setattr(run, "_make_cmd", lambda executable, cmd: [executable, cmd, "-x"])
    assert "another shell command" in unsupported()


def test_a_method_that_takes_other_parameters_is_named_with_its_class(monkeypatch):
    from dvc.dvcfile import ProjectFile

    monkeypatch.setattr(ProjectFile, "dump_stages", lambda self, stages: None)
    assert "another dvc.dvcfile.ProjectFile.dump_stages" in unsupported()


def test_a_command_is_run_by_a_shell():
    assert make_command("echo one")[-1] == "echo one"


def test_no_other_module_uses_names_of_dvc_that_begin_with_an_underscore():
    from farther import dvc_repro
    from farther.command import repro

    for module in (dvc_repro, repro):
        source = inspect.getsource(module)
        assert "unlocked_repo" not in source
        assert "_make_cmd" not in source
    assert "_make_cmd" in inspect.getsource(dvc_internals)


PIPELINE = """
stages:
  second: {cmd: "true", deps: [first.txt], outs: [second.txt]}
  first: {cmd: "true", outs: [first.txt]}
"""


def test_stages_are_planned_in_order_and_their_file_is_parsed_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    parsed = []
    usual = strictyaml.load

    def load(path, *arguments, **options):
        parsed.append(path)
        return usual(path, *arguments, **options)

    monkeypatch.setattr(strictyaml, "load", load)
    with Repo.init(no_scm=True) as repo:
        planned = planned_stages(repo, [])
    names = {}
    for stage, upstream in planned.items():
        names[stage.name] = [other.name for other in upstream]
    assert names == {"first": [], "second": ["first"]}
    assert list(names) == ["first", "second"]
    assert parsed == [str(tmp_path / "dvc.yaml")]

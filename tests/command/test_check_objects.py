"""`farther remote check`: damaged objects are named; a remote that cannot be read is an error."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.dvc_commands import dvc, init

from farther.command import main
from farther.command.doctor.machine import repository
from farther.command.dvc_project import cached_outputs, object_path
from farther.command.project import Project

PIPELINE = """\
stages:
  score:
    foreach: [a, b]
    do:
      cmd: >-
        mkdir -p out/${item} && echo ${item} > out/${item}/x && echo 1 > out/${item}/y &&
        touch n${item}
      outs:
        - out/${item}
        - n${item}: {cache: false}
"""


@pytest.fixture(scope="module")
def one_output(tmp_path_factory) -> Path:
    """A folder with a project that has one output, which no remote has."""
    folder = tmp_path_factory.mktemp("one_output")
    project = folder / "project"
    project.mkdir()
    init(project)
    (project / "file").write_text("content")
    dvc("add", "-q", "file", folder=project)
    return folder


@pytest.fixture(scope="module")
def all_outputs(one_output, tmp_path_factory) -> Path:
    """The same project with a pipeline, and a default remote that has all of its outputs."""
    folder = shutil.copytree(one_output, tmp_path_factory.mktemp("pushed") / "all_outputs")
    project = folder / "project"
    (project / "dvc.yaml").write_text(PIPELINE)
    dvc("repro", "-q", folder=project)
    dvc("remote", "add", "-q", "--default", "store", "../store", folder=project)
    dvc("push", "-q", folder=project)
    return folder


@pytest.fixture
def project(one_output, tmp_path, monkeypatch) -> Path:
    """The project with one output, to be changed."""
    shutil.copytree(one_output, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def pushed(all_outputs, tmp_path, monkeypatch) -> Path:
    """The remote of the project with a pipeline, to be changed; the working directory is it."""
    shutil.copytree(all_outputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "store"


def damage(file: Path) -> None:
    """Replaces the content of an object."""
    file.chmod(0o644)
    file.write_bytes(b"damaged")


def find(store: Path, path: str) -> Path:
    """The object of an output."""
    (output,) = [output for output in cached_outputs() if output.path == path]
    return store / object_path(output.oid)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("/nowhere/at/all", "has none of the 1 outputs"),
        pytest.param(
            "http://127.0.0.1:9/x",
            "has none of the 1 outputs of this commit: the server does not",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "ssh://127.0.0.1:9/x",
            "the remote 'other' cannot be used: failed to connect to ssh",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "gdrive://folder", "requires 'dvc-gdrive' to be installed", marks=pytest.mark.slow
        ),
    ],
)
def test_a_remote_that_cannot_be_read_is_one_sentence(project, capsys, url, problem):
    dvc("remote", "add", "-q", "other", url)
    assert main(["remote", "check", "other"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


def test_outside_a_project_of_dvc_the_message_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["remote", "check"]) == 2
    assert "not inside of a DVC repository" in capsys.readouterr().err


def test_outputs_are_those_that_dvc_caches(pushed):
    paths = {output.path for output in cached_outputs()}
    assert paths == {"file", "out/a", "out/b"}


def test_an_unknown_remote_is_named_with_those_that_there_are(pushed, capsys):
    assert main(["remote", "check", "stor"]) == 2
    assert "unknown remote 'stor'" in capsys.readouterr().err


@pytest.mark.slow
def test_damaged_objects_of_a_folder_are_deleted_and_pushed_again(pushed, capsys):
    damage(find(pushed, "file"))
    assert main(["remote", "check"]) == 1
    printed = capsys.readouterr()
    assert re.search(
        r"^file: object \w{32} is damaged: its MD5 is \w{32}$", printed.out, re.MULTILINE
    )
    assert "--remove" in printed.err
    assert main(["remote", "check", "store", "--remove"]) == 1
    assert "Removed." in capsys.readouterr().out
    dvc("push", "-q")
    assert main(["remote", "check"]) == 0
    assert "7 files read (0.0 MB). Faults: 0. Missing outputs: 0." in capsys.readouterr().out


def test_a_file_that_a_folder_lacks_is_lost_and_a_folder_that_is_absent_is_none(pushed, capsys):
    find(pushed, "out/b").unlink()
    lost = next(file for file in pushed.rglob("*") if file.is_file() and file.read_text() == "a\n")
    lost.unlink()
    assert main(["remote", "check"]) == 1
    printed = capsys.readouterr().out
    assert "out/a/x: object" in printed
    assert "is lost" in printed
    assert "Faults: 1. Missing outputs: 1." in printed


@pytest.mark.slow
def test_a_damaged_list_of_a_folder_is_a_fault_of_the_folder(pushed, capsys):
    damage(find(pushed, "out/a"))
    assert main(["remote", "check"]) == 1
    assert re.search(
        r"^out/a: object \w{32}\.dir is damaged", capsys.readouterr().out, re.MULTILINE
    )


@pytest.mark.slow
def test_a_damaged_object_of_the_cache_is_named(pushed, capsys):
    damage(find(Path(".dvc/cache"), "file"))
    assert main(["remote", "check", "--cache", "--remove"]) == 1
    printed = capsys.readouterr()
    assert "file: object" in printed.out
    assert "dvc pull, delete these files" in printed.err
    dvc("fetch", "-q")
    assert main(["remote", "check", "--cache"]) == 0


def test_doctor_names_outputs_that_are_in_the_cache_only(tmp_path, monkeypatch):
    stage = "stages:\n  one:\n    cmd: echo one > one\n    outs: [one]\n"
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    dvc("init", "-q")
    Path("dvc.yaml").write_text(stage)
    dvc("repro", "-q")
    assert "checked out" not in str(repository(Project()))
    Path("one").unlink()
    (finding,) = [found for found in repository(Project()) if "checked out" in found.text]
    assert finding.text == "1 output in the cache, but not checked out: one"
    assert finding.more == {"remedy": "dvc checkout"}


def test_without_a_remote_the_message_says_how_to_add_one(project, capsys):
    assert main(["remote", "check"]) == 2
    assert "dvc remote add" in capsys.readouterr().err


def test_a_remote_that_has_the_outputs_is_fine(project, tmp_path_factory, capsys):
    dvc("remote", "add", "-q", "other", str(tmp_path_factory.mktemp("remote")))
    dvc("push", "-q", "--remote", "other")
    assert main(["remote", "check", "other"]) == 0
    assert "1 files read" in capsys.readouterr().out

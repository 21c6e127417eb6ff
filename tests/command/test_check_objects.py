"""`farther remote check` of a remote that cannot be read: one sentence, and exit status 2."""

import subprocess
from pathlib import Path

import pytest
from dvc.repo import Repo

from farther.command import main
from farther.command.doctor.machine import repository
from farther.command.project import Project


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project with one output, which no remote has."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    with Repo.init() as repo:
        Path("file").write_text("content")
        repo.add("file")
    return tmp_path


def add_remote(name: str, url: str) -> None:
    with Repo() as repo, repo.config.edit("repo") as config:
        config["remote"][name] = {"url": url}


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("/nowhere/at/all", "has none of the 1 outputs"),
        ("http://127.0.0.1:9/x", "the remote 'other' cannot be used: Connect call failed"),
        ("gdrive://folder", "requires 'dvc-gdrive' to be installed"),
    ],
)
def test_a_remote_that_cannot_be_read_is_one_sentence(project, capsys, url, problem):
    add_remote("other", url)
    assert main(["remote", "check", "other"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


def test_doctor_names_outputs_that_are_in_the_cache_only(tmp_path, monkeypatch):
    stage = "stages:\n  one:\n    cmd: echo one > one\n    outs: [one]\n"
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    Repo.init().close()
    Path("dvc.yaml").write_text(stage)
    with Repo() as repo:
        repo.reproduce()
    assert "checked out" not in str(repository(Project()))
    Path("one").unlink()
    (finding,) = [found for found in repository(Project()) if "checked out" in found.text]
    assert finding.text == "1 output in the cache, but not checked out: one"
    assert finding.more == {"remedy": "dvc checkout"}


def test_without_a_remote_the_message_says_how_to_add_one(project, capsys):
    assert main(["remote", "check"]) == 2
    assert "dvc remote add" in capsys.readouterr().err


def test_a_remote_that_has_the_outputs_is_fine(project, tmp_path_factory, capsys):
    add_remote("other", str(tmp_path_factory.mktemp("remote")))
    with Repo() as repo:
        repo.push(remote="other")
    assert main(["remote", "check", "other"]) == 0
    assert "1 files read" in capsys.readouterr().out

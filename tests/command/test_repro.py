"""`farther repro` and `farther open`: what runs, failures in full, Ctrl-C, exit statuses."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.dvc_commands import dvc, init

from farther.command import main
from farther.command.project import Project
from farther.command.repro import stage_names

RUNS = """
stages:
  curate:
    cmd: python step.py curate all
    deps: [step.py]
    outs: [artifacts/splits/all]
  infer:
    foreach: ${detectors}
    do:
      cmd: python step.py regions ${key}
      deps: [step.py, artifacts/splits/all]
      outs: ["artifacts/regions/${key}"]
  report:
    cmd: python step.py report all
    deps: [artifacts/regions]
    outs: [artifacts/report/all]
"""

#: An inference ends when as many have begun as the file `together` says, and fails where the file
#: `failing` names it.
STEP = """
import os, pathlib, sys, time
stage, name = sys.argv[1:]
if stage == "regions":
    pathlib.Path("begun", name).write_text(os.environ.get("OMP_NUM_THREADS", ""))
    end = time.monotonic() + 600
    while len(list(pathlib.Path("begun").iterdir())) < int(pathlib.Path("together").read_text()):
        assert time.monotonic() < end, "alone"
        time.sleep(0.01)
    if pathlib.Path("failing").read_text() == name:
        sys.exit(f"{name}: it fails")
place = pathlib.Path("artifacts", "splits" if stage == "curate" else stage)
place.mkdir(parents=True, exist_ok=True)
place.joinpath(name).mkdir(exist_ok=True)
place.joinpath(name, "file").write_text(name)
print(f"{stage} {name}: done")
"""


@pytest.fixture
def runs(tmp_path) -> Path:
    """A project with three runs."""
    files = {"step.py": STEP, "together": "1", "failing": ""}
    (tmp_path / "begun").mkdir()
    return write(tmp_path, RUNS, "detectors: {a: {}, b: {}, c: {}}\n", files)


def write(folder: Path, pipeline: str, params: str, files: dict[str, str]) -> Path:
    """A project of DVC."""
    written = {"dvc.yaml": pipeline, "params.yaml": params, ".gitignore": "/artifacts\n", **files}
    for name, text in written.items():
        (folder / name).write_text(text)
    init(folder)
    return folder


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Args:
        returncode: Its exit status.
        stdout: What it printed.
        stderr: What it printed there.
    """

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def repro(monkeypatch, capfd):
    """Runs `farther repro` in a folder, in this process; DVC and its stages are other processes."""

    def run(project: Path, *arguments: str) -> Ended:
        monkeypatch.chdir(project)
        capfd.readouterr()
        status = main(["repro", *arguments])
        return Ended(status, *capfd.readouterr())

    return run


def test_stages_print_their_lines_and_dvc_none(runs, repro):
    process = repro(runs, "--jobs", "1")
    assert process.returncode == 0, process.stderr
    *lines, last = process.stdout.splitlines()
    assert lines == [
        "curate all: done",
        "regions a: done",
        "regions b: done",
        "regions c: done",
        "report all: done",
    ]
    assert last.startswith("Finished in 0:")
    assert process.stderr == "Next: farther summary\n"
    assert len(repro(runs).stdout.splitlines()) == 1


def test_new_runs_go_through_their_detectors_at_the_same_time_on_a_share_of_the_cores(runs, repro):
    (runs / "together").write_text("2")
    process = repro(runs, "--jobs", "2")
    assert process.returncode == 0, process.stdout + process.stderr
    lines = process.stdout.splitlines()
    assert lines[0] == "curate all: done"
    assert set(lines[1:4]) == {f"regions {run}: done" for run in "abc"}
    assert lines[4] == "report all: done"
    threads = {int(file.read_text()) for file in (runs / "begun").iterdir()}
    assert threads == {max(1, len(os.sched_getaffinity(0)) // 2)}
    assert "up to date" in dvc("status", folder=runs)


def test_a_failure_is_shown_in_full_and_what_runs_beside_it_is_kept(runs, repro):
    (runs / "failing").write_text("a")
    process = repro(runs, "--jobs", "2")
    assert process.returncode == 2
    assert "a: it fails" in process.stderr
    assert "ERROR: failed to reproduce 'infer@a'" in process.stderr
    advice = "Next: correct it, then farther repro again; finished work is kept\n"
    assert process.stderr.endswith(advice)
    assert "report" not in process.stdout
    (runs / "failing").write_text("")
    second = repro(runs)
    assert second.returncode == 0
    assert "regions a" in second.stdout
    assert "regions b" not in second.stdout
    assert "report" in second.stdout


def test_a_damaged_dvc_lock_is_named_with_the_remedy(tmp_path, repro):
    stage = "stages:\n  one:\n    cmd: echo one > one\n    deps: [params.yaml]\n    outs: [one]\n"
    write(tmp_path, stage, "{}", {})
    (tmp_path / "dvc.lock").write_text(
        "schema: '2.0'\nstages:\n  one:\n    cmd"
    )  # as a killed DVC leaves it
    process = repro(tmp_path)
    assert process.returncode != 0
    *_, text, advice = process.stderr.splitlines()
    assert text == "dvc.lock is damaged; a killed DVC or a full disk does that"
    assert advice == "Next: git checkout -- dvc.lock"
    (tmp_path / "dvc.lock").unlink()
    process = repro(tmp_path)
    assert (process.returncode, "damaged" in process.stderr) == (0, False)


def test_a_merge_conflict_in_dvc_lock_is_named_with_what_to_do(tmp_path, repro):
    stage = "stages:\n  one:\n    cmd: echo one > one\n    outs: [one]\n"
    write(tmp_path, stage, "{}", {})
    assert repro(tmp_path).returncode == 0
    lines = (tmp_path / "dvc.lock").read_text().splitlines(keepends=True)
    conflict = ["<<<<<<< HEAD\n", "=======\n", ">>>>>>> theirs\n"]
    (tmp_path / "dvc.lock").write_text("".join([*lines[:3], *conflict, *lines[3:]]))
    process = repro(tmp_path)
    assert process.returncode == 2
    advice = "run `git checkout --theirs dvc.lock`, then `farther repro`"
    assert f"dvc.lock: a merge conflict at line 4: {advice}" in process.stderr


def test_outside_a_project_repro_says_what_makes_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["repro"]) == 2
    assert "run this in a project's folder; `farther init` makes one" in capsys.readouterr().err


def test_the_stages_that_can_be_named_are_those_of_dvc():
    root = Path(__file__).parents[2]
    names = stage_names(Project(root / "params.yaml", root))
    listed = dvc("stage", "list", "--name-only", folder=root)
    assert sorted(names) == sorted(listed.split())


SLOW = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.mark.parametrize("to_all", [True, False], ids=["of the terminal", "of one process"])
def test_ctrl_c_ends_the_stage_and_the_command_without_an_error(runs, to_all):
    (runs / "step.py").write_text(SLOW)
    command = [sys.executable, "-m", "farther", "repro"]
    options = {"cwd": runs, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        assert process.stdout.readline() == "ready\n"
        if to_all:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert errors == "Stopping …\nStopped. Finished work is kept: run it again to continue.\n"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no process of its group is left


def test_an_unknown_run_is_refused_before_anything_runs(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs)
    assert main(["repro", "--first", "voc"]) == 2
    assert "farther repro: unknown run 'voc'" in capsys.readouterr().err


def test_open_prints_the_path_without_a_display_and_says_where_there_is_no_report(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["open"]) == 2
    assert "there is no report yet; `farther repro` writes it" in capsys.readouterr().err
    page = tmp_path / "artifacts/report/index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<p>")
    assert main(["open"]) == 0
    assert capsys.readouterr().out.strip() == str(page)


def test_open_opens_the_page_in_the_browser(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    (tmp_path / "index.html").write_text("<p>")
    assert main(["open", str(tmp_path)]) == 0
    assert opened == [(tmp_path / "index.html").as_uri()]
    assert capsys.readouterr().out == ""


FORCED = """
stages:
  one:
    cmd: python step.py one
    deps: [step.py]
    outs: [artifacts/one]
  two:
    cmd: python step.py two
    deps: [artifacts/one]
    outs: [artifacts/two]
"""

#: Writes its name; adds what the variable says to a file that no stage depends on.
COUNTED = """
import os, pathlib, sys
pathlib.Path("artifacts").mkdir(exist_ok=True)
pathlib.Path("artifacts", sys.argv[1]).write_text(sys.argv[1])
with open("ran", "a") as file:
    print(sys.argv[1], os.environ.get("FARTHER_FORCE"), file=file)
"""


@pytest.fixture
def forced(tmp_path, monkeypatch, repro) -> Path:
    """A project of two stages, one after the other, that ran once."""
    monkeypatch.delenv("FARTHER_FORCE", raising=False)
    monkeypatch.chdir(write(tmp_path, FORCED, "{}", {"step.py": COUNTED}))
    process = repro(tmp_path)
    assert process.returncode == 0, process.stderr
    assert ran(tmp_path) == ["one None", "two None"]
    return tmp_path


def ran(folder: Path) -> list[str]:
    """The stages that ran since it was asked last, each with the value of FARTHER_FORCE."""
    file = folder / "ran"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return lines


def test_a_forced_stage_runs_again_and_is_told_but_not_what_it_depends_on(forced, repro):
    process = repro(forced, "--force", "two")
    assert process.returncode == 0, process.stderr
    assert ran(forced) == ["two 1"]


def test_all_stages_are_forced_where_none_is_named(forced, repro):
    assert repro(forced, "--force").returncode == 0
    assert ran(forced) == ["one 1", "two 1"]
    assert repro(forced).returncode == 0
    assert ran(forced) == []


def test_what_a_forced_stage_depends_on_runs_where_it_changed_and_is_not_forced(forced, repro):
    (forced / "step.py").write_text(f"{COUNTED}\n# another\n")
    assert repro(forced, "--force", "two").returncode == 0
    assert ran(forced) == ["one None", "two 1"]

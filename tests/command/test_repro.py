"""`farther repro` and `farther open`: one line per stage, failures in full, DVC's exit status."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from dvc.repo import Repo

from farther import dvc_repro
from farther.command import main
from farther.command.project import Project
from farther.command.repro import stage_names

PIPELINE = """
stages:
  letters:
    foreach: [a, b]
    do:
      cmd: python letter.py ${item}
      deps: [letter.py]
      outs: ["artifacts/letters/${item}"]
  sum:
    foreach: ${benchmarks}
    do:
      cmd: python letter.py ${key}
      deps: [artifacts/letters]
      outs: ["artifacts/${key}"]
"""

LETTER = """
import os, pathlib, sys
name = sys.argv[1]
print(f"{name}: one line")
if name == "b":
    print("b: warning: a second line")
    print("a message", file=sys.stderr)
    sys.stderr.write("\\rb:  50%|#####     | 1/2\\rb: 100%|##########| 2/2\\n")
place = pathlib.Path("artifacts", "letters" if len(name) == 1 else "")
place.mkdir(parents=True, exist_ok=True)
place.joinpath(name).write_text(name)
"""


RUNS = """
stages:
  infer:
    foreach: ${detectors}
    do: {cmd: "python step.py infer ${key}", deps: [step.py], outs: ["artifacts/infer/${key}"]}
  evaluate:
    foreach: ${detectors}
    do:
      cmd: python step.py evaluate ${key}
      deps: ["artifacts/infer/${key}"]
      outs: ["artifacts/evaluate/${key}"]
  report:
    cmd: python step.py report all
    deps: [artifacts/evaluate]
    outs: [artifacts/report/all]
"""

#: An evaluation ends when as many have begun as the file `together` says, and fails where the file
#: `failing` names it.
STEP = """
import os, pathlib, sys, time
stage, name = sys.argv[1:]
if stage == "evaluate":
    pathlib.Path("begun", name).write_text(str(len(os.sched_getaffinity(0))))
    end = time.monotonic() + 600
    while len(list(pathlib.Path("begun").iterdir())) < int(pathlib.Path("together").read_text()):
        assert time.monotonic() < end, "alone"
        time.sleep(0.01)
    assert pathlib.Path("failing").read_text() != name, "it fails"
place = pathlib.Path("artifacts", stage)
place.mkdir(parents=True, exist_ok=True)
place.joinpath(name).write_text(name)
print(f"{name}: {stage} is done")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return write(
        tmp_path_factory.mktemp("project"),
        PIPELINE,
        "benchmarks: {word: {}}\n",
        {"letter.py": LETTER},
    )


@pytest.fixture
def runs(tmp_path) -> Path:
    """A project with three runs."""
    files = {"step.py": STEP, "together": "2", "failing": ""}
    (tmp_path / "begun").mkdir()
    return write(tmp_path, RUNS, "detectors: {a: {}, b: {}, c: {}}\n", files)


def write(folder: Path, pipeline: str, params: str, files: dict[str, str]) -> Path:
    """A project of DVC."""
    written = {"dvc.yaml": pipeline, "params.yaml": params, ".gitignore": "/artifacts\n", **files}
    for name, text in written.items():
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    Repo.init(str(folder)).close()
    (folder / ".dvc/config").write_text("[core]\n    analytics = false\n")
    return folder


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


@pytest.fixture(scope="module")
def repro(commands):
    """Runs `farther repro` in a folder, in a process of its own."""

    def run(project: Path, *arguments: str) -> subprocess.CompletedProcess:
        command = [commands / "farther", "repro", *arguments]
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)

    return run


def test_each_stage_has_a_line_then_failures_are_shown_in_full(project, repro):
    process = repro(project)
    assert process.returncode == 0, process.stderr
    shown = re.sub(r" +\d/3 +\d+:\d\d +", "", re.sub(r" +\d+ s", " 0 s", process.stdout))
    *lines, last, end, more = re.sub(r" \d+:\d\d;", " 0:00;", shown).splitlines()
    of_b = lines.index("letters@b 0 s")
    assert lines[of_b + 1] == "    b: warning: a second line"
    assert sorted(lines) == [
        "    b: warning: a second line",
        "letters@a 0 s  one line",
        "letters@b 0 s",
    ]
    assert last == "sum@word 0 s  one line"
    assert re.findall(r"^ +(\d)/3 +\d:\d\d ", process.stdout, re.M) == ["1", "2", "3"]
    assert end == "3 stages ran in 0:00; 0 were up to date."
    assert more.startswith("`farther doctor` has the warnings in full")
    assert process.stderr == "a message\nNext: farther summary\n"  # and no progress bar
    log = (project / "artifacts/.work/logs/letters@b.log").read_text().splitlines()
    assert sorted(log) == ["a message", "b: one line", "b: warning: a second line"]

    text = (project / "letter.py").read_text()
    (project / "letter.py").write_text(text + "print('before'); 1 / (name != 'b')\n")
    broken = repro(project)
    assert broken.returncode != 0
    assert "ZeroDivisionError: division by zero" in broken.stderr
    assert "ERROR: failed to reproduce 'letters@b'" in broken.stderr
    assert "\nbefore\n" in broken.stdout
    assert re.search(
        r"^  [12]/3 +\d:\d\d  letters@b  failed after \d+ s; its output: artifacts/",
        broken.stdout,
        re.M,
    )
    assert "up to date" not in broken.stdout
    assert broken.stderr.endswith(
        "Next: correct it, then farther repro again; finished stages are kept\n"
    )

    (project / "letter.py").write_text(text)
    assert (
        "taken from the cache" in repro(project).stdout
        or "3 were up to date" in repro(project).stdout
    )


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


def test_what_did_not_change_does_not_run_and_what_the_cache_has_is_taken_from_it(tmp_path, repro):
    stage = "stages:\n  one:\n    cmd: echo one > one\n    deps: [params.yaml]\n    outs: [one]\n"
    write(tmp_path, stage, "{}", {})
    assert re.search("^  1/1 +0:0. +one +. s$", repro(tmp_path).stdout, re.M)
    locked = (tmp_path / "dvc.lock").read_text()
    assert repro(tmp_path, "one").stdout.splitlines()[0].endswith("; 1 were up to date.")
    (tmp_path / "one").unlink()
    (tmp_path / "dvc.lock").unlink()
    assert re.search("^  1/1 +0:0. +one +. s  taken from the cache$", repro(tmp_path).stdout, re.M)
    assert (tmp_path / "dvc.lock").read_text() == locked


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


def test_lines_of_stages_are_whole_where_they_are_not_printed_to_a_terminal(tmp_path, repro):
    words = " ".join(f"word{number}" for number in range(40))
    name = "a_stage_of_a_long_name_" * 4
    write(tmp_path, f"stages:\n  {name}:\n    cmd: echo '{words}'\n", "{}", {})
    (line,) = [line for line in repro(tmp_path).stdout.splitlines() if name in line]
    assert line.endswith(words)


def test_outside_a_project_repro_says_what_makes_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["repro"]) == 2
    assert "run this in a project's folder; `farther init` makes one" in capsys.readouterr().err


def test_copies_that_a_killed_dvc_left_are_deleted_and_other_hidden_files_stay(tmp_path, repro):
    stage = "stages:\n  one:\n    cmd: mkdir -p out/in && echo one > out/in/a\n    outs: [out/in]\n"
    write(tmp_path, stage, "{}", {})
    (tmp_path / "out/in").mkdir(parents=True)
    left = [tmp_path / folder / f".{'aZ_-' * 5}09.tmp" for folder in ("out", "out/in")]
    others = [tmp_path / "out" / name for name in (".short.tmp", ".keep", f"{'a' * 22}.tmp")]
    for file in (*left, *others):
        file.write_text("half")
    assert repro(tmp_path).returncode == 0
    assert [file for file in left if file.exists()] == []
    assert [file for file in others if not file.exists()] == []


def test_the_stages_that_are_counted_are_those_of_dvc():
    root = Path(__file__).parents[2]
    assert sorted(stage_names(Project(root / "params.yaml", root))) == sorted(
        stage.name for stage in Repo(str(root)).index.stages
    )


def test_ctrl_c_ends_the_stage_and_the_command(project):
    (project / "letter.py").write_text("import time; print('ready', flush=True); time.sleep(600)")
    command = [sys.executable, "-m", "farther", "repro"]
    options = {"cwd": project, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        log = project / "artifacts/.work/logs/letters@a.log"
        log.unlink(missing_ok=True)
        while process.poll() is None and not (log.exists() and "ready" in log.read_text()):
            os.sched_yield()
        os.killpg(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert errors == ("Stopping …\nStopped. Finished stages are kept: run it again to continue.\n")
    assert "failed" not in printed
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no process of its group is left


class Deaf:
    """A watcher whose stages end when they were interrupted a second time.

    Attributes:
        events: "stop" for each interruption, and the seconds of each wait for a stage's thread.
    """

    def __init__(self):
        self.events = []

    def execute(self, stage, command, options):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        while self.events.count("stop") < 2:
            os.sched_yield()
        return 130

    def stop(self):
        self.events.append("stop")

    def kill(self):
        self.events.append("kill")

    def end(self, stage, outcome):
        pass


def test_ctrl_c_asks_a_stage_again_that_did_not_hear(runs, monkeypatch):
    monkeypatch.chdir(runs)
    monkeypatch.setattr(dvc_repro, "PATIENCE", 0.1)
    deaf = Deaf()
    join = threading.Thread.join

    def recorded_join(thread: threading.Thread, timeout: float | None = None) -> None:
        if timeout is not None:
            deaf.events.append(timeout)
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", recorded_join)
    with pytest.raises(KeyboardInterrupt):
        dvc_repro.Pipeline().run(deaf, jobs=1)
    assert deaf.events[:3] == ["stop", 0.1, "stop"]


def test_runs_are_evaluated_at_the_same_time_each_on_its_share_of_the_cores(runs, repro):
    process = repro(runs, "--jobs", "2")
    assert process.returncode == 0, process.stdout + process.stderr
    stages = re.findall(
        r"^ +(\d)/7 +\d:\d\d +(\S+) +\d+ s  (?:\w+: )?\w+ is done$", process.stdout, re.M
    )
    assert [int(number) for number, _ in stages] == [1, 2, 3, 4, 5, 6, 7]
    order = [stage for _, stage in stages]
    assert all(order.index(f"infer@{run}") < order.index(f"evaluate@{run}") for run in "abc")
    assert order[-1] == "report"
    cores = [int(file.read_text()) for file in (runs / "begun").iterdir()]
    assert max(cores) <= -(-len(os.sched_getaffinity(0)) // 2)
    assert process.stdout.splitlines()[-1].startswith("7 stages ran in ")
    second = repro(runs, "--jobs", "2")
    assert second.stdout.splitlines()[-1].endswith("; 7 were up to date.")


class Recorder:
    """A watcher that makes the outputs of `RUNS` itself.

    It records the order of the stages, and what ran beside each one.
    """

    def __init__(self):
        self.running, self.beside, self.turn = set(), {}, threading.Lock()

    def execute(self, stage, command, options):
        with self.turn:
            self.running.add(stage)
            self.beside[stage] = set(self.running)
        place = Path(
            options["cwd"], "artifacts", *(stage.split("@") if "@" in stage else (stage, "all"))
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(stage)
        with self.turn:
            self.running.remove(stage)
        return 0

    def stop(self):
        raise AssertionError("nothing interrupts it")

    def end(self, stage, outcome):
        pass


def test_inference_on_a_gpu_runs_one_stage_at_a_time(runs, monkeypatch):
    monkeypatch.chdir(runs)
    monkeypatch.setattr("farther.cores.GPUS", (str(runs / "params.yaml"),))
    recorder = Recorder()
    dvc_repro.Pipeline().run(recorder, jobs=3)
    assert len(recorder.beside) == 7
    assert not [
        others
        for others in recorder.beside.values()
        if sum(o.startswith("infer") for o in others) > 1
    ]


def test_the_run_that_is_asked_for_comes_before_others(runs, monkeypatch):
    monkeypatch.chdir(runs)
    recorder = Recorder()
    dvc_repro.Pipeline(first=["evaluate@c"]).run(recorder, jobs=1)
    assert list(recorder.beside)[:2] == ["infer@c", "evaluate@c"]


def test_a_long_stage_that_only_the_report_waits_for_begins_as_soon_as_it_can(runs, monkeypatch):
    cost = "  cost: {cmd: x, deps: [artifacts/infer], outs: [artifacts/cost/all]}\n"
    (runs / "dvc.yaml").write_text(RUNS + cost)
    monkeypatch.chdir(runs)
    recorder = Recorder()
    dvc_repro.Pipeline(first=["evaluate@c"]).run(recorder, jobs=1)
    assert list(recorder.beside)[:5] == ["infer@c", "evaluate@c", "infer@a", "infer@b", "cost"]


def test_what_runs_beside_a_failure_is_kept(runs, repro):
    (runs / "failing").write_text("a")
    process = repro(runs, "--jobs", "2")
    assert process.returncode != 0
    assert "AssertionError: it fails" in process.stderr
    assert "evaluate@a  failed after" in process.stdout
    assert "report" not in process.stdout
    (runs / "failing").write_text("")
    second = repro(runs)
    assert second.returncode == 0
    assert "evaluate@a" in second.stdout
    assert "evaluate@b" not in second.stdout
    assert "report" in second.stdout


def test_an_unknown_run_is_refused_before_anything_runs(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
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


CHANGED = """
stages:
  slow:
    cmd: python slow.py
    deps: [list.txt]
    params: [size, colour]
    outs: [artifacts/slow.txt]
"""

#: Reads what it depends on, then does what the file `during` says, once.
SLOW = """
import os, pathlib
text = pathlib.Path("list.txt").read_text() + pathlib.Path("params.yaml").read_text()
during = pathlib.Path("during")
if during.exists():
    command = during.read_text()
    during.unlink()
    assert os.system(command) == 0
pathlib.Path("artifacts").mkdir(exist_ok=True)
pathlib.Path("artifacts/slow.txt").write_text(text)
"""


@pytest.mark.parametrize(
    ("during", "changed"),
    [
        ("git checkout -q other", "list.txt, params.yaml: size"),
        ("echo two >> list.txt", "list.txt"),
        ("sed -i s/red/blue/ params.yaml", "params.yaml: colour"),
    ],
)
def test_what_a_stage_reads_and_someone_changes_meanwhile_is_not_taken_for_what_it_read(
    tmp_path, during, changed, repro
):
    files = {"slow.py": SLOW, "list.txt": "one\n", ".gitignore": "/artifacts\n/during\n"}
    write(tmp_path, CHANGED, "size: 1\ncolour: red\nunread: 0\n", files)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for step in ("add -A", "commit -qm first", "checkout -qb other"):
        subprocess.run([*git, *step.split()], cwd=tmp_path, check=True)
    (tmp_path / "list.txt").write_text("other\n")
    (tmp_path / "params.yaml").write_text("size: 2\ncolour: red\nunread: 1\n")
    for step in ("commit -qam second", "checkout -q -"):
        subprocess.run([*git, *step.split()], cwd=tmp_path, check=True)
    (tmp_path / "during").write_text(during)
    process = repro(tmp_path)
    assert process.returncode
    assert (
        f"{changed} changed while the stage ran, so its results are not recorded; run it again"
        in process.stderr
    )
    second = repro(tmp_path)
    assert second.returncode == 0, second.stderr
    assert "slow" in second.stdout
    expected = (tmp_path / "list.txt").read_text() + (tmp_path / "params.yaml").read_text()
    assert (tmp_path / "artifacts/slow.txt").read_text() == expected
    (tmp_path / "during").write_text(
        "sed -i s/unread/other/ params.yaml"
    )  # what no stage takes may change
    (tmp_path / "list.txt").write_text("three\n")
    assert repro(tmp_path).returncode == 0


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


def lacking(monkeypatch):
    """Has this process see a DVC without a name that it needs; `dvc`, another process, has it."""
    monkeypatch.delattr("dvc.stage.run._make_cmd")


def test_a_dvc_that_lacks_a_private_name_runs_by_itself_and_one_line_says_so(
    forced, monkeypatch, capfd
):
    lacking(monkeypatch)
    (forced / "step.py").write_text(f"{COUNTED}\n# another\n")
    assert main(["repro", "two", "--jobs", "2"]) == 0
    printed = capfd.readouterr()
    (line,) = [line for line in printed.err.splitlines() if "DVC" in line]
    assert (
        "has no dvc.stage.run._make_cmd: stages run one after the other, by dvc repro two" in line
    )
    assert ran(forced) == ["one None"]  # what it makes is as before


@pytest.mark.parametrize(
    ("targets", "expected"),
    [pytest.param((), ["one 1", "two 1"], marks=pytest.mark.slow), (("two",), ["two 1"])],
)
def test_such_a_dvc_forces_the_same_stages(forced, monkeypatch, capfd, targets, expected):
    lacking(monkeypatch)
    assert main(["repro", "--force", *targets]) == 0
    assert ran(forced) == expected


def test_a_stage_that_fails_is_exit_status_2_also_by_dvc_alone(forced, monkeypatch, capfd):
    lacking(monkeypatch)
    (forced / "step.py").write_text("raise SystemExit(3)")
    assert main(["repro"]) == 2
    assert "exited with 3" in capfd.readouterr().err


@pytest.mark.parametrize("gpu", [False, True])
def test_times_are_measured_alone_where_a_clock_measures_them(gpu, monkeypatch):
    monkeypatch.setattr(dvc_repro, "has_gpu", lambda: gpu)
    cost = SimpleNamespace(addressing="cost")
    evaluation = SimpleNamespace(addressing="evaluate@voc-vos")
    assert dvc_repro._runs_alone(cost) is gpu
    assert dvc_repro._runs_alone(evaluation) is False

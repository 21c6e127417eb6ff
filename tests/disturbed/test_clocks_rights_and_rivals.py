"""A clock that jumps, a read-only project, and two processes that write the same files."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.disturbed.conftest import MOUNTING, may_mount
from tests.disturbed.processes import content, rewritten
from tests.stages import test_imported_run as imported
from tests.stages.in_process import OF_RUN, run

from farther.curation import DecisionsFile

pytestmark = [pytest.mark.slow, pytest.mark.drawn(3)]

YEARS = 365 * 24 * 3600


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A small project of imported detections, evaluated, with its report."""
    yield from imported.project.__wrapped__(tmp_path_factory)


# --------------------------------------------------------------------------------------------------
# the clock


def dated(folder: Path) -> None:
    """Gives all files below a folder times of 2000 or 2070."""
    drawn = random.Random(5)
    for path in sorted(folder.rglob("*")):
        os.utime(path, (drawn.choice((30, 100)) * YEARS,) * 2)


@pytest.fixture
def jumping(monkeypatch):
    """The time goes back and forward by years from one look at it to the next."""
    drawn, now = random.Random(4), time.time
    monkeypatch.setattr(time, "time", lambda: now() + drawn.uniform(-30, 30) * YEARS)
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * time.time()))


def test_whatever_the_times_of_files_and_the_clock_say_what_did_not_change_is_kept(
    project, tmp_path, jumping
):
    root = shutil.copytree(project, tmp_path / "project")
    dated(root)
    assert rewritten(root, lambda: run(root, *imported.STAGES)) == []


#: Of images of splits other than train and val.
SWAPPED = {"cat": "dog", "dog": "cat"}


def test_a_changed_file_of_the_same_size_and_time_is_noticed(project, tmp_path, jumping):
    roots = [shutil.copytree(project, tmp_path / name) for name in ("kept", "new")]
    for root in roots:
        rows = json.loads((root / "bare.json").read_text())
        swapped = [
            {**row, "category_id": SWAPPED[row["category_id"]]}
            for row in rows
            if row["image_id"] < "train"
        ]
        size = (root / "bare.json").stat().st_size
        (root / "bare.json").write_text(
            json.dumps([row for row in rows if row["image_id"] >= "train"] + swapped)
        )
        assert (root / "bare.json").stat().st_size == size
        dated(root)
    before = content(roots[0] / "artifacts/metrics/bare")
    for output in ("regions", "evaluation", "metrics"):
        shutil.rmtree(roots[1] / "artifacts" / output / "bare")
    for root in roots:
        run(root, "infer bare", *(f"{stage} bare" for stage in OF_RUN))
    kept, new = (content(root / "artifacts/metrics/bare") for root in roots)
    assert kept == new != before


# --------------------------------------------------------------------------------------------------
# the rights

#: Runs commands in this process; prints the status and the stderr of each.
COMMANDS = """
import contextlib, io, json, sys
from farther.command import main
for words in json.loads(sys.argv[1]):
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
        status = main(words)
    print(json.dumps([words, status, stderr.getvalue()]))
"""
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0" && exec "$@"'


@pytest.mark.skipif(
    not may_mount(), reason="this machine lets no process mount a file system of its own"
)
def test_a_project_that_may_only_be_read_is_read_and_what_writes_there_says_so_once(
    project, tmp_path
):
    elsewhere = tmp_path / "cache"
    elsewhere.mkdir()
    reading = [
        ["summary"],
        ["list", "methods"],
        ["explain", "number", "whole", "msp", "far", "auroc"],
        ["figure", "outcomes", "--run", "whole", "--out", f"{elsewhere}/outcomes.svg"],
    ]
    writing = [
        ["figure", "outcomes", "--run", "whole", "--out", "outcomes.svg"],
        ["benchmark", "profile", "fmiyc", "--force"],
    ]
    environment = {
        **os.environ,
        "HOME": str(elsewhere),
        "XDG_CACHE_HOME": str(elsewhere),
        "NO_COLOR": "1",
    }
    command = [
        *MOUNTING,
        "sh",
        "-c",
        READ_ONLY,
        project,
        sys.executable,
        "-c",
        COMMANDS,
        json.dumps(reading + writing),
    ]
    before = content(project)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = [json.loads(line) for line in done.stdout.splitlines()]
    print(*said, sep="\n")
    assert [status for _, status, _ in said] == [0] * len(reading) + [2] * len(writing)
    for _, _, message in said[len(reading) :]:
        assert message.count("\n") == 1 and "read-only file system" in message
    assert (elsewhere / "outcomes.svg").is_file()
    assert content(project) == before


# --------------------------------------------------------------------------------------------------
# the rivals

#: Writes one file and one line of decisions again and again; says how often another process was in
#: its way.
RIVAL = """
import sys
from farther.curation import Decision, DecisionsFile, time_after
from farther.errors import FartherError
from farther.tables.documents import write_json
name, count, refused = sys.argv[1], int(sys.argv[2]), 0
file = DecisionsFile("decisions.csv")
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    try:
        write_json("artifacts/shared.json", {"by": name, "number": [number] * 20_000})
    except FartherError as error:
        assert "is writing it: wait until it has ended" in str(error), error
        refused += 1
    with file.locked() as opened:
        time = time_after(file.read().last_time(name))
        file.append(opened, Decision(time, name, "photos", "val", str(number), "keep"))
print(refused)
"""


def test_of_two_processes_that_write_one_file_each_writes_it_whole_and_no_line_is_lost(tmp_path):
    count, names = 40, ("ann", "bob")
    command = [sys.executable, "-c", RIVAL]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    rivals = [
        subprocess.Popen([*command, name, str(count)], cwd=tmp_path, **pipes) for name in names
    ]
    for rival in rivals:
        assert rival.stdout.readline() == "ready\n"
    for rival in rivals:
        rival.stdin.write("\n")
        rival.stdin.flush()
    seen = set()
    while any(rival.poll() is None for rival in rivals):
        if (file := tmp_path / "artifacts/shared.json").exists():
            found = json.loads(file.read_text())
            assert len({*found["number"]}) == 1 and len(found["number"]) == 20_000
            seen.add(found["by"])
    refused = [int(rival.stdout.read()) for rival in rivals]
    assert [rival.returncode for rival in rivals] == [0, 0] and max(refused) < count / 2
    assert seen == {*names}
    decided = DecisionsFile(tmp_path / "decisions.csv").read().frame
    lines = {(name, str(number)) for name in names for number in range(count)}
    assert {*decided.select("reviewer", "image_id").rows()} == lines and len(decided) == len(lines)
    assert not [path for path in tmp_path.rglob("*") if "/." in str(path.relative_to(tmp_path))[1:]]


def test_two_processes_of_one_stage_end_in_what_one_of_them_would_write(
    project, tmp_path, commands
):
    root = shutil.copytree(project, tmp_path / "project")
    expected = content(root / "artifacts")
    for output in ("metrics", "evaluation", "outcomes"):
        shutil.rmtree(root / "artifacts" / output / "whole", ignore_errors=True)
    script = Path(__file__).parents[2] / "stages/evaluate.py"
    both = [
        subprocess.Popen(
            [commands / "python", script, "whole"],
            cwd=root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    said = [process.communicate()[1].decode() for process in both]
    assert 0 in [process.returncode for process in both]
    for process, text in zip(both, said, strict=True):
        assert process.returncode == 0 or "is writing it: wait until it has ended" in text, text[
            -2000:
        ]
    run(root, "evaluate whole")
    assert content(root / "artifacts") == expected

"""When targets are disturbed: `MOMENTS` is the table of all moments.

Damage comes before a target runs: see `damaged.py`. At the other moments it is interrupted while it
runs, or meets what another process or run left; what it left, and what a rerun writes, is compared
with a run that nothing disturbed.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.disturbed import processes
from tests.disturbed.processes import content, differences, project_content
from tests.disturbed.targets import TARGETS, Target

from farther.command.doctor.machine import dvc_locks
from farther.detectors.split_inference import NETWORK_RECORD
from farther.errors import FartherError
from farther.tables.writing import locked

#: Exit status of a target that was refused.
REFUSED = 3
#: Bytes of a file system that no target fills.
LARGE = 2**28
#: Fewest bytes of a limit of the size of files: the message that it was exceeded is a file, too.
SMALLEST = 256


@dataclass
class Outcome:
    """A target that was disturbed, in the form that the tests read.

    Attributes:
        target: Its name.
        moment: Name of the moment.
        places: Numbers of the changes of files before which it was killed.
        message: What it said where it was refused.
        torn: Files of an output that was there in part.
        left: Files that a run left that failed, and hidden ones that one left that did not.
        differ: Files that differ from those of an undisturbed run after a rerun.
    """

    target: str
    moment: str
    places: list[int] = field(default_factory=list)
    message: str = ""
    torn: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """A target that ran undisturbed.

    Args:
        name: Its name.
        start: The folder before it ran.
        calm: A copy in which it ran.
        changes: Number of changes of files that it made.
    """

    name: str
    start: Path
    calm: Path
    changes: int

    @property
    def target(self) -> Target:
        return TARGETS[self.name]

    def copy(self, name: str) -> Path:
        """A copy of the folder before the target ran."""
        copy = self.calm.with_name(name)
        shutil.copytree(self.start, copy, symlinks=True, dirs_exist_ok=True)
        return copy

    def run(
        self, folder: Path, kill_at: int | None = None, largest: int | None = None
    ) -> tuple[int, int]:
        """Runs the target in a folder; returns its exit status, and the changes that it made.

        Args:
            folder: The folder.
            kill_at: Number of the change of files before which it is killed.
            largest: Bytes of the largest file that it can write.
        """
        count = processes.counted_together if self.target.processes else processes.counted
        return count(folder, partial(_act, self.target, message_file(folder), largest), kill_at)

    def run_to_the_end(self, folder: Path) -> None:
        """Runs the target, which must succeed."""
        status, _ = self.run(folder)
        assert status == 0, f"{self.name}: {message_of(folder)}"


def message_file(folder: Path) -> Path:
    """Where the message of a refused target is stored; beside it is what was printed."""
    return folder.with_name(f"{folder.name}.message")


def message_of(folder: Path) -> str:
    """The message of a target that was refused, or else the end of what it printed."""
    file = message_file(folder)
    if file.exists():
        return file.read_text()
    return file.with_suffix(".printed").read_text()[-3000:]


def _act(target: Target, message: Path, largest: int | None) -> None:
    """Runs a target in this process, which ends with `REFUSED` where the target is refused."""
    message.unlink(missing_ok=True)
    printed = message.with_suffix(".printed").open("a", buffering=1)
    os.dup2(printed.fileno(), 1)
    os.dup2(printed.fileno(), 2)
    sys.stdout = printed
    sys.stderr = printed
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    try:
        target.act()
    except FartherError as error:
        message.write_text(str(error))
        os._exit(REFUSED)
    except SystemExit as end:
        if isinstance(end.code, str):
            message.write_text(end.code)
            os._exit(REFUSED)
        if end.code:
            os._exit(int(end.code))


# --------------------------------------------------------------------------------------------------
# moments


def killed(trial: Trial, rng: random.Random) -> Outcome:
    """Killed with `kill -9` before a random change of files, sometimes again while it resumes."""
    outcome = Outcome(trial.name, "killed")
    folder = trial.copy("killed")
    for number in range(rng.choice([1, 1, 2])):
        place = rng.randint(1, trial.changes)
        status, _ = trial.run(folder, kill_at=place)
        if status != 0 or number == 0:  # a run that resumes makes fewer changes
            assert status == -signal.SIGKILL, (trial.name, place, status, message_of(folder))
            outcome.places.append(place)

    output = trial.target.writes
    if trial.target.at_once and (folder / output).exists():
        outcome.torn = differences(content(trial.calm / output), content(folder / output))
    if trial.target.processes:
        _delete_locks(folder)
    trial.run_to_the_end(folder)
    outcome.differ = differences(project_content(trial.calm), project_content(folder))
    outcome.left = _hidden(folder, trial.start)
    return outcome


def _delete_locks(folder: Path) -> None:
    """Deletes the locks that a killed DVC left, as `farther doctor` advises."""
    for finding in dvc_locks(folder):
        assert finding.state == "wrong"
        Path(finding.more["remedy"].removeprefix("rm ")).unlink()


def _hidden(folder: Path, start: Path) -> list[str]:
    """Hidden files that a target left; the record of a network is one that it should leave."""
    hidden = []
    for name in project_content(folder).keys() - project_content(start).keys():
        path = Path(name)
        is_hidden = any(part.startswith(".") for part in path.parts)
        if is_hidden and path.name != NETWORK_RECORD:
            hidden.append(name)
    return sorted(hidden)


def full(trial: Trial, rng: random.Random) -> Outcome:
    """A disk that has space for a part of the output, then for all."""
    folder = trial.calm.with_name("full")
    assert mount(folder, LARGE), "mount"
    trial.copy("full")
    sizes = _sizes(trial)
    before = content(folder)
    used = shutil.disk_usage(folder).used
    _resize(folder, used + int(sum(sizes) * rng.uniform(0.02, 0.9)))
    status, _ = trial.run(folder)
    outcome = _refused(trial, folder, status, before)
    outcome.moment = "full"

    _resize(folder, LARGE)
    _rerun(trial, folder, outcome)
    subprocess.run(["umount", folder], check=True)
    return outcome


def quota(trial: Trial, rng: random.Random) -> Outcome:
    """A limit of the size of a file that the largest one exceeds, then none."""
    folder = trial.copy("quota")
    before = content(folder)
    largest = max(SMALLEST, int(max(_sizes(trial)) * rng.uniform(0.02, 0.9)))
    status, _ = trial.run(folder, largest=largest)
    outcome = _refused(trial, folder, status, before)
    outcome.moment = "quota"
    _rerun(trial, folder, outcome)
    return outcome


def _sizes(trial: Trial) -> list[int]:
    """Bytes of the files of the output."""
    files = (trial.calm / trial.target.writes).rglob("*")
    return [file.stat().st_size for file in files if file.is_file()]


def _refused(trial: Trial, folder: Path, status: int, before: dict[str, str]) -> Outcome:
    """The message of a target that had no space, and what it left."""
    outcome = Outcome(trial.name, "")
    if status == 0:
        outcome.torn = differences(content(trial.calm), content(folder))
        return outcome
    outcome.message = message_of(folder)
    if status != REFUSED:
        outcome.message = f"status {status}: {outcome.message}"
    outcome.left = sorted(content(folder).keys() - before.keys())
    return outcome


def _rerun(trial: Trial, folder: Path, outcome: Outcome) -> None:
    shutil.rmtree(folder / trial.target.writes, ignore_errors=True)
    trial.run_to_the_end(folder)
    outcome.differ = differences(content(trial.calm), content(folder))


def mount(folder: Path, size: int) -> bool:
    """Mounts a file system of `size` bytes; returns whether that succeeded."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def may_mount(folder: Path) -> bool:
    """Whether this process may mount a file system."""
    if not mount(folder, 2**20):
        return False
    subprocess.run(["umount", folder], check=True)
    return True


def _resize(folder: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)


def owned(trial: Trial, rng: random.Random) -> Outcome:
    """Another process, which is this one, writes the output."""
    folder = trial.copy("owned")
    output = trial.target.writes
    with locked(folder / output):
        status, _ = trial.run(folder)
    message = message_of(folder)
    assert status == REFUSED, (trial.name, status, message)

    stage = trial.name.removeprefix("stage ")
    owner = f"{stage}: {output}: process {os.getpid()} on "
    end = "is writing it: wait until it has ended, or end it"
    outcome = Outcome(trial.name, "owned", message=message)
    if not message.startswith(owner) or not message.endswith(end):
        outcome.differ = [f"message: {message}"]
    return outcome


def again(trial: Trial, rng: random.Random) -> Outcome:
    """After a run, where nothing changed: each file is left as it is."""
    rewritten = processes.rewritten(trial.calm, partial(trial.run_to_the_end, trial.calm))
    return Outcome(trial.name, "again", differ=rewritten)


#: "again" is last: the targets behind start from the folder in which it ran.
MOMENTS: dict[str, Callable[[Trial, random.Random], Outcome]] = {
    "killed": killed,
    "full": full,
    "quota": quota,
    "owned": owned,
    "again": again,
}


def moments_of(target: Target) -> list[str]:
    """Names of the moments at which a target is interrupted, in their order."""
    return [moment for moment in MOMENTS if moment in target.interrupted]

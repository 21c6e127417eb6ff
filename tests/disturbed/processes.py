"""Runs functions in forked processes that count changes of files; compares what they wrote.

A process that has imported the packages is forked for each run, which saves seconds each time. The
place of a kill is the number of a change of files (a file opened for writing, renamed, deleted, …),
not a time.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml
from tests.disturbed.changes import count_changes, count_together

ROOT = Path(__file__).parents[2]


def _has_processes(group: int) -> bool:
    """Whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def forked(act: Callable[[], None]) -> int:
    """Runs a function in a forked process; returns its exit status, negative for a signal.

    Returns when the processes of its group have ended, too, if it leads one: a killed process is
    there for a moment, and DVC takes its locks for held meanwhile.
    """
    gc.freeze()
    child = os.fork()
    if child:
        _, wait_status = os.waitpid(child, 0)
        while _has_processes(child):
            time.sleep(0.01)
        return os.waitstatus_to_exitcode(wait_status)

    status = 1
    try:
        act()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def counted(folder: Path, act: Callable[[], None], kill_at: int | None = None) -> tuple[int, int]:
    """Runs a function in a forked process; returns its exit status and the changes it made.

    Args:
        folder: The folder that the function runs in, whose changes are counted.
        act: The function.
        kill_at: Number of the change before which the process is killed.
    """
    reading, writing = os.pipe()

    def count_and_act() -> None:
        os.chdir(folder)
        os.sched_getaffinity = _first_core
        count = 0

        def changed() -> None:
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        count_changes(folder, changed)
        act()
        os.write(writing, str(count).encode())

    status = forked(count_and_act)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        changes = int(pipe.read() or 0)
    return status, changes


def answers(
    act: Callable[[], Iterator[str]], seconds: float, answered: Callable[[str], object]
) -> int | None:
    """Runs a function that yields lines in a forked process.

    A machine may be busy with other work: a process that waits gets more time by the clock.

    Args:
        act: The function.
        seconds: Processor time that it may use until it yields the next line.
        answered: Called with each line.

    Returns:
        The exit status, negative for a signal and None for a process that was ended because it used
        more time.
    """
    reading, writing = os.pipe()
    gc.freeze()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "w", buffering=1) as pipe:
                for line in act():
                    pipe.write(f"{line}\n")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    os.close(writing)
    begun = time.monotonic()
    limit = seconds
    text = b""
    with os.fdopen(reading, "rb") as pipe:
        while True:
            if select.select([pipe], [], [], 1)[0]:
                part = os.read(pipe.fileno(), 2**16)
                if not part:
                    break
                *lines, text = (text + part).split(b"\n")
                for line in lines:
                    answered(line.decode())
                    begun = time.monotonic()
                    limit = _cpu_seconds(child) + seconds
            if _cpu_seconds(child) > limit or time.monotonic() - begun > 10 * seconds:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
    _, wait_status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(wait_status)


def _cpu_seconds(process: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _first_core(_pid: int) -> set[int]:
    """Replaces `os.sched_getaffinity`: one core, so that the order of the changes is the same."""
    return {0}


def counted_together(
    folder: Path, act: Callable[[], None], kill_at: int | None = None
) -> tuple[int, int]:
    """The same of a function that starts processes of Python, which are counted and killed with it.

    Args:
        folder: The folder that the function runs in, whose changes are counted.
        act: The function.
        kill_at: Number of the change before which all processes are killed.
    """
    counter = folder.with_suffix(".count")
    counter.write_bytes(b"")
    hooks = folder.with_suffix(".hooks")
    hooks.mkdir(exist_ok=True)
    (hooks / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import changes\nsys.path.pop(0)\nchanges.count_together()\n"
    )

    def count_and_act() -> None:
        os.setsid()
        os.chdir(folder)
        os.environ.update(
            PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            PYTHONPATH=os.pathsep.join([str(hooks), str(ROOT / "lib")]),
            KILLS_FOLDER=str(folder),
            KILLS_AT=str(kill_at or 0),
        )
        count_together()
        act()

    status = forked(count_and_act)
    return status, counter.stat().st_size


# --------------------------------------------------------------------------------------------------
# comparisons


#: Files that hold measured times: an artifact, and what the report shows of it.
MEASURED_TIMES = ("times.json", "times.js")


def content(folder: Path) -> dict[str, str]:
    """SHA-256 of each file below a folder, hidden files included, but for measured times."""
    digest_by_name = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            if name not in MEASURED_TIMES:
                file = Path(parent, name)
                digest = hashlib.sha256(file.read_bytes()).hexdigest()
                digest_by_name[str(file.relative_to(folder))] = digest
    return digest_by_name


def project_content(folder: Path) -> dict[str, str]:
    """The same of a project, without what DVC keeps for itself and logs of stages that were killed.

    dvc.lock is read: stages that run at the same time may be written in another order.
    """
    digest_by_name = {}
    for name, digest in content(folder).items():
        if not name.startswith((".dvc/", "artifacts/.work/logs/")):
            digest_by_name[name] = digest
    lock = folder / "dvc.lock"
    if lock.exists():
        digest_by_name["dvc.lock"] = json.dumps(yaml.safe_load(lock.read_text()), sort_keys=True)
    return digest_by_name


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and modification time of each file but the one with measured times.

    A file that is written anew has others, even where its content is the same.
    """
    identity_by_name = {}
    for file in folder.rglob("*"):
        if file.is_file() and file.name not in MEASURED_TIMES:
            status = file.stat()
            name = str(file.relative_to(folder))
            identity_by_name[name] = (status.st_ino, status.st_mtime_ns)
    return identity_by_name


def differences(first: Mapping, second: Mapping) -> list[str]:
    """Names that are missing in one of two mappings, or have another value there."""
    names = first.keys() | second.keys()
    return sorted(name for name in names if first.get(name) != second.get(name))


def rewritten(folder: Path, rerun: Callable[[], object]) -> list[str]:
    """Artifacts of a project that a rerun writes or deletes although nothing changed."""
    before = identities(folder / "artifacts")
    rerun()
    after = identities(folder / "artifacts")
    return differences(before, after)

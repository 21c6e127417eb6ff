"""Runs commands on a disk that is too small, or with a quota that they exceed.

A full disk is a small tmpfs, where this process may mount one; a quota is a limit of the size of
files. `disturb.py` is the program.
"""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import commands
from commands import Calm, Command, digests, kills

WRITING = ("publish, COCO", "publish, Hugging Face", "bundle --onnx", "predict, video")
#: Bytes of a file system that no command fills.
LARGE = 2**28
#: Fewest bytes of a limit of the size of files: the message that it was exceeded is a file, too.
SMALLEST = 256


@dataclass
class Outcome:
    """Runs of a command under a limit, in the form that the tests read.

    Attributes:
        said: Messages of the runs that were refused.
        left: Files that are left of refused runs.
        torn: Files that differ from those without a limit, although the run was not refused.
        differ: Files that differ after a rerun with enough space.
    """

    said: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)


def mounted(folder: Path, size: int) -> bool:
    """Mounts a file system of `size` bytes; returns whether that succeeded."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _resize(folder: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)


def limited(act: Callable[[], None], largest: int) -> None:
    """Runs a function that can write no file larger than `largest` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    act()


def kinds_of_limits(folder: Path) -> list[str]:
    """The kinds of limits that this machine allows; see `run_limited`."""
    if mounted(folder / "trial", 2**20):
        return ["full", "quota"]
    return ["quota"]


def fill(
    command: Command, kind: str, project: Path, calm: Calm, trials: int, rng: random.Random
) -> Outcome:
    """Runs a command with space for a part of its output, then with enough in the same place."""
    outcome = Outcome()
    for trial in range(trials):
        copy = calm.folder.with_name(f"{kind} {trial}")
        share = rng.uniform(0.02, 0.9)
        if kind == "full":
            assert mounted(copy, LARGE), "mount"
        shutil.copytree(project, copy, symlinks=True, dirs_exist_ok=True)
        run_limited(command, kind, copy, calm.folder, share, outcome)
        if kind == "full":
            subprocess.run(["umount", copy], check=True)
    return outcome


def run_limited(
    command: Command, kind: str, copy: Path, calm: Path, share: float, outcome: Outcome
) -> None:
    """Runs a command under a limit and again without, and adds what happened to `outcome`.

    Args:
        command: The command.
        kind: "full" for a full disk, "quota" for a limit of the size of a file.
        copy: The copy of the project that it runs in.
        calm: A copy in which it ran without a limit.
        share: Share of the output, or of its largest file, that there is space for.
        outcome: Messages and files are added to it.
    """
    expected = digests(calm)
    files = [path for path in (calm / command.output).rglob("*") if path.is_file()]
    sizes = [file.stat().st_size for file in files]
    files_before = digests(copy)
    log = copy.with_name(f"{copy.name}.said")
    act = partial(commands.refusing, command.act, log)

    if kind == "full":
        _resize(copy, shutil.disk_usage(copy).used + int(sum(sizes) * share))
        status, _ = kills.counted(copy, act)
    else:
        largest = max(SMALLEST, int(max(sizes) * share))
        status, _ = kills.counted(copy, partial(limited, act, largest))

    if status == 0:
        outcome.torn += kills.differences(expected, digests(copy))
    elif status == commands.REFUSED:
        outcome.said.append(log.read_text())
    else:
        outcome.said.append(f"status {status}: {commands.log_text(log)}")
    if status != 0:
        outcome.left += [name for name in digests(copy) if name not in files_before]

    if kind == "full":
        _resize(copy, LARGE)
    shutil.rmtree(copy / command.output, ignore_errors=True)
    status, _ = kills.counted(copy, act)
    assert status == 0, commands.log_text(log)
    outcome.differ += kills.differences(expected, digests(copy))

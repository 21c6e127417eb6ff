"""Runs commands on a disk that is too small, or with a quota that they exceed.

Usage: disks.py FOLDER LIMITS SEED; prints one line of JSON per command and kind of limit. A full
disk is a small tmpfs, where this process may mount one (`unshare --map-root-user --mount disks.py
…`); a quota is a limit of the size of files.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import commands
from commands import COMMANDS, Command, digests, kills

WRITING = ("publish, COCO", "publish, Hugging Face", "bundle --onnx", "predict, video")
#: Bytes of a file system that no command fills.
LARGE = 2**28


@dataclass
class Outcome:
    """Runs of a command under a limit, in the form that the tests read.

    Attributes:
        said: Messages of the runs that were refused.
        left: Files of refused runs that are left of an atomic command.
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


def fill(
    command: Command, kind: str, project: Path, folder: Path, trials: int, rng: random.Random
) -> Outcome:
    """Runs a command with space for a part of its output, then with enough in the same place."""
    calm = folder / "calm"
    shutil.copytree(project, calm, symlinks=True)
    status, _ = kills.counted(calm, partial(commands.refusing, command.act, folder / "calm.said"))
    assert status == 0

    outcome = Outcome()
    for trial in range(trials):
        copy = folder / f"{trial}"
        share = rng.uniform(0.02, 0.9)
        if kind == "full":
            assert mounted(copy, LARGE), "mount"
        shutil.copytree(project, copy, symlinks=True, dirs_exist_ok=True)
        run_limited(command, kind, copy, calm, share, outcome)
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
    sizes = [path.stat().st_size for path in (calm / command.output).rglob("*")]
    files_before = digests(copy)
    log = copy.with_name(f"{copy.name}.said")
    act = partial(commands.refusing, command.act, log)

    if kind == "full":
        _resize(copy, shutil.disk_usage(copy).used + int(sum(sizes) * share))
        status, _ = kills.counted(copy, act)
    else:
        status, _ = kills.counted(copy, partial(limited, act, int(max(sizes) * share)))

    if status == 0:
        outcome.torn += kills.differences(expected, digests(copy))
    elif status == commands.REFUSED:
        outcome.said.append(log.read_text())
    else:
        outcome.said.append(f"status {status}: {commands.log_text(log)}")
    if status != 0 and command.atomic:
        outcome.left += [name for name in digests(copy) if name not in files_before]

    if kind == "full":
        _resize(copy, LARGE)
    shutil.rmtree(copy / command.output, ignore_errors=True)
    status, _ = kills.counted(copy, act)
    assert status == 0, commands.log_text(log)
    outcome.differ += kills.differences(expected, digests(copy))


def main(folder: Path, trials: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yields the outcome of each command with each kind of limit."""
    rng = random.Random(seed)
    commands.make_projects(folder)
    kinds = ["quota"]
    if mounted(folder / "trial", 2**20):
        kinds = ["full", "quota"]

    for name in WRITING:
        command = COMMANDS[name]
        project = folder / command.project
        for kind in kinds:
            outcome = fill(command, kind, project, folder / f"{kind} {name}", trials, rng)
            yield {"command": name, "kind": kind, **asdict(outcome)}


if __name__ == "__main__":
    commands.load()
    for outcome in main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])):
        print(json.dumps(outcome), flush=True)

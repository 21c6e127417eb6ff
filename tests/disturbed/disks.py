"""Fills the disk, or meets a quota, while commands write.

Usage: disks.py FOLDER LIMITS SEED; prints a line of JSON for each command and kind of limit. A full
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
from functools import partial
from pathlib import Path
from typing import Any

import commands
from commands import COMMANDS, Command, digests, kills

WRITING = ("publish, COCO", "publish, Hugging Face", "bundle --onnx", "predict, video")
#: Bytes of a file system that nothing fills.
LARGE = 2**28


def mounted(folder: Path, bytes_: int) -> bool:
    """Whether a file system of a size could be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={bytes_}", "tmpfs", folder]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def limited(act: Callable[[], None], most: int) -> None:
    """Acts with no file larger than `most` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    act()


def fill(
    command: Command, kind: str, before: Path, folder: Path, trials: int, drawn: random.Random
) -> dict[str, Any]:
    """Runs a command with room for a part of what it writes, then with enough in the same place.

    Returns:
        `said`: each refusal; `left`: files that are there after one; `torn`: files that are others
            than without a limit
        although nothing was refused; `differ`: files that are others after the last run.
    """
    calm = folder / "calm"
    shutil.copytree(before, calm, symlinks=True)
    assert (
        kills.counted(calm, partial(commands.refusing, command.act, folder / "calm.said"))[0] == 0
    )
    expected, made = (
        digests(calm),
        [path.stat().st_size for path in (calm / command.output).rglob("*")],
    )
    found: dict[str, list[str]] = {"said": [], "left": [], "torn": [], "differ": []}
    for trial in range(trials):
        copy, log, share = folder / f"{trial}", folder / f"{trial}.said", drawn.uniform(0.02, 0.9)
        assert kind == "quota" or mounted(copy, LARGE), "mount"
        shutil.copytree(before, copy, symlinks=True, dirs_exist_ok=True)
        if kind == "full":
            _resize(copy, shutil.disk_usage(copy).used + int(sum(made) * share))
        act = partial(commands.refusing, command.act, log)
        status = kills.counted(
            copy, act if kind == "full" else partial(limited, act, int(max(made) * share))
        )[0]
        if status == 0:
            found["torn"] += _other(expected, digests(copy))
        else:
            found["said"].append(
                log.read_text() if status == 3 else f"status {status}: {commands.told(log)}"
            )
            found["left"] += [
                name for name in digests(copy) if command.whole and name not in digests(before)
            ]
        if kind == "full":
            _resize(copy, LARGE)
        shutil.rmtree(copy / command.output, ignore_errors=True)
        assert kills.counted(copy, act)[0] == 0, commands.told(log)
        found["differ"] += _other(expected, digests(copy))
        if kind == "full":
            subprocess.run(["umount", copy], check=True)
    return found


def _resize(folder: Path, bytes_: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={bytes_}", folder], check=True)


def _other(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    return sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))


def main(folder: Path, trials: int, seed: int) -> Iterator[dict[str, Any]]:
    """Each command with each kind of limit."""
    drawn = random.Random(seed)
    commands.prepare(folder)
    kinds = ["full", "quota"] if mounted(folder / "trial", 2**20) else ["quota"]
    for name in WRITING:
        for kind in kinds:
            place = folder / f"{kind} {name}"
            yield {
                "command": name,
                "kind": kind,
                **fill(COMMANDS[name], kind, folder / COMMANDS[name].project, place, trials, drawn),
            }


if __name__ == "__main__":
    commands.load()
    for done in main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])):
        print(json.dumps(done), flush=True)

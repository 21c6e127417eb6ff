"""Runs commands undisturbed, with kills, and on disks that are too small.

Usage: disturb.py FOLDER KILLS LIMITS SEED; prints one line of JSON per command that is killed
(`commands.py`), and one per command and kind of limit (`disks.py`). Where `unshare --map-root-user
--mount` starts it, it mounts file systems. Packages are imported and projects are made once, and a
command runs undisturbed once.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import commands
import disks


def disturb(folder: Path, kills: int, limits: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yields the outcomes of each command.

    Kills are about as many of each; `repro --jobs`, which takes longest, has the fewest.

    Args:
        folder: A folder for the projects.
        kills: Number of kills of all commands.
        limits: Number of limits of each kind, of each command that is limited.
        seed: Draws the places of the kills and the sizes of the limits.
    """
    rng_of_kills = random.Random(seed)
    rng_of_limits = random.Random(seed)
    commands.make_projects(folder)
    kinds = disks.kinds_of_limits(folder)
    kills_per_command, remainder = divmod(kills, len(commands.COMMANDS) + 1)

    for index, (name, command) in enumerate(commands.COMMANDS.items()):
        project = folder / command.project
        calm = commands.run_calm(command, project, folder / f"at {index}")
        count = kills_per_command + (index < remainder)
        killed = commands.kill(command, project, calm, count, rng_of_kills)
        yield {"command": name, **asdict(killed)}
        if name in disks.WRITING:
            for kind in kinds:
                filled = disks.fill(command, kind, project, calm, limits, rng_of_limits)
                yield {"command": name, "kind": kind, **asdict(filled)}
        shutil.rmtree(calm.folder)

    killed = commands.kill_jobs(folder / "jobs", kills_per_command, rng_of_kills)
    yield {"command": "repro --jobs", **asdict(killed)}


if __name__ == "__main__":
    commands.load()
    for outcome in disturb(Path(sys.argv[1]).resolve(), *map(int, sys.argv[2:])):
        print(json.dumps(outcome), flush=True)

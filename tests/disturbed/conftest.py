"""Fixture `disturbed`: the outcomes of commands that were killed, or had no space.

The other files are those of the program that it runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.shared import once

collect_ignore = ["commands.py", "disks.py", "disturb.py"]

#: Number of kills, of limits for each command and kind, and the seed of their places and sizes.
KILLS, LIMITS, SEED = (
    int(os.environ.get(f"FARTHER_TEST_{name}", usual))
    for name, usual in (("KILLS", 8), ("LIMITS", 1), ("SEED", 0))
)
#: What lets a process mount a file system that no other process sees, where the machine allows it.
MOUNTING = ["unshare", "--map-root-user", "--mount"]


def may_mount() -> bool:
    command = [*MOUNTING, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True).returncode == 0
    )


@pytest.fixture(scope="session")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The lines of `disturb.py`, which runs once for the files of tests that read them."""
    with once(tmp_path_factory, "disturbed") as (folder, is_empty):
        printed = folder / "printed"
        if is_empty:
            folder.mkdir()
            program = [sys.executable, Path(__file__).with_name("disturb.py"), folder / "projects"]
            command = [*program, str(KILLS), str(LIMITS), str(SEED)]
            if may_mount():
                command = [*MOUNTING, *command]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-5000:]
            printed.write_text(done.stdout)
    lines = printed.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]

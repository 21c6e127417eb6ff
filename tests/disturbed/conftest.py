"""`disturb` runs the program of this folder; its other files are no tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

collect_ignore = [
    "changes.py", "damage", "damaged.py", "damages.py", "disturb.py", "moments.py", "processes.py",
    "targets.py", "valid",
]  # fmt: skip

#: What lets a process mount a file system that no other process sees, where the machine allows it.
MOUNTING = ["unshare", "--map-root-user", "--mount"]


def may_mount() -> bool:
    command = [*MOUNTING, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True).returncode == 0
    )


def disturb(*options: str) -> subprocess.CompletedProcess[str]:
    """Runs `disturb.py`, which may mount file systems where the machine allows it."""
    command = [sys.executable, str(Path(__file__).with_name("disturb.py")), *options]
    if may_mount():
        command = [*MOUNTING, *command]
    return subprocess.run(command, capture_output=True, text=True, check=False)

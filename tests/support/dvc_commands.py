"""DVC's command line in tests: `dvc` runs a command, `check` compares one with its help."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path


def dvc(*arguments: str, folder: Path | str = ".") -> str:
    """Runs a command that must succeed; returns what it prints."""
    finished = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@cache
def _help_of(*words: str) -> str:
    return dvc(*words, "--help")


def check(words: Sequence[str]) -> None:
    """Fails unless DVC has the command, and the command has the options.

    Args:
        words: What follows `dvc` on the command line.
    """
    if words[0] == "--cd":
        words = words[2:]
    text = _help_of(words[0])
    if "positional arguments:\n  {" in text:  # the names of subcommands
        text = _help_of(*words[:2])
    for word in words:
        if word.startswith("-"):
            option = re.escape(word.partition("=")[0])
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), (words, option)

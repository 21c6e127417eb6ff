"""DVC's command line in tests: `dvc` runs a command, `init` makes a project of a folder.

`check` compares a command with its help.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory


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


def init(folder: Path) -> None:
    """Makes a folder a project of DVC and of git, which is a second faster than `dvc init`."""
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    for name, content in _files_of_init().items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    (folder / ".dvc/config").write_text("[core]\n    analytics = false\n")


@cache
def _files_of_init() -> dict[str, bytes]:
    """What `dvc init` writes."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        dvc("init", "-q", folder=folder)
        content_by_name = {}
        for path in ("config", ".gitignore"):
            content_by_name[f".dvc/{path}"] = (folder / ".dvc" / path).read_bytes()
        content_by_name[".dvcignore"] = (folder / ".dvcignore").read_bytes()
        return content_by_name


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

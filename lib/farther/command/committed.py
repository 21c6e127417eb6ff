"""Files of a project, read from its folder, a commit, or a repository elsewhere; nothing of it is executed."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from farther.errors import DataError, ParameterError
from farther.tables.folders import listed, resolved

#: What is read: the metrics, the inputs that they were computed from, and farther's version.
METRICS, LOCK, VERSION = "artifacts/metrics", "dvc.lock", "lib/farther/__init__.py"

#: Largest file and largest number of files that are read.
BYTES, FILES = 16_000_000, 20_000

#: No question at a terminal, no download behind one's back, no protocol that runs a command.
_SAFE = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file"}


@dataclass(frozen=True)
class Committed:
    """Files of a project.

    Args:
        name: As users call it.
        files: Path → content.
        commit, date: Of the commit, "" where there is none.
    """

    name: str
    files: dict[str, bytes]
    commit: str = ""
    date: str = ""


def read_committed(name: str) -> Committed:
    """The files of FOLDER, FOLDER@REVISION, URL or URL@REVISION.

    Raises:
        ParameterError: there is no such folder, repository or revision.
        DataError: a file is too large, or a link leads out of the folder.
    """
    if Path(name).is_dir():
        return _of_folder(name, Path(name))
    place, _, revision = name.rpartition("@")
    if place and Path(place).is_dir():
        return _of_revision(name, Path(place), revision)
    if not re.match(r"(https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", name):
        raise ParameterError(f"{name!r} is not a folder, FOLDER@REVISION, or the address of a git repository")
    if not place or "/" in revision or ":" in revision:  # the @ belongs to the address: git@host:group/project
        place, revision = name, "HEAD"
    with tempfile.TemporaryDirectory(prefix="farther-leaderboard-") as folder:
        _git(name, "init", "--quiet", "--bare", folder)
        _git(name, "-C", folder, "fetch", "--quiet", "--depth", "1", "--no-tags", "--", place, _checked(name, revision))
        return _of_revision(name, Path(folder), "FETCH_HEAD")


def _of_folder(name: str, folder: Path) -> Committed:
    from farther.tables.files import open_binary

    root = resolved(folder)
    found = [folder / LOCK, folder / VERSION, *listed(folder / METRICS, "**/*.json")]
    files: dict[str, bytes] = {}
    for file in (one for one in found if one.exists()):
        if not resolved(file).is_relative_to(root):
            raise DataError("a link that leads out of the project", file=file)
        path = file.relative_to(folder).as_posix()
        _check_size(name, path, file.stat().st_size, len(files))
        with open_binary(file) as opened:
            files[path] = opened.read()
    try:
        commit, date = _dated(name, folder, "HEAD")
    except ParameterError:  # not under git
        commit, date = "", ""
    return Committed(name, files, commit, date)


def _of_revision(name: str, folder: Path, revision: str) -> Committed:
    commit, date = _dated(name, folder, revision)
    listed = _git(name, "-C", str(folder), "ls-tree", "-r", "-l", "-z", "--full-tree", commit).split(b"\0")
    blobs: dict[str, str] = {}
    for line in filter(None, listed):
        about, _, path = line.decode(errors="replace").partition("\t")
        mode, _, blob, size = about.split()
        wanted = path in (LOCK, VERSION) or (path.startswith(f"{METRICS}/") and path.endswith(".json"))
        if wanted and mode in ("100644", "100755"):  # neither links nor submodules
            _check_size(name, path, int(size), len(blobs))
            blobs[path] = blob
    asked = "".join(f"{blob}\n" for blob in blobs.values()).encode()
    answer = _git(name, "-C", str(folder), "cat-file", "--batch", given=asked)
    files, start = {}, 0
    for path in blobs:
        end = answer.index(b"\n", start)
        length = int(answer[start:end].split()[2])
        files[path] = answer[end + 1 : end + 1 + length]
        start = end + length + 2
    return Committed(name, files, commit, date)


def _dated(name: str, folder: Path, revision: str) -> tuple[str, str]:
    shown = _git(name, "-C", str(folder), "log", "-1", "--format=%H %cs", _checked(name, revision), "--")
    commit, date = shown.decode().split()
    return commit, date


def _checked(name: str, revision: str) -> str:
    if not revision or revision.startswith("-"):
        raise ParameterError(f"{name}: {revision!r} is not a revision")
    return revision


def _check_size(name: str, path: str, size: int, before: int) -> None:
    if size > BYTES or before >= FILES:
        raise DataError(f"at most {FILES:,} files of {BYTES:,} bytes are read", file=f"{name}: {path}")


def _git(name: str, *arguments: str, given: bytes = b"") -> bytes:
    """What git prints: commands that neither run hooks nor filters of the repository."""
    command = ["git", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false", *arguments]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, check=False, timeout=300, env=os.environ | _SAFE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ParameterError(f"{name}: git failed: {error}") from None
    if done.returncode:
        raise ParameterError(f"{name}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout

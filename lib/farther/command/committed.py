"""Files of a project, read from its folder, a commit, or a repository elsewhere.

Nothing of it is executed.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from farther.errors import DataError, ParameterError

METRICS = "artifacts/metrics"
COUNTS = "artifacts/counts"

#: What a leaderboard reads: the metrics, the inputs that they were computed from, and farther's
#: version.
OF_LEADERBOARD = (METRICS, "dvc.lock", "lib/farther/__init__.py")

#: Largest file and largest number of files that are read.
BYTES = 16_000_000
FILES = 100_000

#: No question at a terminal, no download behind one's back, no protocol that runs a command.
_SAFE = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
}


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


def git(folder: str | Path, *arguments: str, given: bytes = b"") -> bytes:
    """What git prints about a folder: commands that neither run hooks nor filters of the repository.

    Raises:
        ParameterError: git failed, or is not installed.
    """
    command = [
        "git",
        "-C",
        str(folder),
        "-c",
        "core.fsmonitor=false",
        "-c",
        "log.showSignature=false",
        *arguments,
    ]
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            check=False,
            timeout=300,
            env=os.environ | _SAFE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ParameterError(f"git failed: {error}") from None
    if done.returncode:
        raise ParameterError(
            done.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed"
        )
    return done.stdout


def uncommitted(folder: Path, *paths: str) -> list[str] | None:
    """The changes that git has not recorded, one line each; None where there is no repository."""
    try:
        return (
            git(folder, "status", "--porcelain", "--", *paths).decode(errors="replace").splitlines()
        )
    except ParameterError:
        return None


def read_committed(name: str) -> Committed:
    """The files of FOLDER, FOLDER@REVISION, URL or URL@REVISION.

    Raises:
        ParameterError: there is no such folder, repository or revision.
        DataError: a file is too large, or a link leads out of the folder.
    """
    from farther.tables.folders import resolved

    if Path(name).is_dir():
        files = read_folder(Path(name), OF_LEADERBOARD)
        for file in map(Path(name).joinpath, files):
            if not resolved(file).is_relative_to(resolved(Path(name))):
                raise DataError("a link that leads out of the project", file=file)
        try:
            return Committed(name, files, *_dated(name, Path(name), "HEAD"))
        except ParameterError:  # not under git
            return Committed(name, files)
    place, _, revision = name.rpartition("@")
    if place and Path(place).is_dir():
        return _of_revision(name, Path(place), revision)
    if not re.match(r"(https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", name):
        raise ParameterError(
            f"{name!r} is not a folder, FOLDER@REVISION, or the address of a git repository"
        )
    if (
        not place or "/" in revision or ":" in revision
    ):  # the @ belongs to the address: git@host:group/project
        place = name
        revision = "HEAD"
    with tempfile.TemporaryDirectory(prefix="farther-leaderboard-") as folder:
        try:
            git(folder, "init", "--quiet", "--bare")
            git(
                folder,
                "fetch",
                "--quiet",
                "--depth",
                "1",
                "--no-tags",
                "--",
                place,
                _checked(revision),
            )
        except ParameterError as error:
            raise ParameterError(f"{name}: {error}") from None
        return _of_revision(name, Path(folder), "FETCH_HEAD")


def read_folder(folder: Path, paths: Sequence[str]) -> dict[str, bytes]:
    """Path → content of the files at some paths of a folder, and of the JSON files below them.

    Raises:
        DataError: a file is too large.
    """
    from farther.tables.files import open_binary, regular_file
    from farther.tables.folders import listed

    places = [folder / path for path in paths]
    found = [
        file
        for place in places
        for file in ([place] if place.is_file() else listed(place, "**/*.json"))
    ]
    files: dict[str, bytes] = {}
    for file in found:
        _check_size(file, regular_file(file).stat().st_size, len(files))
        with open_binary(file) as opened:
            files[file.relative_to(folder).as_posix()] = opened.read()
    return files


def read_commit(folder: Path, revision: str, paths: Sequence[str]) -> dict[str, bytes]:
    """Path → content of the files of a commit at some paths, and of the JSON files below them.

    Raises:
        ParameterError: git knows no such revision here.
        DataError: a file is too large, a link or a submodule.
    """
    lines = git(folder, "ls-tree", "-r", "-l", "-z", _checked(revision), *paths).split(b"\0")
    blobs: dict[str, str] = {}
    for line in filter(None, lines):
        about, _, path = line.decode(errors="replace").partition("\t")
        mode, _, blob, size = about.split()
        place = f"{folder}@{revision}: {path}"
        if mode not in ("100644", "100755"):
            kind = "a submodule" if mode == "160000" else "a link"
            raise DataError(f"{kind}: only files that the commit itself holds are read", file=place)
        if path in paths or path.endswith(".json"):
            _check_size(place, int(size), len(blobs))
            blobs[path] = blob
    answer = git(
        folder,
        "cat-file",
        "--batch",
        given="".join(f"{blob}\n" for blob in blobs.values()).encode(),
    )
    files = {}
    start = 0
    for path in blobs:
        end = answer.index(b"\n", start)
        length = int(answer[start:end].split()[2])
        files[path] = answer[end + 1 : end + 1 + length]
        start = end + length + 2
    return files


def _of_revision(name: str, folder: Path, revision: str) -> Committed:
    commit, date = _dated(name, folder, revision)
    return Committed(name, read_commit(folder, commit, OF_LEADERBOARD), commit, date)


def _dated(name: str, folder: Path, revision: str) -> tuple[str, str]:
    try:
        commit, date = (
            git(folder, "log", "-1", "--format=%H %cs", _checked(revision), "--").decode().split()
        )
    except ParameterError as error:
        raise ParameterError(f"{name}: {error}") from None
    return commit, date


def _checked(revision: str) -> str:
    if not revision or revision.startswith("-"):
        raise ParameterError(f"{revision!r} is not a revision")
    return revision


def _check_size(file: str | Path, size: int, before: int) -> None:
    if size > BYTES or before >= FILES:
        raise DataError(f"at most {FILES:,} files of {BYTES:,} bytes are read", file=file)

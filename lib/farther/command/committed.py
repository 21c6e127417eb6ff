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

#: The files that a leaderboard reads: the metrics, the inputs that they were computed from, and
#: farther's version.
OF_LEADERBOARD = (METRICS, "dvc.lock", "params.yaml", "lib/farther/__init__.py")

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
        files: {path: content}.
        commit, date: Hash and date of the commit; "" where there is none.
    """

    name: str
    files: dict[str, bytes]
    commit: str = ""
    date: str = ""


def git(folder: str | Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Runs git in a folder; returns what it prints.

    For commands that run neither hooks nor filters of the repository.

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
        process = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=300,
            env=os.environ | _SAFE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ParameterError(f"git failed: {error}") from None
    if process.returncode:
        message = process.stderr.decode(errors="replace").strip()
        raise ParameterError(message or f"git {arguments[0]} failed")
    return process.stdout


def uncommitted(folder: Path, *paths: str) -> list[str] | None:
    """The changes that git has not recorded, one line each; None where there is no repository."""
    try:
        status = git(folder, "status", "--porcelain", "--", *paths)
    except ParameterError:
        return None
    return status.decode(errors="replace").splitlines()


def read_committed(name: str) -> Committed:
    """The files of FOLDER, FOLDER@REVISION, URL or URL@REVISION.

    Raises:
        ParameterError: there is no such folder, repository or revision.
        DataError: a file is too large, or a link leads out of the folder.
    """
    if Path(name).is_dir():
        return _of_folder(name)
    place, _, revision = name.rpartition("@")
    if place and Path(place).is_dir():
        return _of_revision(name, Path(place), revision)
    if not re.match(r"(https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", name):
        raise ParameterError(
            f"{name!r} is not a folder, FOLDER@REVISION, or the address of a git repository"
        )
    # The @ of git@host:group/project belongs to the address.
    if not place or "/" in revision or ":" in revision:
        return _of_address(name, name, "HEAD")
    return _of_address(name, place, revision)


def _of_folder(name: str) -> Committed:
    """The files of a folder as they are, with the date of its last commit if git knows one."""
    from farther.tables.folders import resolved

    folder = Path(name)
    files = read_folder(folder, OF_LEADERBOARD)
    for path in files:
        if not resolved(folder / path).is_relative_to(resolved(folder)):
            raise DataError("a link that leads out of the project", file=folder / path)
    try:
        commit, date = _dated(name, folder, "HEAD")
    except ParameterError:  # not under git
        return Committed(name, files)
    return Committed(name, files, commit, date)


def _of_address(name: str, address: str, revision: str) -> Committed:
    """The files of a revision of a repository elsewhere, fetched into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="farther-leaderboard-") as folder:
        options = ["--quiet", "--depth", "1", "--no-tags"]
        try:
            git(folder, "init", "--quiet", "--bare")
            git(folder, "fetch", *options, "--", address, _checked(revision))
        except ParameterError as error:
            raise ParameterError(f"{name}: {error}") from None
        return _of_revision(name, Path(folder), "FETCH_HEAD")


def read_folder(folder: Path, paths: Sequence[str]) -> dict[str, bytes]:
    """The files at some paths of a folder, and the JSON files below them.

    Returns:
        {path: content}.

    Raises:
        DataError: a file is too large.
    """
    from farther.tables.files import open_binary, regular_file
    from farther.tables.folders import listed

    contents: dict[str, bytes] = {}
    for path in paths:
        place = folder / path
        files = [place] if place.is_file() else listed(place, "**/*.json")
        for file in files:
            _check_size(file, regular_file(file).stat().st_size, len(contents))
            with open_binary(file) as opened:
                contents[file.relative_to(folder).as_posix()] = opened.read()
    return contents


def read_commit(folder: Path, revision: str, paths: Sequence[str]) -> dict[str, bytes]:
    """The files of a commit at some paths, and the JSON files below them.

    Returns:
        {path: content}.

    Raises:
        ParameterError: git knows no such revision here.
        DataError: a file is too large, a link or a submodule.
    """
    listing = git(folder, "ls-tree", "-r", "-l", "-z", _checked(revision), *paths)
    blob_by_path: dict[str, str] = {}
    for line in listing.split(b"\0"):
        if not line:
            continue
        columns, _, path = line.decode(errors="replace").partition("\t")
        mode, _, blob, size = columns.split()
        place = f"{folder}@{revision}: {path}"
        if mode not in ("100644", "100755"):
            kind = "a submodule" if mode == "160000" else "a link"
            raise DataError(f"{kind}: only files that the commit itself holds are read", file=place)
        if path in paths or path.endswith(".json"):
            _check_size(place, int(size), len(blob_by_path))
            blob_by_path[path] = blob
    contents = _read_blobs(folder, list(blob_by_path.values()))
    return dict(zip(blob_by_path, contents, strict=True))


def _read_blobs(folder: Path, blobs: Sequence[str]) -> list[bytes]:
    """The contents of blobs, from one process of git.

    `git cat-file --batch` prints a line that ends in the length of the content, the content, and a
    line break, for each blob.
    """
    requests = "".join(f"{blob}\n" for blob in blobs)
    answer = git(folder, "cat-file", "--batch", stdin=requests.encode())
    contents = []
    position = 0
    for _ in blobs:
        end_of_line = answer.index(b"\n", position)
        length = int(answer[position:end_of_line].split()[2])
        start = end_of_line + 1
        contents.append(answer[start : start + length])
        position = start + length + 1
    return contents


def _of_revision(name: str, folder: Path, revision: str) -> Committed:
    commit, date = _dated(name, folder, revision)
    return Committed(name, read_commit(folder, commit, OF_LEADERBOARD), commit, date)


def _dated(name: str, folder: Path, revision: str) -> tuple[str, str]:
    """Hash and date of a commit."""
    try:
        line = git(folder, "log", "-1", "--format=%H %cs", _checked(revision), "--")
    except ParameterError as error:
        raise ParameterError(f"{name}: {error}") from None
    commit, date = line.decode().split()
    return commit, date


def _checked(revision: str) -> str:
    if not revision or revision.startswith("-"):
        raise ParameterError(f"{revision!r} is not a revision")
    return revision


def _check_size(file: str | Path, size: int, before: int) -> None:
    """Raises a DataError on a file that is too large, or follows too many others."""
    if size > BYTES or before >= FILES:
        raise DataError(f"at most {FILES:,} files of {BYTES:,} bytes are read", file=file)

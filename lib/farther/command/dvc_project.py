"""A project as DVC's commands and files describe it: remotes, stages, and outputs in its cache.

See https://dvc.org/doc/command-reference for the commands, and
https://dvc.org/doc/user-guide/project-structure for `dvc.yaml`, `dvc.lock`, `.dvc` files, and the
folders of a cache or remote.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.errors import DataError

#: Extension of the objects that list the files of a folder.
FOLDER = ".dir"
#: Where a cache or remote has its objects.
OBJECTS = "files/md5"
#: What DVC prints before the reason of a failure.
ERROR = re.compile(r"^ERROR: (?:unexpected error - )?(.+)$", re.MULTILINE)
#: The part of a path that DVC fills in for each item of `foreach` or `matrix`.
TEMPLATED = re.compile(r"\$\{[^}]*\}")


@dataclass(frozen=True)
class Output:
    """An output that DVC keeps in its cache.

    Args:
        path: Its path, from the project's folder.
        oid: Name of its object: an MD5, with `.dir` after it for a folder.
        size: Its bytes; 0 where they are not recorded.
    """

    path: str
    oid: str
    size: int = 0


def run_dvc(*arguments: str, folder: Path = Path()) -> subprocess.CompletedProcess[str]:
    """Runs a command of DVC in a project."""
    command = [sys.executable, "-m", "dvc", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def errors_of(finished: subprocess.CompletedProcess[str]) -> list[str]:
    """The errors that a command of DVC printed, one line each."""
    return ERROR.findall(finished.stderr)


def answer(*arguments: str, folder: Path = Path()) -> str:
    """What a command of DVC prints.

    Raises:
        DataError: the command failed; has the first of its errors.
    """
    finished = run_dvc(*arguments, folder=folder)
    if finished.returncode:
        command = " ".join(["dvc", *arguments])
        reason = next(iter(errors_of(finished)), f"exit status {finished.returncode}")
        raise DataError(f"`{command}` failed: {reason}")
    return finished.stdout.strip()


def settings(folder: Path = Path()) -> dict[str, str]:
    """Settings by name, as `remote.store.url`, of all of DVC's files; paths are absolute."""
    values = {}
    for line in answer("config", "--list", folder=folder).splitlines():
        name, _, value = line.partition("=")
        values[name] = value
    return values


def object_path(oid: str) -> str:
    """Path of an object in a cache or remote."""
    return f"{OBJECTS}/{oid[:2]}/{oid[2:]}"


def cached_outputs(*, pushed: bool = False, folder: Path = Path()) -> list[Output]:
    """The outputs of the project's stages and `.dvc` files that DVC keeps in its cache.

    Args:
        pushed: Leave out those that `dvc push` leaves out.
        folder: The project's folder, or one below it.

    Raises:
        DataError: DVC or the library cannot read a file of the project.
    """
    outputs: list[Output] = []
    for address in answer("stage", "list", "--all", "--name-only", folder=folder).splitlines():
        file, separator, stage = address.rpartition("dvc.yaml:")
        if not separator and address.endswith(".dvc"):
            outputs += _of_tracked_file(folder, address, pushed=pushed)
            continue
        stage_file = Path(f"{file}dvc.yaml")
        outputs += _of_stage(folder, stage_file, stage, pushed=pushed)
    return outputs


def _of_tracked_file(folder: Path, name: str, *, pushed: bool) -> Iterator[Output]:
    """The outputs of a `.dvc` file."""
    from farther.tables.documents import read_yaml

    content = read_yaml(folder / name)
    for recorded in content.get("outs") or ():
        if _is_kept(recorded, pushed=pushed) and "md5" in recorded:
            yield _output(Path(name).parent, content, recorded)


def _of_stage(folder: Path, file: Path, address: str, *, pushed: bool) -> Iterator[Output]:
    """The outputs of a stage's last run.

    Args:
        folder: The project's folder.
        file: Its dvc.yaml.
        address: The stage, as `ingest@voc`.
        pushed: See `cached_outputs`.
    """
    lock = folder / file.with_name("dvc.lock")
    if not lock.is_file():
        return
    stage = _stages(folder / file)[address.partition("@")[0]]
    stage = stage.get("do", stage)
    elsewhere = _patterns_of_others(stage, pushed=pushed)
    recorded_stage = _stages(lock).get(address, {})
    for recorded in recorded_stage.get("outs") or ():
        is_elsewhere = any(pattern.fullmatch(recorded["path"]) for pattern in elsewhere)
        if "md5" in recorded and not is_elsewhere:
            yield _output(file.parent, stage, recorded)


def _stages(file: Path) -> dict[str, Any]:
    """The stages of a dvc.yaml or dvc.lock by name."""
    from farther.tables.documents import read_yaml

    return read_yaml(file).get("stages") or {}


def _patterns_of_others(stage: dict[str, Any], *, pushed: bool) -> list[re.Pattern[str]]:
    """Patterns of the paths that are not in DVC's cache, or else are not pushed."""
    patterns = []
    for kind in ("outs", "metrics", "plots"):
        for entry in stage.get(kind) or ():
            if not isinstance(entry, dict):
                continue
            for path, options in entry.items():
                if not _is_kept(options or {}, pushed=pushed):
                    literal_parts = map(re.escape, TEMPLATED.split(path))
                    patterns.append(re.compile(".+".join(literal_parts)))
    return patterns


def _is_kept(options: dict[str, Any], *, pushed: bool) -> bool:
    """Whether DVC keeps an output with these options in its cache, and pushes it."""
    if not options.get("cache", True):
        return False
    return not pushed or options.get("push", True)


def _output(folder: Path, stage: dict[str, Any], recorded: dict[str, Any]) -> Output:
    """An output, from its record in dvc.lock or in a `.dvc` file."""
    path = folder / stage.get("wdir", ".") / recorded["path"]
    return Output(path.as_posix(), recorded["md5"], recorded.get("size") or 0)

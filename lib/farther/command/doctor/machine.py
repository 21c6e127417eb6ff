"""The machine, for `farther doctor`: disk, GPU, git and DVC."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from farther.command.committed import uncommitted
from farther.command.output import size
from farther.command.project import Project
from farther.errors import DataError, Finding

GIB = 2**30


def disk(project: Project, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Room for the datasets that are missing, and what is free where the stages write."""
    need: dict[Path, int] = {}
    for finding in findings:
        if finding.bytes:
            place = _existing(Path(finding.more["belongs at"].partition(" or ")[0]))
            need[place] = need.get(place, 0) + finding.bytes
    for place, count in need.items():
        free = shutil.disk_usage(place).free
        text = f"{size(free)} free, about {size(count)} of datasets missing"
        yield Finding("disk", str(place), "ok" if free > count else "missing", text)
    free = shutil.disk_usage(_existing(project.artifacts)).free
    yield Finding(
        "disk",
        str(project.artifacts),
        "ok",
        f"{size(free)} free; --estimate measures what a run writes",
    )


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def gpu() -> list[Finding]:
    """The GPU, and its memory."""
    try:
        import torch
    except ModuleNotFoundError:
        return [Finding("GPU", "none", "note", "PyTorch is not installed, so no GPU can be used")]
    if not torch.cuda.is_available():
        text = "PyTorch finds no GPU: the CPU is used, 10 to 100 times slower"
        return [Finding("GPU", "none", "note", text)]
    has = torch.cuda.get_device_properties(0).total_memory / GIB
    text = f"{has:.0f} GiB; --estimate measures what a batch takes"
    return [Finding("GPU", torch.cuda.get_device_name(0), "ok", text)]


def repository(project: Project) -> list[Finding]:
    """Whether git and DVC know the project, and what they have not recorded."""
    changed = uncommitted(project.folder)
    if changed is None:
        return [
            Finding(
                "repository",
                "git",
                "note",
                "not a git repository: DVC needs one (git init; dvc init)",
            )
        ]
    count = len(changed)
    state = f"{count} uncommitted change{'' if count == 1 else 's'}" if changed else "all committed"
    findings = [Finding("repository", "git", "note" if changed else "ok", state)]
    if not (project.folder / ".dvc").is_dir():
        return [
            *findings,
            Finding("repository", "DVC", "missing", "not initialised", {"remedy": "dvc init"}),
        ]
    lock = project.folder / "dvc.lock"
    text = "dvc.lock records an earlier run" if lock.is_file() else "nothing has run yet"
    return [*findings, Finding("repository", "DVC", "ok", text), *dvc_locks(project.folder)]


def dvc_locks(folder: Path) -> list[Finding]:
    """Files that a killed DVC or a full disk left damaged: until they are deleted, every command of DVC fails."""
    files = {
        folder / ".dvc" / "tmp" / name: whole
        for name, whole in (("rwlock", _is_rwlock), ("lock", _is_lock))
    }
    files[folder / "dvc.lock"] = _is_dvc_lock
    if any(_is_held(file) for file in (*files, folder / ".dvc/tmp/rwlock.lock")):
        return [Finding("repository", "DVC", "note", "another DVC command is running")]
    return [
        Finding(
            "repository",
            "DVC",
            "wrong",
            f"{file} is damaged; a killed DVC or a full disk does that",
            {"remedy": _remedy(file)},
        )
        for file, is_whole in files.items()
        if os.path.lexists(file) and not is_whole(file)
    ]


def _is_rwlock(file: Path) -> bool:
    from farther.tables.documents import read_json

    try:
        content = read_json(file)
    except DataError:
        return False
    return isinstance(content, dict) and all(
        isinstance(content.get(kind, {}), dict) for kind in ("read", "write")
    )


def _is_lock(file: Path) -> bool:
    """Whether a file holds the number of a process, or, with `core.hardlink_lock`, the name of a claim."""
    from farther.tables.files import read_text

    try:
        return re.fullmatch(r"\s*\d+\s*|.*\|.*\|.*", read_text(file), re.DOTALL) is not None
    except DataError:
        return False


def _is_dvc_lock(file: Path) -> bool:
    """Whether DVC can read a file as `dvc.lock`, which it does not replace at once."""
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from voluptuous import Invalid

    from farther.tables.documents import read_yaml

    try:
        COMPILED_LOCKFILE_SCHEMA(read_yaml(file))
    except (DataError, Invalid):
        return False
    return True


def _remedy(file: Path) -> str:
    """What to run: `dvc.lock` is usually committed.

    Without it DVC finds the outputs of earlier runs in its cache.
    """
    committed = file.name == "dvc.lock" and (file.parent / ".git").exists()
    return f"git checkout -- {file}" if committed else f"rm {file}"


def _is_held(file: Path) -> bool:
    """Whether another process has locked a file."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

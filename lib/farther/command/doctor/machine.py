"""The machine, for `farther doctor`: disk, GPU, git and DVC."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from farther.command.committed import uncommitted
from farther.command.output import size
from farther.command.project import Project
from farther.errors import DataError, Finding
from farther.text.terminal import counted

GIB = 2**30


def disk(project: Project, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Free space for the datasets that are missing, and where the stages write."""
    bytes_by_folder: dict[Path, int] = {}
    for finding in findings:
        if finding.bytes:
            place = finding.more["belongs at"].partition(" or ")[0]
            folder = _existing(Path(place))
            bytes_by_folder[folder] = bytes_by_folder.get(folder, 0) + finding.bytes
    for folder, count in bytes_by_folder.items():
        free = shutil.disk_usage(folder).free
        text = f"{size(free)} free, about {size(count)} of datasets missing"
        yield Finding("disk", str(folder), "ok" if free > count else "missing", text)
    free = shutil.disk_usage(_existing(project.artifacts)).free
    text = f"{size(free)} free; --estimate measures what a run writes"
    yield Finding("disk", str(project.artifacts), "ok", text)


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
    memory = torch.cuda.get_device_properties(0).total_memory / GIB
    text = f"{memory:.0f} GiB; --estimate measures what a batch takes"
    return [Finding("GPU", torch.cuda.get_device_name(0), "ok", text)]


def repository(project: Project) -> list[Finding]:
    """Whether git and DVC know the project, and which changes are not committed."""
    changes = uncommitted(project.folder)
    if changes is None:
        text = "not a git repository: DVC needs one (git init; dvc init)"
        return [Finding("repository", "git", "note", text)]
    if changes:
        plural = "" if len(changes) == 1 else "s"
        text = f"{len(changes)} uncommitted change{plural}"
        findings = [Finding("repository", "git", "note", text)]
    else:
        findings = [Finding("repository", "git", "ok", "all committed")]
    if not (project.folder / ".dvc").is_dir():
        remedy = {"remedy": "dvc init"}
        findings.append(Finding("repository", "DVC", "missing", "not initialised", remedy))
        return findings
    if (project.folder / "dvc.lock").is_file():
        text = "dvc.lock records an earlier run"
    else:
        text = "nothing has run yet"
    findings.append(Finding("repository", "DVC", "ok", text))
    problems = dvc_locks(project.folder)
    if not problems:
        findings += _not_checked_out(project.folder)
    return findings + problems


def _not_checked_out(folder: Path) -> list[Finding]:
    """Outputs that DVC's cache has and the project's folder lacks, as after a pull that failed."""
    if not _lacks_outputs(folder / "dvc.lock"):
        return []
    command = [sys.executable, "-m", "dvc", "data", "status", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    try:
        status = json.loads(done.stdout)
    except ValueError:  # DVC says what is wrong in all of its commands
        return []
    absent = set(status.get("uncommitted", {}).get("deleted", ()))
    cached = absent - set(status.get("not_in_cache", ()))
    if not cached:
        return []
    text = f"{counted(len(cached), 'output')} in the cache, but not checked out: {min(cached)}"
    if len(cached) > 1:
        text += ", …"
    return [Finding("repository", "DVC", "note", text, {"remedy": "dvc checkout"})]


def _lacks_outputs(lock: Path) -> bool:
    """Whether an output of the last run is absent."""
    from farther.tables.documents import read_yaml

    if not lock.is_file():
        return False
    stages = read_yaml(lock).get("stages") or {}
    for stage in stages.values():
        for output in stage.get("outs") or ():
            if not (lock.parent / output["path"]).exists():
                return True
    return False


def dvc_locks(folder: Path) -> list[Finding]:
    """Files that a killed DVC or a full disk left damaged.

    Until they are deleted, every command of DVC fails.
    """
    folder_of_locks = folder / ".dvc" / "tmp"
    checks: dict[Path, Callable[[Path], bool]] = {
        folder_of_locks / "rwlock": _is_rwlock,
        folder_of_locks / "lock": _is_lock,
        folder / "dvc.lock": _is_dvc_lock,
    }
    if any(_is_held(file) for file in (*checks, folder_of_locks / "rwlock.lock")):
        return [Finding("repository", "DVC", "note", "another DVC command is running")]
    findings = []
    conflict = conflict_in(folder / "dvc.lock")
    if conflict is not None:
        remedy = {"remedy": f"git checkout --theirs {folder / 'dvc.lock'}, then farther repro"}
        del checks[folder / "dvc.lock"]
        findings.append(Finding("repository", "DVC", "wrong", conflict, remedy))
    for file, is_intact in checks.items():
        if os.path.lexists(file) and not is_intact(file):
            text = f"{file} is damaged; a killed DVC or a full disk does that"
            remedy = {"remedy": _remedy(file)}
            findings.append(Finding("repository", "DVC", "wrong", text, remedy))
    return findings


def conflict_in(lock: Path) -> str | None:
    """The merge conflict in dvc.lock, in words; None where there is none."""
    from farther.tables.documents import check_merged
    from farther.tables.files import read_text

    if not lock.is_file():
        return None
    try:
        text = read_text(lock)
    except DataError:
        return None
    try:
        check_merged(text, lock)
    except DataError as error:
        return str(error)
    return None


def _is_rwlock(file: Path) -> bool:
    """Whether a file has the locks of outputs, by kind."""
    from farther.tables.documents import read_json

    try:
        content = read_json(file)
    except DataError:
        return False
    if not isinstance(content, dict):
        return False
    return all(isinstance(content.get(kind, {}), dict) for kind in ("read", "write"))


def _is_lock(file: Path) -> bool:
    """Whether a file has the number of a process, or, with `core.hardlink_lock`, a claim's name."""
    from farther.tables.files import read_text

    try:
        return re.fullmatch(r"\s*\d+\s*|.*\|.*\|.*", read_text(file), re.DOTALL) is not None
    except DataError:
        return False


def _is_dvc_lock(file: Path) -> bool:
    """Whether a file is a `dvc.lock` in its documented form: DVC does not replace another one."""
    from farther.tables.documents import read_yaml

    try:
        content = read_yaml(file)
    except DataError:
        return False
    if not isinstance(content, dict) or content.get("schema") != "2.0":
        return False
    stages = content.get("stages", {})
    return isinstance(stages, dict) and all(map(_is_recorded_stage, stages.values()))


def _is_recorded_stage(stage: Any) -> bool:
    """Whether an entry of `dvc.lock` has a command, and parameters and paths where these belong."""
    if not isinstance(stage, dict) or not isinstance(stage.get("cmd"), str | list):
        return False
    params = stage.get("params", {})
    if not isinstance(params, dict) or not all(
        isinstance(value, dict) for value in params.values()
    ):
        return False
    for kind in ("deps", "outs"):
        entries = stage.get(kind, [])
        if not isinstance(entries, list):
            return False
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
                return False
    return True


def _remedy(file: Path) -> str:
    """The command that mends a file: `dvc.lock` is usually committed, and then restored.

    Without it DVC finds the outputs of earlier runs in its cache.
    """
    if file.name == "dvc.lock" and (file.parent / ".git").exists():
        return f"git checkout -- {file}"
    return f"rm {file}"


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

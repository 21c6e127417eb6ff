"""Whether what lies in `artifacts` was made with the parameters as they are now: `dvc.lock` says with which it was."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from farther.command.project import Project, read_yaml


def made_with(project: Project, stage: str, *keys: str) -> bool:
    """Whether a stage last ran with these parameters as they are now.

    Args:
        project: Its `dvc.lock` is read; where there is none, stages were run by hand, and what is there is believed.
        stage: As DVC calls it: `curate@voc`.
        keys: Sections of the parameters, or entries of sections (`benchmarks.voc`).
    """
    lock = project.folder / "dvc.lock"
    if not lock.is_file():
        return True
    stages = _stages(lock.resolve(), lock.stat().st_mtime_ns)
    used = ((stages.get(stage) or {}).get("params") or {}).get("params.yaml") or {}
    return all(key in used and used[key] == _now(project, key) for key in keys)


def _now(project: Project, key: str) -> Any:
    value: Any = project.params
    for part in key.split(".", 1):
        value = value.get(part) if isinstance(value, dict) else None
    return value


@cache
def _stages(lock: Path, changed: int) -> dict[str, Any]:
    """The stages of a dvc.lock, read once for as long as it stays as it is."""
    held = read_yaml(lock.read_text(encoding="utf-8"))
    return (held.get("stages") if isinstance(held, dict) else None) or {}

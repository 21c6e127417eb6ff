"""dvc.lock with new states of some stages, written as DVC writes it.

DVC reads and writes the whole file for each stage, in pure Python: two seconds for a hundred
stages. Here, only the stages that changed are made into text, and put in the place of theirs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: The lines before the first stage.
BEGINNING = ["schema: '2.0'\n", "stages:\n"]
#: An anchor or alias of YAML: the text of one stage would depend on that of another.
ANCHOR = re.compile(r"[&*]id\d{3}")


def write_lock(file: Any, stages: Sequence[Any]) -> None:
    """Writes the states of stages into dvc.lock; the text of other stages stays.

    A process that is killed leaves the file as it was. What DVC did not write itself, such as a
    file with comments, is left to DVC.

    Args:
        file: The stages' file, `dvc.dvcfile.ProjectFile`.
        stages: Stages of the file.
    """
    lock = _lock_file(file)
    if lock is not None and lock.is_file():
        before = lock.read_text(encoding="utf-8")
        after = _with_stages(before, _as_data(stages))
        if after is not None:
            if after != before:
                _write(lock, after)
                file.repo.scm_context.track_file(file._lockfile.relpath)
            return
    file.dump_stages(stages, update_pipeline=False)


def _write(lock: Path, text: str) -> None:
    """Replaces the text of dvc.lock in one step, where DVC writes over it.

    The new text is written to DVC's folder of temporary files, which Git ignores.
    """
    lock = lock.resolve()  # a link stays one
    folder = lock.parent / ".dvc/tmp"
    if not folder.is_dir() or folder.stat().st_dev != lock.stat().st_dev:
        folder = lock.parent
    aside = folder / f"{lock.name}.new"
    try:
        aside.write_text(text, encoding="utf-8")
        shutil.copymode(lock, aside)
        aside.replace(lock)
    finally:
        aside.unlink(missing_ok=True)


def _lock_file(file: Any) -> Path | None:
    """Path of dvc.lock; None where this DVC does not say it."""
    try:
        return Path(file._lockfile.path)
    except AttributeError:
        return None


def _as_data(stages: Sequence[Any]) -> dict[str, Any]:
    """The states of stages by name, as DVC stores them."""
    from dvc.stage import serialize

    states: dict[str, Any] = {}
    for stage in stages:
        states.update(serialize.to_lockfile(stage))
    return states


def _with_stages(text: str, states: Mapping[str, Any]) -> str | None:
    """The text of dvc.lock with other states of some stages; those that it lacks come last.

    Args:
        text: The text as it is.
        states: State of each stage, by name.

    Returns:
        None where the text has another form than that which DVC writes.
    """
    from dvc.utils.serialize import dumps_yaml

    blocks = _blocks(text)
    if blocks is None:
        return None
    for name, state in states.items():
        new_blocks = _blocks(dumps_yaml({"schema": "2.0", "stages": {name: state}}))
        if new_blocks is None:
            return None
        blocks.update(new_blocks)
    return "".join([*BEGINNING, *blocks.values()])


def _blocks(text: str) -> dict[str, str] | None:
    """The text of each stage by its first line, "  NAME:"; None where it has another form."""
    lines = text.splitlines(keepends=True)
    if lines[:2] != BEGINNING or not text.endswith("\n") or ANCHOR.search(text):
        return None
    lines_by_stage: dict[str, list[str]] = {}
    stage_lines: list[str] = []
    for line in lines[2:]:
        is_first = line.startswith("  ") and line[2:3] not in (" ", "\n")
        if line.lstrip().startswith("#") or line[:2].strip():
            return None
        if is_first:
            if not line.endswith(":\n") or line in lines_by_stage:
                return None
            stage_lines = lines_by_stage.setdefault(line, [])
        elif not lines_by_stage:
            return None
        stage_lines.append(line)
    return {first_line: "".join(block) for first_line, block in lines_by_stage.items()}

"""What a stage reads, compared before and after it ran.

DVC looks for changes before a stage runs, and records parameters when it has ended. What changes in
between would be recorded as what the stage worked with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.errors import DataError, FartherError
from farther.incremental.code import CODE
from farther.incremental.stage_digests import (
    ENTRY_KEYS,
    STAGE_CODE,
    TITLE,
    StageDigests,
    path_of,
    value_at,
)
from farther.params import PARAMS, parse, snapshot
from farther.tables.content import read_text
from farther.tables.documents import parse_yaml, read_json, read_yaml
from farther.tables.folders import is_junk

#: The stages of a project.
PIPELINE = Path("dvc.yaml")

#: The module of the stage `code`, which all others are compared with.
CODE_STAGE = "code_digests"

#: Folders below a dependency that DVC leaves out.
LEFT_OUT = ("__pycache__", ".work")

#: Most files or keys that a message names.
NAMED = 3

#: A reference in dvc.yaml: `${key}`, `${item.weights}`, `${embed.weights}`.
_REFERENCE = re.compile(r"\$\{\s*([^}\s]+)\s*\}")


class ChangedError(FartherError):
    """What a stage reads is not what it was when the pipeline began."""


@dataclass(frozen=True)
class FileState:
    """What changes with a file.

    Args:
        size: Number of bytes.
        modified: Time of the last change, in nanoseconds.
        inode: Number of the file in its file system: of another file of this name it differs.
    """

    size: int
    modified: int
    inode: int


@dataclass(frozen=True)
class StageEntry:
    """What dvc.yaml says that a stage reads.

    Args:
        deps: Paths of files and folders.
        params: Keys of params.yaml.
        digests: Keys of artifacts/code.json.
    """

    deps: tuple[str, ...]
    params: tuple[str, ...]
    digests: tuple[str, ...]


class StageInputs:
    """What a stage reads: the files, and the parts of params.yaml and artifacts/code.json.

    Args:
        entry: What dvc.yaml says.
        stage: Name of the stage in artifacts/code.json.
        text: The text of params.yaml that the stage works with.
    """

    def __init__(self, entry: StageEntry, stage: str, text: str):
        self._entry = entry
        self._stage = stage
        self._text = text
        self._params = parse(text)
        self._stored = read_json(CODE)
        self._scripts = [Path(script) for script in self._stored.get("scripts", ())]
        self._files = self._file_states()

    def check_current(self) -> None:
        """Refuses to begin if something changed since the stage `code` ran.

        Raises:
            ChangedError: code, an entry of params.yaml or a file that it names is another one.
        """
        digests = StageDigests(self._params, self._scripts)
        changed = []
        for key in self._entry.digests:
            path = path_of(self._stored, key)
            if value_at(self._stored, path) != digests.at(*path):
                changed.append(_description(path))
        if changed:
            raise ChangedError(
                f"changed since the stage `code` ran: {_listed(changed)}; run `dvc repro` again"
            )

    def check_unchanged(self) -> None:
        """Refuses to end well if something changed since this object was made.

        Raises:
            ChangedError: names keys of params.yaml, or files.
        """
        changed = list(self._changed_params())
        files = self._file_states()
        for path in sorted(self._files.keys() | files.keys()):
            if self._files.get(path) != files.get(path):
                changed.append(path)
        if changed:
            raise ChangedError(
                f"{_listed(changed)} changed while the stage ran: its results may be of either; "
                "run `dvc repro` again (finished parts are kept)"
            )

    def _file_states(self) -> dict[str, FileState]:
        """The state of each file that the stage reads, by path."""
        paths: list[str] = []
        for dependency in self._entry.deps:
            paths += _files_below(dependency)
        digests = StageDigests(self._params, self._scripts)
        names = [""]
        for key in self._entry.digests:
            keys = path_of(self._stored, key)
            place = _named_place(keys)
            if place:
                paths += [str(file) for file in digests.named_files.files(*place).values()]
            elif keys[0] == self._stage and len(keys) > 1:
                names.append(keys[1])
        for name in names:
            paths += [str(file) for file in digests.code_files(self._stage, name).values()]

        states = {}
        for path in dict.fromkeys(paths):
            state = _state(path)
            if state is not None:
                states[path] = state
        return states

    def _changed_params(self) -> Iterator[str]:
        """The keys of params.yaml that the stage reads and whose values are not the same now."""
        try:
            text = read_text(PARAMS)
            if text == self._text:
                return
            before = parse_yaml(self._text)
            after = parse_yaml(text)
        except DataError:
            yield str(PARAMS)
            return
        for key in self._entry.params:
            path = path_of(before or {}, key)
            for place in _differences(value_at(before, path), value_at(after, path), path):
                yield ".".join(place)
        for key in self._entry.digests:
            path = path_of(before or {}, key)
            if path[0] not in ENTRY_KEYS:
                continue
            for place in _differences(value_at(before, path), value_at(after, path), path):
                if place[-1] != TITLE or len(place) != ENTRY_KEYS[path[0]] + 1:
                    yield ".".join(place)


def inputs_of(name: str, arguments: Sequence[str]) -> StageInputs | None:
    """What a stage reads, as it is now.

    Args:
        name: Name of its script or module: "fit", "derive".
        arguments: Those of the command: `["paste", "objects"]`.

    Returns:
        None where nothing can be compared: without dvc.yaml or artifacts/code.json, for a stage
        that dvc.yaml does not have, and for the stage `code` itself.

    Raises:
        FartherError: dvc.yaml or params.yaml cannot be read.
    """
    if name == CODE_STAGE or not PIPELINE.is_file() or not CODE.is_file() or not PARAMS.is_file():
        return None
    text = snapshot()
    stages = (read_yaml(PIPELINE) or {}).get("stages") or {}
    entry = _entry_of(stages, name, arguments, parse_yaml(text) or {})
    if entry is None:
        return None
    return StageInputs(entry, name, text)


def _entry_of(
    stages: Mapping[str, Any], name: str, arguments: Sequence[str], params: Mapping[str, Any]
) -> StageEntry | None:
    """What dvc.yaml says that a stage reads; None if it has no such stage.

    A stage of several kinds is called `KIND@NAME` there, and its script is given kind and name.
    """
    remaining = list(arguments)
    if name not in stages and remaining:
        name = remaining.pop(0)
    body = stages.get(name)
    if not isinstance(body, Mapping):
        return None
    variables: dict[str, Any] = dict(params)
    if "foreach" in body:
        if not remaining:
            return None
        key = remaining[0]
        items = _resolved(str(body["foreach"]), params)
        variables |= {"key": key, "item": value_at(items, [key])}
        body = body["do"]

    param_keys: list[str] = []
    digest_keys: list[str] = []
    for entry in body.get("params") or ():
        if not isinstance(entry, Mapping):
            param_keys.append(entry)
            continue
        for file, keys in entry.items():
            if Path(file) == CODE:
                digest_keys += keys
            elif Path(file) == PARAMS:
                param_keys += keys
    return StageEntry(
        deps=tuple(_all_resolved(body.get("deps") or (), variables)),
        params=tuple(_all_resolved(param_keys, variables)),
        digests=tuple(_all_resolved(digest_keys, variables)),
    )


def _all_resolved(texts: Sequence[Any], variables: Mapping[str, Any]) -> Iterator[str]:
    """Texts of dvc.yaml with the values that they refer to; those without a value left out."""
    for text in texts:
        value = _resolved(str(text), variables)
        if value is not None:
            yield str(value)


def _resolved(text: str, variables: Mapping[str, Any]) -> Any:
    """A text of dvc.yaml with the values that it refers to.

    Returns:
        The value itself where the text is one reference. None where there is no such value.
    """
    values = {}
    for reference in _REFERENCE.findall(text):
        values[reference] = value_at(variables, path_of(variables, reference))
        if values[reference] is None:
            return None
    whole = _REFERENCE.fullmatch(text)
    if whole is not None:
        return values[whole[1]]
    return _REFERENCE.sub(lambda match: str(values[match[1]]), text)


def _named_place(path: Sequence[str]) -> Sequence[str]:
    """The part of params.yaml whose named files are in a digest; empty for a digest of code."""
    if path[0] == "files":
        return path[1:]
    if path[0] in ENTRY_KEYS:
        return path
    return ()


def _description(path: Sequence[str]) -> str:
    """What a digest of artifacts/code.json is of, for a message."""
    place = ".".join(path)
    if path[0] == "files":
        return f"a file that {'.'.join(path[1:])} of params.yaml names"
    if path[0] in ENTRY_KEYS:
        return f"{place} of params.yaml, or a file that it names"
    if path[0] in STAGE_CODE:
        return f"the code of {place}"
    return place


def _differences(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The places at which two values differ: ("methods", "knn", "k")."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _differences(before.get(key), after.get(key), (*path, str(key)))
    elif type(before) is not type(after) or before != after:
        yield path


def _files_below(dependency: str) -> Iterator[str]:
    """A file, or the files in a folder that DVC looks at; links to folders are not followed."""
    if not Path(dependency).is_dir():
        yield dependency
        return
    for folder, folders, files in os.walk(dependency):
        folders[:] = [name for name in folders if name not in LEFT_OUT and not is_junk(name)]
        for name in files:
            if not is_junk(name) and not name.endswith(".pyc"):
                yield f"{folder}/{name}"


def _state(path: str) -> FileState | None:
    """The state of a file, or of a link that leads nowhere; None of an absent one."""
    for follow in (True, False):
        try:
            state = os.stat(path, follow_symlinks=follow)  # noqa: PTH116
        except OSError:
            continue
        return FileState(state.st_size, state.st_mtime_ns, state.st_ino)
    return None


def _listed(texts: Sequence[str]) -> str:
    """The first few of several texts."""
    named = list(dict.fromkeys(texts))
    if len(named) <= NAMED:
        return ", ".join(named)
    return f"{', '.join(named[:NAMED])} and {len(named) - NAMED:,} more"

"""Digests of the files that params.yaml and rules files name: DVC sees by them that one changed.

A file or folder counts where a text of params.yaml is its path, relative to the project. What a
YAML file names counts, too, relative to its folder or to the project. Files that stages depend on
in dvc.yaml are left out (`DEPENDENCIES`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.curation.candidates import FROM_POOLS
from farther.curation.class_similarity import ClassesBy
from farther.errors import FartherError
from farther.registry import parameters
from farther.tables.content import digest
from farther.tables.documents import read_yaml
from farther.tables.endings import YAML
from farther.tables.folders import entries, files_below

#: Keys whose files are large dependencies of DVC already, with the stages that depend on them. "*"
#: is any key.
DEPENDENCIES = {
    "datasets.*.root": "ingest",
    "derived.*.*.cutouts.root": "derive",
    "detectors.*.weights": "infer",
    "embed.weights": "embed, infer",
}

#: Sections that have a digest for each of their entries: stages run one entry each.
BY_ENTRY = ("datasets", "detectors", "methods")
#: The section that has a digest for each entry of each of its kinds.
BY_KIND = "derived"
#: Sections that have one digest each, also where params.yaml does not have them.
WHOLE = (
    "demo",
    "benchmarks",
    "embed",
    "stratify",
    "review",
    "inference",
    "threshold",
    "fit",
    "evaluate",
    "deploy",
    "cost",
    "report",
)

#: Sections in which a single word may be a folder: elsewhere it is a name, such as that of a
#: subset, "train".
WITH_FOLDERS = ("detectors", "evaluate", "methods")
#: Keys of an entry of `detectors` whose values are names.
NAMES = ("adapter", "benchmark", "classes", "kind", "run", "skip", "title")

#: Longest text that may be a path, in characters.
LONGEST = 4096


@dataclass(frozen=True)
class NamedFile:
    """A file or folder that a text names.

    Args:
        text: The text.
        path: Its path, relative to the project or absolute.
    """

    text: str
    path: Path


def file_digests(params: Mapping[str, Any]) -> dict[str, Any]:
    """Digests of the files that each section of params.yaml names.

    Args:
        params: All sections.

    Returns:
        {section: digest}; {section: {entry: digest}} for those of `BY_ENTRY`; {kind: {entry:
        digest}} for `derived`. Files that are absent or cannot be read count as that.
    """
    digests: dict[str, Any] = {}
    for section in sorted({*WHOLE, *params} - {*BY_ENTRY, BY_KIND}):
        digests[section] = section_digest(params.get(section), section)
    for section in BY_ENTRY:
        entries = params.get(section) or {}
        digests[section] = {
            name: section_digest(entry, section, name) for name, entry in entries.items()
        }
    entries_by_kind = params.get(BY_KIND) or {}
    digests[BY_KIND] = {}
    for kind in ("paste", "corrupt", "blank", *entries_by_kind):
        entries = entries_by_kind.get(kind) or {}
        digests[BY_KIND][kind] = {
            name: section_digest(entry, BY_KIND, kind, name) for name, entry in entries.items()
        }
    return digests


def section_digest(part: Any, *keys: str) -> str:
    """Digest of the files that a part of params.yaml names.

    Args:
        part: The part: a mapping, a list, a text.
        keys: Its place in params.yaml: "detectors", "voc-yolov8".
    """
    contents: dict[str, str] = {}
    for named in named_files(part, *keys):
        contents.update(_contents(named))
    lines = []
    for label, content in sorted(contents.items()):
        lines += [label, content]
    return digest(*lines)


def named_files(part: Any, *keys: str) -> Iterator[NamedFile]:
    """The files and folders that a part of params.yaml, or a YAML file among them, names.

    Args:
        part, keys: See `section_digest`.
    """
    queue = []
    for path, text in texts_of(part, keys):
        if Path(text).is_relative_to(FROM_POOLS):
            # An output of the stage `enrich`, on which `curate` depends.
            continue
        if not _is_dependency(path):
            queue += _existing(text, Path(), folders=_may_name_folder(path))
        elif path[0] == "detectors":
            queue += _described_beside(text)

    visited = set()
    while queue:
        named = queue.pop()
        if named in visited:
            continue
        visited.add(named)
        yield named
        if named.path.suffix.lower() in YAML and named.path.is_file():
            for _, text in texts_of(_read(named.path)):
                queue += _existing(text, named.path.parent, folders=False)
                queue += _existing(text, Path(), folders=False)


def texts_of(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The texts within a value, each with the keys that lead to it.

    Absent parameters of `ClassesBy` have their defaults.
    """
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, Mapping):
        if keys[-1:] == ("classes_by",):
            value = {**parameters(ClassesBy), **value}
        for key, inner in value.items():
            yield from texts_of(inner, (*keys, str(key)))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts_of(inner, keys)


def _is_dependency(path: tuple[str, ...]) -> bool:
    """Whether DVC itself sees changes of the file that a value of params.yaml names."""
    return any(_matches(pattern.split("."), path) for pattern in DEPENDENCIES)


def _matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Whether each key of a path is that of a pattern, or the pattern's is "*"."""
    if len(pattern) != len(path):
        return False
    return all(part in ("*", key) for part, key in zip(pattern, path, strict=True))


def _may_name_folder(path: tuple[str, ...]) -> bool:
    """Whether a single word at a path of keys may be the name of a folder."""
    return path[0] in WITH_FOLDERS and not set(path[1:]).intersection(NAMES)


def _existing(text: str, base: Path, *, folders: bool) -> list[NamedFile]:
    """The file or folder that a text names relative to another folder, if there is one.

    Args:
        text: The text.
        base: The folder.
        folders: Whether a text without `/` may name a folder.
    """
    if not text or len(text) > LONGEST or "\0" in text or "\n" in text:
        return []
    path = Path(os.path.normpath(base / text))
    try:
        if path.is_file():
            return [NamedFile(text, path)]
        is_folder = path.is_dir() and (folders or "/" in text)
    except OSError:  # a part of it is longer than the file system allows
        return []
    if is_folder and not Path.cwd().is_relative_to(path.absolute()):  # not the project itself
        return [NamedFile(text, path)]
    return []


def _described_beside(weights: str) -> list[NamedFile]:
    """Files beside a checkpoint that adapters read with it.

    Transformers' checkpoints have a config.json, and ONNX graphs their weights in model.onnx.data.
    So these are JSON files that are not beside another checkpoint of their name, and files whose
    names begin with the checkpoint's.
    """
    checkpoint = Path(weights)
    if not checkpoint.is_file():
        return []
    siblings = []
    for entry in entries(checkpoint.parent):
        file = Path(entry.path)
        if file.is_file() and file != checkpoint:
            siblings.append(file)
    stems = {file.stem for file in siblings if file.suffix.lower() != ".json"}
    stems.discard(checkpoint.stem)

    descriptions = []
    for file in siblings:
        is_description = file.suffix.lower() == ".json" and file.stem not in stems
        if is_description or file.name.startswith(checkpoint.name):
            descriptions.append(NamedFile(file.name, file))
    return descriptions


def _contents(named: NamedFile) -> Iterator[tuple[str, str]]:
    """Label and content of a file, or of each file in a folder."""
    if named.path.is_dir():
        try:
            files = sorted(files_below(named.path))
        except FartherError:
            yield named.text, "cannot be listed"
            return
        for file in files:
            yield f"{named.text}\0{file.relative_to(named.path).as_posix()}", _bytes_digest(file)
    elif named.path.suffix.lower() in YAML:
        yield named.text, _yaml_digest(named.path)
    else:
        yield named.text, _bytes_digest(named.path)


def _yaml_digest(file: Path) -> str:
    """Digest of the values of a YAML file, in their order, or of its bytes if it is not YAML."""
    content = _read(file)
    if content is None:
        return _bytes_digest(file)
    return digest(json.dumps(content, default=str))


def _read(file: Path) -> Any:
    """The values of a YAML file.

    None if it cannot be read: the stage that needs it reports that.
    """
    try:
        return read_yaml(str(file))
    except FartherError:
        return None


def _bytes_digest(file: Path) -> str:
    try:
        return digest(file)
    except FartherError:
        # A broken link, a FIFO, a file without read permission: the stage that needs it reports it.
        return "cannot be read"

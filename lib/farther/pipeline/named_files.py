"""The files that params.yaml names, and those that rules files name: digests by which DVC sees that one changed.

A file or folder counts where a text of params.yaml is its path, relative to the project. What a
YAML file names counts, too, relative to its folder or to the project. Files that stages depend on
in dvc.yaml are left out (`DEPENDENCIES`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.curation.candidates import FROM_POOLS
from farther.curation.class_similarity import ClassesBy
from farther.errors import FartherError
from farther.registry import parameters
from farther.tables.content import digest
from farther.tables.documents import read_yaml
from farther.tables.folders import files_below

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
    *(
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
    ),
    *("cost", "report"),
)

#: Sections in which a single word may be a folder: elsewhere it is a name, such as that of a
#: subset, "train".
WITH_FOLDERS = ("detectors", "evaluate", "methods")
#: Keys of an entry of `detectors` whose values are names.
NAMES = ("adapter", "benchmark", "classes", "kind", "run", "skip", "title")

#: Paths of more characters than this are texts.
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
    digests[BY_KIND] = {}
    for kind in ("paste", "corrupt", "blank", *(params.get(BY_KIND) or {})):
        entries = (params.get(BY_KIND) or {}).get(kind) or {}
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
    """The files and folders that a part of params.yaml names, and those that YAML files among them name.

    Args:
        part, keys: See `section_digest`.
    """
    waiting = []
    for place, text in texts_of(part, keys):
        if Path(text).is_relative_to(
            FROM_POOLS
        ):  # an output of the stage `enrich`, on which `curate` depends
            continue
        if _is_dependency(place):
            if place[0] == "detectors":
                waiting += _described_beside(text)
        else:
            waiting += _existing(text, Path(), folders=_may_name_folder(place))
    seen = set()
    while waiting:
        named = waiting.pop()
        if named in seen:
            continue
        seen.add(named)
        yield named
        if named.path.suffix in (".yaml", ".yml") and named.path.is_file():
            for _, text in texts_of(_read(named.path)):
                waiting += _existing(text, named.path.parent, folders=False)
                waiting += _existing(text, Path(), folders=False)


def texts_of(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The texts of a value with their places.

    Parameters of `ClassesBy` that are not given have their defaults.
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


def _is_dependency(place: tuple[str, ...]) -> bool:
    for pattern in DEPENDENCIES:
        parts = pattern.split(".")
        if len(parts) == len(place) and all(
            part in ("*", key) for part, key in zip(parts, place, strict=True)
        ):
            return True
    return False


def _may_name_folder(place: tuple[str, ...]) -> bool:
    """Whether a single word at a place may be the name of a folder."""
    return place[0] in WITH_FOLDERS and not set(place[1:]).intersection(NAMES)


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
    files = [
        file
        for file in sorted(checkpoint.parent.iterdir())
        if file.is_file() and file != checkpoint
    ]
    others = {file.stem for file in files if file.suffix != ".json"} - {checkpoint.stem}
    beside = []
    for file in files:
        is_description = file.suffix == ".json" and file.stem not in others
        if is_description or file.name.startswith(checkpoint.name):
            beside.append(NamedFile(file.name, file))
    return beside


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
    elif named.path.suffix in (".yaml", ".yml"):
        yield named.text, _yaml_digest(named.path)
    else:
        yield named.text, _bytes_digest(named.path)


def _yaml_digest(file: Path) -> str:
    """Digest of what a YAML file says, in its order; of its bytes where that cannot be read."""
    content = _read(file)
    return _bytes_digest(file) if content is None else digest(json.dumps(content, default=str))


def _read(file: Path) -> Any:
    """What a YAML file says; None where it cannot be read, which the stage that needs it says."""
    try:
        return read_yaml(str(file))
    except FartherError:
        return None


def _bytes_digest(file: Path) -> str:
    try:
        return digest(file)
    except (
        FartherError
    ):  # a broken link, a FIFO, a file that may not be read: the stage that needs it says so
        return "cannot be read"

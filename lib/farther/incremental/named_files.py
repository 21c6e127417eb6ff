"""Files that params.yaml and class mappings name: DVC sees by their digests that one changed.

A text counts where it is the path of a file or folder that exists, relative to the project. A YAML
or JSON file that is named may name others, relative to its folder or to the project. Left out are

- what is written at the key `title`;
- what the stage of an entry depends on in dvc.yaml: the root of its dataset or cut-outs, or its
  checkpoint;
- folders of datasets where a single word names them, as subsets have such names; and datasets in
  other folders that are named;
- what stages write: `OUTPUTS`;
- the project's folder, and folders that contain it.

With a checkpoint count files beside it that adapters read.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from farther.errors import DataError, FartherError
from farther.tables.content import digest
from farther.tables.documents import parse_json, read_yaml
from farther.tables.endings import YAML
from farther.tables.folders import entries, files_below

#: Sections that have a digest for each of their entries.
BY_ENTRY = ("datasets", "detectors", "methods")
#: The section that has a digest for each entry of each of its kinds, and kinds that it always has.
BY_KIND = "derived"
KINDS = ("paste", "corrupt", "blank")
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

#: Folders that stages write.
OUTPUTS = ("artifacts", "data/candidates/pools")

#: The key whose value only readers of the report see.
TITLE = "title"

#: Parameters that have defaults which name files: {key of a mapping: {its key: default}}.
DEFAULTS = {"classes_by": {"hierarchy": "../similarity/wordnet"}}

#: Endings of checkpoints, in lower case.
CHECKPOINTS = (".pt", ".pth", ".ckpt", ".onnx", ".safetensors", ".torchscript", ".engine")
#: Ending of graphs, whose weights may be in other files beside them.
GRAPH = ".onnx"

#: Longest text that may be a path, in characters.
LONGEST = 4096
#: Largest JSON file, in bytes, that is searched for paths: annotations are larger than rules.
LARGEST_JSON = 1_000_000


@dataclass(frozen=True)
class NamedFile:
    """A file or folder that a text names.

    Args:
        text: The text.
        path: Its path, relative to the project or absolute.
    """

    text: str
    path: Path


class NamedFiles:
    """The files that the sections of params.yaml name, and their digests.

    Args:
        params: All sections.
    """

    def __init__(self, params: Mapping[str, Any]):
        self._params = params
        self._digests: dict[Path, str] = {}
        self._values: dict[Path, Any] = {}
        self._paths: dict[str, Path | None] = {}
        self._named_by: dict[Path, list[NamedFile]] = {}

    def digest_at(self, *keys: str) -> Any:
        """The digest of the files that a part of params.yaml names, or a mapping of digests.

        Args:
            keys: Its place: `()`, `("benchmarks",)`, `("detectors",)`, `("detectors", "voc-vos")`.

        Returns:
            One digest for a section and for an entry. A mapping for all sections, for those of
            `BY_ENTRY`, for `derived`, and for a kind of it.
        """
        if not keys:
            names = sorted({*WHOLE, *self._params, *BY_ENTRY, BY_KIND})
            return {name: self.digest_at(name) for name in names}
        if len(keys) < _depth(keys[0]):
            names = list(self._part(*keys) or {})
            if keys == (BY_KIND,):
                names = list(dict.fromkeys([*KINDS, *names]))
            return {name: self.digest_at(*keys, name) for name in names}
        lines: list[str] = []
        for label, file in sorted(self.files(*keys).items()):
            lines += [label, self._digest(file)]
        return digest(*lines)

    def files(self, *keys: str) -> dict[str, Path]:
        """The files that a part of params.yaml names, those in named folders included.

        Args:
            keys: Its place: "detectors", "voc-vos".

        Returns:
            {name for digests, the same on every machine: file}.
        """
        files: dict[str, Path] = {}
        for named in self.named(*keys):
            files |= self._files_of(named)
        return files

    def named(self, *keys: str) -> Iterator[NamedFile]:
        """The files and folders that a part of params.yaml, or of a class mapping, names."""
        own_dependencies = self._own_dependencies(*keys)
        queue: list[NamedFile] = []
        for _, text in texts_of(self._part(*keys), keys):
            path = _normal(text)
            if path not in own_dependencies:
                queue += self._existing(text, Path())
            elif keys[0] == "detectors":
                queue += _read_with(path)

        visited = set()
        while queue:
            named = queue.pop()
            if named in visited:
                continue
            visited.add(named)
            yield named
            queue += self._named_in(named.path)

    def _named_in(self, rules: Path) -> list[NamedFile]:
        """The files and folders that a file names, relative to its folder or to the project."""
        if rules not in self._named_by:
            named = []
            for text in dict.fromkeys(text for _, text in texts_of(self._value(rules))):
                named += self._existing(text, rules.parent)
                named += self._existing(text, Path())
            self._named_by[rules] = named
        return self._named_by[rules]

    def _part(self, *keys: str) -> Any:
        """The part of params.yaml at a path of keys."""
        part: Any = self._params
        for key in keys:
            if not isinstance(part, Mapping):
                return None
            part = part.get(key)
        return part

    def _own_dependencies(self, *keys: str) -> set[Path]:
        """What the stage of an entry depends on in dvc.yaml."""
        places: list[tuple[str, ...]] = []
        if keys[0] in ("detectors", "embed"):
            places.append(("embed", "weights"))
        if keys[0] == "detectors" and len(keys) > 1:
            places.append((*keys, "weights"))
        elif keys[0] == "datasets":
            places.append((*keys, "root"))
        elif keys[0] == BY_KIND:
            places.append((*keys, "cutouts", "root"))
        texts = [self._part(*place) for place in places]
        return {_normal(text) for text in texts if isinstance(text, str)}

    @cached_property
    def _roots(self) -> set[Path]:
        """The roots of datasets."""
        roots = set()
        for name in self._part("datasets") or {}:
            text = self._part("datasets", name, "root")
            if isinstance(text, str):
                roots.add(_normal(text))
        return roots

    def _may_be_subset(self, path: Path) -> bool:
        """Whether a path is a folder of a dataset: a word that is its name may mean a subset."""
        if not any(path.is_relative_to(root) for root in self._roots):
            return False
        return path.is_dir()

    def _existing(self, text: str, base: Path) -> list[NamedFile]:
        """The file or folder that a text names relative to another folder, if there is one."""
        if not text or len(text) > LONGEST or "\0" in text or "\n" in text:
            return []
        # Class mappings have thousands of texts: `Path` takes many times as long.
        joined = os.path.join(base, text)  # noqa: PTH118
        if joined not in self._paths:
            self._paths[joined] = self._counted(joined)
        path = self._paths[joined]
        if path is None or ("/" not in text and self._may_be_subset(path)):
            return []
        return [NamedFile(text, path)]

    def _counted(self, joined: str) -> Path | None:
        """A path that counts where a text names it; None if there is nothing, or it is left out."""
        try:
            is_folder = stat.S_ISDIR(os.stat(joined).st_mode)  # noqa: PTH116
        except OSError:  # it does not exist, or a part of it is longer than the file system allows
            return None
        path = _normal(joined)
        if _is_output(path):
            return None
        if is_folder and Path.cwd().is_relative_to(os.path.abspath(path)):  # noqa: PTH100
            return None
        return path

    def _files_of(self, named: NamedFile) -> dict[str, Path]:
        """The file, or the files in the folder; none of those below the root of a dataset."""
        if not named.path.is_dir():
            return {named.text: named.path}
        files = {}
        try:
            for file in files_below(named.path):
                if self._roots.isdisjoint(file.parents):
                    label = f"{named.text}\0{file.relative_to(named.path).as_posix()}"
                    files[label] = file
        except FartherError:  # the stage that needs it reports why it cannot be listed
            return {named.text: named.path}
        return files

    def _digest(self, file: Path) -> str:
        """Digest of the values of a YAML file, in their order; of the bytes of another file."""
        if file not in self._digests:
            value = self._value(file) if file.suffix.lower() in YAML else None
            if value is None:
                self._digests[file] = _bytes_digest(file)
            else:
                self._digests[file] = digest(json.dumps(value, default=str))
        return self._digests[file]

    def _value(self, file: Path) -> Any:
        """The values of a YAML or JSON file; None of another, or if it cannot be read."""
        if file not in self._values:
            self._values[file] = _read(file)
        return self._values[file]


def texts_of(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The texts within a value, each with the keys that lead to it; none at a key `title`.

    Absent parameters that have defaults of `DEFAULTS` have these.
    """
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, Mapping):
        defaults = DEFAULTS.get(keys[-1], {}) if keys else {}
        for key, inner in {**defaults, **value}.items():
            if key != TITLE:
                yield from texts_of(inner, (*keys, str(key)))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts_of(inner, keys)


def _depth(section: str) -> int:
    """Number of keys that lead to what has one digest."""
    if section == BY_KIND:
        return 3
    return 2 if section in BY_ENTRY else 1


def _normal(path: str | Path) -> Path:
    return Path(os.path.normpath(path))


def _is_output(path: Path) -> bool:
    """Whether a stage writes a path."""
    return any(path.is_relative_to(folder) for folder in OUTPUTS)


def _read_with(checkpoint: Path) -> list[NamedFile]:
    """Files beside a checkpoint that adapters read with it.

    Transformers' checkpoints have a config.json. So these are JSON files that are not beside
    another checkpoint of their name, and files whose names begin with the checkpoint's. Graphs may
    have their weights in files of any name: with these, all files count that are no checkpoints.
    """
    if not checkpoint.is_file():
        return []
    siblings = []
    for entry in entries(checkpoint.parent):
        file = Path(entry.path)
        if file.is_file() and file != checkpoint:
            siblings.append(file)
    stems = {file.stem for file in siblings if file.suffix.lower() != ".json"}
    stems.discard(checkpoint.stem)

    files = []
    for file in siblings:
        is_description = file.suffix.lower() == ".json" and file.stem not in stems
        if is_description or file.name.startswith(checkpoint.name) or _may_hold(checkpoint, file):
            files.append(NamedFile(file.name, file))
    return files


def _may_hold(checkpoint: Path, file: Path) -> bool:
    """Whether a file beside a checkpoint may hold its weights: beside a graph, any other file.

    Beside a graph in the project's folder it is a file whose name is in the graph.
    """
    if checkpoint.suffix.lower() != GRAPH or file.suffix.lower() in CHECKPOINTS:
        return False
    if checkpoint.parent != Path():
        return True
    try:
        return os.fsencode(file.name) in checkpoint.read_bytes()
    except OSError:
        return False


def _read(file: Path) -> Any:
    """The values of a YAML file, or of a JSON file that is not too large.

    None of another file, and of one that cannot be read: the stage that needs it reports that.
    """
    ending = file.suffix.lower()
    try:
        if ending in YAML and file.is_file():
            return read_yaml(str(file))
        if ending == ".json" and file.is_file() and file.stat().st_size <= LARGEST_JSON:
            return parse_json(file.read_bytes(), file)
    except (DataError, OSError):
        return None
    return None


def _bytes_digest(file: Path) -> str:
    try:
        return digest(file)
    except FartherError:
        # A broken link, a FIFO, a file without read permission: the stage that needs it reports it.
        return "cannot be read"

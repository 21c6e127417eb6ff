"""Digests of code, of named files and of entries of params.yaml, as artifacts/code.json has them.

    {"ingest": {format: …}, "derive": {kind: …}, "infer": {adapter: …}, "train": {trainer: …},
     "curate": …, "fit": …, …: one digest per other stage,
     "kept": {"fit": {method: …}, "score": {method: …}, "user_defined": {metric: …},
              "search": …, "evaluate": …},
     "files": {section: …} or {section: {entry: …}},
     "detectors": {run: …}, "benchmarks": {name: …}, "datasets": {name: …},
     "derived": {kind: {name: …}},
     "scripts": [path, …]}

`kept` has the code of what stages keep and make again only where it changed. Names of extensions
are listed wherever names are, as only importing a file says what kind of thing it registers.

An entry's digest is over the entry, in which the order of keys does not matter and `title` does not
count; over the files that it names; and over the code of other adapters that it names.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from farther.incremental.code import SourceCode
from farther.incremental.named_files import NamedFiles, texts_of
from farther.naming import extensions

#: Key of an entry of params.yaml that only the report reads.
TITLE = "title"


@dataclass(frozen=True, kw_only=True)
class StageCode:
    """The code that a stage may run.

    Args:
        packages: Packages of farther; those that they import count, too (`IMPORTS`).
        names_of: The package whose names the stage runs one of: it has one digest per name.
        whole: Packages of which all modules that register names count.
        modules: Modules of `farther.pipeline` that count besides those of no stage.
        with_extensions: Whether it may run any code of extensions.
    """

    packages: tuple[str, ...]
    names_of: str = ""
    whole: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    with_extensions: bool = False


#: The code of each stage.
STAGE_CODE = {
    "demo": StageCode(packages=("farther_demo",)),
    "ingest": StageCode(packages=("datasets",), names_of="datasets"),
    "derive": StageCode(packages=("derived",), names_of="derived", modules=("ingest",)),
    "embed": StageCode(packages=("similarity",)),
    "enrich": StageCode(packages=("curation", "similarity")),
    "curate": StageCode(packages=("curation",)),
    "stratify": StageCode(packages=("curation", "similarity")),
    "infer": StageCode(packages=("datasets", "detectors"), names_of="detectors"),
    "fit": StageCode(packages=("evaluation",), whole=("methods",), with_extensions=True),
    "score": StageCode(packages=("evaluation",), whole=("methods",), with_extensions=True),
    "evaluate": StageCode(
        packages=("evaluation",),
        whole=("methods",),
        with_extensions=True,
    ),
    "choose": StageCode(
        packages=("datasets", "evaluation"),
        whole=("detectors", "methods"),
        modules=("costs",),
        with_extensions=True,
    ),
    "report": StageCode(packages=("report",), whole=("methods",), with_extensions=True),
    "train": StageCode(
        packages=("farther_training",), names_of="farther_training/trainers", whole=("detectors",)
    ),
}

#: The code of scripts that are no stage of dvc.yaml: those of farther's own training.
OTHER_SCRIPT = StageCode(packages=("farther_training", "derived"), whole=("detectors",))

#: Packages that not every installation has, by stage.
OPTIONAL = {"demo": "farther_demo", "train": "farther_training"}

#: Modules of `farther.pipeline` that work for one stage alone, or for none.
PIPELINE_MODULES = (
    *STAGE_CODE,
    "code_digests",
    "costs",
    "described_keys",
    "first",
    "later_sections",
    "params_reference",
    "params_schema",
    "reruns",
)

#: The code of what stages keep; `names_of` as in a stage.
KEPT = {
    "fit": StageCode(packages=("scoring",), names_of="methods"),
    "score": StageCode(packages=("scoring",), names_of="methods"),
    "user_defined": StageCode(packages=("evaluation",)),
    "search": StageCode(packages=("scoring",)),
    "evaluate": StageCode(packages=("evaluation",)),
}

#: Sections whose entries have digests of their own, and the number of keys that lead to an entry:
#: those of `derived` are below kinds.
ENTRY_KEYS = {"benchmarks": 2, "datasets": 2, "detectors": 2, "derived": 3}

#: Sections whose entries may name classes besides their own: the key of their own one, and the
#: stage that runs one of them.
NAMED_CLASSES = {
    "datasets": ("format", "ingest"),
    "detectors": ("adapter", "infer"),
}


class StageDigests:
    """The digests of artifacts/code.json, computed from what is there now.

    Args:
        params: All sections of params.yaml.
        scripts: Scripts of the stages, which a repository has beside the modules of the package.
    """

    def __init__(self, params: Mapping[str, Any], scripts: Sequence[Path] = ()):
        self._params = params
        self._scripts = {script.stem: script for script in scripts}
        self._source = SourceCode()
        self.named_files = NamedFiles(params)

    def all(self) -> dict[str, Any]:
        """All of them, with the paths of the scripts."""
        digests: dict[str, Any] = {}
        for stage in sorted({*STAGE_CODE, *self._scripts}):
            if self._has(stage):
                digests[stage] = self.at(stage)
        digests.pop("code_digests", None)
        for key in ("kept", "files", *ENTRY_KEYS):
            digests[key] = self.at(key)
        digests["scripts"] = [script.as_posix() for script in self._scripts.values()]
        return digests

    def at(self, *keys: str) -> Any:
        """The digest, or the mapping of digests, at a path of keys; None where there is none."""
        first = keys[0]
        if first == "files":
            return self.named_files.digest_at(*keys[1:])
        if first == "kept":
            value: Any = self._kept
        elif first in ENTRY_KEYS:
            return self._entries(*keys)
        else:
            value = self._of_code(first, _code_of(first))
        for key in keys[1:]:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value

    def code_files(self, stage: str, name: str = "") -> dict[str, Path]:
        """The files whose code counts with a stage.

        Args:
            stage: The stage.
            name: The name that it runs, of a stage with one digest per name.
        """
        code = _code_of(stage)
        files = self._shared_files(stage, code)
        if code.names_of:
            files |= self._files_of_name(code.names_of, name)
        return files

    def _of_code(self, stage: str, code: StageCode) -> str | dict[str, str]:
        """The digest of a stage's code, or one per name."""
        shared = self._shared_files(stage, code)
        if not code.names_of:
            return self._source.digest(shared)
        return self._by_name(shared, code.names_of)

    def _by_name(self, shared: Mapping[str, Path], package: str) -> dict[str, str]:
        """One digest per name of a package, and per name of extensions."""
        shared_digest = self._source.digest(shared)
        digests = {}
        for name in self._source.registered(package):
            own_digest = self._source.digest(self._files_of_name(package, name))
            digests[name] = _joined(shared_digest, own_digest)
        extension_digest = _joined(shared_digest, self._extension_digest)
        return digests | dict.fromkeys(self._extension_names, extension_digest)

    @cached_property
    def _kept(self) -> dict[str, Any]:
        """See `kept` in the module's docstring."""
        digests: dict[str, Any] = {}
        for key, code in KEPT.items():
            shared = self._source.package_files(*code.packages)
            if code.names_of:
                digests[key] = self._by_name(shared, code.names_of)
            elif key == "user_defined":
                digest = _joined(self._source.digest(shared), self._extension_digest)
                digests[key] = dict.fromkeys(self._extension_names, digest)
            else:
                digests[key] = self._source.digest(shared)
        return digests

    def _shared_files(self, stage: str, code: StageCode) -> dict[str, Path]:
        """The files that count with a stage, whatever name it runs."""
        files = self._source.package_files(*code.packages, whole=code.whole)
        other_stages = set(PIPELINE_MODULES) - {stage, *code.modules}
        files |= self._source.pipeline_files(other_stages)
        if code.with_extensions:
            files |= self._source.extension_files()
        if stage in self._scripts:
            script = self._scripts[stage]
            files[script.name] = script
        return files

    def _files_of_name(self, package: str, name: str) -> dict[str, Path]:
        """The files that count with a name, besides those of packages."""
        module = self._source.registered(package).get(name)
        if module is not None:
            return self._source.module_files(module)
        if name in self._extension_names:
            return self._extension_name_files
        return {}

    @cached_property
    def _extension_names(self) -> list[str]:
        return sorted(extensions.by_name())

    @cached_property
    def _extension_name_files(self) -> dict[str, Path]:
        """The files that count with a name of extensions, which may import any part of farther."""
        files = self._source.package_files(whole=("datasets", "detectors", "methods", "metrics"))
        return files | self._source.extension_files()

    @cached_property
    def _extension_digest(self) -> str:
        return self._source.digest(self._extension_name_files)

    def _entries(self, *keys: str) -> Any:
        """The digest of an entry of a section, or the digests of those below a path of keys."""
        part = value_at(self._params, keys)
        if len(keys) == ENTRY_KEYS[keys[0]]:
            return None if part is None else self._entry(part, *keys)
        return {name: self._entries(*keys, name) for name in part or {}}

    def _entry(self, entry: Any, *keys: str) -> str:
        """The digest of an entry, at a path of keys."""
        parts = [self.named_files.digest_at(*keys)]
        if isinstance(entry, Mapping):
            parts += self._other_classes(keys[0], entry)
            entry = {key: value for key, value in entry.items() if key != TITLE}
        parts.append(json.dumps(entry, sort_keys=True, default=str))
        return _joined(*parts)

    def _other_classes(self, section: str, entry: Mapping[str, Any]) -> Iterator[str]:
        """Digests of the code of classes that an entry names besides its own.

        A parameter, or imported proposals, may name them.
        """
        if section not in NAMED_CLASSES:
            return
        key, stage = NAMED_CLASSES[section]
        own_name = entry.get(key)
        digests = self._digests_by_name[stage]
        for name in sorted({text for _, text in texts_of(entry)} & digests.keys()):
            if name != own_name:
                yield f"{name} {digests[name]}"

    @cached_property
    def _digests_by_name(self) -> dict[str, Any]:
        return {
            stage: self._of_code(stage, STAGE_CODE[stage]) for _, stage in NAMED_CLASSES.values()
        }

    def _has(self, stage: str) -> bool:
        """Whether the code of a stage is installed."""
        return self._source.has(OPTIONAL.get(stage, "tables"))


def path_of(digests: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The path of a key that dvc.yaml writes with dots: ("infer", "yolo") of "infer.yolo".

    Names may have dots in them. Of an unknown key it is what lies between the dots.
    """
    for name, value in digests.items():
        if key == name:
            return (name,)
        if key.startswith(f"{name}.") and isinstance(value, Mapping):
            inner = path_of(value, key.removeprefix(f"{name}."))
            if value_at(value, inner) is not None:
                return (name, *inner)
    return tuple(key.split("."))


def value_at(digests: Any, keys: Collection[str]) -> Any:
    """The value at a path of keys; None where there is none."""
    for key in keys:
        if not isinstance(digests, Mapping):
            return None
        digests = digests.get(key)
    return digests


def _code_of(stage: str) -> StageCode:
    return STAGE_CODE.get(stage, OTHER_SCRIPT)


def _joined(*parts: str) -> str:
    """Digest of texts.

    Returns:
        16 hexadecimal digits.
    """
    total = blake2b(digest_size=8)
    for part in parts:
        total.update(part.encode(errors="surrogatepass") + b"\0")
    return total.hexdigest()

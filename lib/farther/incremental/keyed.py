"""Outputs that a stage keeps from run to run, and makes again only where their cache key changed.

An *item* is a file or a folder below an output folder. Its key is a digest of everything that it is
made from: whole files and folders, parameters, and the digest of all code that is reached
(`key_of`). The record of an output folder holds the key of each item, a digest of the item's
content, and the versions of the packages that computed it. It lies outside of the folder, so that
equal content is equal to DVC whatever the keys are:

    artifacts/scores/voc-vos/                  the items
    artifacts/records/scores/voc-vos.json      their record, an output of the same stage

>>> from tempfile import TemporaryDirectory
>>> folder = TemporaryDirectory()
>>> items = Keyed(f"{folder.name}/scores")
>>> with items.make("knn/test.txt", key="a1") as path:
...     _ = path.write_text("0.5")
>>> items.is_current("knn/test.txt", "a1"), items.is_current("knn/test.txt", "b2")
(True, False)
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from pydantic import Field

from farther.errors import DataError
from farther.tables.documents import read_json, write_json
from farther.tables.files import digest, inside
from farther.tables.folders import files_below
from farther.tables.schema import Schema, check
from farther.tables.writing import locked, write_aside

#: Environment variable: with any value but 0, stages make all of their items again.
FORCE = "FARTHER_FORCE"

#: The only file of an output folder without items, because DVC warns of empty folders.
EMPTY = "empty.txt"

#: Folder of all records, below the artifacts folder.
RECORDS = "records"

#: Distributions that compute what tables and scores hold.
COMPUTING = ("numpy", "scipy", "polars", "pyarrow", "scikit-learn", "faiss-cpu")

#: Distributions that read images and run networks, for the outputs below `NETWORK_OUTPUTS`.
NETWORKS = (
    "pillow",
    "torch",
    "torchvision",
    "ultralytics",
    "transformers",
    "open_clip_torch",
    "onnxruntime",
)

#: Folders of artifacts whose items networks made.
NETWORK_OUTPUTS = frozenset({"derived", "embeddings", "passes", "proposals", "regions"})


def key_of(paths: Iterable[str | Path], params: Mapping[str, Any]) -> str:
    """Cache key of an item: a digest of everything that it is made from.

    Args:
        paths: Files and folders. Of a folder, the names and contents of all files count. An absent
            path has a digest of its own.
        params: Parameters and digests of code, as JSON holds them.

    Returns:
        32 hexadecimal digits.

    Raises:
        DataError: a file cannot be read.

    >>> (
    ...     key_of([], {"k": 10}) == key_of([], {"k": 10}),
    ...     key_of([], {"k": 10}) == key_of([], {"k": 12}),
    ... )
    (True, False)
    """
    contents = [content_digest(path) for path in paths]
    return digest(json.dumps(params, sort_keys=True, default=str), *contents)


def content_digest(path: str | Path) -> str:
    """Digest of a file, or of the names and contents of all files of a folder.

    "absent" where there is nothing.

    Raises:
        DataError: a file cannot be read.
    """
    path = Path(path)
    if not path.exists():
        return "absent"
    if not path.is_dir():
        return digest(path)
    parts: list[str | Path] = []
    for file in sorted(files_below(path)):
        parts.append(str(file.relative_to(path)))
        parts.append(file)
    return digest(*parts)


def record_path(output: str | Path) -> Path:
    """Path of an output's record: below `records` of its artifacts folder, or beside the output.

    >>> record_path("artifacts/regions/voc-vos").as_posix()
    'artifacts/records/regions/voc-vos.json'
    """
    output = Path(output)
    name = output.name
    if output.suffix != ".json":
        name = f"{output.name}.json"
    for artifacts in output.parents:
        if artifacts.name == "artifacts":
            subfolder = output.parent.relative_to(artifacts)
            return artifacts / RECORDS / subfolder / name
    return output.with_name(f"record of {name}")


def package_versions(output: str | Path) -> dict[str, str]:
    """Versions of the installed packages that compute an output, by name of the distribution."""
    names = list(COMPUTING)
    if NETWORK_OUTPUTS.intersection(Path(output).parts):
        names += NETWORKS
    versions = {}
    for name in names:
        version = _installed_version(name)
        if version is not None:
            versions[name] = version
    return versions


def write_record(output: str | Path) -> None:
    """Writes the record of an output without items: the versions of the packages behind it."""
    record = Record(environments=[package_versions(output)])
    write_json(record_path(output), record.model_dump())


@cache
def _installed_version(distribution: str) -> str | None:
    """Version of an installed distribution; None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def is_forced() -> bool:
    """Whether the stage was started to make everything again.

    `farther repro --force` sets `FARTHER_FORCE` for the commands that it starts. `dvc repro
    --force` tells a command nothing, so the command lines of the processes that started this one
    are read.
    """
    if os.environ.get(FORCE, "0") != "0":
        return True
    try:
        ancestors = psutil.Process().parents()
        command_lines = [ancestor.cmdline() for ancestor in ancestors[:4]]
    except psutil.Error:
        return False
    return any(_forces(command_line) for command_line in command_lines)


def _forces(command_line: list[str]) -> bool:
    """Whether a command line is that of `dvc repro --force`, or of a short form of it."""
    # `dvc`, `python /usr/bin/dvc` or `python -m dvc`
    programs = [Path(argument).name for argument in command_line[:3]]
    if "dvc" not in programs:
        return False
    arguments = command_line[programs.index("dvc") + 1 :]
    if "repro" not in arguments and "run" not in arguments:
        return False
    return any(_is_force_option(argument) for argument in arguments)


def _is_force_option(argument: str) -> bool:
    """Whether an argument is `--force`, `-f`, or a group of one-letter options with f: `-sf`."""
    if argument == "--force":
        return True
    if not argument.startswith("-") or argument.startswith("--"):
        return False
    letters = argument[1:]
    return letters.isalpha() and "f" in letters


class RecordedItem(Schema):
    """An item in a record.

    Args:
        key: See `key_of`.
        content: See `content_digest`.
        environment: Its index in `Record.environments`; None where the packages are not known.
        read: Further files that it was made from, which are known only once they are read: name →
            `content_digest` at that time. The stage that makes it says what the names mean.
    """

    key: str
    content: str
    environment: int | None = None
    read: dict[str, str] = Field(default_factory=dict)


class Record(Schema):
    """The content of a record.

    Args:
        environments: Versions of the packages that computed items, by the name of the distribution.
        items: The items, by name.
    """

    environments: list[dict[str, str]] = Field(default_factory=list)
    items: dict[str, RecordedItem] = Field(default_factory=dict)


def read_record(file: Path) -> Record:
    """A record; an empty one if the file does not exist.

    Raises:
        DataError: the file is damaged.
    """
    if not file.exists():
        return Record()
    try:
        return check(Record, read_json(file), file)
    except DataError:
        advice = "delete it, and its outputs are made again"
        raise DataError(f"not a record of kept outputs: {advice}", file=file) from None


def write_empty(folder: Path) -> None:
    """Writes the file of an output folder that has nothing else, unless it is there."""
    file = folder / EMPTY
    if not file.is_file():
        file.write_text("There is nothing to store here.\n", encoding="utf-8")


class Keyed:
    """The items of one output folder and their record; one process at a time may write to it.

    Args:
        folder: The output folder; made when the first item is.
        record: The file of the record; see `record_path` for the default.

    Raises:
        DataError: the record is damaged, or the folder is not one, or a link to a folder that it
            lies in.
    """

    def __init__(self, folder: str | Path, record: str | Path | None = None):
        self.folder = Path(folder)
        self.file = record_path(self.folder) if record is None else Path(record)
        self._check_folder()
        self._record = read_record(self.file)
        self._environment = package_versions(self.folder)
        self._is_forced = is_forced()
        self._made: set[str] = set()
        self._undamaged: dict[str, bool] = {}
        self._writing = threading.Lock()

    def _check_folder(self) -> None:
        """Refuses to work in a path from which files of others could be deleted."""
        target = os.path.realpath(self.folder)
        if self.folder.is_symlink() and self.folder.absolute().is_relative_to(target):
            problem = (
                "a link to a folder that contains it, whose other files would be deleted: "
                "delete the link"
            )
            raise DataError(problem, file=self.folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError("not a folder: delete it, and it is made again", file=self.folder)

    def path(self, item: str) -> Path:
        """The file or folder of an item.

        Raises:
            DataError: its name leaves the folder.
        """
        return inside(self.folder, item)

    def is_current(self, item: str, key: str) -> bool:
        """Whether an item was made under this key and has the content that was written then.

        With `is_forced`, only items that this object made are current.
        """
        if self._is_forced and item not in self._made:
            return False
        recorded = self._record.items.get(item)
        if recorded is None or recorded.key != key:
            return False
        if item not in self._undamaged:
            self._undamaged[item] = content_digest(self.path(item)) == recorded.content
        return self._undamaged[item]

    def outdated(self, keys: Mapping[str, str]) -> list[str]:
        """Names of the items that must be made, in the order of `keys`.

        Items without a key are deleted.

        Args:
            keys: Key of each item.
        """
        self.keep_only(keys)
        return [item for item, key in keys.items() if not self.is_current(item, key)]

    @contextmanager
    def make(self, item: str, key: str) -> Iterator[Path]:
        """A path to write an item to.

        When the block ends without an error, it replaces the item under its new key. A process that
        is killed leaves the earlier item or none, but never an incomplete one.
        """
        with write_aside(self.path(item)) as aside:
            yield aside
            # Until `record`, the item may be of either key. If the process is killed in between, it
            # is made again.
            self._forget(item)
        self.record(item, key)

    def record(self, item: str, key: str) -> None:
        """Records the key and the content of a complete item."""
        content = content_digest(self.path(item))
        with self._writing:
            environments = self._record.environments
            if self._environment not in environments:
                environments.append(self._environment)
            index = environments.index(self._environment)
            self._record.items[item] = RecordedItem(key=key, content=content, environment=index)
            self._made.add(item)
            self._undamaged[item] = True
            self._save()

    def recorded_keys(self) -> dict[str, str]:
        """Key of each item of the record."""
        return {name: item.key for name, item in self._record.items.items()}

    def read_for(self, item: str) -> dict[str, str]:
        """Further files that an item was made from; see `RecordedItem`."""
        recorded = self._record.items.get(item)
        if recorded is None:
            return {}
        return dict(recorded.read)

    def record_all(
        self, keys: Mapping[str, str], read: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        """Replaces the record by one of complete items that were written by other means.

        Args:
            keys: Key of each item.
            read: Item → further files that it was made from; see `RecordedItem`.
        """
        read = read or {}
        items = {}
        for item, key in keys.items():
            items[item] = RecordedItem(
                key=key,
                content=content_digest(self.path(item)),
                environment=0,
                read=dict(read.get(item, {})),
            )
        with self._writing:
            self._record = Record(environments=[self._environment], items=items)
            self._save()

    def refresh(self, item: str) -> None:
        """Records the content of an item that was changed in place; its key stays the same."""
        with self._writing:
            recorded = self._record.items[item]
            content = content_digest(self.path(item))
            if recorded.content == content:
                return
            self._record.items[item] = recorded.model_copy(update={"content": content})
            self._save()

    def update(
        self,
        keys: Mapping[str, str],
        make: Callable[[str, Path], str],
        log: Callable[[str], None],
    ) -> None:
        """Makes the items whose key or content changed, and deletes all others.

        Args:
            keys: Key of each item.
            make: Writes an item to a path and returns a summary of it.
            log: Takes one line per item.
        """
        with locked(self.folder):
            for item in self.keep_only(keys):
                log(f"{item}: removed")
            for item, key in keys.items():
                if self.is_current(item, key):
                    log(f"{item}: unchanged")
                    continue
                with self.make(item, key) as aside:
                    summary = make(item, aside)
                log(f"{item}: {summary}")

    def keep_only(self, items: Collection[str]) -> list[str]:
        """Deletes all other items, and everything in the folder that belongs to no item.

        Returns:
            Names of the deleted items, sorted.
        """
        removed = sorted(self._record.items.keys() - set(items))
        kept_paths = {self.path(item) for item in items} or {self.folder / EMPTY}
        parents: set[Path] = set()
        for path in kept_paths:
            parents.update(path.parents)
        with self._writing:
            for name in removed:
                del self._record.items[name]
            if self.folder.exists():
                _delete_others(self.folder, kept_paths, parents)
                if not items:
                    write_empty(self.folder)
            if self.folder.exists() or removed:
                self._save()
        return removed

    def _forget(self, item: str) -> None:
        """Removes an item from the record."""
        with self._writing:
            if self._record.items.pop(item, None) is not None:
                self._save()

    def _save(self) -> None:
        """Writes the record: items sorted by name, without environments of no item."""
        used_environments = set()
        for recorded in self._record.items.values():
            if recorded.environment is not None:
                used_environments.add(recorded.environment)
        environments: list[dict[str, str]] = []
        new_index = {}
        for index in sorted(used_environments):
            new_index[index] = len(environments)
            environments.append(self._record.environments[index])

        items = {}
        for name in sorted(self._record.items):
            recorded = self._record.items[name]
            if recorded.environment is not None:
                recorded = recorded.model_copy(
                    update={"environment": new_index[recorded.environment]}
                )
            items[name] = recorded

        self._record = Record(environments=environments, items=items)
        content = self._record.model_dump()
        for item in content["items"].values():
            if not item["read"]:
                del item["read"]
        write_json(self.file, content)


def _delete_others(folder: Path, kept_paths: set[Path], parents: set[Path]) -> None:
    """Deletes all entries of a folder except some paths and what is below them.

    Args:
        folder: The folder.
        kept_paths: The paths.
        parents: The folders above them.
    """
    for entry in folder.iterdir():
        if entry in kept_paths:
            continue
        if not entry.is_dir() or entry.is_symlink():
            entry.unlink()
        elif entry in parents:
            _delete_others(entry, kept_paths, parents)
        else:
            shutil.rmtree(entry)

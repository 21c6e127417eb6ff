"""Hashes of files and folders that DVC computed in earlier runs, in a file of DVC's own folder.

DVC itself remembers hashes of files, and walks each folder again to make the folder's of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

#: The file, in the folder of DVC for what is not kept: `.dvc/tmp`.
NAME = "farther_hashes.json"
#: Packages whose versions may hash differently, or walk other files.
PACKAGES = ("dvc", "dvc-data", "dvc-objects")
#: Name of the files that say what DVC leaves out of a folder.
IGNORED = ".dvcignore"


@dataclass(frozen=True)
class StoredHash:
    """The hash of a file or folder.

    Args:
        path: The file or folder, absolute.
        algorithm: Name that DVC has for the kind of hash, as "md5".
        states: Digest of the states of all files in it, from before it was hashed.
        value: The hash; a folder's ends with ".dir".
    """

    path: str
    algorithm: str
    states: str
    value: str


class StoredHashes:
    """The file of hashes of a project.

    It holds for the versions of DVC's packages that wrote it, and the files `.dvcignore` of the
    folders between the project's and those that were hashed. A file that is absent or damaged holds
    none: DVC hashes all again.

    Args:
        root: The project's folder.
        temporary: Its folder for what is not kept, `.dvc/tmp`.
    """

    def __init__(self, root: str | Path, temporary: str | Path):
        self._root = Path(root)
        self._file = Path(temporary) / NAME
        self._ignored: dict[Path, str | None] = {}

    def read(self) -> list[StoredHash]:
        """The hashes that hold, whether or not their files have changed."""
        hashes = []
        try:
            stored = json.loads(self._file.read_bytes())
            if stored["versions"] != _versions():
                return []
            for fields in stored["hashes"]:
                rules = fields.pop("ignored")
                entry = StoredHash(**fields)
                are_texts = all(isinstance(value, str) for value in asdict(entry).values())
                if are_texts and rules == self._rules(entry):
                    hashes.append(entry)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return []
        return hashes

    def write(self, hashes: Iterable[StoredHash]) -> None:
        """Replaces the file; where it cannot be written, the next run hashes again."""
        entries = []
        for entry in hashes:
            entries.append({**asdict(entry), "ignored": self._rules(entry)})
        text = json.dumps({"versions": _versions(), "hashes": entries})
        unfinished = self._file.with_name(f".{NAME}.{os.getpid()}")
        with suppress(OSError):
            try:
                unfinished.write_text(text)
                unfinished.replace(self._file)
            finally:
                unfinished.unlink(missing_ok=True)

    def _rules(self, entry: StoredHash) -> str:
        """Digest of the files `.dvcignore` above a file or folder; those in it are hashed with it.

        DVC reads them from the project's folder on.
        """
        digest = sha256()
        for folder in Path(entry.path).parents:
            if folder == self._root or self._root in folder.parents:
                digest.update(f"{folder}\0{self._ignored_in(folder)}\0".encode())
        return digest.hexdigest()

    def _ignored_in(self, folder: Path) -> str | None:
        """Digest of a folder's `.dvcignore`; None where it has none."""
        if folder not in self._ignored:
            try:
                content = sha256((folder / IGNORED).read_bytes()).hexdigest()
            except OSError:
                content = None
            self._ignored[folder] = content
        return self._ignored[folder]


def _versions() -> Mapping[str, str]:
    return {package: version(package) for package in PACKAGES}

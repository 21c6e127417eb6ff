"""Image files whose names are spelt differently in the annotations.

Programs of Windows write `images\\x.jpg`, those of a Mac decompose accents (NFD), browsers encode
blanks and accents (`a%20b.jpg`), and neither Windows nor a Mac distinguishes `x.JPG` from `x.jpg`.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from farther.datasets.base import Annotations, DataWarning
from farther.errors import shorten
from farther.tables.files import is_present, is_unicode
from farther.tables.folders import entries

#: Kind of the warning about images whose files have another spelling than in the annotations.
RESPELLED = "image files that are spelt otherwise in the annotations"


def canonical_name(name: str) -> str:
    """Canonical form of a file name, equal for names that differ in spelling only; see the module.

    >>> canonical_name("images\\\\A%20cafe\\u0301.JPG") == canonical_name("images/a caf\\u00e9.jpg")
    True
    """
    name = unquote(name.replace("\\", "/"), errors="surrogateescape")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


class Spellings:
    """The files and folders below a root, looked up by names in any spelling.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path):
        self.root = root
        self._names_by_folder: dict[str, dict[str, list[str]]] = {}
        self._plain_names_by_folder: dict[str, frozenset[str]] = {}

    def find(self, name: str) -> str | None:
        """The path within the root of the only file that has a name in any of its spellings.

        Returns:
            The path with slashes; `name` itself where a file has exactly this name; None where no
            file has the name, or several have.
        """
        folder, _, file = name.rpartition("/")
        if file in self._plain_names_in(folder) or is_present(self.root / name):
            return name
        path = ""
        for part in canonical_name(name).split("/"):
            if part in ("", "."):
                continue
            names = self._names_in(path).get(part, [])
            if len(names) != 1:
                return None
            path = f"{path}/{names[0]}".lstrip("/")
        return path or None

    def _plain_names_in(self, folder: str) -> frozenset[str]:
        """The names in a folder of what is no link: a link may lead nowhere."""
        if folder not in self._plain_names_by_folder:
            names = [entry.name for entry in entries(self.root / folder) if not entry.is_symlink()]
            self._plain_names_by_folder[folder] = frozenset(names)
        return self._plain_names_by_folder[folder]

    def _names_in(self, folder: str) -> dict[str, list[str]]:
        """The names in a folder by their `canonical_name` form."""
        if folder not in self._names_by_folder:
            names = [entry.name for entry in entries(self.root / folder)]
            self._names_by_folder[folder] = names_by_form(filter(is_unicode, names))
        return self._names_by_folder[folder]


def with_found_files(annotations: Annotations) -> Annotations:
    """The annotations with the names of the image files, and a warning where spellings differ.

    Files that do not exist in any spelling keep the name that the annotations give.
    """
    if annotations.embedded is not None:
        return annotations
    spellings = Spellings(annotations.image_root or annotations.root)
    files = annotations.images.file.copy()
    respelled_rows: list[int] = []
    for row, name in enumerate(annotations.images.file):
        file = spellings.find(name)
        if file is not None and file != name:
            files[row] = file
            respelled_rows.append(row)
    if not respelled_rows:
        return annotations

    first = respelled_rows[0]
    example = f"{shorten(annotations.images.file[first])} is {shorten(files[first])}"
    if len(respelled_rows) > 1:
        example += f" and {len(respelled_rows) - 1} more"
    warning = DataWarning(
        kind=RESPELLED,
        about="dataset",
        file=annotations.file(first),
        row=None,
        field=None,
        found=example,
        action="read by the names of the files",
    )
    return replace(
        annotations,
        images=replace(annotations.images, file=files),
        warnings=[*annotations.warnings, warning],
    )


def names_by_form(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by their `canonical_name` form."""
    by_form = defaultdict[str, list[str]](list)
    for name in names:
        by_form[canonical_name(name)].append(name)
    return by_form

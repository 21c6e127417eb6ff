"""Names of files as annotations write them, and as the files are called: found where only the spelling differs.

Programs of Windows write `images\\x.jpg`, those of a Mac take accents apart (NFD), browsers write
blanks and accents in per cent (`a%20b.jpg`), and neither Windows nor a Mac tells `x.JPG` from
`x.jpg`.
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


def comparable(name: str) -> str:
    """A file name in one of its spellings: equal for names that differ by nothing else; see the module.

    >>> comparable("images\\\\A%20cafe\\u0301.JPG") == comparable("images/a caf\\u00e9.jpg")
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
        self._names: dict[str, dict[str, list[str]]] = {}

    def find(self, name: str) -> str | None:
        """The path within the root of the only file whose path has one of the spellings of a name, with slashes.

        None where there is none, or where several have; a file of exactly this name is always the
        one.
        """
        if is_present(self.root / name):
            return name
        place = ""
        for part in comparable(name).split("/"):
            if part in ("", "."):
                continue
            names = self._in_folder(place).get(part, [])
            if len(names) != 1:
                return None
            place = f"{place}/{names[0]}".lstrip("/")
        return place or None

    def _in_folder(self, place: str) -> dict[str, list[str]]:
        """The names in a folder by their `comparable` form."""
        if place not in self._names:
            by_form = defaultdict[str, list[str]](list)
            for entry in entries(self.root / place):
                if is_unicode(entry.name):
                    by_form[comparable(entry.name)].append(entry.name)
            self._names[place] = by_form
        return self._names[place]


def with_found_files(annotations: Annotations) -> Annotations:
    """The annotations with the names that their image files have; one warning where some are spelt otherwise.

    Files that are not there in any spelling keep the name that the annotations give.
    """
    if annotations.embedded is not None:
        return annotations
    spellings = Spellings(annotations.image_root or annotations.root)
    files = annotations.images.file.copy()
    respelled: list[int] = []
    for row, name in enumerate(annotations.images.file):
        found = spellings.find(name)
        if found is not None and found != name:
            files[row] = found
            respelled.append(row)
    if not respelled:
        return annotations
    first = respelled[0]
    example = f"{shorten(annotations.images.file[first])} is {shorten(files[first])}"
    more = f" and {len(respelled) - 1} more" if len(respelled) > 1 else ""
    file = annotations.file(first)
    warning = DataWarning(
        RESPELLED, "dataset", file, None, None, example + more, "read by the names of the files"
    )
    return replace(
        annotations,
        images=replace(annotations.images, file=files),
        warnings=[*annotations.warnings, warning],
    )


def names_by_form(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by their `comparable` form."""
    by_form = defaultdict[str, list[str]](list)
    for name in names:
        by_form[comparable(name)].append(name)
    return by_form

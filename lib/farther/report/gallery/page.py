"""The gallery: the images themselves, by the outcomes of the unknown objects in them.

The page `gallery.html` loads its data when they are chosen: images and boxes of a run and split from
`gallery/<run>/<split>.js`, the outcomes of a method from `gallery/<run>/<split>/<method>.js`; see
`farther.report.gallery.data`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from farther.report.gallery.data import split_data
from farther.report.outcomes import SplitOutcomes
from farther.report.results import Run, title_of
from farther.report.settings import GallerySettings
from farther.report.site import Site

#: The page and its template.
PAGE = "gallery.html"
#: The folder of its data.
FOLDER = "gallery"


class Gallery:
    """Writes the gallery's page and its data.

    Args:
        site: The report.
        roots: Dataset → folder of its image files.
        folder: Folder of the finished report, which links to image files are relative to.
        settings: Parameters of the gallery.
    """

    def __init__(self, site: Site, roots: Mapping[str, Path], folder: Path, settings: GallerySettings):
        self._site, self._roots, self._folder, self._settings = site, roots, folder, settings
        self._index: list[dict[str, Any]] = []
        self._absent: list[str] = []

    def add(self, run: Run, found: Mapping[str, SplitOutcomes], method: str) -> None:
        """Writes the data of an evaluated run.

        Args:
            run: The run.
            found: Split → its outcomes; where they are not on this machine, the page says so.
            method: The method that is chosen when the page opens.

        Raises:
            DataError: see `farther.report.gallery.data.split_data`.
        """
        if not self._settings.images:
            return
        if not found:
            self._absent.append(run.name)
            return
        entry = {
            "name": run.name,
            "splits": list(self._splits(run, found)),
            "methods": [{"name": name, "title": title_of(name)} for name in run.methods],
            "method": method,
        }
        self._index.append(entry)

    def write(self) -> None:
        """Writes the page."""
        content = {"index": self._index, "absent": self._absent, "is_wanted": bool(self._settings.images)}
        self._site.write(PAGE, PAGE, **content)

    def _splits(self, run: Run, found: Mapping[str, SplitOutcomes]) -> Iterator[dict[str, Any]]:
        for split in run.splits:
            of_split = found[split.name]
            shared, methods = split_data(of_split, self._roots, self._folder, self._settings.images)
            folder = f"{FOLDER}/{run.name}/{split.name}"
            files = {
                method: self._script(f"{folder}/{method}.js", "addOutcomes", run.name, split.name, method, data)
                for method, data in methods.items()
            }
            yield {
                "name": split.name,
                "title": split.title,
                "images": len(shared["images"]["id"]),
                "of": shared["of"],
                "file": self._script(f"{folder}.js", "addSplit", run.name, split.name, shared),
                "methods": files,
            }

    def _script(self, name: str, function: str, *arguments: Any) -> str:
        """Writes a script that calls a function of the page; returns its URL.

        Its JSON is ASCII, so that a browser reads the same script in any encoding.
        """
        written = ",".join(json.dumps(one, separators=(",", ":"), allow_nan=False) for one in arguments)
        self._site.write_text(name, f"gallery.{function}({written});\n")
        return quote(name)

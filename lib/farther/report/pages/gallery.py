"""The gallery: the images themselves, by the outcomes of the unknown objects in them.

The page `gallery.html` loads its data when they are chosen: images and boxes of a run and split
from `gallery/<run>/<split>.js`, the outcomes of a method from `gallery/<run>/<split>/<method>.js`;
see `farther.report.gallery.data`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from farther.keyed import key_of
from farther.printable import printable_texts
from farther.report.all_results import AllResults
from farther.report.gallery.data import SplitData
from farther.report.gallery.outcomes import SplitOutcomes, read_run_outcomes
from farther.report.pages import detector
from farther.report.results import Run, title_of
from farther.report.settings import GallerySettings
from farther.report.site import Site


def write(site: Site, results: AllResults) -> None:
    """Writes the page and its data, and the pages of detectors: both show images with their outcomes."""
    gallery = Gallery(
        site, results.roots, results.artifacts / "report", results.settings.gallery, results.code
    )
    siblings = {f"detectors/{run.name}.html": run.full_title for run in results.measured}
    for run in results.measured:
        found = read_run_outcomes(run, results.artifacts)
        site.write(
            f"detectors/{run.name}.html",
            "detector.html",
            siblings,
            **detector.content(run, found, results),
        )
        if run.is_evaluated:
            gallery.add(run, found, results.shown_method(run))
    gallery.write()


class Gallery:
    """Writes the gallery's page and its data.

    Args:
        site: The report.
        roots: Dataset → folder of its image files.
        folder: Folder of the finished report, which links to image files are relative to.
        settings: Parameters of the gallery.
        code: Digest of the code of the gallery.
    """

    def __init__(
        self,
        site: Site,
        roots: Mapping[str, Path],
        folder: Path,
        settings: GallerySettings,
        code: str = "",
    ):
        self._site, self._roots, self._folder, self._settings = site, roots, folder, settings
        self._code = code
        self._index: list[dict[str, Any]] = []
        self._absent: list[str] = []

    def add(self, run: Run, found: Mapping[str, SplitOutcomes], method: str) -> None:
        """Writes the data of an evaluated run.

        Args:
            run: The run.
            found: Split → its outcomes; where they are not on this machine, the page says so.
            method: The method that is chosen when the page opens.

        Raises:
            DataError: see `farther.report.gallery.data.SplitData`.
        """
        if self._settings.images and found:
            methods = [{"name": name, "title": title_of(name)} for name in run.methods]
            entry = {
                "name": run.name,
                "title": run.full_title,
                "splits": list(self._splits(run, found)),
            }
            sources = list(next(iter(found.values())).proposals)
            self._index.append({**entry, "methods": methods, "method": method, "sources": sources})
        elif self._settings.images:
            self._absent.append(run.full_title)

    def write(self) -> None:
        """Writes the page."""
        is_wanted = bool(self._settings.images)
        self._site.write(
            "gallery.html", index=self._index, absent=self._absent, is_wanted=is_wanted
        )

    def _splits(self, run: Run, found: Mapping[str, SplitOutcomes]) -> Iterator[dict[str, Any]]:
        for split in run.splits:
            data = SplitData(found[split.name], self._roots, self._folder, self._settings.images)
            folder = f"gallery/{run.name}/{split.name}"
            shared_key = data.key()
            scripts = {}
            for method in data.found.methods:
                key = key_of([], {"code": self._code, "data": data.method_key(method, shared_key)})
                content = partial(data.method, method)
                scripts[method] = self._script(f"{folder}/{method}.js", key, "addOutcomes", content)
            key = key_of([], {"code": self._code, "data": shared_key})
            yield {
                "name": split.name,
                "title": split.title,
                "images": len(data.images),
                "of": data.of,
                "file": self._script(f"{folder}.js", key, "addSplit", data.shared),
                "methods": scripts,
            }

    def _script(
        self, name: str, key: str, function: str, data: Callable[[], dict[str, Any]]
    ) -> str:
        """A script `gallery/<run>/<split>.js` or `…/<split>/<method>.js` that hands data to the page; returns its URL.

        Its JSON is ASCII, so that a browser reads the same script in any encoding.
        """

        def text() -> str:
            arguments = (*Path(name).with_suffix("").parts[1:], printable_texts(data()))
            written = ",".join(
                json.dumps(one, separators=(",", ":"), allow_nan=False) for one in arguments
            )
            return f"gallery.{function}({written});\n"

        self._site.keep(name, key, text)
        return quote(name)

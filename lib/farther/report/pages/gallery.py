"""The gallery: the images themselves, by the outcomes of the objects in them.

The page `gallery.html` loads its data on demand: images and boxes of a run and split from
`gallery/<run>/<split>.js`, the outcomes of a method from `gallery/<run>/<split>/<method>.js`; see
`farther.report.gallery.data`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from farther.incremental.keyed import key_of
from farther.report.all_results import AllResults
from farther.report.gallery.data import SplitData, is_elsewhere
from farther.report.gallery.outcomes import (
    SplitOutcomes,
    SplitSummary,
    read_run_summaries,
)
from farther.report.results import Run, title_of
from farther.report.settings import GallerySettings
from farther.report.site import Site
from farther.text.printable import printable_texts

#: Title of the ID test split.
ID_TITLE = "ID test images"


def write(site: Site, results: AllResults) -> None:
    """Writes the page; `farther.report.pages.runs` writes its data."""
    gallery = gallery_of(site, results)
    for run in results.evaluated:
        summaries = read_run_summaries(run, results.artifacts)
        gallery.list_run(run, summaries, results.shown_method(run))
    gallery.write()


def gallery_of(site: Site, results: AllResults) -> Gallery:
    """The gallery of a project."""
    return Gallery(site, results.roots, results.root, results.settings.gallery, results.code)


class Gallery:
    """Writes the gallery's page and its data.

    Args:
        site: The report.
        roots: Dataset → folder of its image files.
        project: The project's folder.
        settings: Parameters of the gallery.
        code: Hash of the code of the gallery.
    """

    def __init__(
        self,
        site: Site,
        roots: Mapping[str, Path],
        project: Path,
        settings: GallerySettings,
        code: str = "",
    ):
        self._site = site
        self._roots = roots
        self._project = project
        self._settings = settings
        self._code = code
        self._index: list[dict[str, Any]] = []
        self._absent: list[str] = []

    def add(self, run: Run, outcomes: Mapping[str, SplitOutcomes]) -> None:
        """Writes the data of an evaluated run.

        Args:
            run: The run.
            outcomes: Split → its outcomes; {} where they are not on this machine.

        Raises:
            DataError: see `farther.report.gallery.data.SplitData`.
        """
        if not self._settings.images:
            return
        for split, split_outcomes in outcomes.items():
            self._write_split(run, split, split_outcomes)

    def list_run(self, run: Run, summaries: Mapping[str, SplitSummary], method: str) -> None:
        """Lists a run in the index of the page.

        Args:
            run: The run, which is evaluated.
            summaries: Split → its summary; {} where its outcomes are not on this machine, which the
                page says.
            method: The method that is chosen when the page opens.
        """
        if not self._settings.images:
            return
        if not summaries:
            self._absent.append(run.full_title)
            return
        first_split = next(iter(summaries.values()))
        splits = []
        for split in run.splits:
            place = {"title": split.title, "distance": split.distance, "is_id": False}
            splits.append({**place, **self._split_entry(run, split.name, summaries[split.name])})
        if run.id_split is not None and run.id_split in summaries:
            place = {"title": ID_TITLE, "distance": "", "is_id": True}
            id_summary = summaries[run.id_split]
            splits.append({**place, **self._split_entry(run, run.id_split, id_summary)})
        entry = {
            "name": run.name,
            "title": run.full_title,
            "benchmark": run.benchmark,
            "splits": splits,
            "methods": [{"name": name, "title": title_of(name)} for name in run.methods],
            "method": method,
            "sources": _sources(run, first_split.sources),
        }
        self._index.append(entry)

    def write(self) -> None:
        """Writes the page."""
        elsewhere = {}
        for dataset, root in self._roots.items():
            if is_elsewhere(root, self._project):
                elsewhere[dataset] = str(root)
        self._site.write(
            "gallery.html",
            index=self._index,
            absent=self._absent,
            elsewhere=elsewhere,
            is_wanted=bool(self._settings.images),
        )

    def _split_entry(self, run: Run, split: str, summary: SplitSummary) -> dict[str, Any]:
        """The files of a split, for the page's index."""
        name = f"gallery/{run.name}/{split}"
        return {
            "name": split,
            "images": min(summary.images, self._settings.images),
            "of": summary.images,
            "file": quote(f"{name}.js"),
            "methods": {method: quote(f"{name}/{method}.js") for method in summary.methods},
        }

    def _write_split(self, run: Run, split: str, outcomes: SplitOutcomes) -> None:
        """Writes the scripts of a split."""
        data = SplitData(outcomes, self._roots, self._project, self._settings.images)
        name = f"gallery/{run.name}/{split}"
        shared_key = data.key()
        for method in data.outcomes.methods:
            self._write_script(
                f"{name}/{method}.js",
                self._key(data.method_key(method, shared_key)),
                "addOutcomes",
                partial(data.method, method),
            )
        self._write_script(f"{name}.js", self._key(shared_key), "addSplit", data.shared)

    def _key(self, data_key: str) -> str:
        """Key of a script from the key of its data."""
        return key_of([], {"code": self._code, "data": data_key})

    def _write_script(
        self, name: str, key: str, function: str, data: Callable[[], dict[str, Any]]
    ) -> None:
        """Writes a script that calls a function of the page with data.

        Args:
            name: `gallery/<run>/<split>.js` or `gallery/<run>/<split>/<method>.js`; the function
                also gets the names of run, split and method.
            key: Hash of all that the script depends on.
            function: A function of the page's object `gallery`.
            data: Computes the data.
        """
        _, *names = Path(name).with_suffix("").parts

        def script() -> str:
            arguments = [_ascii_json(argument) for argument in (*names, printable_texts(data()))]
            return f"gallery.{function}({','.join(arguments)});\n"

        self._site.keep(name, key, script)


def _sources(run: Run, names: Iterable[str]) -> list[dict[str, Any]]:
    """Sources of proposals, with the false alarms per ID image at which they cover objects."""
    sources = []
    for name in names:
        alarms = run.of_source(name, run.id_split or "")["alarms"]
        sources.append({"name": name, "alarms": alarms.value})
    return sources


def _ascii_json(value: Any) -> str:
    """Compact JSON in ASCII, so that a browser reads the same script in any encoding."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)

"""The gallery: the images themselves, by the outcomes of the objects in them.

The page `gallery.html` loads its data on demand: images and boxes of a run and split from
`gallery/<run>/<split>.js`, the outcomes of a method from `gallery/<run>/<split>/<method>.js`; see
`farther.report.gallery.data`.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from farther.errors import FartherError
from farther.incremental.keyed import key_of
from farther.processes import follow_parent
from farther.report.all_results import AllResults
from farther.report.gallery.data import SplitData, is_elsewhere
from farther.report.gallery.examples import ReadImages
from farther.report.gallery.outcomes import (
    SplitOutcomes,
    SplitSummary,
    read_run_outcomes,
    read_run_summaries,
)
from farther.report.kept_pages import key_of_run
from farther.report.links import linked_site
from farther.report.navigation import Navigation
from farther.report.pages import detector
from farther.report.results import Run, title_of
from farther.report.settings import GallerySettings
from farther.report.site import Site
from farther.text.printable import printable_texts

#: Title of the ID test split.
ID_TITLE = "ID test images"


def write(site: Site, results: AllResults) -> None:
    """Writes the page and its data, and the pages of detectors."""
    files_of_runs = FilesOfRuns(site, results)
    summaries: dict[str, Mapping[str, SplitSummary]] = {}
    outdated = []
    for run in results.measured:
        if not files_of_runs.keep(run):
            outdated.append(run)
        elif run.is_evaluated:
            summaries[run.name] = read_run_summaries(run, results.artifacts)
    for run, written in zip(outdated, _written(site, results, outdated), strict=True):
        summaries[run.name] = written.summaries
        site.add_records(written.keys, written.read)
        # Here all results have been read; a process of the pool would read them for each run.
        site.record(page_of(run), files_of_runs.key_of(run), written.images)

    gallery = _gallery(site, results)
    for run in results.evaluated:
        gallery.list_run(run, summaries[run.name], results.shown_method(run))
    gallery.write()


@dataclass(frozen=True)
class WrittenRun:
    """What was written of a run.

    Args:
        summaries: Split → its summary; {} where no method applies to the run, or its outcomes are
            not on this machine.
        images: Digest of each image that its page shows; see `ReadImages`.
        keys, read: See `Site`; of all files but the page.
    """

    summaries: Mapping[str, SplitSummary]
    images: Mapping[str, str]
    keys: Mapping[str, str]
    read: Mapping[str, Mapping[str, str]]


def _written(site: Site, results: AllResults, runs: Sequence[Run]) -> Iterator[WrittenRun]:
    """Writes the files of runs, several at the same time; yields what was written, in their order.

    Raises:
        FartherError: a process was killed.
    """
    jobs = min(results.jobs, len(runs))
    if jobs < 2:
        for run in runs:
            part = linked_site(site.folder, site.navigation, results, site.runs)
            yield _write_run(part, results, run)
        return
    begin = partial(_begin, site.folder, site.navigation, results.unread(), site.runs)
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=begin)
    try:
        yield from pool.map(_write_by_name, [run.name for run in runs])
    except BrokenProcessPool:
        problem = (
            "a process that writes pages was killed, most likely for lack of memory: set `jobs: 1` "
            "in section `resources` of params.yaml, and run it again"
        )
        raise FartherError(problem) from None
    finally:
        pool.shutdown(cancel_futures=True)


#: In a process of the pool: where it writes, the navigation of all pages, all results, and the
#: names of runs by their titles.
_of_process: tuple[Path, Navigation, AllResults, Mapping[str, str]] | None = None


def _begin(
    folder: Path, navigation: Navigation, results: AllResults, names_by_title: Mapping[str, str]
) -> None:
    """Prepares a process of the pool."""
    global _of_process
    follow_parent()
    _of_process = (folder, navigation, results, names_by_title)


def _write_by_name(name: str) -> WrittenRun:
    """Writes the files of a run, in a process of the pool."""
    assert _of_process is not None
    folder, navigation, of_process, names_by_title = _of_process
    results = of_process.unread()  # what was read of a run is freed with it
    (run,) = [run for run in results.runs if run.name == name]
    site = linked_site(folder, navigation, results, names_by_title)
    return _write_run(site, results, run)


def _write_run(site: Site, results: AllResults, run: Run) -> WrittenRun:
    """Writes the files of a run.

    Args:
        site: A site of its own, which has no other file yet.
        results: All results.
        run: The run.
    """
    images = ReadImages(results.roots)
    summaries = FilesOfRuns(site, results).write(run, images)
    return WrittenRun(summaries, images.digests, site.keys, site.read)


def _gallery(site: Site, results: AllResults) -> Gallery:
    return Gallery(site, results.roots, results.root, results.settings.gallery, results.code)


class FilesOfRuns:
    """Writes the files of each run: the page of its detector, and its data of the gallery.

    Both show images with their outcomes, which are read once.

    Args:
        site: The report.
        results: All results.
    """

    def __init__(self, site: Site, results: AllResults):
        self._site = site
        self._results = results
        self._gallery = _gallery(site, results)

    def write(self, run: Run, images: ReadImages) -> Mapping[str, SplitSummary]:
        """Writes the files of a run.

        Args:
            run: The run.
            images: Notes the images that its page shows.

        Returns:
            See `WrittenRun.summaries`.
        """
        outcomes = read_run_outcomes(run, self._results.artifacts)
        variables = detector.content(run, outcomes, self._results.of_run(run), images)
        self._site.write(page_of(run), "detector.html", **variables)
        if not run.is_evaluated:
            return {}
        return self._gallery.add(run, outcomes)

    def keep(self, run: Run) -> bool:
        """Copies the page and the scripts of a run from the earlier report.

        Returns:
            False where any of them is outdated, or damaged: then all are written.
        """
        if not self._site.has_earlier(page_of(run)):
            return False  # the key takes time: it covers all files of the run
        images = ReadImages(self._results.roots)
        key = self.key_of(run)
        if not self._site.keep_earlier(page_of(run), key, images.are_unchanged):
            return False
        for name, script_key in self._site.earlier_keys(f"gallery/{run.name}").items():
            if not self._site.keep_earlier(name, script_key):
                return False
        return True

    def key_of(self, run: Run) -> str:
        """The key of the page of a run."""
        place = self._site.navigation.place(page_of(run))
        return key_of_run(run, self._results, place)


def page_of(run: Run) -> str:
    """The page of a run."""
    return f"detectors/{run.name}.html"


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

    def add(self, run: Run, outcomes: Mapping[str, SplitOutcomes]) -> dict[str, SplitSummary]:
        """Writes the data of an evaluated run.

        Args:
            run: The run.
            outcomes: Split → its outcomes; {} where they are not on this machine.

        Returns:
            Split → its summary.

        Raises:
            DataError: see `farther.report.gallery.data.SplitData`.
        """
        summaries = {}
        for split, split_outcomes in outcomes.items():
            if self._settings.images:
                self._write_split(run, split, split_outcomes)
            summaries[split] = split_outcomes.summary
        return summaries

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

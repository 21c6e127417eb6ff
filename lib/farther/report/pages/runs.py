"""The files of each run: the page of its detector, and its data of the gallery."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from farther.errors import FartherError
from farther.processes import follow_parent
from farther.report.all_results import AllResults
from farther.report.gallery.examples import ReadImages
from farther.report.gallery.outcomes import read_run_outcomes
from farther.report.kept_pages import key_of_run
from farther.report.links import linked_site
from farther.report.navigation import Navigation
from farther.report.pages import detector
from farther.report.pages.gallery import gallery_of
from farther.report.results import Run
from farther.report.site import Site


@contextmanager
def runs_written(site: Site, results: AllResults) -> Iterator[None]:
    """Writes the files of all runs, several at the same time and while the block runs.

    Args:
        site: The report.
        results: All results.

    Raises:
        FartherError: a process was killed.
    """
    files_of_runs = FilesOfRuns(site, results)
    outdated = [run for run in results.measured if not files_of_runs.keep(run)]

    def record(run: Run, written: WrittenRun) -> None:
        site.add_records(written.keys, written.read)
        # Here all results are read once; a process of the pool would read them for each run.
        site.record(page_of(run), files_of_runs.key_of(run), written.images)

    jobs = min(results.jobs, len(outdated))
    if jobs < 2:
        for run in outdated:
            part = linked_site(site.folder, site.navigation, results, site.runs)
            record(run, _write_run(part, results, run))
        yield
        return

    begin = partial(_begin, site.folder, site.navigation, results.unread(), site.runs)
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=begin)
    try:
        all_written = pool.map(_write_by_name, [run.name for run in outdated])
        yield
        for run, written in zip(outdated, all_written, strict=True):
            record(run, written)
    except BrokenProcessPool:
        problem = (
            "a process that writes pages was killed, most likely for lack of memory: set `jobs: 1` "
            "in section `resources` of params.yaml, and run it again"
        )
        raise FartherError(problem) from None
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class WrittenRun:
    """What was written of a run.

    Args:
        images: Digest of each image that its page shows; see `ReadImages`.
        keys, read: See `Site`; of all files but the page.
    """

    images: Mapping[str, str]
    keys: Mapping[str, str]
    read: Mapping[str, Mapping[str, str]]


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
    FilesOfRuns(site, results).write(run, images)
    return WrittenRun(images.digests, site.keys, site.read)


class FilesOfRuns:
    """Writes the page and the gallery's data of each run.

    Both show images with their outcomes, which are read once.

    Args:
        site: The report.
        results: All results.
    """

    def __init__(self, site: Site, results: AllResults):
        self._site = site
        self._results = results
        self._gallery = gallery_of(site, results)

    def write(self, run: Run, images: ReadImages) -> None:
        """Writes the files of a run.

        Args:
            run: The run.
            images: Notes the images that its page shows.
        """
        outcomes = read_run_outcomes(run, self._results.artifacts)
        variables = detector.content(run, outcomes, self._results.of_run(run), images)
        self._site.write(page_of(run), "detector.html", **variables)
        if run.is_evaluated:
            self._gallery.add(run, outcomes)

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

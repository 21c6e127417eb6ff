"""The pages of the report, one module each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from farther.report.all_results import AllResults
from farther.report.navigation import Link, Navigation
from farther.report.pages import (
    compare,
    data,
    deploy,
    gallery,
    index,
    methods,
    missed,
    papers,
    provenance,
    runs,
)
from farther.report.site import Site


class Page(NamedTuple):
    """A page of the report.

    Args:
        file: The page's name, relative to the report's folder.
        title: Its entry in the navigation.
        answers: The question that it answers, which it begins with.
        write: Writes the page, and the pages and files that it leads to.
        applies: Whether a project has the page: others are not in the report.
    """

    file: str
    title: str
    answers: str
    write: Callable[[Site, AllResults], None]
    applies: Callable[[AllResults], bool] = lambda _: True

    @property
    def link(self) -> Link:
        """The page as an entry of the navigation."""
        return Link(self.file, self.title, self.answers)


#: The pages in the order of reading: to add a page, add it here. Those of detectors follow the
#: first one; `runs` writes them.
PAGES = (
    Page(
        "index.html",
        "Overview",
        "How many unknown objects are found, misclassified or missed?",
        index.write,
    ),
    Page(
        "compare.html",
        "Compare",
        "How do the detectors differ?",
        compare.write,
        compare.applies,
    ),
    Page(
        "methods.html",
        "Methods",
        "Which method best separates unknown from known objects?",
        methods.write,
    ),
    Page(
        "missed.html",
        "Missed",
        "How many of the objects that a detector misses do its proposals cover, "
        "and at how many false alarms?",
        missed.write,
        missed.applies,
    ),
    Page(
        "deploy.html",
        "Deploy",
        "Which method and which thresholds should be deployed, and at what cost?",
        deploy.write,
    ),
    Page(
        "data.html",
        "Data",
        "On which images were the results measured, and what weakens them?",
        data.write,
    ),
    Page(
        "gallery.html",
        "Gallery",
        "Which objects are found, misclassified, missed and flagged?",
        gallery.write,
    ),
    Page(
        "provenance.html",
        "Provenance",
        "Which checkpoints, tables and parameters made the results?",
        provenance.write,
    ),
    Page(
        "papers.html",
        "Papers",
        "How do these results look in the tables of the papers?",
        papers.write,
        papers.applies,
    ),
)


def pages_of(results: AllResults) -> list[Page]:
    """The pages that a project has."""
    return [page for page in PAGES if page.applies(results)]


def navigation(results: AllResults) -> Navigation:
    """The pages that a project has: detectors follow the first one."""
    links = [page.link for page in pages_of(results)]
    detectors = list(_detectors(results))
    if detectors:
        links.insert(1, Link(detectors[0].file, _title(detectors), detectors[0].answers))
    folders = {"detectors": detectors, "papers": papers.links(results)}
    return Navigation(links, folders, {"detectors": "compare.html#runs"})


def _detectors(results: AllResults) -> Iterator[Link]:
    """The page of each measured run."""
    answers = "What does this detector do with objects that it was never taught?"
    for run in results.measured:
        yield Link(runs.page_of(run), run.full_title, answers)


def _title(detectors: list[Link]) -> str:
    return "Detector" if len(detectors) == 1 else "Detectors"

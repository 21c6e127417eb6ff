"""The pages of the report, one module each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from farther.report.all_results import AllResults
from farther.report.navigation import Link, Navigation
from farther.report.pages import (
    charts,
    classes,
    comparisons,
    cost,
    deploy,
    detectors,
    gallery,
    index,
    methods,
    papers,
    proposals,
    provenance,
    published,
    self_awareness,
    splits,
    wilderness,
)
from farther.report.site import Site


class Page(NamedTuple):
    """A page of a section.

    Args:
        file: The page's name, relative to the report's folder.
        title: Its entry in the navigation.
        answers: The question that it answers, which it begins with.
        write: Writes the page, and the pages and files that it leads to.
    """

    file: str
    title: str
    answers: str
    write: Callable[[Site, AllResults], None]

    @property
    def link(self) -> Link:
        """The page as an entry of the navigation."""
        return Link(self.file, self.title, self.answers)


#: The pages of each section in the order of reading, the section's own first: to add a page, add it
#: here.
SECTIONS: tuple[tuple[Page, ...], ...] = (
    (
        Page(
            "index.html",
            "Overview",
            "How many unknown objects are found, misclassified or missed?",
            index.write,
        ),
    ),
    (
        Page(
            "detectors.html",
            "Detectors",
            "What does each detector do with unknown objects?",
            detectors.write,
        ),
        Page(
            "proposals.html",
            "Proposals",
            "How many of the objects that a detector misses do its proposals cover, "
            "and at how many false alarms?",
            proposals.write,
        ),
        Page(
            "gallery.html",
            "Gallery",
            "Which unknown objects are found, misclassified and missed?",
            gallery.write,
        ),
        Page(
            "wilderness.html",
            "Wilderness",
            "What do images without known objects cost a detector?",
            wilderness.write,
        ),
        Page(
            "self_awareness.html",
            "Self-awareness",
            "Which images should a detector accept, and can its confidences be trusted?",
            self_awareness.write,
        ),
        Page(
            "classes.html",
            "Classes",
            "Which known classes are unknown objects misclassified as, and how similar are they?",
            classes.write,
        ),
    ),
    (
        Page(
            "methods.html",
            "Methods",
            "Which method best separates unknown from known objects?",
            methods.write,
        ),
        Page(
            "across.html",
            "Comparisons",
            "How certain is it that one method is better than another?",
            comparisons.write,
        ),
        Page(
            "charts.html",
            "Charts",
            "How do families of methods compare, and which metrics agree?",
            charts.write,
        ),
    ),
    (
        Page(
            "splits.html",
            "Data",
            "On which images were the results measured, and what weakens them?",
            splits.write,
        ),
        Page(
            "provenance.html",
            "Provenance",
            "Which checkpoints, tables and parameters made the results?",
            provenance.write,
        ),
    ),
    (
        Page(
            "deploy.html",
            "Deploy",
            "Which method and which thresholds should be deployed?",
            deploy.write,
        ),
        Page(
            "cost.html",
            "Cost",
            "What does each method gain over the detector's confidence, and at what cost?",
            cost.write,
        ),
    ),
    (
        Page(
            "papers.html",
            "Papers",
            "How do these results look in the tables of the papers?",
            papers.write,
        ),
        Page(
            "published.html",
            "Published",
            "How do these results compare with published ones?",
            published.write,
        ),
    ),
)

PAGES = tuple(page for pages in SECTIONS for page in pages)

#: Sections, and the pages that tell the story: what happens, which method, on which data, how sure,
#: what to deploy.
NAVIGATION = Navigation(
    {pages[0].file: tuple(page.link for page in pages) for pages in SECTIONS},
    path=("index.html", "methods.html", "splits.html", "across.html", "deploy.html"),
)

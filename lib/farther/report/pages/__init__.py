"""The pages of the report, one module each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from farther.report.all_results import AllResults
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
    provenance,
    published,
    self_awareness,
    splits,
    wilderness,
)
from farther.report.site import Site


class Page(NamedTuple):
    """An entry of the navigation.

    Args:
        file: The page's name, relative to the report's folder.
        title: Its entry in the navigation.
        write: Writes the page, and the pages and files that it leads to.
    """

    file: str
    title: str
    write: Callable[[Site, AllResults], None]


#: The pages in the order of the navigation.
PAGES = (
    Page("index.html", "Overview", index.write),
    Page("detectors.html", "Detectors", detectors.write),
    Page("methods.html", "Methods", methods.write),
    Page("splits.html", "Splits", splits.write),
    Page("across.html", "Comparisons", comparisons.write),
    Page("wilderness.html", "Wilderness", wilderness.write),
    Page("self_awareness.html", "Self-awareness", self_awareness.write),
    Page("classes.html", "Classes", classes.write),
    Page("cost.html", "Cost", cost.write),
    Page("deploy.html", "Deploy", deploy.write),
    Page("charts.html", "Charts", charts.write),
    Page("papers.html", "Papers", papers.write),
    Page("published.html", "Published", published.write),
    Page("gallery.html", "Gallery", gallery.write),
    Page("provenance.html", "Provenance", provenance.write),
)

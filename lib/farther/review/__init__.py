"""A local web page that shows a benchmark's OOD images one at a time and keeps what reviewers decide about them.

`farther benchmark review BENCHMARK` starts it; `serve(benchmark, params)` does the same from
Python.
"""

from farther.review.agreement import Agreement, cohen_kappa
from farther.review.catalogue import Catalogue
from farther.review.serve import ReviewSettings, open_page, serve
from farther.review.server import ReviewServer
from farther.review.session import Filters, Session
from farther.review.watcher import Watcher, watcher_for

__all__ = [
    "Agreement",
    "Catalogue",
    "Filters",
    "ReviewServer",
    "ReviewSettings",
    "Session",
    "Watcher",
    "cohen_kappa",
    "open_page",
    "serve",
    "watcher_for",
]

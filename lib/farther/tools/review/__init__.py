"""A local web page that shows a benchmark's OOD images one at a time and keeps what reviewers decide about them.

`farther review BENCHMARK` starts it; `serve(benchmark, params)` does the same from Python.
"""

from farther.tools.review.agreement import Agreement, cohen_kappa
from farther.tools.review.catalogue import Catalogue
from farther.tools.review.serve import Settings, open_page, serve
from farther.tools.review.server import ReviewServer
from farther.tools.review.session import Filters, Session
from farther.tools.review.watcher import Watcher, watcher_for

__all__ = [
    "Agreement",
    "Catalogue",
    "Filters",
    "ReviewServer",
    "Session",
    "Settings",
    "Watcher",
    "cohen_kappa",
    "open_page",
    "serve",
    "watcher_for",
]

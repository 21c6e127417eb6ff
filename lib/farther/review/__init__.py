"""A local web page to review a benchmark's OOD images one at a time, and its decisions file.

`farther benchmark review BENCHMARK` starts it; `serve(benchmark, params)` does the same from
Python.
"""

from farther.review.agreement import Agreement, cohen_kappa
from farther.review.catalogue import Catalogue
from farther.review.label_checker import LabelChecker, label_checker_for
from farther.review.serve import ReviewSettings, open_page, serve
from farther.review.server import ReviewServer
from farther.review.session import Filters, Session

__all__ = [
    "Agreement",
    "Catalogue",
    "Filters",
    "LabelChecker",
    "ReviewServer",
    "ReviewSettings",
    "Session",
    "cohen_kappa",
    "label_checker_for",
    "open_page",
    "serve",
]

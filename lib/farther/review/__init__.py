"""A local web page on which people look at a benchmark's OOD images, one at a time, and decide what becomes of each.

`python -m farther.review BENCHMARK` starts it; `serve(benchmark, params)` is the same from Python.
"""

from farther.review.agreement import Agreement, cohen_kappa
from farther.review.catalogue import Catalogue
from farther.review.command import serve
from farther.review.server import ReviewServer
from farther.review.session import Filters, Session

__all__ = ["Agreement", "Catalogue", "Filters", "ReviewServer", "Session", "cohen_kappa", "serve"]

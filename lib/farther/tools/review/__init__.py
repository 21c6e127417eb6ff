"""A local web page on which people look at a benchmark's OOD images, one at a time, and decide what becomes of each.

`python -m farther.tools.review BENCHMARK` starts it; `serve(benchmark, params)` is the same from Python.
"""

from farther.tools.review.agreement import Agreement, cohen_kappa
from farther.tools.review.catalogue import Catalogue
from farther.tools.review.command import serve
from farther.tools.review.server import ReviewServer
from farther.tools.review.session import Filters, Session

__all__ = ["Agreement", "Catalogue", "Filters", "ReviewServer", "Session", "cohen_kappa", "serve"]

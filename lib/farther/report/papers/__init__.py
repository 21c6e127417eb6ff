"""Pages of papers: results in the rows, columns, order and units of their tables."""

from farther.report.papers.pages import PAPERS, contents_of, contents_of_list
from farther.report.papers.table import Sources

__all__ = ["PAPERS", "Sources", "contents_of", "contents_of_list"]

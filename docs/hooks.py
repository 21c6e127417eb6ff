"""Hook of the docs: the reference of methods is made from their docstrings when the site is built."""

from typing import Any

from farther.methods.reference import reference

MARK = "<!-- reference of methods -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the reference in place of the mark."""
    return markdown.replace(MARK, reference()) if MARK in markdown else markdown

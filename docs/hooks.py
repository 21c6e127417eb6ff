"""Hook of the docs: sections of methods are made from their docstrings when the site is built."""

from typing import Any

from farther.methods.reference import sections

MARK = "<!-- sections of methods -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the sections in place of the mark."""
    return markdown.replace(MARK, sections()) if MARK in markdown else markdown

"""How the Markdown sources are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LEFT_OUT = re.compile(r"^\s*```.*?^\s*```$|<!-- rendered.*?<!-- end -->", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"(?<=\])\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*\)|<https?://\S+>")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_have_at_most_120_characters(page):
    """Code, tables, pictures, rendered results and the addresses of links do not count."""
    text = LEFT_OUT.sub("", page.read_text(encoding="utf-8"))
    lines = [
        TARGET.sub("", line)
        for line in text.splitlines()
        if not line.lstrip().startswith(("|", "!["))
    ]
    assert [line for line in lines if len(line) > 120] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_long_page_begins_with_a_summary(page):
    """Five points, where it has more than 1,500 words."""
    text = page.read_text(encoding="utf-8")
    _, first, *_ = text.split("\n\n")
    assert len(text.split()) <= 1500 or len(re.findall(r"^- ", first, re.MULTILINE)) == 5


def test_an_entry_of_the_changelog_is_one_line():
    _, _, versions = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## ")
    lines = [
        line for line in versions.splitlines()[1:] if line and not line.startswith(("- ", "#"))
    ]
    assert [line for line in lines if line != "The first version."] == []

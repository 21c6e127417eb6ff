"""Each fact has one page: no sentence is in the docs twice."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/api").glob("*.md")),
]

#: Sentences of fewer words may be repeated.
LEAST_WORDS = 8

#: Code and rendered results are no sentences.
LEFT_OUT = re.compile(r"^\s*```.*?^\s*```$|<!-- rendered.*?<!-- end -->", re.MULTILINE | re.DOTALL)

#: What lines begin with that are no sentences: headings, tables, pictures, quotations, marks, code.
NOT_PROSE = ("#", "|", "![", ">", "<!--", ":::", "    ")

ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) +")
LINK = re.compile(r"\[([^\]]*)\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*\)")
END = re.compile(r"(?<=[.:?!])\s+(?=[\w`*(])")
WORD = re.compile(r"[\w*'τ]+")


def sentences(text: str) -> list[str]:
    """The sentences of a page, each as its words in lower case.

    Args:
        text: Markdown.
    """
    paragraphs = [""]
    for line in LEFT_OUT.sub("", text).splitlines():
        if not line.strip() or line.startswith(NOT_PROSE):
            paragraphs.append("")
        elif ITEM.match(line):
            paragraphs.append(ITEM.sub("", line))
        else:
            paragraphs[-1] += " " + line

    found = []
    for paragraph in paragraphs:
        plain = LINK.sub(r"\1", paragraph)
        for sentence in END.split(plain):
            words = WORD.findall(sentence.lower().replace("*", ""))
            if len(words) >= LEAST_WORDS:
                found.append(" ".join(words))
    return found


def places_by_sentence() -> dict[str, list[str]]:
    """Sentence → the pages that have it, one entry per time."""
    places = defaultdict(list)
    for page in PAGES:
        for sentence in sentences(page.read_text(encoding="utf-8")):
            places[sentence].append(str(page.relative_to(ROOT)))
    return places


def test_no_sentence_is_said_twice():
    repeated = {}
    for sentence, pages in places_by_sentence().items():
        if len(pages) > 1:
            repeated[sentence] = pages
    assert repeated == {}


def test_links_and_line_breaks_make_no_other_sentence():
    first = sentences("An [image](a.md) that shows\nnothing known is left out of it.\n")
    second = sentences("- An image that shows nothing known is **left out** of it.")
    assert first == second == ["an image that shows nothing known is left out of it"]


def test_code_tables_and_rendered_results_are_no_sentences():
    words = "one two three four five six seven eight."
    text = f"```text\n{words}\n```\n\n| {words} |\n\n<!-- rendered: x -->\n{words}\n<!-- end -->\n"
    assert sentences(text) == []

"""The glossary defines the words that headings of the report and its metrics use, each once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from farther.report.results import SHOWN

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "lib/farther/report"
PAGES = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
HEADING = re.compile(
    r"<(?:th|h[1-4])\b[^>]*>(.*?)</(?:th|h[1-4])>|block title %\}(.*?)\{%", re.DOTALL
)
MARKUP = re.compile(r"<[^>]*>|\{[{%].*?[%}]\}|&\w+;", re.DOTALL)
WORD = re.compile(r"[A-Za-zτ][\w@-]*")

#: Words of the field that messages, pages and tables use, whatever their headings are today.
TERMS = (
    *("adapter", "benchmark", "bundle", "class mapping", "detector", "profile", "protocol"),
    *("run", "split", "stage", "ID", "OOD", "known", "unknown", "near", "far", "farther"),
    *("shifted", "wilderness ratio", "held-out", "detection", "region", "whole image", "score"),
    *("method", "oracle", "pass", "proposal", "rejected", "t*", "τ", "found", "misclassified"),
    *("missed", "covered", "false alarm", "budget", "error budget", "drift", "interval", "gain"),
    *("significant", "AUROC", "FPR95", "nOSE", "AP_U", "P_U", "R_U", "mAP"),
)

#: Words of headings that no page has and that mean what they mean elsewhere.
PLAIN = {"alike", "citing", "classic", "correlation", "could", "downloads", "ms", "speed"}
PLAIN |= {"suggested"}
PLAIN |= {"charts", "confusion", "details", "families", "summary", "top-5"}
PLAIN |= {"backward", "forward"}  # inferences of a network


def terms() -> list[str]:
    """The terms of the glossary."""
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \|", text.replace("\\*", "*"), re.MULTILINE)
    return [term for row in rows if row not in ("term", "---") for term in row.split(", ")]


def headings() -> list[str]:
    """Headings of the report: of its templates, of columns that its pages name, and of metrics."""
    found = []
    for template in (REPORT / "templates").glob("*.html"):
        for parts in HEADING.findall(template.read_text(encoding="utf-8")):
            found.append(MARKUP.sub(" ", "".join(parts)))
    for page in (REPORT / "pages").glob("*.py"):
        for node in ast.walk(ast.parse(page.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                found += [key.value for key in node.keys if _is_heading(key)]
    return found + [metric.title for metric in SHOWN]


def _is_heading(key: ast.expr | None) -> bool:
    is_text = isinstance(key, ast.Constant) and isinstance(key.value, str)
    return is_text and key.value[:1].isupper()


def words_of_prose() -> Counter[str]:
    """Lower-case words outside code → the number of pages that use them."""
    pages_by_word: Counter[str] = Counter()
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        pages_by_word.update(set(re.findall(r"\b[a-z][a-z-]+", text)))
    return pages_by_word


def forms(word: str) -> set[str]:
    """A word in lower case, its singular and its plural."""
    lower = word.lower()
    return {lower, lower.removesuffix("s"), f"{lower}s"}


@pytest.mark.parametrize("term", TERMS)
def test_a_word_of_the_field_is_defined(term):
    assert term in terms()


def test_each_term_has_one_meaning():
    repeated = [term for term, count in Counter(terms()).items() if count > 1]
    assert repeated == []


def test_terms_are_in_order_within_their_tables():
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").replace("\\*", "*")
    for table in re.findall(r"^\| --- \| --- \|\n((?:\|.*\n)+)", text, re.MULTILINE):
        rows = [line.split(" |")[0].lower() for line in table.splitlines()]
        assert rows == sorted(rows)


def test_headings_of_the_report_have_words_that_are_defined_or_common():
    """A word is common if two pages use it in lower case."""
    defined = set()
    for word in WORD.findall((ROOT / "docs/glossary.md").read_text(encoding="utf-8")):
        defined |= forms(word)
    pages_by_word = words_of_prose()
    undefined = {}
    for heading in headings():
        for word in WORD.findall(heading):
            common = max(pages_by_word[form] for form in forms(word))
            if common < 2 and not forms(word) & (defined | PLAIN):
                undefined[word] = heading
    assert len(headings()) > 100
    assert undefined == {}

"""Pages quote messages, versions, workflows and results as they are elsewhere."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests.docs.pages import EXAMPLES, Page
from tests.support import dvc_commands

from farther.command import main
from farther.methods.reference import table

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
QUOTED = re.compile(r"^\*\*(?P<ticks>`{1,2}) ?(.+?) ?(?P=ticks)\*\*", re.MULTILINE)


@cache
def texts_of_the_code() -> list[str]:
    """The texts in the library's code; "…" in the place of a value in an f-string.

    `{value!r}` has quotation marks, as the text that it prints.
    """
    texts = []
    for file in (ROOT / "lib/farther").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(map(_text_of_part, node.values)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return texts


def _text_of_part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    if isinstance(part, ast.FormattedValue) and part.conversion == ord("r"):
        return "'…'"
    return "…"


def is_message(quoted: str) -> bool:
    """Whether the code has a text with the words of a quotation, in their order.

    "…" stands for anything.
    """
    words = [re.escape(part) for part in quoted.split("…")]
    pattern = re.compile(".*".join(words), re.DOTALL)
    return any(pattern.search(text) for text in texts_of_the_code())


def quoted_messages() -> list[str]:
    return [match[2] for match in QUOTED.finditer(Page("troubleshooting.md").text)]


def test_the_page_quotes_messages():
    assert len(quoted_messages()) >= 20


@pytest.mark.parametrize("message", quoted_messages())
def test_a_quoted_message_is_in_the_code(message):
    assert is_message(message)


def test_a_message_that_nothing_prints_is_noticed():
    assert not is_message("no adapter opens this")
    assert not is_message("seems to be …: no adapter opens it"), "the words in another order"


def workflow() -> dict:
    assert "](examples/evaluate.yml)" in Page("dvc.md").text
    return yaml.safe_load((EXAMPLES / "evaluate.yml").read_text(encoding="utf-8"))


def test_the_workflow_of_the_page_is_one_of_github():
    read = workflow()
    assert read[True] == "pull_request", "YAML 1.1 reads the key `on` as true"
    (job,) = read["jobs"].values()
    assert {"runs-on", "timeout-minutes", "env", "steps"} == set(job)
    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert set(step) <= {"uses", "run", "name", "with", "if"}
    assert job["steps"][0]["with"] == {"fetch-depth": 0}, "compare reads the base branch"


def test_the_workflow_compares_with_the_base_branch_and_fails_if_it_got_worse():
    (job,) = workflow()["jobs"].values()
    lines = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
    commands = [shlex.split(line.partition(" >> ")[0]) for line in lines]
    for command in commands:
        if command[0] == "farther":
            assert main([*command[1:], "--help"]) == 0
            assert main([*command[1:], "--absent"]) == 2
        if command[0] == "dvc":
            dvc_commands.check(command[1:])
    assert ["farther", "compare", "origin/$GITHUB_BASE_REF", "--check", "--markdown"] in commands


def test_bibtex_of_the_readme_is_the_citation_file():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (entry,) = Page("../README.md").blocks("bibtex")
    fields = dict(re.findall(r"^  (\w+) += \{+(.+?)\}+,$", entry, re.MULTILINE))
    (author,) = citation["authors"]
    assert fields == {
        "title": citation["title"],
        "author": author["name"],
        "year": str(citation["date-released"].year),
        "version": citation["version"],
        "license": citation["license"],
    }


def test_the_release_of_the_citation_is_that_of_the_changelog():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{citation['version']}] - {citation['date-released']}" in changelog


def test_the_table_of_methods_is_made_from_their_classes():
    """`tests/docs/render.py` writes it."""
    text = Page("methods.md").text
    assert f"<!-- rendered: methods -->\n{table()}<!-- end -->" in text


def test_numbers_of_the_readme_below_the_picture_are_those_of_the_reports_sentences():
    """Those of the sentences that `tests/docs/render.py` writes into the page on results."""
    text = " ".join(Page("../README.md").text.partition("docs/outcomes.png")[2].split())
    sentences = Page("reading-results.md").text.partition("<!-- rendered: sentences -->")[2]
    sentences = " ".join(sentences.partition("<!-- end -->")[0].split())
    quoted = re.findall(r"\d+% \[\d+, \d+\]", text)
    assert len(quoted) == 4
    assert [words for words in quoted if words not in sentences] == []
    (objects,) = re.findall(r"Of (\d+) unknown objects", text)
    assert f" {objects} " in sentences
    (alarms,) = re.findall(r"([\d.]+) false alarms per ID image", text)
    assert f"{alarms} false alarms per ID image" in sentences


def test_numbers_of_the_readme_on_photographs_are_those_of_their_page():
    page = Page("photographs.md").text
    table = page.partition("## Outcomes")[2].partition("## Methods")[0]
    text = Page("../README.md").text.partition("docs/outcomes.png")[0]
    quoted = re.findall(r"\d+% \[\d+, \d+\]", text)
    assert len(quoted) == 3
    assert [words for words in quoted if words.replace("%", "") not in table] == []


def test_no_page_says_that_an_index_has_farther():
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "first release" not in text
        assert 'pip install "farther[yolo]"\n' not in text

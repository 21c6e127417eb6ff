"""The page: what a reader finds on it, and that it needs nothing but itself."""

import base64
import io
import json
import shutil
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from farther.errors import ParameterError
from farther.report import build, charts
from farther.report.examples import Mark
from farther.report.results import read_runs
from farther.tables.files import digest

VOID = {"meta", "link", "input", "img", "br", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    inside: tuple[str, ...] = ()
    children: list["Element"] = field(default_factory=list)


class Page(HTMLParser):
    """All elements of a page, in order; refuses elements that are closed in the wrong order."""

    def __init__(self, file: Path):
        super().__init__(convert_charrefs=True)
        self.source = file.read_text(encoding="utf-8")
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(self.source)
        assert not self._open, f"never closed: {[e.tag for e in self._open]}"

    def handle_starttag(self, tag, attributes):
        element = Element(tag, dict(attributes), inside=tuple(e.tag for e in self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append(Element(tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data):
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]


@pytest.fixture(scope="session")
def project(evaluated: Path, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("built") / "project"
    shutil.copytree(evaluated, root)
    return root


@pytest.fixture(scope="session")
def page(project: Path) -> Page:
    from farther.tables.files import inside

    return Page(build(params_of(), inside(project, ".")))


def params_of(**report) -> dict:
    import copy
    import sys

    return copy.deepcopy(sys.modules["conftest"].PARAMS)

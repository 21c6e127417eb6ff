"""Files and terminal output show names as written, and no reader executes any part of a name.

Each writer gets every text, and a reader that knows nothing of how the writer escapes: csv, a
CommonMark parser, an XML parser, PyYAML, and TeX's and BibTeX's rules on braces.
"""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from xml.etree import ElementTree

import polars as pl
import pytest
import yaml
from markdown_it import MarkdownIt
from PIL import Image
from tests.disturbed.damage.values import OBEYED as TEXTS
from tests.publication import conftest as published
from tests.report.conftest import run_of

from farther.command import main
from farther.command.output import markdown as markdown_table
from farther.command.output import table
from farther.curation import Decision, DecisionsFile, Rules
from farther.curation.sources import Categories, LabelledImages
from farther.errors import DataError
from farther.publication import Words
from farther.publication.card import card
from farther.report.charts.figures import FORMATS, draw, figure, numbers
from farther.report.charts.vega import chart, layer, nominal, quantitative
from farther.report.citations import bibtex
from farther.report.site import as_script
from farther.report.tables import run_tables, to_csv, to_latex, to_markdown, to_text
from farther.tables.documents import write_json
from farther.text.escaping import of_spreadsheet
from farther.text.printable import printable, printable_line
from farther.text.terminal import say

pytestmark = pytest.mark.slow

LINES = {printable_line(text) for text in TEXTS.values()}

#: What a spreadsheet computes or sends.
COMPUTED = re.compile(r"(?![+-]?[\d.]+$)[=+\-@\t\r\n＝＋－＠]")


@pytest.fixture(scope="module")
def tables():
    """Tables of a run whose methods have these names."""
    return run_tables(run_of({text: {"nose": 0.5, "ap_u": 0.25} for text in TEXTS.values()}))


# --------------------------------------------------------------------------------------------------
# spreadsheets


def cells(text: str) -> set[str]:
    """The cells of a CSV file, without the apostrophes that keep a spreadsheet from computing them.

    No cell may be one that a spreadsheet computes.
    """
    found = {cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row}
    assert not [cell for cell in found if COMPUTED.match(cell)]
    return {of_spreadsheet(cell) for cell in found}


def test_tables_as_csv():
    run = run_of({text: {"nose": 0.5, "ap_u": -0.25} for text in TEXTS.values()})
    assert cells(to_csv([run])) >= {*TEXTS.values(), "-0.25"}


def test_decisions_are_read_as_they_were_written(tmp_path):
    file, written = DecisionsFile(tmp_path / "decisions.csv"), []
    for minute, text in enumerate(TEXTS.values()):
        about = {
            "reviewer": "ann",
            "dataset": "photos",
            "subset": "val",
            "image_id": text,
            "note": text,
        }
        try:
            decision = Decision(
                datetime(2026, 1, 1, 1, minute, tzinfo=UTC), decision="keep", **about
            )
        except DataError as error:  # text of several lines, directions of writing, escape codes
            assert printable_line(text) != text and "expected text in one line" in str(error)
            continue
        with file.locked() as opened:
            file.append(opened, decision)
        written.append(text)
    assert len(written) == len(TEXTS) - 3
    assert cells(file.path.read_text()) >= {*written}
    assert file.read().frame["note"].to_list() == file.read().frame["image_id"].to_list() == written


# --------------------------------------------------------------------------------------------------
# figures


def test_figures_and_their_numbers():
    rows = pl.DataFrame({"name": list(TEXTS.values()), "share": [0.5] * len(TEXTS)})
    drawn = layer("bar", x=quantitative("share", title=None))
    title = "; ".join(text for text in TEXTS.values() if len(text) < 999)
    made = chart(title, "bars", rows, drawn, step=20, y=nominal("name", title=None))
    files = {kind: draw(figure(made.spec, 6.9), kind) for kind in FORMATS}
    elements = list(ElementTree.fromstring(files["svg"]).iter())
    tags = {element.tag.partition("}")[2] for element in elements}
    assert tags <= {"svg", "g", "path", "text", "tspan", "rect", "defs", "line"}
    assert not [
        name
        for element in elements
        for name in element.attrib
        if name.startswith("on") or "href" in name
    ]
    labels = " ".join(
        [*(e.text or "" for e in elements), *(a for e in elements for a in e.attrib.values())]
    )
    assert not [
        text
        for text in TEXTS.values()
        if " ".join(printable(text).split()) not in " ".join(labels.split())
    ]
    assert files["pdf"].startswith(b"%PDF") and b"/JavaScript" not in files["pdf"]
    assert cells(numbers(json.loads(as_script(made.spec)))) >= {
        printable(text) for text in TEXTS.values()
    }


# --------------------------------------------------------------------------------------------------
# TeX, BibTeX

#: What TeX prints of a command.
PRINTED = {
    **{f"\\{letter}": letter for letter in "&%$#_{}"},
    **{
        "\\textbackslash{}": "\\",
        "\\textasciitilde{}": "~",
        "\\textasciicircum{}": "^",
        "\\textless{}": "<",
    },
    **{
        "\\textgreater{}": ">",
        "\\textbar{}": "|",
        "\\textquotedbl{}": '"',
        "\\textbraceleft{}": "{",
    },
    "\\textbraceright{}": "}",
}
TOKEN = re.compile("|".join(map(re.escape, PRINTED)) + r"|[^\\&%$#_{}~^]")


def typeset(text: str) -> str:
    """What TeX prints: letters, and the commands above; anything else is refused."""
    assert re.fullmatch(f"(?:{TOKEN.pattern})*", text), text
    return TOKEN.sub(lambda found: PRINTED.get(found[0], found[0]), text)


def test_tables_as_latex(tables):
    text = to_latex(tables[0])
    body = text.partition("\\midrule\n")[2].partition("\\bottomrule")[0]
    assert body.count("\n") == len(TEXTS)
    assert {typeset(re.split(r"(?<!\\) & ", row)[0]) for row in body.splitlines()} == LINES
    assert text.isprintable() or set(text) - {"\n"} == {c for c in text if c.isprintable()}


def test_references_as_bibtex():
    texts = [" ".join(text.replace('"', "'").split()) for text in TEXTS.values()]
    references = [
        f'{text}, "{text}", {2000 + n}, arXiv:2010.{n:05}.' for n, text in enumerate(texts)
    ]
    text = bibtex([], references)
    depth, entries = 0, []
    for part in re.split(r"([{}@])", text):
        if part == "@" and depth == 0:
            entries.append("")
        depth += {"{": 1, "}": -1}.get(part, 0)
        assert depth >= 0
        if entries:
            entries[-1] += part
    assert depth == 0 and len(entries) == 1 + len(TEXTS)
    titles = [
        re.search(r"^  title = \{\{(.*)\}\},$", entry, re.MULTILINE)[1] for entry in entries[1:]
    ]
    assert [typeset(title) for title in titles] == [printable_line(text) for text in texts]


# --------------------------------------------------------------------------------------------------
# Markdown


class Rendered(HTMLParser):
    """Elements, attributes and texts of what a CommonMark parser makes of Markdown with tables."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.texts.append("")

    def handle_endtag(self, tag):
        self.texts.append("")

    def handle_data(self, data):
        if self.texts:
            self.texts[-1] += data


PLAIN = {"table", "thead", "tbody", "tr", "th", "td", "p", "strong", "ins"}


def test_tables_as_markdown(tables):
    for text in (
        to_markdown(tables[0]),
        markdown_table(("name", "value"), [(one, "1") for one in TEXTS.values()], 1),
    ):
        shown = Rendered(text)
        assert shown.tags <= PLAIN and shown.attributes <= {"style"}
        assert {*shown.texts} >= LINES


@pytest.fixture(scope="module")
def publication(tmp_path_factory):
    """A publication whose categories, ID classes, licences and title are these texts."""
    root = tmp_path_factory.mktemp("project")
    published.write_project(root)
    made = published.collect_publication(root)
    split = made.splits[0]
    objects = split.objects[[0] * len(TEXTS)].with_columns(category=list(TEXTS.values()))
    objects = objects.with_columns(object_id=range(len(TEXTS)))
    source = LabelledImages(split.images, objects)
    words = Words(title="; ".join(LINES), citation="@x{}\n```\n<script>\n````\n")
    return replace(
        made,
        splits=(replace(split, source=source, categories=Categories(tuple(TEXTS.values()), {})),),
        id_classes=tuple(TEXTS.values()),
        words=words,
    )


def test_the_card_of_a_dataset(publication):
    text = card(publication)
    _, about, body = text.split("---\n", 2)
    assert yaml.safe_load(about)["pretty_name"] == publication.title
    shown = Rendered(body)
    assert shown.tags <= PLAIN | {"h1", "h2", "h3", "pre", "code", "em"} and shown.attributes <= {
        "style",
        "class",
    }
    assert {*shown.texts} >= {*LINES, publication.title}
    assert "@x{}\n```\n<script>\n````\n" in shown.texts
    assert f"({', '.join(map(printable_line, TEXTS.values()))})" in " ".join(shown.texts)


# --------------------------------------------------------------------------------------------------
# terminal, YAML


def test_the_terminal(tables, capsys):
    say(*TEXTS.values(), sep="\n")
    say(table(("name",), [(text,) for text in TEXTS.values()]))
    said = capsys.readouterr().out
    assert said == "\n".join(
        [*map(printable, TEXTS.values()), "name", *map(printable_line, TEXTS.values()), ""]
    )
    say(to_text(tables[0], width=20_000))
    assert {c for c in capsys.readouterr().out if not c.isprintable()} == {"\n"}


def test_files_of_a_new_project(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [text for text in TEXTS.values() if len(text) < 1000]
    write_sets(tmp_path, names)
    words = ["init", "made", "--id", "pets", "--ood", "wild", "--detector", "r.json"]
    assert main(words) == 0
    files = [tmp_path / "made/params.yaml", tmp_path / "made/data/benchmarks/pets.yaml"]
    assert Rules(files[1]).id_classes == tuple(names)
    for file in files:
        assert {c for c in file.read_text(encoding="utf-8") if not c.isprintable()} == {"\n"}
    assert set(yaml.safe_load(files[0].read_text())) >= {
        "datasets",
        "benchmarks",
        "detectors",
        "methods",
    }
    write_sets(tmp_path, [TEXTS["long"]])
    assert main([*words[:1], "other", *words[2:]]) == 2
    assert "has 10,000 characters: give it a shorter name" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def write_sets(root, names):
    """Writes two datasets of one image each, with objects of these names, and detections.

    The names in the second dataset are in the plural.
    """
    for folder in ("pets", "wild"):
        (root / folder / "all").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10)).save(root / folder / "all/a.jpg")
        categories = [
            {"id": n, "name": name + "s" * (folder == "wild")} for n, name in enumerate(names)
        ]
        boxes = [
            {"id": n, "image_id": 1, "category_id": n, "bbox": [1, 2, 8, 6]}
            for n in range(len(names))
        ]
        images = [{"id": 1, "file_name": "a.jpg", "width": 20, "height": 10}]
        write_json(
            root / folder / "all.json",
            {"images": images, "annotations": boxes, "categories": categories},
        )
    box = {"image_id": 1, "bbox": [1, 2, 8, 6], "score": 0.3}
    write_json(root / "r.json", [{**box, "category_id": n} for n in range(len(names))])

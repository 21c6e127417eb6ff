"""Charts as figures of a paper."""

import csv
import io
import re
import struct

import pytest

from farther.report import write
from farther.report.charts import fonts
from farther.report.charts.figures import FORMATS, charts_of, draw, figure, numbers
from farther.report.charts.fonts import installed_fonts


@pytest.fixture(scope="module")
def exported(report, tmp_path_factory):
    """The figures of two pages, in the widths of a paper, and their numbers."""
    out = tmp_path_factory.mktemp("figures")
    for page, chart in (("index", "hero-1"), ("detectors/pets-net", "roc-1")):
        spec = dict(charts_of((report / f"{page}.html").read_text()))[chart]
        (out / page).mkdir(parents=True)
        (out / page / f"{chart}.csv").write_text(numbers(spec))
        for inches in (3.3, 6.9):
            for format_ in FORMATS:
                drawing = draw(figure(spec, inches), format_)
                (out / page / f"{chart}-{inches}in.{format_}").write_bytes(drawing)
    return out


@pytest.mark.parametrize(("inches", "points"), [(3.3, 237.6), (6.9, 496.8)])
@pytest.mark.parametrize("name", ["index/hero-1", "detectors/pets-net/roc-1"])
def test_each_format_is_as_wide_as_a_column_with_letters_of_eight_points(
    exported, name, inches, points
):
    svg = (exported / f"{name}-{inches}in.svg").read_text()
    width, pixels = re.search(r'width="([\d.]+)in" .*?viewBox="0 0 ([\d.]+)', svg).groups()
    assert float(width) == pytest.approx(inches, abs=0.01)
    smallest = min(float(size) for size in re.findall(r'font-size="([\d.]+)px"', svg))
    assert smallest * 72 * float(width) / float(pixels) >= 8 - 0.01
    box = re.search(
        rb"/MediaBox ?\[0 0 ([\d.]+)", (exported / f"{name}-{inches}in.pdf").read_bytes()
    )
    assert float(box[1]) == pytest.approx(points, abs=0.8)
    png = (exported / f"{name}-{inches}in.png").read_bytes()
    assert struct.unpack(">I", png[16:20])[0] == pytest.approx(300 * inches, abs=3)


def test_a_figure_has_its_title_and_the_legend_that_the_page_has_above_it(exported):
    texts = re.findall(
        r"<text[^>]*>([^<]+)</text>", (exported / "index/hero-1-3.3in.svg").read_text()
    )
    assert {"net", "found", "missed", "misclassified"} <= set(texts)


def test_a_figure_of_curves_names_its_run_and_its_legend_has_dashes(exported):
    drawing = (exported / "detectors/pets-net/roc-1-3.3in.svg").read_text()
    assert "net (pets)" in drawing
    legend = drawing[drawing.index("role-legend-entry") :]
    symbol = r'role-legend-symbol"[^>]*><path [^>]*d="M-([\d.]+),0L\1,0"[^>]*stroke-dasharray='
    assert re.search(symbol, legend)


def test_the_numbers_are_those_that_are_drawn(exported, report):
    with (exported / "index/hero-1.csv").open(newline="") as file:
        rows = {
            (row["distance"], row["outcome"]): float(row["share"])
            for row in csv.DictReader(file)
            if row["method"] == "MSP"
        }
    # Near: one of four objects is found, one misclassified, two are missed; far: one of two is
    # found.
    assert rows["near", "found"] == rows["near", "misclassified"] == 0.25
    assert (rows["near", "missed"], rows["far", "found"]) == (0.5, 0.5)
    for page in report.rglob("*.html"):
        for name, spec in charts_of(page.read_text()):
            assert len(numbers(spec).splitlines()) > 1, (page, name)


def test_a_figure_has_no_links_and_its_numbers_no_addresses(exported, report):
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "gallery.html#run=pets-net" in page
    assert "gallery.html" not in (exported / "index/hero-1-3.3in.svg").read_text()
    assert "href" not in (exported / "index/hero-1.csv").read_text()


def test_a_figure_of_a_detectors_page_is_named_by_its_run_and_has_it_in_the_title(report):
    charts = list(charts_of((report / "detectors/pets-net.html").read_text()))
    assert charts
    for _, spec in charts:
        assert spec["usermeta"]["run"] == "pets-net"
        assert "net (pets)" in " ".join(figure(spec, 6.9)["title"])


def test_lines_and_layers_with_rows_of_their_own_share_one_table():
    spec = {
        "data": {"values": "series,point,x,y\n=a,0,0.5,-1\n"},
        "layer": [{"data": {"values": [{"limit": "at most 2"}]}}, {"mark": "line"}],
    }
    rows = list(csv.DictReader(io.StringIO(numbers(spec))))
    assert rows[0] == {"series": "'=a", "point": "0", "x": "0.5", "y": "-1", "limit": ""}
    assert rows[1]["limit"] == "at most 2"


def test_installed_fonts_are_names_and_sizes_of_files_and_absent_folders_have_none(tmp_path):
    (tmp_path / "fonts/inner").mkdir(parents=True)
    (tmp_path / "fonts/b.ttf").write_bytes(b"12")
    (tmp_path / "fonts/inner/a.otf").write_bytes(b"123")
    (tmp_path / "fonts/inner/loop").symlink_to(tmp_path / "fonts")
    (tmp_path / "fonts/broken.ttf").symlink_to(tmp_path / "none.ttf")
    assert installed_fonts([tmp_path / "fonts", tmp_path / "absent"]) == ["a.otf 3", "b.ttf 2"]


def test_a_font_that_is_installed_later_draws_the_first_figure_again(tmp_path, monkeypatch):
    keys = []

    class Keys:
        def keep(self, name, key, content) -> None:
            keys.append((name, key))

    monkeypatch.setattr(fonts, "font_folders", lambda: [tmp_path])
    write._write_figure(Keys(), {"mark": "bar"}, "code")
    (tmp_path / "Liberation.ttf").write_bytes(b"1")
    write._write_figure(Keys(), {"mark": "bar"}, "code")
    before, after = dict(keys[:3]), dict(keys[3:])
    assert (
        before.keys()
        == after.keys()
        == {f"figures/outcomes.{kind}" for kind in ("svg", "pdf", "png")}
    )
    assert not set(before.values()) & set(after.values())

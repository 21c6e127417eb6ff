"""Charts as figures of a paper: SVG, PDF and PNG at the width of one and of two columns, and the numbers behind them.

The menu of a chart saves all but PDF, in which a browser cannot embed the fonts of a drawing.
"""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from farther.errors import DataError
from farther.escaping import spreadsheet
from farther.printable import printable_texts
from farther.report.charts.vega import FIGURES

FORMATS = ("svg", "pdf", "png")

#: Points of an inch, which a PDF's pixels are, and CSS pixels.
POINTS, CSS_PIXELS = 72, 96

#: About the width of a letter of a title, in pixels.
LETTER = 7

#: A specification in a page, and its name.
SPEC = re.compile(r'<script type="application/json" id="([^"]+)">(.*?)</script>', re.DOTALL)

#: Width and height of a drawing in pixels.
SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')


def export_charts(report: Path, out: Path) -> int:
    """Writes each chart as `<page>/<chart>-<width>in.svg`, `.pdf` and `.png`, and its numbers as `<page>/<chart>.csv`.

    Args:
        report: The report's folder, or one of its pages.
        out: The folder to write to.

    Returns:
        The number of charts.

    Raises:
        DataError: there is no report.
    """
    pages = sorted(report.rglob("*.html")) if report.is_dir() else [report]
    if not pages or not pages[0].is_file():
        raise DataError("there is no report yet; `farther repro report` writes it", file=report)
    count = 0
    for page in tqdm(pages, "charts", unit="page", leave=False, disable=None):
        folder = out / (page.relative_to(report).with_suffix("") if report.is_dir() else page.stem)
        for name, spec in charts_of(page.read_text(encoding="utf-8")):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.csv").write_text(numbers(spec), encoding="utf-8")
            for inches in FIGURES["inches"]:
                for kind, data in as_files(figure(spec, inches)).items():
                    (folder / f"{name}-{inches}in.{kind}").write_bytes(data)
            count += 1
    return count


def charts_of(page: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and specification of each chart of a page."""
    for name, text in SPEC.findall(page):
        spec = json.loads(text)
        if isinstance(spec, dict) and "usermeta" in spec:
            yield name, spec


def figure(spec: Mapping[str, Any], inches: float) -> dict[str, Any]:
    """A chart of a page as a figure of this width, with its title and its legend; see `vega.FIGURES`."""
    about, width = spec["usermeta"], FIGURES["pixels"] * inches
    legend = {**FIGURES["config"]["legend"], "columns": max(1, int(width // about["entry"]))}
    return {
        **spec,
        "title": textwrap.wrap(about["title"], int(width // LETTER)),
        "width": width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": {**FIGURES["config"], "legend": legend},
    }


def as_files(spec: Mapping[str, Any]) -> dict[str, bytes]:
    """A figure as a file of each of `FORMATS`, `vega.FIGURES` says how many pixels are an inch."""
    import vl_convert

    # SVG has no control characters: one of them would end this process.
    drawn = vl_convert.vegalite_to_svg(printable_texts(spec))
    svg, in_points = _sized(drawn, 1, "in"), _sized(drawn, POINTS)
    one_weight = re.sub(
        r' font-weight="\w+"', "", in_points
    )  # the order of two fonts in a PDF is random
    png = vl_convert.svg_to_png(svg, scale=POINTS / CSS_PIXELS, ppi=FIGURES["dpi"])
    files = (svg.encode(), bytes(vl_convert.svg_to_pdf(one_weight)), bytes(png))
    return dict(zip(FORMATS, files, strict=True))


def _sized(drawn: str, units: float, name: str = "") -> str:
    """An SVG with its width and height in other units, of which there are so many to an inch."""
    sides = [
        f"{float(side) * units / FIGURES['pixels']:.3f}{name}"
        for side in SIZE.search(drawn).groups()
    ]  # type: ignore[union-attr]
    return SIZE.sub('width="{}" height="{}"'.format(*sides), drawn, count=1)


def numbers(spec: Mapping[str, Any]) -> str:
    """The data of a chart as CSV: its rows, and below them those of layers that have rows of their own.

    Texts that a spreadsheet would take for a formula begin with an apostrophe.
    """
    values = spec["data"]["values"]
    tables = [list(csv.DictReader(io.StringIO(values))) if isinstance(values, str) else values]
    tables += [layer["data"]["values"] for layer in spec.get("layer", ()) if "data" in layer]
    rows = [
        row for place, table in enumerate(tables) if table not in tables[:place] for row in table
    ]
    written = io.StringIO()
    writer = csv.DictWriter(
        written, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows({name: _guarded(value) for name, value in row.items()} for row in rows)
    return written.getvalue()


def _guarded(value: Any) -> Any:
    return spreadsheet(value) if isinstance(value, str) else value

"""Charts as figures of a paper, and the numbers behind them.

A figure is SVG, PDF or PNG, at the width of one or two columns.
The menu of a chart saves all but PDF, in which a browser cannot embed the fonts of a drawing.
"""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import vl_convert

from farther.report.charts.vega import FIGURES, without_links
from farther.text.escaping import spreadsheet
from farther.text.printable import printable_texts

FORMATS = ("svg", "pdf", "png")

#: Points per inch, which a PDF's pixels are, and CSS pixels per inch.
POINTS = 72
CSS_PIXELS = 96

#: About the width of a letter of a title, in pixels.
LETTER = 7

#: Legend of dashed lines: their symbols are lines, long enough for the dashes.
DASHED = {"symbolType": "stroke", "symbolSize": 500}

#: A specification in a page, and its name.
SPEC = re.compile(r'<script type="application/json" id="([^"]+)">(.*?)</script>', re.DOTALL)

#: Width and height of a drawing in pixels.
SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')


def charts_of(page: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and specification of each chart of a page, without links."""
    for name, text in SPEC.findall(page):
        spec = json.loads(text)
        if isinstance(spec, dict) and "usermeta" in spec:
            yield name, without_links(spec)


def figure(spec: Mapping[str, Any], inches: float) -> dict[str, Any]:
    """A chart of a page as a figure of this width, with its title and its legend.

    See `farther.report.charts.vega.FIGURES` for its style.
    """
    metadata = spec["usermeta"]
    width = FIGURES["pixels"] * inches
    columns = max(1, int(width // metadata["entry"]))
    legend = {**FIGURES["config"]["legend"], "columns": columns}
    return {
        **_with_dashes(spec),
        "title": textwrap.wrap(_title(metadata), int(width // LETTER)),
        "width": width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": {**FIGURES["config"], "legend": legend},
    }


def _with_dashes(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A chart whose legend shows the dashes of lines, also where points lie on them."""
    with_dashes = dict(spec)
    encoding = with_dashes.get("encoding", {})
    if "strokeDash" in encoding:
        with_dashes["encoding"] = dict(encoding)
        for channel in ("color", "strokeDash"):
            with_dashes["encoding"][channel] = {**encoding[channel], "legend": DASHED}
    if "layer" in with_dashes:
        with_dashes["layer"] = [_with_dashes(layer) for layer in with_dashes["layer"]]
    return with_dashes


def _title(metadata: Mapping[str, str]) -> str:
    """Title of a chart, with that of the run if it is of one."""
    title = metadata["title"]
    subject = metadata.get("subject", "")
    if not subject or subject in title:
        return title
    return f"{title}, {subject}"


def draw(spec: Mapping[str, Any], format_: str) -> bytes:
    """Content of a figure's file in one of `FORMATS`."""
    # SVG has no control characters: one of them would end this process.
    drawing = vl_convert.vegalite_to_svg(printable_texts(spec))
    svg = _with_units(drawing, 1, "in")
    if format_ == "pdf":
        # The order of two fonts in a PDF is random, so it has one.
        one_weight = re.sub(r' font-weight="\w+"', "", _with_units(drawing, POINTS))
        return bytes(vl_convert.svg_to_pdf(one_weight))
    if format_ == "png":
        return bytes(vl_convert.svg_to_png(svg, scale=POINTS / CSS_PIXELS, ppi=FIGURES["dpi"]))
    return svg.encode()


def _with_units(drawing: str, per_inch: float, unit: str = "") -> str:
    """An SVG with its width and height in other units than pixels.

    Args:
        drawing: The SVG.
        per_inch: Units per inch.
        unit: Their name.
    """
    size = SIZE.search(drawing)
    if size is None:
        raise ValueError("the drawing has no width and height")
    width, height = (float(side) * per_inch / FIGURES["pixels"] for side in size.groups())
    return SIZE.sub(f'width="{width:.3f}{unit}" height="{height:.3f}{unit}"', drawing, count=1)


def numbers(spec: Mapping[str, Any]) -> str:
    """The data of a chart as CSV: its rows, and below them those of layers that have their own.

    Texts that a spreadsheet would take for a formula begin with an apostrophe.
    """
    tables: list[list[dict[str, Any]]] = []
    values = spec["data"]["values"]
    if isinstance(values, str):
        values = list(csv.DictReader(io.StringIO(values)))
    tables.append(values)
    for layer in spec.get("layer", ()):
        if "data" in layer and layer["data"]["values"] not in tables:
            tables.append(layer["data"]["values"])

    rows = []
    columns: dict[str, None] = {}
    for table in tables:
        for row in table:
            columns.update(dict.fromkeys(row))
            rows.append({name: _guarded(value) for name, value in row.items()})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _guarded(value: Any) -> Any:
    return spreadsheet(value) if isinstance(value, str) else value

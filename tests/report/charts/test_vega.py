"""Charts are drawn by Vega-Lite."""

import re
from itertools import pairwise

import pytest
import vl_convert

from farther.report.charts.vega import DASHES, Axis, legend_keys, line_group, series


@pytest.mark.parametrize(
    "kind",
    [
        "index.html hero-1",
        "compare.html outcomes-1-1",
        "methods.html correlation",
        "data.html categories-1-1",
        "missed.html froc-1",
        "detectors/pets-net.html wild-1",
        "detectors/pets-net.html outcomes-1",
        "detectors/pets-net.html methods-3",
        "detectors/pets-net.html roc-1",
        "detectors/pets-net.html pr-1",
        "detectors/pets-net.html tau-1",
        "detectors/pets-net.html confidence-1",
        "detectors/pets-net.html no-detection-1",
        "detectors/pets-net.html wilderness-1",
        "detectors/pets-net.html reliability",
    ],
)
def test_vega_lite_draws_it(report_of_two, read, kind):
    page, name = kind.split()
    svg = vl_convert.vegalite_to_svg(
        {**read(report_of_two / page).charts()[name], "width": 300}, show_warnings=False
    )
    assert "<path" in svg


def test_each_place_for_a_figure_has_its_specification(report_of_two, read):
    for file in report_of_two.rglob("*.html"):
        page = read(file)
        places = [e.attributes["data-spec"] for e in page.all("div") if "data-spec" in e.attributes]
        assert places == list(page.charts())


def test_a_line_is_drawn_along_its_points():
    # Twelve points: as text, 10 and 11 would come before 2.
    x = [k / 11 for k in range(12)]
    points = series({"a": [(value, value**2) for value in x]})
    (chart,) = line_group("t", "d", points, Axis("x"), Axis("y")).charts
    svg = vl_convert.vegalite_to_svg({**chart.spec, "width": 300})
    path = next(d for d in re.findall(r'd="(M[^"]+)"', svg) if d.count("L") == 11)
    xs = [float(x) for x in re.findall(r"[ML]([\d.]+),", path)]
    assert xs == sorted(xs)


def test_neighbouring_lines_differ_in_more_than_colour():
    legend = legend_keys([str(k) for k in range(7)], DASHES)
    assert all(a.colour != b.colour and a.letter != b.letter for a, b in pairwise(legend))

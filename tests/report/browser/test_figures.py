"""The menu that saves a chart, in a real browser."""

import struct
from pathlib import Path

import pytest
from tests.support.pages import until

from farther.report.charts.figures import charts_of, numbers

DRAWN = "document.querySelector('.chart svg')"


@pytest.fixture
def saved(tab, complaints):
    """Opens a page in dark, and saves its first chart by each entry of the menu: name → content."""

    def of(page):
        tab.emulate_media(color_scheme="dark")
        tab.goto(page.as_uri())
        until(tab, DRAWN)
        content_by_name = {}
        for number in range(5):
            button = f"document.querySelector('.save').querySelectorAll('button')[{number}]"
            with tab.expect_download() as download:
                tab.evaluate(f"{button}.click()")
            name = download.value.suggested_filename
            content_by_name[name] = Path(download.value.path()).read_bytes()
        assert complaints() == []
        return content_by_name

    return of


def test_a_chart_is_saved_at_column_width_in_black_on_white_with_its_legend_and_its_numbers(
    saved, report_of_two
):
    page = report_of_two / "compare.html"
    files = saved(page)
    name, spec = next(charts_of(page.read_text()))
    assert "run" not in spec["usermeta"]
    assert sorted(files) == sorted(
        [
            f"{name}.csv",
            *(f"{name}-{inches}in.{kind}" for inches in (3.3, 6.9) for kind in ("svg", "png")),
        ]
    )
    svg = files[f"{name}-3.3in.svg"].decode()
    assert 'width="3.3' in svg and 'fill="white"' in svg and "#e6ebf0" not in svg
    assert struct.unpack(">I", files[f"{name}-6.9in.png"][16:20])[0] == pytest.approx(
        300 * 6.9, abs=3
    )
    assert files[f"{name}.csv"].decode().splitlines()[0] == numbers(spec).splitlines()[0]
    assert len(files[f"{name}.csv"].splitlines()) == len(numbers(spec).splitlines())

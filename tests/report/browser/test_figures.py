"""The menu that saves a chart, in a real browser."""

import struct

import pytest

from farther.report.charts.figures import charts_of, numbers

DRAWN = "document.querySelector('.chart svg')"


def finished(events: list) -> set[str]:
    """The downloads that are complete."""
    progress = [
        event["params"] for event in events if event.get("method") == "Browser.downloadProgress"
    ]
    return {one["guid"] for one in progress if one["state"] == "completed"}


@pytest.fixture
def saved(browser, tmp_path):
    """Opens a page in dark, and saves its first chart by each entry of the menu: name → content."""

    def of(page):
        browser.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark"}],
        )
        behaviour = {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": True}
        browser.call("Browser.setDownloadBehavior", browserContextId=browser.context, **behaviour)
        browser.open(page.as_uri())
        browser.until(DRAWN)
        for number in range(5):
            browser.read(
                f"document.querySelectorAll('.save')[0].querySelectorAll('button')[{number}].click()"
            )
            while len(finished(browser.events)) <= number:
                browser.read("1")
        assert browser.complaints() == []
        return {file.name: file.read_bytes() for file in tmp_path.iterdir()}

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

"""Each page has no serious violation of accessibility that axe-core finds, light and dark, wide and narrow."""

import json
from importlib.resources import files

import pytest

AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")

#: The violations that bar some people from a page.
VIOLATIONS = """axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)} ${one.nodes[0].failureSummary}`))"""

DRAWN = "[...document.querySelectorAll('.chart')].every((one) => one.offsetParent === null || one.querySelector('svg'))"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_no_page_has_a_serious_violation_a_warning_or_something_too_wide(
    browser, report, width, scheme
):
    browser.resize(width, 900)
    browser.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    wrong = {}
    for page in sorted(report.rglob("*.html")):
        browser.open(page.as_uri())
        browser.read(
            "document.querySelectorAll('details.fold').forEach((one) => { one.open = true; })"
        )
        browser.until(DRAWN)
        browser.read(f"{AXE};0")
        found = [*browser.read(VIOLATIONS), *browser.complaints()]
        if (wide := browser.read("document.documentElement.scrollWidth")) != width:
            found.append(f"{wide} pixels wide")
        browser.events.clear()
        if found:
            wrong[page.relative_to(report).as_posix()] = found
    assert not wrong, json.dumps(wrong, indent=1)


def test_on_a_phone_no_navigation_takes_more_than_one_line_and_shows_the_page_s_entry(
    browser, report
):
    browser.resize(390, 900)
    wrong = []
    for page in [*sorted(report.glob("*.html")), report / "detectors/pets-net.html"]:
        browser.open(page.as_uri())
        tops = "[...nav.querySelectorAll('li')].map((one) => Math.round(one.getBoundingClientRect().top))"
        lines = browser.read(
            f"[...document.querySelectorAll('nav')].map((nav) => new Set({tops}).size)"
        )
        shown = browser.read(
            "[...document.querySelectorAll('nav a[aria-current]')].map((one) => one.getBoundingClientRect())"
            ".every(({ left, right }) => left >= 0 && right <= 390)"
        )
        if set(lines) != {1} or not shown:
            wrong.append((page.name, lines, shown))
    assert wrong == []


def test_a_chart_is_a_picture_with_a_text_beside_its_menu(browser, report):
    browser.open((report / "across.html").as_uri())
    browser.until(DRAWN)
    charts = "[...document.querySelectorAll('.chart')]"
    assert browser.read(f"{charts}.length") > 0
    assert browser.read(
        f"{charts}.every((one) => one.querySelector('svg[role=img]').getAttribute('aria-label').length > 9)"
    )
    assert browser.read(
        f"{charts}.every((one) => one.querySelector('summary').ariaLabel === 'Save this chart')"
    )


def test_charts_take_the_colours_of_a_page_that_turns_dark(browser, report):
    def ink() -> str:
        browser.until(DRAWN)
        return browser.read("document.querySelector('.chart svg text').getAttribute('fill')")

    browser.open((report / "index.html").as_uri())
    light = ink()
    browser.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    browser.until(
        f"document.querySelector('.chart svg text')?.getAttribute('fill') !== {json.dumps(light)}"
    )
    assert browser.complaints() == []

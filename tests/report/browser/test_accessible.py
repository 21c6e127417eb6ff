"""Accessibility of each page: axe-core finds no serious violation.

Light and dark, wide and narrow.
"""

import json
from importlib.resources import files
from pathlib import Path

import pytest
from tests.support.cases import drawn_cases
from tests.support.pages import until

pytestmark = pytest.mark.slow

AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")

#: The violations that bar some people from a page, and landmarks of one name.
VIOLATIONS = """axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations
  .filter((one) => ["serious", "critical"].includes(one.impact) || one.id === "landmark-unique")
  .map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)} ${one.nodes[0].failureSummary}`))"""

DRAWN = (
    "[...document.querySelectorAll('.chart')]"
    ".every((one) => one.offsetParent === null || one.querySelector('svg'))"
)

#: The lines that the entries of each navigation take.
NAVIGATION_LINES = """[...document.querySelectorAll('nav')].map((nav) => {
  const entries = [...nav.querySelectorAll('li')];
  return new Set(entries.map((one) => Math.round(one.getBoundingClientRect().top))).size;
})"""

#: Whether a screen of 390 pixels shows the entries of the page.
CURRENT_ENTRIES_SHOWN = """[...document.querySelectorAll('nav a[aria-current]')]
  .map((one) => one.getBoundingClientRect())
  .every(({ left, right }) => left >= 0 && right <= 390)"""

#: Whether each chart has a text of several words.
CHARTS_DESCRIBED = """[...document.querySelectorAll('.chart')].every(
  (one) => one.querySelector('svg[role=img]').getAttribute('aria-label').length > 9)"""


def drawn_pages(report: Path, *, is_narrow: bool) -> list[Path]:
    """Half of the pages, drawn, and the other half for narrow windows; all with EXHAUSTIVE=1."""
    pages = sorted(report.rglob("*.html"))
    drawn = drawn_cases(pages, len(pages) // 2)
    if is_narrow and len(drawn) < len(pages):
        return [page for page in pages if page not in drawn]
    return drawn


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_no_page_has_a_serious_violation_a_warning_or_something_too_wide(
    tab, report_of_two, width, scheme, complaints
):
    complaints.expect("times.js")  # not on a machine that has timed nothing
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=scheme)
    wrong = {}
    for page in drawn_pages(report_of_two, is_narrow=width < 600):
        tab.goto(page.as_uri())
        tab.evaluate(
            "document.querySelectorAll('details.fold').forEach((one) => { one.open = true; })"
        )
        until(tab, DRAWN)
        tab.evaluate(f"{AXE};0")
        problems = [*tab.evaluate(VIOLATIONS), *complaints()]
        page_width = tab.evaluate("document.documentElement.scrollWidth")
        if page_width != width:
            problems.append(f"{page_width} pixels wide")
        complaints.clear()
        if problems:
            wrong[page.relative_to(report_of_two).as_posix()] = problems
    assert not wrong, json.dumps(wrong, indent=1)


def test_on_a_phone_no_navigation_takes_more_than_one_line_and_shows_the_page_s_entry(
    tab, report_of_two
):
    tab.set_viewport_size({"width": 390, "height": 900})
    wrong = []
    for page in sorted(report_of_two.rglob("*.html")):
        tab.goto(page.as_uri())
        lines = tab.evaluate(NAVIGATION_LINES)
        is_shown = tab.evaluate(CURRENT_ENTRIES_SHOWN)
        if set(lines) != {1} or not is_shown:
            wrong.append((page.name, lines, is_shown))
    assert wrong == []


def test_a_chart_is_a_picture_with_a_text_beside_its_menu(tab, report):
    tab.goto((report / "methods.html").as_uri())
    until(tab, DRAWN)
    charts = "[...document.querySelectorAll('.chart')]"
    assert tab.evaluate(f"{charts}.length") > 0
    assert tab.evaluate(CHARTS_DESCRIBED)
    assert tab.evaluate(
        f"{charts}.every((one) => one.querySelector('summary').ariaLabel === 'Save this chart')"
    )


def test_charts_take_the_colours_of_a_page_that_turns_dark(tab, report, complaints):
    def ink() -> str:
        until(tab, DRAWN)
        return tab.evaluate("document.querySelector('.chart svg text').getAttribute('fill')")

    tab.goto((report / "index.html").as_uri())
    light = ink()
    tab.emulate_media(color_scheme="dark")
    until(
        tab,
        f"document.querySelector('.chart svg text')?.getAttribute('fill') !== {json.dumps(light)}",
    )
    assert complaints() == []

"""Tables in a real browser: they are sorted, filtered and saved."""

import json
from pathlib import Path

import pytest
from tests.support.pages import until

#: All figures that are not folded away are drawn.
DRAWN = (
    "[...document.querySelectorAll('.chart')]"
    ".every((one) => one.offsetParent === null || one.querySelector('svg'))"
)

SHEET = "document.querySelector('[data-name=\"pets-open_set\"]')"


def cells(column: int) -> str:
    """The texts of a column, of the rows that are shown."""
    rows = f"[...{SHEET}.querySelectorAll('tbody tr')].filter((row) => !row.hidden)"
    return f"{rows}.map((row) => row.cells[{column}].textContent.replace('†', '').trim())"


def head(column: int) -> str:
    return f"[...{SHEET}.querySelectorAll('thead th:not(.group)')][{column}]"


@pytest.fixture
def comparison(tab, report_of_two: Path, complaints):
    tab.goto((report_of_two / "compare.html").as_uri())
    until(tab, DRAWN)
    yield tab
    assert complaints() == []


def test_the_first_press_puts_the_best_on_top_the_second_turns_it_round_the_third_undoes(
    comparison,
):
    comparison.evaluate(
        f"{head(3)}.querySelector('button').focus()"
    )  # AP_U of photos near: higher is better
    start = comparison.evaluate(cells(3))
    comparison.keyboard.press("Enter")
    assert comparison.evaluate(f"{head(3)}.getAttribute('aria-sort')") == "descending"
    down = comparison.evaluate(cells(3))
    assert [float(x) for x in down] == sorted((float(x) for x in start), reverse=True)
    comparison.keyboard.press("Enter")
    assert comparison.evaluate(cells(3)) == sorted(start, key=float)
    assert comparison.evaluate(f"{head(3)}.getAttribute('aria-sort')") == "ascending"
    comparison.keyboard.press("Enter")
    assert comparison.evaluate(cells(3)) == start
    assert comparison.evaluate(f"{head(3)}.getAttribute('aria-sort')") == "none"


def test_where_lower_is_better_the_lowest_comes_first(comparison):
    comparison.evaluate(f"{head(2)}.querySelector('button').click()")  # nOSE of photos near
    assert comparison.evaluate(cells(2)) == sorted(comparison.evaluate(cells(2)), key=float)
    comparison.evaluate(f"{head(1)}.querySelector('button').click()")
    methods = ["Energy", "kNN", "MSP"]
    assert comparison.evaluate(cells(1)) == sorted([*methods, *methods], key=str.lower)
    assert comparison.evaluate(f"{head(2)}.getAttribute('aria-sort')") == "none"


def test_rows_are_filtered_by_a_choice_and_by_words(comparison):
    choose(comparison, "label-1", "kNN")
    assert comparison.evaluate(cells(1)) == ["kNN", "kNN"]
    assert comparison.evaluate(control("count") + ".textContent") == "2 of 6 rows"
    choose(comparison, "label-1", "")
    comparison.evaluate(f"{control('search')}.focus()")
    comparison.keyboard.type("net en")
    assert comparison.evaluate(cells(1)) == ["Energy"]


def test_columns_are_filtered_by_split_and_metric_and_the_heading_spans_what_is_left(comparison):
    choose(comparison, "split", "photos far")
    choose(comparison, "metric", "R_U")
    shown = f"[...{SHEET}.querySelectorAll('thead th')].filter((one) => !one.hidden)"
    assert comparison.evaluate(
        f"{shown}.map((one) => one.textContent.trim().replace(/\\s+/g, ' '))"
    ) == [
        "Detector",
        "Method",
        "photos far2 objects, 2 images",
        "RU ↑",
    ]
    assert (
        comparison.evaluate(
            f"{SHEET}.querySelector('tbody tr').querySelectorAll('td:not([hidden])').length"
        )
        == 1
    )
    assert comparison.evaluate(f"{shown}.map((one) => one.colSpan)") == [1, 1, 1, 1]


def test_intervals_are_shown_when_they_are_asked_for(comparison):
    cell = f"{SHEET}.querySelector('td[data-i]')"
    content = f"getComputedStyle({cell}, '::after').content"
    assert comparison.evaluate(content) == "none"
    comparison.evaluate(f"{control('intervals')}.click()")
    assert comparison.evaluate(content) == '"[0.0, 75.0]"'


def test_the_table_is_saved_as_it_is_shown(comparison):
    choose(comparison, "label-0", "net (pets)")
    choose(comparison, "label-1", "MSP")
    choose(comparison, "split", "photos near")
    comparison.evaluate(f"{control('intervals')}.click()")
    texts = {ending: saved(comparison, ending) for ending in ("csv", "md", "tex")}
    heads, msp = (line.split(",") for line in texts["csv"].splitlines())
    assert heads[:5] == [
        "Detector",
        "Method",
        "photos near nOSE",
        "photos near nOSE low",
        "photos near nOSE high",
    ]
    assert msp[:3] == ["pets-net", "MSP", "25.0"]
    assert len(heads) == len(msp) == 2 + 5 * 3
    assert float(msp[3]) <= 25 <= float(msp[4])
    lines = [line for line in texts["md"].splitlines() if line.startswith("|")]
    assert [line.count("|") for line in lines] == [8, 8, 8]
    assert r"25.0† \[0.0, 75.0\]" in lines[2]
    assert r"\begin{tabular}{llrrrrr}" in texts["tex"]
    assert r" &  & \multicolumn{5}{c}{photos near} \\" in texts["tex"]
    assert r"\cmidrule(lr){3-7}" in texts["tex"]
    assert r"Detector & Method & nOSE$\downarrow$ & $AP_U$$\uparrow$" in texts["tex"]
    assert r"\underline{25.0$^\dagger$ [0.0, 75.0]}" in texts["tex"]
    assert r"\multicolumn{5}{c}{\footnotesize 4 objects, 4 images}" in texts["tex"]
    assert r"\begin{adjustbox}{max width=\textwidth}" in texts["tex"]
    assert r"$^\dagger$: not significantly different from the best" in texts["tex"]
    assert texts["tex"].count("{") == texts["tex"].count("}")


@pytest.mark.parametrize("width", [390, 1280])
def test_what_names_a_row_stays_in_view_when_values_are_scrolled(comparison, width):
    """The first column, and the method, lie on an opaque ground at the left of the table."""
    comparison.set_viewport_size({"width": width, "height": 900})
    comparison.emulate_media(color_scheme="dark")
    # As wide as tables of many splits are.
    comparison.evaluate(
        "document.querySelectorAll('.scroll').forEach((one) => { one.style.width = '300px'; })"
    )
    found = comparison.evaluate("""[...document.querySelectorAll(".scroll")].flatMap((frame) => {
      frame.scrollLeft = 10000;
      if (frame.scrollLeft === 0) return [];
      const left = frame.getBoundingClientRect().left;
      return [...frame.querySelectorAll("tbody tr")].map((row) => {
        const names = [...row.cells].filter((one, place) => place === 0 || one.tagName === "TH");
        const [first, last] = [names[0], names.at(-1)].map((one) => one.getBoundingClientRect());
        const opaque = names.every((one) => /^rgb\\(/.test(getComputedStyle(one).backgroundColor));
        return Math.abs(first.left - left) < 3 && last.left - left < 300 && opaque;
      });
    })""")
    assert len(found) > 5
    assert all(found)


def test_the_policy_of_the_page_lets_no_text_become_code(comparison, complaints):
    complaints.expect("Content Security Policy")
    image = "<img src='data:,' onload='window.ran = 1' onerror='window.ran = 1'>"
    comparison.evaluate(f"document.body.insertAdjacentHTML('beforeend', {json.dumps(image)})")
    until(comparison, "[...document.images].every((one) => one.complete)")
    assert comparison.evaluate("window.ran") is None
    assert complaints() == []
    assert any("Content Security Policy" in text for text in complaints.expected_texts)


def control(name: str) -> str:
    return f"{SHEET}.querySelector('[data-control=\"{name}\"]')"


def choose(comparison, name: str, value: str) -> None:
    event = "new Event('input', { bubbles: true })"
    comparison.evaluate(
        f"{control(name)}.value = {json.dumps(value)}; {control(name)}.dispatchEvent({event})"
    )


def saved(comparison, ending: str) -> str:
    with comparison.expect_download() as download:
        comparison.evaluate(f"{SHEET}.querySelector('[data-save={ending}]').click()")
    assert download.value.suggested_filename == f"pets-open_set.{ending}"
    return Path(download.value.path()).read_text(encoding="utf-8")

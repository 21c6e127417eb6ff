"""Tables in a real browser: they are sorted, filtered and saved."""

import json
from pathlib import Path

import pytest

#: All figures that are not folded away are drawn.
DRAWN = "[...document.querySelectorAll('.chart')].every((one) => one.offsetParent === null || one.querySelector('svg'))"

SHEET = "document.querySelector('[data-name=\"pets-open_set\"]')"


def cells(column: int) -> str:
    """The texts of a column, of the rows that are shown."""
    rows = f"[...{SHEET}.querySelectorAll('tbody tr')].filter((row) => !row.hidden)"
    return f"{rows}.map((row) => row.cells[{column}].textContent.replace('†', '').trim())"


def head(column: int) -> str:
    return f"[...{SHEET}.querySelectorAll('thead th:not(.group)')][{column}]"


@pytest.fixture
def index(browser, report: Path):
    browser.open((report / "index.html").as_uri())
    browser.until(DRAWN)
    yield browser
    assert browser.complaints() == []


def test_the_first_press_puts_the_best_on_top_the_second_turns_it_round_the_third_undoes(index):
    index.read(f"{head(3)}.querySelector('button').focus()")  # AP_U of photos near: higher is better
    start = index.read(cells(3))
    index.press("Enter")
    assert index.read(f"{head(3)}.getAttribute('aria-sort')") == "descending"
    down = index.read(cells(3))
    assert [float(x) for x in down] == sorted((float(x) for x in start), reverse=True)
    index.press("Enter")
    assert index.read(cells(3)) == sorted(start, key=float)
    assert index.read(f"{head(3)}.getAttribute('aria-sort')") == "ascending"
    index.press("Enter")
    assert index.read(cells(3)) == start
    assert index.read(f"{head(3)}.getAttribute('aria-sort')") == "none"


def test_where_lower_is_better_the_lowest_comes_first(index):
    index.read(f"{head(2)}.querySelector('button').click()")  # nOSE of photos near
    assert index.read(cells(2)) == sorted(index.read(cells(2)), key=float)
    index.read(f"{head(1)}.querySelector('button').click()")
    assert index.read(cells(1)) == ["Energy", "kNN", "MSP"]
    assert index.read(f"{head(2)}.getAttribute('aria-sort')") == "none"


def test_rows_are_filtered_by_a_choice_and_by_words(index):
    choose(index, "label-1", "kNN")
    assert index.read(cells(1)) == ["kNN"]
    assert index.read(control("count") + ".textContent") == "1 of 3 rows"
    choose(index, "label-1", "")
    index.read(f"{control('search')}.focus()")
    index.type("net en")
    assert index.read(cells(1)) == ["Energy"]


def test_columns_are_filtered_by_split_and_metric_and_the_heading_spans_what_is_left(index):
    choose(index, "split", "photos far")
    choose(index, "metric", "R_U")
    shown = f"[...{SHEET}.querySelectorAll('thead th')].filter((one) => !one.hidden)"
    assert index.read(f"{shown}.map((one) => one.textContent.trim().replace(/\\s+/g, ' '))") == [
        "Detector",
        "Method",
        "photos far2 objects, 2 images",
        "RU ↑",
    ]
    assert index.read(f"{SHEET}.querySelector('tbody tr').querySelectorAll('td:not([hidden])').length") == 1
    assert index.read(f"{shown}.map((one) => one.colSpan)") == [1, 1, 1, 1]


def test_intervals_are_shown_when_they_are_asked_for(index):
    cell = f"{SHEET}.querySelector('td[data-i]')"
    content = f"getComputedStyle({cell}, '::after').content"
    assert index.read(content) == "none"
    index.read(f"{control('intervals')}.click()")
    assert " to " in index.read(content)


def test_the_table_is_saved_as_it_is_shown(index, tmp_path):
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": True}
    index.call("Browser.setDownloadBehavior", browserContextId=index.context, **behaviour)
    choose(index, "label-1", "MSP")
    choose(index, "split", "photos near")
    index.read(f"{control('intervals')}.click()")
    texts = {ending: saved(index, tmp_path, ending) for ending in ("csv", "md", "tex")}
    heads, msp = (line.split(",") for line in texts["csv"].splitlines())
    assert heads[:5] == ["Detector", "Method", "photos near nOSE", "photos near nOSE low", "photos near nOSE high"]
    assert msp[:3] == ["pets-net", "MSP", "25.0"]
    assert len(heads) == len(msp) == 2 + 5 * 3
    assert float(msp[3]) <= 25 <= float(msp[4])
    lines = [line for line in texts["md"].splitlines() if line.startswith("|")]
    assert [line.count("|") for line in lines] == [8, 8, 8]
    assert "25.0† (0.0 to 50.0)" in lines[2]
    assert r"\begin{tabular}{llrrrrr}" in texts["tex"]
    assert r" &  & \multicolumn{5}{c}{photos near} \\" in texts["tex"]
    assert r"\cmidrule(lr){3-7}" in texts["tex"]
    assert r"Detector & Method & nOSE$\downarrow$ & $AP_U$$\uparrow$" in texts["tex"]
    assert r"\underline{25.0$^\dagger$ (0.0 to 50.0)}" in texts["tex"]
    assert r"\multicolumn{5}{c}{\footnotesize 4 objects, 4 images}" in texts["tex"]
    assert r"\begin{adjustbox}{max width=\textwidth}" in texts["tex"]
    assert r"$^\dagger$: not significantly different from the best" in texts["tex"]
    assert texts["tex"].count("{") == texts["tex"].count("}")


def test_the_policy_of_the_page_lets_no_text_become_code(index):
    index.expected += ["Content Security Policy"]
    image = "<img src='data:,' onload='window.ran = 1' onerror='window.ran = 1'>"
    index.read(f"document.body.insertAdjacentHTML('beforeend', {json.dumps(image)})")
    index.until("[...document.images].every((one) => one.complete)")
    assert index.read("window.ran") is None
    assert "Content Security Policy" in json.dumps(index.events)


def control(name: str) -> str:
    return f"{SHEET}.querySelector('[data-control=\"{name}\"]')"


def choose(index, name: str, value: str) -> None:
    event = "new Event('input', { bubbles: true })"
    index.read(f"{control(name)}.value = {json.dumps(value)}; {control(name)}.dispatchEvent({event})")


def saved(index, folder: Path, ending: str) -> str:
    file = folder / f"pets-open_set.{ending}"
    index.read(f"{SHEET}.querySelector('[data-save={ending}]').click()")
    finished = '"state": "completed"'
    while not any(e.get("method") == "Browser.downloadProgress" and finished in json.dumps(e) for e in index.events):
        index.read("1")
    index.events[:] = [e for e in index.events if e.get("method") != "Browser.downloadProgress"]
    return file.read_text(encoding="utf-8")

"""Tables in a real browser: they are sorted, filtered and saved."""

import json
from pathlib import Path

import pytest

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
def detectors(browser, report: Path):
    browser.open((report / "detectors.html").as_uri())
    browser.until(DRAWN)
    yield browser
    assert browser.complaints() == []


def test_the_first_press_puts_the_best_on_top_the_second_turns_it_round_the_third_undoes(detectors):
    detectors.read(
        f"{head(3)}.querySelector('button').focus()"
    )  # AP_U of photos near: higher is better
    start = detectors.read(cells(3))
    detectors.press("Enter")
    assert detectors.read(f"{head(3)}.getAttribute('aria-sort')") == "descending"
    down = detectors.read(cells(3))
    assert [float(x) for x in down] == sorted((float(x) for x in start), reverse=True)
    detectors.press("Enter")
    assert detectors.read(cells(3)) == sorted(start, key=float)
    assert detectors.read(f"{head(3)}.getAttribute('aria-sort')") == "ascending"
    detectors.press("Enter")
    assert detectors.read(cells(3)) == start
    assert detectors.read(f"{head(3)}.getAttribute('aria-sort')") == "none"


def test_where_lower_is_better_the_lowest_comes_first(detectors):
    detectors.read(f"{head(2)}.querySelector('button').click()")  # nOSE of photos near
    assert detectors.read(cells(2)) == sorted(detectors.read(cells(2)), key=float)
    detectors.read(f"{head(1)}.querySelector('button').click()")
    assert detectors.read(cells(1)) == ["Energy", "kNN", "MSP"]
    assert detectors.read(f"{head(2)}.getAttribute('aria-sort')") == "none"


def test_rows_are_filtered_by_a_choice_and_by_words(detectors):
    choose(detectors, "label-1", "kNN")
    assert detectors.read(cells(1)) == ["kNN"]
    assert detectors.read(control("count") + ".textContent") == "1 of 3 rows"
    choose(detectors, "label-1", "")
    detectors.read(f"{control('search')}.focus()")
    detectors.type("net en")
    assert detectors.read(cells(1)) == ["Energy"]


def test_columns_are_filtered_by_split_and_metric_and_the_heading_spans_what_is_left(detectors):
    choose(detectors, "split", "photos far")
    choose(detectors, "metric", "R_U")
    shown = f"[...{SHEET}.querySelectorAll('thead th')].filter((one) => !one.hidden)"
    assert detectors.read(
        f"{shown}.map((one) => one.textContent.trim().replace(/\\s+/g, ' '))"
    ) == [
        "Detector",
        "Method",
        "photos far2 objects, 2 images",
        "RU ↑",
    ]
    assert (
        detectors.read(
            f"{SHEET}.querySelector('tbody tr').querySelectorAll('td:not([hidden])').length"
        )
        == 1
    )
    assert detectors.read(f"{shown}.map((one) => one.colSpan)") == [1, 1, 1, 1]


def test_intervals_are_shown_when_they_are_asked_for(detectors):
    cell = f"{SHEET}.querySelector('td[data-i]')"
    content = f"getComputedStyle({cell}, '::after').content"
    assert detectors.read(content) == "none"
    detectors.read(f"{control('intervals')}.click()")
    assert detectors.read(content) == '"[0.0, 75.0]"'


def test_the_table_is_saved_as_it_is_shown(detectors, tmp_path):
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": True}
    detectors.call("Browser.setDownloadBehavior", browserContextId=detectors.context, **behaviour)
    choose(detectors, "label-1", "MSP")
    choose(detectors, "split", "photos near")
    detectors.read(f"{control('intervals')}.click()")
    texts = {ending: saved(detectors, tmp_path, ending) for ending in ("csv", "md", "tex")}
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
def test_what_names_a_row_stays_in_view_when_values_are_scrolled(detectors, width):
    """The first column, and the method, lie on an opaque ground at the left of the table."""
    detectors.resize(width, 900)
    detectors.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    # As wide as tables of many splits are.
    detectors.read(
        "document.querySelectorAll('.scroll').forEach((one) => { one.style.width = '300px'; })"
    )
    found = detectors.read("""[...document.querySelectorAll(".scroll")].flatMap((frame) => {
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


def test_the_policy_of_the_page_lets_no_text_become_code(detectors):
    detectors.expected += ["Content Security Policy"]
    image = "<img src='data:,' onload='window.ran = 1' onerror='window.ran = 1'>"
    detectors.read(f"document.body.insertAdjacentHTML('beforeend', {json.dumps(image)})")
    detectors.until("[...document.images].every((one) => one.complete)")
    assert detectors.read("window.ran") is None
    assert "Content Security Policy" in json.dumps(detectors.events)


def control(name: str) -> str:
    return f"{SHEET}.querySelector('[data-control=\"{name}\"]')"


def choose(detectors, name: str, value: str) -> None:
    event = "new Event('input', { bubbles: true })"
    detectors.read(
        f"{control(name)}.value = {json.dumps(value)}; {control(name)}.dispatchEvent({event})"
    )


def is_progress(event: dict) -> bool:
    """True for events of downloads."""
    return event.get("method") == "Browser.downloadProgress"


def saved(detectors, folder: Path, ending: str) -> str:
    file = folder / f"pets-open_set.{ending}"
    detectors.read(f"{SHEET}.querySelector('[data-save={ending}]').click()")
    finished = '"state": "completed"'
    while not any(is_progress(e) and finished in json.dumps(e) for e in detectors.events):
        detectors.read("1")
    detectors.events[:] = [e for e in detectors.events if not is_progress(e)]
    return file.read_text(encoding="utf-8")

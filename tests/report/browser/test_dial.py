"""The dial of the page Deploy in a real browser."""

from collections import Counter
from urllib.parse import parse_qs

import pytest

from farther.evaluation.deploy.results import DeployChoices
from farther.evaluation.files import RunFiles
from farther.tables import ObjectOutcomes


def open_dial(browser, report, address=""):
    browser.open("about:blank")
    browser.open(f"{(report / 'deploy.html').as_uri()}{address}")
    browser.until("document.getElementById('dial-values').rows.length > 0")


def text(browser, place: str) -> str:
    return browser.read(f"document.getElementById('dial-{place}').textContent")


def values(browser) -> dict[str, list[str]]:
    """The cells of the table of values, by the first of each row."""
    rows = browser.read(
        "[...document.querySelectorAll('#dial-values tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return {name: cells for name, *cells in rows}


def address(browser) -> dict[str, str]:
    """The setting that the address holds."""
    fragment = browser.read("location.hash.slice(1)")
    return {name: one for name, (one,) in parse_qs(fragment).items()}


def slide(browser, place: str, key: str) -> None:
    """Presses a key on a slider."""
    browser.read(f"document.getElementById('dial-{place}').focus()")
    browser.press(key)


@pytest.fixture
def files(built) -> RunFiles:
    return RunFiles("pets-net", "pets", built / "artifacts")


def test_at_first_the_values_are_those_that_were_chosen_for_the_budget(browser, report, files):
    open_dial(browser, report)
    choice = DeployChoices.read(files.choice).choice
    assert address(browser) == {"run": "pets-net", "limit": "0.5"}
    row = values(browser)["unknown objects found"]
    measured = choice.measured["found"]
    assert row[1] == f"{measured.count} of {measured.of}"
    low, high = measured.interval
    assert row[0] == f"{100 * measured.value:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
    assert text(browser, "command") == (
        "farther bundle pets-net deployed --max-misclassified=0.1 --max-false-alarms=0.5"
    )
    assert browser.complaints() == []


@pytest.mark.parametrize("method", ["msp", "energy", "knn"])
def test_at_the_thresholds_of_the_pipeline_the_counts_are_those_of_evaluate(
    browser, report, files, method
):
    open_dial(browser, report, f"#run=pets-net&method={method}")
    counts: Counter[str] = Counter()
    for split in ("photos_near", "photos_far"):
        counts.update(ObjectOutcomes.read(files.object_outcomes(method, split)).frame["outcome"])
    objects = counts["found"] + counts["misclassified"] + counts["missed"]
    shown = values(browser)
    for outcome in ("found", "misclassified", "missed"):
        assert shown[f"unknown objects {outcome}"][1] == f"{counts[outcome]} of {objects}"
    assert text(browser, "command") == f"farther bundle pets-net {method} deployed"
    assert browser.complaints() == []


def test_keys_move_the_limit_and_what_depends_on_it(browser, report):
    open_dial(browser, report)
    for _ in range(7):
        slide(browser, "limit", "ArrowLeft")
    assert address(browser)["limit"] == "0.01"
    assert text(browser, "limit-text") == "1%"
    assert text(browser, "verdict").startswith("Too few images. ")
    assert text(browser, "command").endswith("--max-false-alarms=0.01")


def test_an_address_opens_the_setting_that_it_was_taken_from(browser, report):
    open_dial(browser, report)
    slide(browser, "tau", "ArrowRight")
    slide(browser, "operating", "ArrowRight")
    browser.read(
        "const show = document.getElementById('dial-show'); show.value = 'misclassified';"
        "show.dispatchEvent(new Event('change'))"
    )
    setting = address(browser)
    assert setting.keys() == {"run", "method", "t", "tau", "images"}
    places = ("verdict", "setting", "bars", "values", "command", "count", "images")
    shown = [text(browser, place) for place in places]
    assert f"--threshold={setting['t']} --tau={setting['tau']}" in text(browser, "command")

    open_dial(browser, report, browser.read("location.hash"))
    assert address(browser) == setting
    assert [text(browser, place) for place in places] == shown
    assert browser.complaints() == []


def test_tau_follows_t_until_it_is_set(browser, report):
    open_dial(browser, report, "#run=pets-net&method=msp")
    before = text(browser, "tau-text")
    for _ in range(9):
        slide(browser, "operating", "ArrowRight")
    assert "tau" not in address(browser)
    assert text(browser, "tau-text") != before
    slide(browser, "tau", "ArrowLeft")
    assert "tau" in address(browser)
    assert browser.read("document.getElementById('dial-follow').checked") is False

"""The dial of the page Deploy in a real browser."""

from collections import Counter
from urllib.parse import parse_qs

import pytest
from tests.support.pages import until

from farther.evaluation.deploy.results import DeployChoices
from farther.evaluation.files import RunFiles
from farther.tables import ObjectOutcomes


def open_dial(tab, report, address=""):
    tab.goto("about:blank")
    tab.goto(f"{(report / 'deploy.html').as_uri()}{address}")
    until(tab, "document.getElementById('dial-values').rows.length > 0")


def text(tab, place: str) -> str:
    return tab.evaluate(f"document.getElementById('dial-{place}').textContent")


def values(tab) -> dict[str, list[str]]:
    """The cells of the table of values, by the first of each row."""
    rows = tab.evaluate(
        "[...document.querySelectorAll('#dial-values tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return {name: cells for name, *cells in rows}


def address(tab) -> dict[str, str]:
    """The setting that the address holds."""
    fragment = tab.evaluate("location.hash.slice(1)")
    return {name: one for name, (one,) in parse_qs(fragment).items()}


def slide(tab, place: str, key: str) -> None:
    """Presses a key on a slider."""
    tab.evaluate(f"document.getElementById('dial-{place}').focus()")
    tab.keyboard.press(key)


@pytest.fixture
def files(built) -> RunFiles:
    return RunFiles("pets-net", "pets", built / "artifacts")


def test_at_first_the_values_are_those_that_were_chosen_for_the_budget(
    tab, report, files, complaints
):
    open_dial(tab, report)
    choice = DeployChoices.read(files.choice).choice
    assert address(tab) == {"run": "pets-net", "limit": "0.5"}
    row = values(tab)["unknown objects found"]
    measured = choice.measured["found"]
    assert row[1] == f"{measured.count} of {measured.of}"
    low, high = measured.interval
    assert row[0] == f"{100 * measured.value:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
    assert text(tab, "command") == (
        "farther bundle pets-net deployed --max-misclassified=0.1 --max-false-alarms=0.5"
    )
    assert complaints() == []


@pytest.mark.parametrize("method", ["msp", "energy", "knn"])
def test_at_the_thresholds_of_the_pipeline_the_counts_are_those_of_evaluate(
    tab, report, files, method, complaints
):
    open_dial(tab, report, f"#run=pets-net&method={method}")
    counts: Counter[str] = Counter()
    for split in ("photos_near", "photos_far"):
        counts.update(ObjectOutcomes.read(files.object_outcomes(method, split)).frame["outcome"])
    objects = counts["found"] + counts["misclassified"] + counts["missed"]
    shown = values(tab)
    for outcome in ("found", "misclassified", "missed"):
        assert shown[f"unknown objects {outcome}"][1] == f"{counts[outcome]} of {objects}"
    assert text(tab, "command") == f"farther bundle pets-net {method} deployed"
    assert complaints() == []


def test_keys_move_the_limit_and_what_depends_on_it(tab, report):
    open_dial(tab, report)
    for _ in range(7):
        slide(tab, "limit", "ArrowLeft")
    assert address(tab)["limit"] == "0.01"
    assert text(tab, "limit-text") == "1%"
    assert text(tab, "verdict").startswith("Too few images. ")
    assert text(tab, "command").endswith("--max-false-alarms=0.01")


def test_an_address_opens_the_setting_that_it_was_taken_from(tab, report, complaints):
    open_dial(tab, report)
    slide(tab, "tau", "ArrowRight")
    slide(tab, "operating", "ArrowRight")
    tab.evaluate(
        "const show = document.getElementById('dial-show'); show.value = 'misclassified';"
        "show.dispatchEvent(new Event('change'))"
    )
    setting = address(tab)
    assert setting.keys() == {"run", "method", "t", "tau", "images"}
    places = ("verdict", "setting", "bars", "values", "command", "count", "images")
    shown = [text(tab, place) for place in places]
    assert f"--threshold={setting['t']} --tau={setting['tau']}" in text(tab, "command")

    open_dial(tab, report, tab.evaluate("location.hash"))
    assert address(tab) == setting
    assert [text(tab, place) for place in places] == shown
    assert complaints() == []


def test_tau_follows_t_until_it_is_set(tab, report):
    open_dial(tab, report, "#run=pets-net&method=msp")
    before = text(tab, "tau-text")
    for _ in range(9):
        slide(tab, "operating", "ArrowRight")
    assert "tau" not in address(tab)
    assert text(tab, "tau-text") != before
    slide(tab, "tau", "ArrowLeft")
    assert "tau" in address(tab)
    assert tab.evaluate("document.getElementById('dial-follow').checked") is False

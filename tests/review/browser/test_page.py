"""The page in a real browser: keys are pressed, and the decisions file says what came of it."""

import os
import signal

import pytest

from farther.curation import DecisionsFile
from farther.review import ReviewServer


@pytest.fixture
def page(browser, answering: ReviewServer):
    browser.open(answering.address)
    browser.until(shown("e"))
    yield browser
    assert browser.complaints() == []


def shown(image: str) -> str:
    return f"document.getElementById('name').textContent === 'photos val {image}'"


def status(text: str) -> str:
    return f"document.getElementById('status').textContent.includes({text!r})"


def written(file: DecisionsFile) -> list[str]:
    """Image, decision and class of each line."""
    lines = file.path.read_text().splitlines()[1:]
    return [" ".join(part for part in line.split(",")[4:7] if part) for line in lines]


def test_a_reviewer_decides_with_the_keyboard_alone(page, file):
    page.press("r")
    page.until("document.activeElement.id === 'class'")
    page.type("per")
    page.press("Enter")
    page.until(status("Saved: remove → person."))
    page.until(shown("c"))
    page.press("f")
    page.until(shown("a"))
    page.press("u")
    page.until(shown("c"))
    page.press("ArrowRight")
    page.until(shown("a"))
    page.press("k")
    page.until(status("Saved: keep."))
    assert written(file) == ["e remove person", "c far", "c undo", "a keep"]
    assert page.read("document.getElementById('counted').textContent") == "2 of 6 images"


def test_without_a_letter_typed_the_suspected_class_is_offered_first(page, file):
    page.press("r")
    page.until("document.activeElement.id === 'class'")
    page.press("Enter")
    page.until(status("Saved"))
    assert written(file) == ["e remove cat"]


def test_a_removal_for_another_reason_needs_a_note(page, file):
    page.press("r")
    page.until("document.activeElement.id === 'class'")
    page.type("zzz")
    page.press("Enter")
    page.until("document.getElementById('refusal').textContent !== ''")
    assert not file.path.exists()
    page.type("blurred")
    page.press("Enter")
    page.until(status("Saved: remove (blurred)."))
    assert written(file) == ["e remove"]


def test_what_is_typed_into_a_note_decides_nothing(page, file):
    page.read("document.getElementById('note').focus()")
    page.type("knf")
    assert page.read("document.getElementById('note').value") == "knf"
    assert not file.path.exists()


def test_the_picture_and_its_boxes_are_drawn_and_labels_can_be_hidden(page):
    page.until("document.getElementById('picture').naturalWidth === 64")
    words = "[...document.querySelectorAll('#boxes text')].map((one) => one.textContent).join()"
    assert page.read(words) == "Kite,cat 90%?"
    page.read("document.getElementById('show-labels').click()")
    assert page.read(words) == "cat 90%?"


def test_a_filter_narrows_the_queue(page):
    page.read(
        "const fate = document.querySelector('[name=fate]'); fate.value = 'near';"
        "fate.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.until(shown("b"))
    assert page.read("document.getElementById('chosen').textContent") == "– 1 of 2"


@pytest.mark.slow
def test_nothing_is_called_saved_when_the_server_is_gone(browser, started, file):
    browser.open(started.address)
    browser.until(shown("e"))
    browser.press("k")
    browser.until(shown("c"))
    os.kill(started.pid, signal.SIGKILL)
    browser.press("k")
    browser.until(status("does not answer"))
    assert browser.read(shown("c"))
    assert written(file) == ["e keep"]


def test_every_control_has_a_name_and_nothing_is_wider_than_a_phone(page):
    page.resize(390, 844)
    assert page.read("document.documentElement.scrollWidth") == 390
    unnamed = (
        "[...document.querySelectorAll('input, select, progress')]"
        ".filter((one) => !one.labels.length).length"
        " + [...document.querySelectorAll('button')]"
        ".filter((one) => !one.textContent.trim()).length"
    )
    assert page.read(unnamed) == 0

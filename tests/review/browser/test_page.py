"""The page in a real browser: keys are pressed, and the decisions file says what came of it."""

import os
import signal

import pytest
from tests.support.pages import until

from farther.curation import DecisionsFile
from farther.review import ReviewServer


@pytest.fixture
def page(tab, answering: ReviewServer, complaints):
    tab.goto(answering.address)
    until(tab, shown("e"))
    yield tab
    assert complaints() == []


def shown(image: str) -> str:
    return f"document.getElementById('name').textContent === 'photos val {image}'"


def status(text: str) -> str:
    return f"document.getElementById('status').textContent.includes({text!r})"


def written(file: DecisionsFile) -> list[str]:
    """Image, decision and class of each line."""
    lines = file.path.read_text().splitlines()[1:]
    return [" ".join(part for part in line.split(",")[4:7] if part) for line in lines]


def test_a_reviewer_decides_with_the_keyboard_alone(page, file):
    page.keyboard.press("r")
    until(page, "document.activeElement.id === 'class'")
    page.keyboard.type("per")
    page.keyboard.press("Enter")
    until(page, status("Saved: remove → person."))
    until(page, shown("c"))
    page.keyboard.press("f")
    until(page, shown("a"))
    page.keyboard.press("u")
    until(page, shown("c"))
    page.keyboard.press("ArrowRight")
    until(page, shown("a"))
    page.keyboard.press("k")
    until(page, status("Saved: keep."))
    assert written(file) == ["e remove person", "c far", "c undo", "a keep"]
    assert page.evaluate("document.getElementById('counted').textContent") == "2 of 6 images"


def test_without_a_letter_typed_the_suspected_class_is_offered_first(page, file):
    page.keyboard.press("r")
    until(page, "document.activeElement.id === 'class'")
    page.keyboard.press("Enter")
    until(page, status("Saved"))
    assert written(file) == ["e remove cat"]


def test_a_removal_for_another_reason_needs_a_note(page, file):
    page.keyboard.press("r")
    until(page, "document.activeElement.id === 'class'")
    page.keyboard.type("zzz")
    page.keyboard.press("Enter")
    until(page, "document.getElementById('refusal').textContent !== ''")
    assert not file.path.exists()
    page.keyboard.type("blurred")
    page.keyboard.press("Enter")
    until(page, status("Saved: remove (blurred)."))
    assert written(file) == ["e remove"]


def test_what_is_typed_into_a_note_decides_nothing(page, file):
    page.evaluate("document.getElementById('note').focus()")
    page.keyboard.type("knf")
    assert page.evaluate("document.getElementById('note').value") == "knf"
    assert not file.path.exists()


def test_the_picture_and_its_boxes_are_drawn_and_labels_can_be_hidden(page):
    until(page, "document.getElementById('picture').naturalWidth === 64")
    words = "[...document.querySelectorAll('#boxes text')].map((one) => one.textContent).join()"
    assert page.evaluate(words) == "Kite,cat 90%?"
    page.evaluate("document.getElementById('show-labels').click()")
    assert page.evaluate(words) == "cat 90%?"


def test_a_filter_narrows_the_queue(page):
    page.evaluate(
        "const fate = document.querySelector('[name=fate]'); fate.value = 'near';"
        "fate.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    until(page, shown("b"))
    assert page.evaluate("document.getElementById('chosen').textContent") == "– 1 of 2"


@pytest.mark.slow
def test_nothing_is_called_saved_when_the_server_is_gone(tab, started, file):
    tab.goto(started.address)
    until(tab, shown("e"))
    tab.keyboard.press("k")
    until(tab, shown("c"))
    os.kill(started.pid, signal.SIGKILL)
    tab.keyboard.press("k")
    until(tab, status("does not answer"))
    assert tab.evaluate(shown("c"))
    assert written(file) == ["e keep"]


def test_every_control_has_a_name_and_nothing_is_wider_than_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    unnamed = (
        "[...document.querySelectorAll('input, select, progress')]"
        ".filter((one) => !one.labels.length).length"
        " + [...document.querySelectorAll('button')]"
        ".filter((one) => !one.textContent.trim()).length"
    )
    assert page.evaluate(unnamed) == 0

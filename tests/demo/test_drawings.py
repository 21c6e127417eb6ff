"""Drawings of the demo world, and their rasterisation."""

from __future__ import annotations

import numpy as np
import pytest

from farther.errors import DataError
from farther_demo import drawings
from farther_demo.drawings import Drawing, Piece, catalogue, sprite


def test_no_drawing_is_both_trained_on_and_held_out():
    for of_concept in catalogue().values():
        keys = [drawing.key for drawing in (*of_concept.train, *of_concept.test)]
        assert len(set(keys)) == len(keys)


def test_every_drawing_shows_something():
    for of_concept in catalogue().values():
        for drawing in (*of_concept.train, *of_concept.test):
            assert min(sprite(drawing, 48).size) >= 2


def test_swapping_a_colour_leaves_nothing_of_it():
    def colours(swap: tuple[tuple[str, str], ...]) -> set[tuple[int, ...]]:
        pixels = np.asarray(sprite(Drawing("board", (Piece("surfboard", swap),)), 96))
        return {tuple(pixel[:3].tolist()) for pixel in pixels.reshape(-1, 4) if pixel[3] == 255}

    blue = (0x92, 0xD3, 0xF5)
    red = (0xEA, 0x5A, 0x47)
    green = (0xB1, 0xCC, 0x33)
    assert {blue, red} <= colours(())
    swapped = colours((("blue", "red"), ("red", "green")))
    assert blue not in swapped
    assert {red, green} <= swapped


def test_a_cut_keeps_its_part_of_the_grid():
    uncut = sprite(Drawing("fork", (Piece("1F374"),)), 144)
    right = sprite(Drawing("fork", (Piece("1F374", cut=(36, 4, 50, 68)),)), 28)
    # 14 of 72 columns at two pixels each: the right half of fork and knife only.
    assert right.width <= 28
    assert right.width < uncut.width <= 144
    assert right.height > 2 * right.width


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"art": 2708}, "expected the name of an art in quotes"),
        ({"art": "1F40E", "colour": "red"}, "expected the name of an art"),
        ({"art": "1F40E", "swap": {"mauve": "red"}}, "field 'swap': colours are white, grey"),
    ],
)
def test_a_wrong_row_of_the_catalogue_is_named(monkeypatch, row, problem):
    monkeypatch.setattr(
        "farther_demo.drawings.demo_table", lambda name: {"horse": {"train": [row]}}
    )
    catalogue.cache_clear()
    with pytest.raises(DataError, match=rf"^drawings\.yaml: row horse: .*{problem}"):
        catalogue()


@pytest.mark.parametrize(
    ("art", "problem"), [("1F8FF", "OpenMoji has no drawing"), ("chair_lift", "unknown shape")]
)
def test_art_that_does_not_exist_is_named(art, problem):
    with pytest.raises(DataError, match=f"{problem}.*{art}"):
        sprite(Drawing("horse", (Piece(art),)), 48)


def test_a_picture_that_another_process_rendered_is_not_rendered_again(monkeypatch):
    fork = Drawing("fork", (Piece("1F374"),))
    expected = sprite(fork, 57)
    png = drawings.render(fork, 57)
    monkeypatch.setattr(drawings, "_rendered", {})
    monkeypatch.setattr(drawings, "render", lambda drawing, size: pytest.fail("rendered again"))
    drawings.keep_rendered(png, fork, 57)
    sprite.cache_clear()
    assert sprite(fork, 57) == expected

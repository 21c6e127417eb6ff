"""The canvas knows which pixels of each sprite are visible."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageColor
from tests.demo.conftest import extent

from farther_demo.canvas import Canvas, Look, transformed
from farther_demo.drawings import OPAQUE, catalogue, sprite


def square(side: int, colour: str) -> Image.Image:
    return Image.new("RGBA", (side, side), colour)


def test_what_is_covered_or_outside_is_not_visible():
    canvas = Canvas(Image.new("RGB", (30, 20), "white"))
    red = canvas.paste(square(10, "red"), 5, 5)
    # Covers columns 12 to 14 of the red square's 5 to 14, and loses its lower half to the edge of
    # the picture.
    blue = canvas.paste(square(10, "blue"), 12, 10)
    canvas.obstruct(square(4, "grey"), 5, 5)
    assert extent(canvas.owner, (red,)) == (5, 5, 14, 14)
    assert canvas.visible_fraction([red]) == (100 - 3 * 5 - 16) / 100
    assert extent(canvas.owner, (blue,)) == (12, 10, 21, 19)
    canvas.paste(square(10, "green"), 12, 15)
    assert canvas.visible_fraction([blue]) == 0.5


def test_the_owner_of_a_pixel_is_the_sprite_that_is_seen_there():
    canvas = Canvas(Image.new("RGB", (60, 50), "white"))
    rng = np.random.default_rng(0)
    colours = ["#ff0000", "#00ff00", "#0000ff", "#ffff00", "#00ffff"]
    for colour in colours:
        sprite_ = square(int(rng.integers(5, 30)), colour)
        left, top = rng.integers(-10, 50, 2).tolist()
        canvas.paste(sprite_, left, top)
    picture = np.asarray(canvas.image)
    for number, colour in enumerate(colours):
        rgb = ImageColor.getrgb(colour)
        assert ((picture == rgb).all(axis=-1) == (canvas.owner == number)).all()


def test_the_forecast_of_what_stays_visible_comes_true():
    canvas = Canvas(Image.new("RGB", (40, 40), "white"))
    rng = np.random.default_rng(1)
    for _ in range(12):
        sprite_ = square(int(rng.integers(6, 20)), "red")
        left, top = rng.integers(-8, 36, 2).tolist()
        before = [canvas.visible_fraction([number]) for number in range(len(canvas.sizes))]
        forecast = canvas.least_visible_after(sprite_, left, top)
        canvas.paste(sprite_, left, top)
        *after, new = [canvas.visible_fraction([number]) for number in range(len(canvas.sizes))]
        least = new
        for fraction_before, fraction_after in zip(before, after, strict=True):
            if fraction_after < fraction_before:
                least = min(least, fraction_after)
        assert forecast == pytest.approx(least)


def test_a_turned_and_stretched_sprite_still_fills_its_box():
    for degrees in (0.0, 17.0, -33.0):
        look = Look(size=60, degrees=degrees, mirrored=True, stretch=1.1, hue=20)
        giraffe = transformed(sprite(catalogue()["giraffe"].train[0], 96), look)
        is_opaque = np.asarray(giraffe)[..., 3] >= OPAQUE
        assert is_opaque[0].any()
        assert is_opaque[-1].any()
        assert is_opaque[:, 0].any()
        assert is_opaque[:, -1].any()

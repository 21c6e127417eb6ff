"""Backgrounds: rooms, landscapes, patterns and, for `bdd`, streets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

Rng = np.random.Generator
Colour = tuple[int, int, int]
Size = tuple[int, int]


class _Lighting(NamedTuple):
    """Colours of the sky, above and at the horizon, and brightness of a street."""

    sky: Colour
    horizon: Colour
    brightness: float


_LIGHTING = {
    "daytime": _Lighting((150, 195, 235), (225, 235, 240), 1.0),
    "dawn/dusk": _Lighting((95, 85, 140), (245, 175, 110), 0.75),
    "night": _Lighting((12, 16, 34), (44, 48, 70), 0.35),
}

#: Colours of grass, sand, snow, water and earth.
_GROUNDS = ((110, 150, 70), (190, 170, 110), (235, 238, 245), (70, 130, 170), (150, 120, 80))

#: Colour of lit windows.
_LIT = (245, 220, 130)


def varied(rng: Rng, size: Size) -> Image.Image:
    """A background for `voc` and the OOD sources: one of several kinds, with clutter.

    Args:
        rng: Source of random numbers.
        size: Width and height.

    Returns:
        RGB image.
    """
    picture = _KINDS[rng.integers(len(_KINDS))](rng, size)
    _scatter(rng, picture, count=int(rng.integers(0, 8)))
    return picture


def street(rng: Rng, size: Size, horizon: int, light: str) -> Image.Image:
    """A road seen through a windscreen.

    Args:
        rng: Source of random numbers.
        size: Width and height.
        horizon: Row of the horizon.
        light: "daytime", "dawn/dusk" or "night".

    Returns:
        RGB image.
    """
    lighting = _LIGHTING[light]
    sky_colour = _near(rng, lighting.sky, 14)
    horizon_colour = _near(rng, lighting.horizon, 14)
    picture = _vertical_gradient(size, sky_colour, horizon_colour)
    draw = ImageDraw.Draw(picture)
    _buildings(rng, draw, size, horizon, lighting.brightness)
    _road(rng, draw, size, horizon, lighting.brightness)
    if rng.random() < 0.6:
        width, height = size
        hood = int(height * rng.uniform(0.03, 0.1))
        box = (-width // 8, height - hood, width + width // 8, height + 3 * hood)
        draw.ellipse(box, fill=(26, 26, 30))
    return _grain(rng, picture, 7)


def weather(rng: Rng, picture: Image.Image, kind: str) -> Image.Image:
    """Rain, snow or fog in front of a finished street; "clear" and "overcast" change nothing."""
    if kind == "foggy":
        fog = Image.new("RGB", picture.size, (205, 208, 210))
        return Image.blend(picture, fog, float(rng.uniform(0.2, 0.45)))
    if kind not in ("rainy", "snowy"):
        return picture
    precipitation = picture.copy()
    draw = ImageDraw.Draw(precipitation)
    width, height = picture.size
    for x, y in rng.integers(0, (width, height), (width // 3, 2)).tolist():
        if kind == "rainy":
            draw.line((x, y, x - 2, y + 7), fill=(205, 212, 225))
        else:
            draw.ellipse((x, y, x + 2, y + 2), fill=(245, 245, 250))
    return Image.blend(picture, precipitation, 0.55)


def obstacle(rng: Rng, size: float) -> Image.Image:
    """A plain RGBA shape that may hide part of an object."""
    width = int(size * rng.uniform(0.4, 1.3))
    height = int(size * rng.uniform(0.4, 1.3))
    shape = Image.new("RGBA", (max(width, 4), max(height, 4)))
    draw = ImageDraw.Draw(shape)
    box = (0, 0, shape.width - 1, shape.height - 1)
    fill = (*_colour(rng), 255)
    if rng.random() < 0.5:
        draw.ellipse(box, fill=fill)
    else:
        draw.rounded_rectangle(box, radius=min(shape.size) // 5, fill=fill)
    return shape.rotate(float(rng.uniform(0, 90)), Image.Resampling.BILINEAR, expand=True)


def _plain(rng: Rng, size: Size) -> Image.Image:
    picture = _vertical_gradient(size, _colour(rng), _colour(rng))
    return _grain(rng, picture, rng.uniform(2, 12))


def _clouded(rng: Rng, size: Size) -> Image.Image:
    """Smooth noise of two or three scales between two colours: marble, moss, plaster."""
    width, height = size
    field = np.zeros((height, width), dtype=np.float32)
    for cells, weight in ((3, 1.0), (8, 0.6), (28, 0.35)):
        coarse = Image.fromarray(rng.random((cells, cells), dtype=np.float32))
        field += weight * np.asarray(coarse.resize(size, Image.Resampling.BICUBIC))
    blend = np.clip((field - field.min()) / np.ptp(field), 0, 1)[..., None]
    first = np.array(_colour(rng))
    second = np.array(_colour(rng))
    return Image.fromarray((first * blend + second * (1 - blend)).astype(np.uint8))


def _striped(rng: Rng, size: Size) -> Image.Image:
    """Stripes in any direction: planks, wallpaper, corrugated iron."""
    width, height = size
    angle = rng.uniform(0, np.pi)
    period = rng.uniform(8, 40)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    wave = np.cos((x * np.cos(angle) + y * np.sin(angle)) * (2 * np.pi / period))
    blend = np.clip(0.5 + wave * rng.uniform(0.5, 3), 0, 1)[..., None]
    first = np.array(_colour(rng))
    second = np.clip(first + rng.uniform(-60, 60, 3), 0, 255)
    picture = Image.fromarray((first * blend + second * (1 - blend)).astype(np.uint8))
    return _grain(rng, picture, 5)


def _tiled(rng: Rng, size: Size) -> Image.Image:
    """Checks or dots: floors, cloth."""
    width, height = size
    base = _colour(rng)
    picture = Image.new("RGB", size, base)
    draw = ImageDraw.Draw(picture)
    fill = _near(rng, base, 55)
    step = int(rng.integers(12, 36))
    shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
    for row, y in enumerate(range(0, height, step)):
        for x in range((row % 2) * step, width, 2 * step):
            shape((x, y, x + step - 1, y + step - 1), fill=fill)
    return _grain(rng, picture, 6)


def _landscape(rng: Rng, size: Size) -> Image.Image:
    """Sky over hills and a field, snow, sand or water."""
    width, height = size
    top_colour = _near(rng, (130, 180, 230), 40)
    bottom_colour = _near(rng, (235, 235, 225), 20)
    picture = _vertical_gradient(size, top_colour, bottom_colour)
    draw = ImageDraw.Draw(picture)
    horizon = int(height * rng.uniform(0.3, 0.65))
    ground = _near(rng, _GROUNDS[rng.integers(len(_GROUNDS))], 22)

    x_values = np.arange(0, width + 9, 8)
    wave = np.abs(np.sin(x_values / rng.uniform(15, 60) + rng.uniform(0, 6)))
    y_values = horizon - wave * height * rng.uniform(0, 0.25)
    hills = list(zip(x_values.tolist(), y_values.tolist(), strict=True))
    draw.polygon([(0, height), *hills, (width + 9, height)], fill=_dimmed(ground, 0.75))
    draw.rectangle((0, horizon, width, height), fill=ground)

    for x, y in rng.integers((0, horizon), (width, height), (width // 4, 2)).tolist():
        end_x = x + int(rng.integers(-3, 4))
        end_y = y - int(rng.integers(0, 5))
        draw.line((x, y, end_x, end_y), fill=_near(rng, ground, 26))
    return _grain(rng, picture, 5)


def _room(rng: Rng, size: Size) -> Image.Image:
    """A wall with a picture or a window, a skirting board, and a floor."""
    width, height = size
    picture = Image.new("RGB", size, _colour(rng))
    draw = ImageDraw.Draw(picture)
    floor = int(height * rng.uniform(0.55, 0.8))
    wood = _near(rng, (150, 110, 75), 40)
    draw.rectangle((0, floor, width, height), fill=wood)
    for x in range(-width, 2 * width, int(rng.integers(14, 34))):
        draw.line((width // 2 + (x - width // 2) // 2, floor, x, height), fill=_near(rng, wood, 18))
    draw.rectangle((0, floor - 3, width, floor), fill=_near(rng, (225, 225, 220), 15))
    for _ in range(int(rng.integers(0, 3))):
        left = rng.uniform(0, 0.8) * width
        top = rng.uniform(0, 0.3) * height
        right = left + rng.uniform(0.1, 0.25) * width
        bottom = top + rng.uniform(0.1, 0.3) * height
        draw.rectangle((left, top, right, bottom), fill=_colour(rng), outline=_colour(rng), width=3)
    return _grain(rng, picture, 5)


_KINDS: tuple[Callable[[Rng, Size], Image.Image], ...] = (
    _plain,
    _clouded,
    _clouded,
    _striped,
    _tiled,
    _landscape,
    _landscape,
    _room,
    _room,
)


def _scatter(rng: Rng, picture: Image.Image, count: int) -> None:
    """Small shapes that are not objects."""
    draw = ImageDraw.Draw(picture)
    width, height = picture.size
    for _ in range(count):
        x = rng.uniform(0, width)
        y = rng.uniform(0, height)
        reach = rng.uniform(0.02, 0.12) * max(picture.size)
        kind = rng.integers(4)
        fill = _colour(rng)
        outline = (0, 0, 0) if rng.random() < 0.5 else fill
        box = (x, y, x + reach * rng.uniform(0.4, 1), y + reach * rng.uniform(0.4, 1))
        if kind == 0:
            draw.ellipse(box, fill=fill, outline=outline)
        elif kind == 1:
            draw.rectangle(box, fill=fill, outline=outline)
        elif kind == 2:
            corners = np.array((x, y)) + rng.uniform(-reach, reach, (int(rng.integers(3, 6)), 2))
            draw.polygon([tuple(corner) for corner in corners.tolist()], fill=fill, outline=outline)
        else:
            end = np.array((x, y)) + rng.uniform(-2 * reach, 2 * reach, 2)
            draw.line((x, y, *end.tolist()), fill=fill, width=int(rng.integers(1, 4)))


def _buildings(
    rng: Rng, draw: ImageDraw.ImageDraw, size: Size, horizon: int, brightness: float
) -> None:
    """Buildings and trees side by side on the horizon."""
    x = -int(rng.integers(0, 20))
    while x < size[0]:
        width = int(size[0] * rng.uniform(0.07, 0.2))
        height = int(horizon * rng.uniform(0.25, 1.0))
        wall = _dimmed(_near(rng, (150, 135, 125), 40), brightness)
        if rng.random() < 0.25:
            tree = (x, horizon - height // 2, x + width, horizon + 4)
            draw.ellipse(tree, fill=_dimmed((75, 115, 65), brightness))
        else:
            draw.rectangle((x, horizon - height, x + width, horizon), fill=wall)
            glass = _LIT if brightness < 0.5 else _dimmed((105, 125, 145), brightness)
            for window_top in range(horizon - height + 4, horizon - 4, 9):
                for window_left in range(x + 4, x + width - 5, 9):
                    if rng.random() < 0.7:
                        window = (window_left, window_top, window_left + 4, window_top + 5)
                        draw.rectangle(window, fill=glass)
        x += width + int(rng.integers(0, 8))


def _road(rng: Rng, draw: ImageDraw.ImageDraw, size: Size, horizon: int, brightness: float) -> None:
    """A road with lanes that vanishes at the horizon, and its verge."""
    width, height = size
    pavement_or_grass = (165, 160, 150) if rng.random() < 0.6 else (105, 135, 80)
    verge = _near(rng, pavement_or_grass, 15)
    draw.rectangle((0, horizon, width, height), fill=_dimmed(verge, brightness))

    vanishing_x = int(width * rng.uniform(0.35, 0.65))
    left = int(-width * rng.uniform(0, 0.25))
    right = int(width * rng.uniform(1.0, 1.25))
    asphalt = _dimmed(_near(rng, (95, 95, 100), 14), brightness)
    corners = [
        (vanishing_x - 6, horizon),
        (vanishing_x + 6, horizon),
        (right, height),
        (left, height),
    ]
    draw.polygon(corners, fill=asphalt)

    depth = height - horizon
    paint = _dimmed((235, 235, 225), max(brightness, 0.5))
    for lane in rng.uniform(0.25, 0.75, int(rng.integers(1, 3))).tolist():
        bottom_x = left + (right - left) * lane
        for near in np.linspace(0.1, 0.95, 6).tolist():
            start_y = horizon + depth * near**1.6
            end_y = horizon + depth * (near + 0.08) ** 1.6
            start_x = vanishing_x + (bottom_x - vanishing_x) * (start_y - horizon) / depth
            end_x = vanishing_x + (bottom_x - vanishing_x) * (end_y - horizon) / depth
            draw.line((start_x, start_y, end_x, end_y), fill=paint, width=1 + int(3 * near))


def _vertical_gradient(size: Size, top: Colour, bottom: Colour) -> Image.Image:
    width, height = size
    blend = np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
    column = np.array(top) * (1 - blend) + np.array(bottom) * blend
    return Image.fromarray(np.broadcast_to(column, (height, width, 3)).astype(np.uint8))


def _grain(rng: Rng, picture: Image.Image, strength: float) -> Image.Image:
    """Soft texture, coarser than the camera's noise: it is drawn at half size and enlarged."""
    width, height = picture.size
    noise = rng.standard_normal((height // 2 + 1, width // 2 + 1), dtype=np.float32) * strength
    soft = Image.fromarray(noise).resize(picture.size, Image.Resampling.BILINEAR)
    pixels = np.array(picture, dtype=np.float32)
    pixels += np.asarray(soft)[..., None]
    np.clip(pixels, 0, 255, out=pixels)
    return Image.fromarray(pixels.astype(np.uint8))


def _colour(rng: Rng) -> Colour:
    """Random colour, rarely a saturated one."""
    grey = rng.uniform(50, 235)
    spread = rng.uniform(5, 60)
    channels = np.clip(grey + rng.uniform(-spread, spread, 3), 0, 255)
    red, green, blue = channels.astype(int).tolist()
    return red, green, blue


def _near(rng: Rng, colour: Colour, spread: float) -> Colour:
    """Random colour whose channels differ by at most `spread`."""
    channels = np.clip(np.array(colour) + rng.uniform(-spread, spread, 3), 0, 255)
    red, green, blue = channels.astype(int).tolist()
    return red, green, blue


def _dimmed(colour: Colour, brightness: float) -> Colour:
    """The colour with its channels multiplied by a factor."""
    red, green, blue = colour
    return int(red * brightness), int(green * brightness), int(blue * brightness)

"""Backgrounds: rooms, landscapes, patterns and, for `bdd`, streets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

Rng = np.random.Generator
Colour = tuple[int, int, int]
Size = tuple[int, int]


def varied(rng: Rng, size: Size) -> Image.Image:
    """A background for `voc` and the OOD sources: one of several kinds, with clutter, RGB of (width, height)."""
    picture = _KINDS[rng.integers(len(_KINDS))](rng, size)
    _scatter(rng, picture, count=int(rng.integers(0, 8)))
    return picture


def street(rng: Rng, size: Size, horizon: int, light: str) -> Image.Image:
    """A road seen through a windscreen; `horizon` is a row, `light` is "daytime", "dawn/dusk" or "night"."""
    width, height = size
    sky, far = {
        "daytime": ((150, 195, 235), (225, 235, 240)),
        "dawn/dusk": ((95, 85, 140), (245, 175, 110)),
        "night": ((12, 16, 34), (44, 48, 70)),
    }[light]
    picture = _vertical_gradient(size, _near(rng, sky, 14), _near(rng, far, 14))
    draw = ImageDraw.Draw(picture)
    dim = 0.35 if light == "night" else 0.75 if light == "dawn/dusk" else 1.0
    _buildings(rng, draw, size, horizon, dim)
    _road(rng, draw, size, horizon, dim)
    if rng.random() < 0.6:
        hood = int(height * rng.uniform(0.03, 0.1))
        draw.ellipse(
            (-width // 8, height - hood, width + width // 8, height + 3 * hood), fill=(26, 26, 30)
        )
    return _grain(rng, picture, 7)


def weather(rng: Rng, picture: Image.Image, kind: str) -> Image.Image:
    """Rain, snow or fog in front of a finished street; "clear" and "overcast" change nothing."""
    if kind == "foggy":
        return Image.blend(
            picture, Image.new("RGB", picture.size, (205, 208, 210)), float(rng.uniform(0.2, 0.45))
        )
    if kind not in ("rainy", "snowy"):
        return picture
    over = picture.copy()
    draw = ImageDraw.Draw(over)
    width, height = picture.size
    for x, y in rng.integers(0, (width, height), (width // 3, 2)).tolist():
        if kind == "rainy":
            draw.line((x, y, x - 2, y + 7), fill=(205, 212, 225))
        else:
            draw.ellipse((x, y, x + 2, y + 2), fill=(245, 245, 250))
    return Image.blend(picture, over, 0.55)


def obstacle(rng: Rng, size: float) -> Image.Image:
    """A plain RGBA shape that may hide part of an object."""
    width, height = int(size * rng.uniform(0.4, 1.3)), int(size * rng.uniform(0.4, 1.3))
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
        coarse = rng.random((cells, cells), dtype=np.float32)
        field += weight * np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC))
    field = np.clip((field - field.min()) / np.ptp(field), 0, 1)[..., None]
    one, other = np.array(_colour(rng)), np.array(_colour(rng))
    return Image.fromarray((one * field + other * (1 - field)).astype(np.uint8))


def _striped(rng: Rng, size: Size) -> Image.Image:
    """Stripes in any direction: planks, wallpaper, corrugated iron."""
    width, height = size
    angle, period = rng.uniform(0, np.pi), rng.uniform(8, 40)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    wave = np.cos((x * np.cos(angle) + y * np.sin(angle)) * (2 * np.pi / period))
    blend = np.clip(0.5 + wave * rng.uniform(0.5, 3), 0, 1)[..., None]
    one = np.array(_colour(rng))
    other = np.clip(one + rng.uniform(-60, 60, 3), 0, 255)
    return _grain(rng, Image.fromarray((one * blend + other * (1 - blend)).astype(np.uint8)), 5)


def _tiled(rng: Rng, size: Size) -> Image.Image:
    """Checks or dots: floors, cloth."""
    picture = Image.new("RGB", size, _colour(rng))
    draw = ImageDraw.Draw(picture)
    base = np.array(picture.getpixel((0, 0)))
    fill = tuple(np.clip(base + rng.uniform(-55, 55, 3), 0, 255).astype(int).tolist())
    step, dots = int(rng.integers(12, 36)), rng.random() < 0.5
    for row, y in enumerate(range(0, size[1], step)):
        for x in range((row % 2) * step, size[0], 2 * step):
            box = (x, y, x + step - 1, y + step - 1)
            draw.ellipse(box, fill=fill) if dots else draw.rectangle(box, fill=fill)
    return _grain(rng, picture, 6)


def _landscape(rng: Rng, size: Size) -> Image.Image:
    """Sky over hills and a field, snow, sand or water."""
    width, height = size
    picture = _vertical_gradient(
        size, _near(rng, (130, 180, 230), 40), _near(rng, (235, 235, 225), 20)
    )
    draw = ImageDraw.Draw(picture)
    horizon = int(height * rng.uniform(0.3, 0.65))
    grounds = ((110, 150, 70), (190, 170, 110), (235, 238, 245), (70, 130, 170), (150, 120, 80))
    ground = _near(rng, grounds[rng.integers(len(grounds))], 22)
    xs = np.arange(0, width + 9, 8)
    hills = horizon - np.abs(
        np.sin(xs / rng.uniform(15, 60) + rng.uniform(0, 6))
    ) * height * rng.uniform(0, 0.25)
    shade = tuple(int(value * 0.75) for value in ground)
    outline = list(zip(xs.tolist(), hills.tolist(), strict=True))
    draw.polygon([(0, height), *outline, (width + 9, height)], fill=shade)
    draw.rectangle((0, horizon, width, height), fill=ground)
    for x, y in rng.integers((0, horizon), (width, height), (width // 4, 2)).tolist():
        draw.line(
            (x, y, x + int(rng.integers(-3, 4)), y - int(rng.integers(0, 5))),
            fill=_near(rng, ground, 26),
        )
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
        left, top = rng.uniform(0, 0.8) * width, rng.uniform(0, 0.3) * height
        right, bottom = left + rng.uniform(0.1, 0.25) * width, top + rng.uniform(0.1, 0.3) * height
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
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        reach = rng.uniform(0.02, 0.12) * max(picture.size)
        kind, fill = rng.integers(4), _colour(rng)
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


def _buildings(rng: Rng, draw: ImageDraw.ImageDraw, size: Size, horizon: int, dim: float) -> None:
    x = -int(rng.integers(0, 20))
    while x < size[0]:
        wide, tall = int(size[0] * rng.uniform(0.07, 0.2)), int(horizon * rng.uniform(0.25, 1.0))
        wall = _dimmed(_near(rng, (150, 135, 125), 40), dim)
        if rng.random() < 0.25:
            draw.ellipse(
                (x, horizon - tall // 2, x + wide, horizon + 4), fill=_dimmed((75, 115, 65), dim)
            )
        else:
            draw.rectangle((x, horizon - tall, x + wide, horizon), fill=wall)
            glass = (245, 220, 130) if dim < 0.5 else _dimmed((105, 125, 145), dim)
            for y in range(horizon - tall + 4, horizon - 4, 9):
                for left in range(x + 4, x + wide - 5, 9):
                    if rng.random() < 0.7:
                        draw.rectangle((left, y, left + 4, y + 5), fill=glass)
        x += wide + int(rng.integers(0, 8))


def _road(rng: Rng, draw: ImageDraw.ImageDraw, size: Size, horizon: int, dim: float) -> None:
    width, height = size
    verge = _near(rng, (165, 160, 150) if rng.random() < 0.6 else (105, 135, 80), 15)
    draw.rectangle((0, horizon, width, height), fill=_dimmed(verge, dim))
    vanishing = int(width * rng.uniform(0.35, 0.65))
    left, right = int(-width * rng.uniform(0, 0.25)), int(width * rng.uniform(1.0, 1.25))
    asphalt = _dimmed(_near(rng, (95, 95, 100), 14), dim)
    draw.polygon(
        [(vanishing - 6, horizon), (vanishing + 6, horizon), (right, height), (left, height)],
        fill=asphalt,
    )
    paint = _dimmed((235, 235, 225), max(dim, 0.5))
    for lane in rng.uniform(0.25, 0.75, int(rng.integers(1, 3))).tolist():
        bottom = left + (right - left) * lane
        for near in np.linspace(0.1, 0.95, 6).tolist():
            y0, y1 = (
                horizon + (height - horizon) * near**1.6,
                horizon + (height - horizon) * (near + 0.08) ** 1.6,
            )
            x0, x1 = (
                vanishing + (bottom - vanishing) * (y - horizon) / (height - horizon)
                for y in (y0, y1)
            )
            draw.line((x0, y0, x1, y1), fill=paint, width=1 + int(3 * near))


def _vertical_gradient(size: Size, top: Colour, bottom: Colour) -> Image.Image:
    blend = np.linspace(0, 1, size[1], dtype=np.float32)[:, None, None]
    column = np.array(top) * (1 - blend) + np.array(bottom) * blend
    return Image.fromarray(np.broadcast_to(column, (size[1], size[0], 3)).astype(np.uint8))


def _grain(rng: Rng, picture: Image.Image, strength: float) -> Image.Image:
    """Soft texture, drawn at half size and enlarged, so that it is coarser than the camera's noise."""
    width, height = picture.size
    noise = rng.standard_normal((height // 2 + 1, width // 2 + 1), dtype=np.float32) * strength
    soft = Image.fromarray(noise).resize(picture.size, Image.Resampling.BILINEAR)
    pixels = np.asarray(picture, dtype=np.float32) + np.asarray(soft)[..., None]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _colour(rng: Rng) -> Colour:
    """Random colour, rarely a saturated one."""
    grey, spread = rng.uniform(50, 235), rng.uniform(5, 60)
    red, green, blue = np.clip(grey + rng.uniform(-spread, spread, 3), 0, 255).astype(int).tolist()
    return red, green, blue


def _near(rng: Rng, colour: Colour, spread: float) -> Colour:
    red, green, blue = (
        np.clip(np.array(colour) + rng.uniform(-spread, spread, 3), 0, 255).astype(int).tolist()
    )
    return red, green, blue


def _dimmed(colour: Colour, dim: float) -> Colour:
    return int(colour[0] * dim), int(colour[1] * dim), int(colour[2] * dim)

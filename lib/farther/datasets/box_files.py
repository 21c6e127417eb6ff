"""Files of boxes that are recognised by their content, in any form of text, JSON, XML or Parquet.

They are not read: they are refused where their images would be taken for images without boxes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import ijson

from farther.errors import DataError
from farther.tables.endings import is_image
from farther.tables.files import open_binary
from farther.tables.json_stream import Bounded, open_json
from farther.tables.parquet import parquet_schema

#: Names of keys, columns and tags, in lower case without punctuation, that only boxes have.
BOX_NAMES = frozenset(
    {
        "bbox",
        "bboxes",
        "bboxx",
        "bboxy",
        "bndbox",
        "boundingbox",
        "boundingboxes",
        "boundingpoly",
        "box",
        "box2d",
        "boxes",
        "polygon",
        "polygons",
        "rect",
        "rectangle",
        "rectanglelabels",
        "rectangles",
        "rects",
        "regions",
        "regionshapeattributes",
        "shapes",
        "xcenter",
        "xmax",
        "xmin",
        "ycenter",
        "ymax",
        "ymin",
    }
)
#: Names that together are those of a box.
EDGES = (
    {"x1", "y1", "x2", "y2"},
    {"left", "top", "right", "bottom"},
    {"left", "top", "width", "height"},
    {"x", "y", "width", "height"},
    {"x", "y", "w", "h"},
    {"cx", "cy", "w", "h"},
)
#: Names that detections have and annotations do not.
SCORES = frozenset({"score", "scores", "confidence", "conf"})

#: Most events of a parser, most lines, and most bytes of a line, that are read of one file.
EVENTS = 100_000
LINES = 50
LINE_BYTES = 100_000
#: Count of numbers of a box.
BOX_NUMBERS = 4

_SEPARATORS = re.compile(r"[\s,;|]+")


def describes_boxes(file: Path, *, is_label: bool = False) -> bool:
    """Whether the beginning of a file has boxes that somebody drew, and no detections' scores.

    Args:
        file: A file of text, JSON, XML or Parquet by its ending, in any case; others have no boxes.
        is_label: Its name is that of a label or an image: in text, rows with four numbers are then
            boxes, and otherwise only with the name of an image.
    """
    suffix = file.suffix.lower()
    if suffix in (".json", ".jsonl", ".ndjson", ".geojson"):
        return _json_has_boxes(file)
    if suffix == ".xml":
        return _are_of_boxes(_xml_names(file))
    if suffix in (".csv", ".tsv", ".txt"):
        return _text_has_boxes(file, is_label=is_label)
    if suffix == ".parquet":
        with suppress(DataError):
            return _are_of_boxes(parquet_schema(file).names)
    return False


def _are_of_boxes(names: Iterable[str]) -> bool:
    """Whether names of keys, columns or tags are those of boxes, without a score."""
    plain = {re.sub(r"[\W_]", "", name).casefold() for name in names}
    if plain & SCORES:
        return False
    return bool(plain & BOX_NAMES) or any(edges <= plain for edges in EDGES)


def _json_has_boxes(file: Path) -> bool:
    """Whether keys of JSON or JSON lines are those of boxes, or images have lists of numbers."""
    keys: set[str] = set()
    names_image = False
    consecutive_numbers = 0
    has_numbers = False
    with suppress(ijson.JSONError, UnicodeDecodeError, RecursionError), open_json(file) as text:
        events = ijson.parse(Bounded(text), multiple_values=True)
        for _, event, value in islice(events, EVENTS):
            if event == "map_key":
                keys.add(value)
            if event in ("map_key", "string"):
                names_image |= _is_image_name(value)
            consecutive_numbers = consecutive_numbers + 1 if event == "number" else 0
            has_numbers |= consecutive_numbers >= BOX_NUMBERS
    if _are_of_boxes(keys):
        return True
    return names_image and has_numbers and not _has_scores(keys)


def _has_scores(keys: Iterable[str]) -> bool:
    return any(key.casefold() in SCORES for key in keys)


def _xml_names(file: Path) -> set[str]:
    """Tags and attributes of an XML file, as far as it can be read."""
    names: set[str] = set()
    with (
        suppress(ElementTree.ParseError, ValueError, LookupError, RecursionError),
        open_binary(file) as text,
    ):
        for _, element in islice(ElementTree.iterparse(text, events=("start",)), EVENTS):
            names.add(element.tag.rpartition("}")[2])
            names.update(element.attrib)
    return names


def _text_has_boxes(file: Path, *, is_label: bool) -> bool:
    """Whether a text file begins with names of columns of boxes, or has rows of an image and a box.

    Args:
        file: The file.
        is_label: Rows without the name of an image count, too.
    """
    for number, line in enumerate(_lines(file)):
        cells = [cell for cell in _SEPARATORS.split(line.strip()) if cell]
        names = [cell.strip("\"'#") for cell in cells]
        if number == 0 and len(names) > BOX_NUMBERS and not any(map(_is_number, names)):
            if _has_scores(names):
                return False
            if _are_of_boxes(names):
                return True
        numbers = sum(map(_is_number, names))
        names_image = any(map(_is_image_name, names))
        if numbers >= BOX_NUMBERS and (names_image or is_label):
            return True
    return False


def _lines(file: Path) -> Iterator[str]:
    """The first lines of a text file."""
    with open_binary(file) as content:
        for _ in range(LINES):
            line = content.readline(LINE_BYTES)
            if not line:
                return
            yield line.decode("utf-8-sig", "replace").replace("\0", "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_image_name(text: str) -> bool:
    return is_image(text)

"""XML files in VOC's format: their tags as a mapping."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from farther.datasets.records import Record
from farther.errors import DataError, shorten
from farther.tables.files import open_binary

#: The outermost tag of an XML file.
ROOT_TAG = "annotation"

#: Tags that hold a number.
NUMBERS = frozenset(
    {"xmin", "ymin", "xmax", "ymax", "width", "height", "difficult"}
    | {"cx", "cy", "w", "h", "angle", "value"}
)

#: Value of `difficult` by the text that some tools write for it.
FLAGS = {"unspecified": "0", "false": "0", "true": "1"}


def filename_of(path: Path) -> str:
    """The name of the image that an XML file annotates, as it says; "" where it does not.

    Raises:
        DataError: it is absent, damaged, or in another format.
    """
    return str(read_xml(path).values.get("filename") or "")


def read_xml(path: Path) -> Record:
    """The tags of an XML file; see `_values`.

    Raises:
        DataError: it is absent, damaged, or in another format.
    """
    absent = "the file does not exist, but an image set lists its image"
    try:
        with open_binary(path, absent) as file:
            root = ElementTree.parse(file).getroot()
            values = _values(root)
    except (ElementTree.ParseError, ValueError, LookupError, RecursionError) as error:
        # LookupError is an unknown encoding, RecursionError a deep nesting.
        raise DataError(f"not XML: {error}; is the file complete?", file=path) from None
    if root.tag != ROOT_TAG:
        problem = (
            f"not in VOC's format: expected the outermost tag <{ROOT_TAG}>, found "
            f"<{shorten(root.tag)}>; convert the file, or move it away"
        )
        raise DataError(problem, file=path)
    return Record(values, path)


def _values(element: ElementTree.Element) -> dict[str, Any]:
    """The tags of an element, nested, as a mapping from names to values.

    Values are numbers for the tags in `NUMBERS`. `object` and `attribute` are
    lists; of other tags that occur
    several times the first counts. Empty tags, and a size of 0 as some files have it, are left out.
    """
    values: dict[str, Any] = {}
    for child in element:
        text = (child.text or "").strip()
        if child.tag in ("object", "attribute"):
            values.setdefault(child.tag, []).append(_values(child))
        elif len(child):
            values.setdefault(child.tag, _values(child))
        elif text:
            values.setdefault(child.tag, _value(child.tag, text))
    for tag in ("width", "height"):
        if values.get(tag) == 0:
            del values[tag]
    return values


def _value(tag: str, text: str) -> float | str:
    """The value of a tag: a number where the tag has one and the text is one."""
    if tag not in NUMBERS:
        return text
    if tag == "difficult":
        text = FLAGS.get(text.casefold(), text)
    try:
        number = float(text)
    except ValueError:
        return text
    if number.is_integer() and abs(number) < 2**63:
        return int(number)
    return number

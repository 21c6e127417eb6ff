"""Recognition of annotation files by name, folder or content, even if they are damaged."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import ijson

from farther.errors import DataError
from farther.tables.endings import ANNOTATIONS, has_ending
from farther.tables.files import open_binary
from farther.tables.json_stream import Bounded, open_json, parser_message, small_json

#: Lists of a COCO file.
COCO_KEYS = frozenset({"images", "annotations", "categories"})
#: Words in the names of files and folders of annotations.
WORDS = frozenset(
    {
        "annotation",
        "annotations",
        "annots",
        "label",
        "labels",
        "instances",
        "coco",
        "bbox",
        "bboxes",
        "boxes",
        "gt",
    }
)
#: Most events of a parser that are read from one file: keys near its start tell the format.
EVENTS = 100_000
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class JsonKeys:
    """The keys of the object in a JSON file.

    Args:
        keys: The keys, as far as the file can be read.
        problem: The error in its content; "" where there is none.
    """

    keys: frozenset[str]
    problem: str = ""


def json_keys(file: Path) -> JsonKeys:
    """The keys of the object in a JSON file; none where it holds something else."""
    content = small_json(file)
    if isinstance(content, dict):
        return JsonKeys(frozenset(content))
    keys: set[str] = set()
    try:
        with open_json(file) as text:
            for prefix, event, value in ijson.parse(Bounded(text)):
                if prefix == "" and event == "map_key":
                    keys.add(value)
    except (ijson.JSONError, ValueError, RecursionError) as error:
        return JsonKeys(frozenset(keys), parser_message(error))
    return JsonKeys(frozenset(keys))


def is_annotation_by_name(root: Path, file: Path) -> bool:
    """True where a file, or a folder of it below the root, has a name that annotations have."""
    return has_ending(file, ANNOTATIONS) and has_annotation_words(root, file)


def has_annotation_words(root: Path, file: Path) -> bool:
    """True where the name of a file, or of a folder of it below the root, says annotations."""
    for part in file.relative_to(root).parts:
        if WORDS.intersection(_WORD.findall(part.lower())):
            return True
    return False


def refuse_damaged(file: Path, content: JsonKeys) -> None:
    """Refuses a JSON file that cannot be read to its end.

    Raises:
        DataError: there is a problem with its content.
    """
    if content.problem:
        raise DataError(
            f"a damaged file of annotations, not JSON: {content.problem}. Is it complete? "
            "Fetch it again, or move it away if its boxes are not wanted",
            file=file,
        )


def root_tag(file: Path) -> str:
    """The outermost tag of an XML file; "" where it cannot be read."""
    try:
        with open_binary(file) as text:
            for _, element in ElementTree.iterparse(text, events=("start",)):
                return str(element.tag)
    except (ElementTree.ParseError, ValueError, LookupError, RecursionError):
        pass
    return ""


def first_keys(file: Path) -> set[str]:
    """The keys near the start of a file of JSON or JSON lines; none where it is something else."""
    keys = set[str]()
    with suppress(ijson.JSONError, UnicodeDecodeError), open_json(file) as text:
        events = ijson.parse(Bounded(text), multiple_values=True)
        for _, event, value in islice(events, EVENTS):
            if event == "map_key":
                keys.add(value)
    return keys

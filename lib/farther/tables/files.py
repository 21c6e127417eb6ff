"""Paths within folders.

Also the functions of `farther.tables.opening` and `farther.tables.content`, by these names.
"""

from __future__ import annotations

import os
from pathlib import Path

from farther.errors import DataError, shorten
from farther.naming.registry import LONGEST_NAME, LONGEST_PATH
from farther.tables.content import TEXT_BYTES as TEXT_BYTES
from farther.tables.content import FileContent as FileContent
from farther.tables.content import csv_rows as csv_rows
from farther.tables.content import digest as digest
from farther.tables.content import read_text as read_text
from farther.tables.content import separator_of as separator_of
from farther.tables.content import write_csv as write_csv
from farther.tables.opening import is_file as is_file
from farther.tables.opening import is_folder as is_folder
from farther.tables.opening import is_present as is_present
from farther.tables.opening import open_binary as open_binary
from farther.tables.opening import refuse_broken_link as refuse_broken_link
from farther.tables.opening import regular_file as regular_file

#: Endings that no name has: files beside the folder of another name, or of another kind, have them.
ENDINGS = (
    ".csv",
    ".html",
    ".js",
    ".json",
    ".md",
    ".objects",
    ".parquet",
    ".replicates",
    ".tex",
    ".yaml",
)


def inside(folder: str | Path, name: str) -> Path:
    """The path of `name` within `folder`.

    Raises:
        DataError: `name` is absolute, empty, or leads out of the folder.
    """
    return Path(folder) / path_inside(folder, name)


def path_inside(folder: str | Path, name: str) -> str:
    """The path of `name` from `folder` on, with forward slashes; see `inside`.

    >>> path_inside("photographs", "a/./b//c.jpg")
    'a/b/c.jpg'

    Raises:
        DataError: `name` is absolute, empty, or leads out of the folder.
    """
    if not isinstance(name, str):
        raise DataError(f"expected the name of a file, found {shorten(name)}")
    path = os.path.normpath(name)
    is_outside = path in (".", "..") or path.startswith(("/", "../"))
    if not name or "\0" in name or is_outside:
        raise DataError(f"file name {shorten(name)} leaves its folder {Path(folder)}")
    if _is_too_long(path):
        raise DataError(
            f"file name {shorten(name)} in {Path(folder)} is too long, or holds half of a "
            "surrogate pair"
        )
    return path


def _is_too_long(path: str) -> bool:
    """Whether a name, or the path of all names, is too long or cannot be written as UTF-8."""
    if path.isascii() and len(path) <= LONGEST_NAME:
        return False
    length = 0
    for name in path.split("/"):
        if not is_unicode(name):
            return True
        size = len(os.fsencode(name))
        if size > LONGEST_NAME:
            return True
        length += size + 1
    return length > LONGEST_PATH


def is_unicode(text: str) -> bool:
    """Whether a name can be written as UTF-8: the bytes of others are kept as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def file_ending(name: str) -> str:
    """The ending of a name that could be that of a file of another name; "" for none.

    >>> file_ending("far.objects"), file_ending("coco_far")
    ('.objects', '')
    """
    for ending in ENDINGS:
        if name.casefold().endswith(ending):
            return ending
    return ""

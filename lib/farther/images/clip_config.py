"""Checks of CLIP configurations from a folder or the hub, before open_clip reads them.

open_clip passes parts of `open_clip_config.json` on to timm and transformers as keyword arguments,
some of which load and run code, or read other files. Keys that do so are refused, texts must be
names and not paths, and numbers have bounds. Everything else is left to open_clip, which refuses
keys that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from farther.errors import DataError, shorten
from farther.images.bounds import MOST, MOST_PIXELS, check_description
from farther.tables.documents import read_json

#: The part that describes the network, and the part that describes preprocessing.
MODEL = "model_cfg"
PREPROCESSING = "preprocess_cfg"

#: Keys of tokenizer files that name classes whose code lies beside them.
REMOTE = "auto_map"

#: Words in keys that load code or files, or change where they are loaded from.
LOADING_WORDS = frozenset(
    {
        "cache",
        "checkpoint",
        "code",
        "dir",
        "directory",
        "file",
        "files",
        "folder",
        "import",
        "module",
        "path",
        "paths",
        "pickle",
        "plugin",
        "proxies",
        "remote",
        "repo",
        "revision",
        "script",
        "subfolder",
        "url",
        "urls",
        "weights",
    }
)

#: Term in keys of stochastic depth, which is no path of a file.
DROP_PATH = "drop_path"

#: Word in keys that fetch the weights of a part of the network.
PRETRAINED = "pretrained"

#: The one of these keys that shipped configurations hold; open_clip sets it itself.
TEXT_PRETRAINED = "hf_model_pretrained"

#: A name of a model or of an option, or a name on the hub: no path to another folder, and no URL.
NAME = re.compile(r"(\w[\w.-]*(/\w[\w.-]*)?)?")

#: Longest name.
LONGEST_NAME = 200


def check_folder(folder: Path) -> None:
    """Refuses a folder whose configuration loads more than a network, or whose tokenizer has code.

    Raises:
        DataError: names file and field.
    """
    check_config(folder / "open_clip_config.json")
    for file in sorted(folder.glob("*.json")):
        content = read_json(file)
        if isinstance(content, dict) and REMOTE in content:
            raise DataError(
                "code in a folder of weights is never run; remove the field",
                file=file,
                field=REMOTE,
            )


def check_config(file: Path) -> None:
    """Refuses an `open_clip_config.json` that loads code or files, or describes a huge network.

    Raises:
        DataError: names file and field.
    """
    content: Any = read_json(file)
    if not isinstance(content, dict):
        raise DataError(f"expected an object, found {shorten(content)}", file=file)
    limits = {MODEL: MOST, PREPROCESSING: MOST_PIXELS}
    for part, largest in limits.items():
        description = content.get(part, {})
        if not isinstance(description, dict):
            problem = f"expected an object, found {shorten(description)}"
            raise DataError(problem, file=file, field=part)
        for field, key, value in _entries(description, part):
            _check_entry(file, field, key, value)
        check_description(file, description, largest, part)


def _entries(content: Any, field: str) -> Iterator[tuple[str, str, Any]]:
    """Field, last key and value of each entry of a description, also of nested ones."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield f"{field}.{key}", key, value
            yield from _entries(value, f"{field}.{key}")
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield f"{field}[{number}]", "", value
            yield from _entries(value, f"{field}[{number}]")


def _check_entry(file: Path, field: str, key: str, value: Any) -> None:
    """Refuses a key that loads code or files, and a text that is not a name."""
    words = set(re.findall(r"[a-z]+", key.lower().replace(DROP_PATH, "")))
    fetches_weights = PRETRAINED in words and key != TEXT_PRETRAINED and value not in (False, None)
    if key == REMOTE or words & LOADING_WORDS or fetches_weights:
        raise DataError("a key that loads code or files; remove it", file=file, field=field)
    if isinstance(value, str) and (len(value) > LONGEST_NAME or not NAME.fullmatch(value)):
        raise DataError(f"expected a name, found {shorten(value)}", file=file, field=field)

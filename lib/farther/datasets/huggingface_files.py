"""Files of Hugging Face's `datasets`: rows, features, and the dataset card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from farther.errors import DataError, shorten
from farther.tables.documents import parse_json, parse_yaml, read_json
from farther.tables.endings import has_ending, with_lower_ending
from farther.tables.files import is_present, open_binary, read_text
from farther.tables.parquet import arrow_rows, parquet_schema

#: Number of rows in memory at once, images included.
BATCH = 64

METADATA = "metadata.jsonl"

#: Key of a class among the names in `README.md`.
NUMBER = re.compile(r"[0-9]{1,9}")

#: Keys of features that do not name a field but describe the field that they belong to.
NESTING_KEYS = ("feature", "sequence", "list", "struct", "dtype", "class_label", "features")


def is_metadata(path: PurePath) -> bool:
    """Whether a file is the `metadata.jsonl` of a folder of images."""
    return with_lower_ending(path.name) == METADATA


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet, Arrow or JSON lines file, a few in memory at once.

    Raises:
        DataError: it is something else; names the file.
    """
    if is_metadata(path):
        yield from _json_lines(path)
    else:
        yield from arrow_rows(path, BATCH)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            value = parse_json(line, path, row=number)
            if not isinstance(value, dict):
                raise DataError(
                    f"expected an object, found {shorten(value)}", file=path, row=number
                )
            yield value


def schema_features(path: Path) -> Any:
    """The features of a file; None where nothing describes them.

    `dataset_info.json` beside the file describes them, or else the file's schema.
    """
    info_file = path.with_name("dataset_info.json")
    if is_present(info_file):
        return _field(read_json(info_file), "features")
    if not has_ending(path, (".parquet",)):
        return None
    metadata = parquet_schema(path).metadata or {}
    text = metadata.get(b"huggingface", b"{}")
    return _field(parse_json(text, path, field="huggingface (in the schema)"), "info")


def _field(content: Any, name: str) -> Any:
    """A field of a JSON object; None where it is absent, or the content is not an object."""
    if isinstance(content, dict):
        return content.get(name)
    return None


def class_names(features: Any, fields: tuple[str, ...], field: str) -> list[str]:
    """Names of the `ClassLabel` of one of several fields, at any depth; [] where there is none.

    Args:
        features: Features, or a part of them.
        fields: Names of the fields to look for. A field is a key, or, in `README.md`, the `name` of
            an item of a list.
        field: The field that `features` describes; "" for all features.
    """
    if isinstance(features, list):
        return _names_in_items(features, fields, field)
    if not isinstance(features, dict):
        return []

    if field in fields:
        label_names = _label_names(features.get("names"))
        if label_names is not None:
            return label_names
    for key, inner_features in features.items():
        inner_field = field if key in NESTING_KEYS else key
        names = class_names(inner_features, fields, inner_field)
        if names:
            return names
    return []


def _names_in_items(items: list[Any], fields: tuple[str, ...], field: str) -> list[str]:
    """The first names of a `ClassLabel` in a list of features; see `class_names`."""
    for item in items:
        if isinstance(item, dict):
            names = class_names(item, fields, str(item.get("name", field)))
            if names:
                return names
    return []


def _label_names(names: Any) -> list[str] | None:
    """The names of a `ClassLabel`, a list or a mapping from numbers; None for something else."""
    if isinstance(names, list):
        return [str(name) for name in names]
    if isinstance(names, dict) and all(NUMBER.fullmatch(str(key)) for key in names):
        return [str(names[key]) for key in sorted(names, key=int)]
    return None


def card(root: Path) -> dict[str, Any]:
    """The YAML between the two `---` at the top of `README.md`; {} without such a file."""
    path = root / "README.md"
    if not is_present(path):
        return {}
    match = re.match(r"---\s*\n(.*?)\n---", read_text(path), re.DOTALL)
    if match is None:
        return {}
    content = parse_yaml(match[1], path)
    if not isinstance(content, dict):
        return {}
    return content


def data_files(config: dict[str, Any]) -> dict[str, list[str]]:
    """Patterns of a configuration's files by split; "train" where the card names no split."""
    value = config.get("data_files")
    if isinstance(value, dict):
        return {str(split): _texts(patterns) for split, patterns in value.items()}
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return {str(item.get("split", "train")): _texts(item.get("path")) for item in value}
    if value:
        return {"train": _texts(value)}
    return {}


def _texts(value: Any) -> list[str]:
    """The items of a list, or a single value, as texts."""
    values = value if isinstance(value, list) else [value]
    return [str(item) for item in values]


def split_of(path: Path) -> str:
    """The split that the name of a file, or of its folder, contains."""
    match = re.fullmatch(r"(.+?)-\d+-of-\d+", path.stem)
    name = match[1] if match else path.stem
    if name not in ("data", "metadata") and not name.isdigit():
        return name
    folder = path.parent.name
    if folder in ("", "data"):
        return "train"
    return folder

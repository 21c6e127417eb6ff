"""Files of Hugging Face's `datasets`: rows of Parquet, Arrow and JSON lines, features, and the dataset card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from farther.errors import DataError, shorten
from farther.tables.documents import parse_json, parse_yaml, read_json
from farther.tables.files import is_present, open_binary, read_text
from farther.tables.parquet import arrow_rows, parquet_schema

#: Rows that are held in memory at once, images included.
BATCH = 64

METADATA = "metadata.jsonl"

#: Key of a class among the names in `README.md`.
NUMBER = re.compile(r"[0-9]{1,9}")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet, Arrow or JSON lines file, a few in memory at once.

    Raises:
        DataError: it is something else; names the file.
    """
    yield from _json_lines(path) if path.name == METADATA else arrow_rows(path, BATCH)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                value = parse_json(line, path, row=number)
                if not isinstance(value, dict):
                    raise DataError(
                        f"expected an object, found {shorten(value)}", file=path, row=number
                    )
                yield value


def schema_features(path: Path) -> Any:
    """The features that a file's schema, or the `dataset_info.json` beside it, describes; None without any."""
    beside = path.with_name("dataset_info.json")
    if is_present(beside):
        content = read_json(beside)
        return content.get("features") if isinstance(content, dict) else None
    if path.suffix != ".parquet":
        return None
    metadata = parquet_schema(path).metadata or {}
    content = parse_json(
        metadata.get(b"huggingface", b"{}"), path, field="huggingface (in the schema)"
    )
    return content.get("info") if isinstance(content, dict) else None


def class_names(features: Any, wanted: tuple[str, ...], field: str) -> list[str]:
    """Names of the `ClassLabel` of one of the wanted fields, at any depth; [] where there is none.

    A field is a key, or, in `README.md`, the `name` of an item of a list.
    """
    if isinstance(features, list):
        parts = [
            (str(item.get("name", field)), item) for item in features if isinstance(item, dict)
        ]
    elif isinstance(features, dict):
        names = features.get("names")
        if field in wanted and isinstance(names, list):
            return [str(name) for name in names]
        if (
            field in wanted
            and isinstance(names, dict)
            and all(NUMBER.fullmatch(str(key)) for key in names)
        ):
            return [str(names[key]) for key in sorted(names, key=int)]
        inner = ("feature", "sequence", "list", "struct", "dtype", "class_label", "features")
        parts = [(field if key in inner else key, item) for key, item in features.items()]
    else:
        return []
    return next((found for name, item in parts if (found := class_names(item, wanted, name))), [])


def card(root: Path) -> dict[str, Any]:
    """The YAML between the two `---` at the top of `README.md`; {} without such a file."""
    path = root / "README.md"
    if not is_present(path):
        return {}
    match = re.match(r"---\s*\n(.*?)\n---", read_text(path), re.DOTALL)
    content = parse_yaml(match[1], path) if match else {}
    return content if isinstance(content, dict) else {}


def data_files(config: dict[str, Any]) -> dict[str, list[str]]:
    """Patterns of a configuration's files by split; all of them are "train" where the card names no split."""
    value = config.get("data_files")
    if isinstance(value, dict):
        return {str(split): _texts(paths) for split, paths in value.items()}
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return {str(item.get("split", "train")): _texts(item.get("path")) for item in value}
    return {"train": _texts(value)} if value else {}


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def split_of(path: Path) -> str:
    """The split that a file's name, or its folder's, tells."""
    match = re.fullmatch(r"(.+?)-\d+-of-\d+", path.stem)
    name = match[1] if match else path.stem
    if name not in ("data", "metadata") and not name.isdigit():
        return name
    return path.parent.name if path.parent.name not in ("", "data") else "train"

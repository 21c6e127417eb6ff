"""COCO's form (https://cocodataset.org/#format-data), written one item at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_coco(path: Path, info: Mapping[str, Any], **lists: Iterable[Mapping[str, Any]]) -> None:
    """Writes a file with one item per line, and creates its folder.

    Args:
        path: The file.
        info: The field `info`.
        lists: The other fields in their order: `licenses`, `categories`, `images`, `annotations`.
            Iterators are written as they go, so their items need not be in memory.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{\n"info": {_text(info)}')
        for name, items in lists.items():
            file.write(f',\n"{name}": [')
            separator = "\n"
            for item in items:
                file.write(separator + _text(item))
                separator = ",\n"
            file.write("]")
        file.write("\n}\n")


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)

"""Files of a few bytes, in the current folder."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def write(files: dict[str, Any]) -> None:
    """Writes text and bytes as they are, (width, height) as an image, anything else as JSON."""
    for name, content in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, tuple):
            Image.new("RGB", content, (200, 30, 60)).save(path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(
                content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
            )


def jpeg(width: int = 40, height: int = 30) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (width, height), (9, 8, 7)).save(made, "JPEG")
    return made.getvalue()


def parquet(rows: list[dict[str, Any]], **options: Any) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), made, **options)
    return made.getvalue()


def delete(path: Path) -> None:
    """Deletes a file, or a folder with all that is in it; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

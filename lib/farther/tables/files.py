"""Writing files so that a half-written one is never taken for a whole one, and naming their content."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from farther.errors import DataError


@contextmanager
def write_aside(path: str | Path) -> Iterator[Path]:
    """A path to write to, renamed to `path` when the block ends without an error.

    The name that is written to starts with a dot and ends as `path` does, in the same folder, so that the rename is
    atomic. After an error nothing is left behind, and `path` is as before.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield aside
        if path.is_dir():
            shutil.rmtree(path)
        aside.replace(path)
    finally:
        if aside.is_dir():
            shutil.rmtree(aside)
        else:
            aside.unlink(missing_ok=True)


def write_json(path: str | Path, value: Any) -> None:
    """Writes JSON that git diffs well: keys in the order given, one per line, and no NaN.

    Raises:
        ValueError: `value` holds a NaN or an infinity, which JSON cannot.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with write_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_csv(path: str | Path, frame: pl.DataFrame) -> None:
    """Writes a frame as CSV: a line of column names, one line per row, nothing for null."""
    with write_aside(path) as aside:
        frame.write_csv(aside)


def read_json(path: str | Path) -> Any:
    """Reads a JSON file.

    Raises:
        DataError: it is absent, is not UTF-8, or is not JSON; names the file and the line.
    """
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("the file does not exist", file=path) from None
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", file=path) from None
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})", file=path) from None


def digest(*parts: str | bytes | Path) -> str:
    """Digest of content: 32 hexadecimal digits of BLAKE2b over texts, bytes, and the bytes of files (a `Path`).

    Each part is framed by its length, so that `("ab", "c")` and `("a", "bc")` differ.
    """
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
        else:
            content = part.encode() if isinstance(part, str) else part
        total.update(len(content).to_bytes(8, "little"))
        total.update(content)
    return total.hexdigest()


def files_below(folder: str | Path) -> Iterator[Path]:
    """The files in a folder and its sub-folders, links to folders included; a link to a folder above it ends there."""
    seen = set[str]()
    for place, folders, files in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(place))
        folders[:] = sorted(name for name in folders if os.path.realpath(Path(place, name)) not in seen)
        yield from (Path(place, name) for name in files)


def inside(folder: str | Path, name: str) -> Path:
    """The path of `name` within `folder`.

    Raises:
        DataError: `name` is absolute, empty, or leads out of the folder.
    """
    folder = Path(folder)
    path = Path(os.path.normpath(name))
    if not name or "\0" in name or path.is_absolute() or path.parts[:1] in ((), ("..",)):
        raise DataError(f"file name {name!r} leaves its folder {folder}")
    return folder / path

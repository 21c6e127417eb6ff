"""Writes a publication: a folder that is replaced if it contains nothing but a publication."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import farther
from farther.errors import ParameterError, choose
from farther.naming.extras import require
from farther.publication.coco import write_split
from farther.publication.contents import Publication
from farther.publication.parquet import SHARD_BYTES, write_parquet
from farther.tables.documents import read_json, write_json
from farther.tables.files import digest
from farther.tables.folders import entries
from farther.tables.writing import refuse_other_files, write_aside

Format = Literal["coco", "parquet", "huggingface"]
FORMATS: tuple[Format, ...] = get_args(Format)

#: Marks a folder that `publish` wrote, and lists its content.
MARK = "publication.json"


def publish(
    publication: Publication, out: str | Path, format: Format, shard_bytes: int = SHARD_BYTES
) -> Path:
    """Writes splits in a published format; returns `out`.

    Raises:
        ParameterError: the format is unknown, or `out` contains files that `publish` did not write.
        DataError: an image cannot be read, or has changed since it was ingested; names file, row
            and field.
    """
    out = Path(out)
    choose("format", format, FORMATS)
    if format == "huggingface":
        require("--format huggingface", "huggingface_hub")
    _refuse_other_files(out)
    with write_aside(out) as aside:
        aside.mkdir()
        _write(publication, aside, format, shard_bytes)
        write_json(aside / MARK, _mark(publication, aside, format))
    return out


def _write(publication: Publication, folder: Path, format: Format, shard_bytes: int) -> None:
    if format == "coco":
        for split in publication.splits:
            write_split(split, folder)
        return
    shards = {split.name: write_parquet(split, folder, shard_bytes) for split in publication.splits}
    if format == "huggingface":
        # These need huggingface_hub.
        from farther.publication.card import card
        from farther.publication.croissant import croissant

        (folder / "README.md").write_text(card(publication), encoding="utf-8")
        write_json(folder / "croissant.json", croissant(publication, shards, folder))


def _mark(publication: Publication, folder: Path, format: Format) -> dict[str, Any]:
    """The content of the file `MARK`."""
    contents = {}
    for path in sorted(folder.iterdir()):
        contents[path.name] = "" if path.is_dir() else digest(path)
    return {
        "made_by": f"farther {farther.__version__}",
        "format": format,
        "benchmark": publication.name,
        "splits": [split.name for split in publication.splits],
        "contents": contents,
    }


def _refuse_other_files(out: Path) -> None:
    """Refuses a folder whose files `publish` did not write, or that were changed since.

    Raises:
        ParameterError: it has such files; names the first one.
    """
    if (out.exists() and not out.is_dir()) or out.is_symlink():
        raise ParameterError(f"{out} is not a folder; choose another name")
    refuse_other_files(out, MARK, "farther benchmark publish")
    present = [out / entry.name for entry in entries(out)]
    if not present:
        return
    mark = read_json(out / MARK)
    contents = mark.get("contents", {}) if isinstance(mark, dict) else {}
    for path in present:
        if path.name == MARK:
            continue
        if path.name not in contents:
            raise ParameterError(
                f"{path} was not written by `publish`; move it away or choose another folder"
            )
        if path.is_file() and contents[path.name] != digest(path):
            raise ParameterError(
                f"{path} was changed since `publish` wrote it; put your text into the file for "
                "--words and move this away"
            )

"""Writes a publication: a folder that is replaced as a whole, and only if it contains nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import farther
from farther.errors import ParameterError
from farther.publication.coco import write_split
from farther.publication.contents import Publication
from farther.publication.croissant import croissant
from farther.publication.parquet import SHARD_BYTES, write_parquet
from farther.tables.documents import read_json, write_json
from farther.tables.files import digest
from farther.tables.writing import write_aside

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
    if format not in FORMATS:
        raise ParameterError(f"unknown format {format!r}. Known: {', '.join(FORMATS)}")
    _refuse_other_files(out)
    with write_aside(out) as aside:
        aside.mkdir()
        _write(publication, aside, format, shard_bytes)
        mark = {
            "made_by": f"farther {farther.__version__}",
            "format": format,
            "benchmark": publication.name,
            "splits": [split.name for split in publication.splits],
            "contents": {
                path.name: "" if path.is_dir() else digest(path) for path in sorted(aside.iterdir())
            },
        }
        write_json(aside / MARK, mark)
    return out


def _write(publication: Publication, folder: Path, format: Format, shard_bytes: int) -> None:
    if format == "coco":
        for split in publication.splits:
            write_split(split, folder)
        return
    shards = {split.name: write_parquet(split, folder, shard_bytes) for split in publication.splits}
    if format == "huggingface":
        from farther.publication.card import card  # needs huggingface_hub

        (folder / "README.md").write_text(card(publication), encoding="utf-8")
        write_json(folder / "croissant.json", croissant(publication, shards, folder))


def _refuse_other_files(out: Path) -> None:
    """Raises ParameterError for a folder with files that `publish` did not write, or that were changed since."""
    if (out.exists() and not out.is_dir()) or out.is_symlink():
        raise ParameterError(f"{out} is not a folder; choose another name")
    present = sorted(out.iterdir()) if out.exists() else []
    if present and not (out / MARK).is_file():
        raise ParameterError(
            f"{out} contains files but no {MARK}: `publish` did not write it; choose another folder"
        )
    mark = read_json(out / MARK) if present else {}
    contents = mark.get("contents", {}) if isinstance(mark, dict) else {}
    for path in present:
        if path.name == MARK:
            continue
        if path.name not in contents:
            raise ParameterError(
                f"{path} was not written by `publish`; move it away or choose another folder"
            )
        if path.is_file() and contents[path.name] != digest(path):
            problem = "was changed since `publish` wrote it; put your text into the file for --words and move this away"
            raise ParameterError(f"{path} {problem}")

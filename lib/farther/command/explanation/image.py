"""Why an image landed where it is: annotations, rule or decision, similarity, file."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import polars as pl

from farther.command.project import Project
from farther.errors import DataError, ParameterError

#: Most names that are searched for one that is nearly right.
SEARCHED = 20_000


def explain_image(project: Project, image: str, wanted: str | None = None) -> dict[str, Any]:
    """All that is known about an image.

    Args:
        project: Its tables and splits are read from `artifacts`.
        image: The image's id in its dataset, its file name, or the end of its path. Several images may match.
        wanted: The benchmark to look at; all of them where None.

    Returns:
        image; `sources`: the subsets that it was ingested from, with its annotations; `benchmarks`: of each that draws
        from one of these, the splits that it is in and why, and people's decisions.

    Raises:
        ParameterError: the benchmark is unknown, or no ingested dataset has such an image.
        DataError: a table is damaged.
    """
    names = project.benchmark_names(wanted)
    sources = list(_sources(project, image))
    if not sources:
        raise ParameterError(f"no ingested dataset has an image {image!r}.{_hint(project, image)}")
    found = {name: list(_fates(project, name, sources)) for name in names}
    return {"image": image, "sources": sources, "benchmarks": {k: v for k, v in found.items() if v}}


def _sources(project: Project, image: str) -> Iterator[dict[str, Any]]:
    """The images of that id, file name or path, each with the subset that has it."""
    from farther.datasets import image_roots

    tables = project.artifacts / "tables"
    roots = image_roots(project.section("datasets"), tables, project.folder)
    name = PurePath(image).name
    for file in sorted(tables.glob("*/*/images.parquet")):
        dataset = file.parts[-3]
        for row in _rows(file, (pl.col("image_id") == image) | pl.col("file").str.ends_with(name)):
            path = roots[dataset] / row["file"] if dataset in roots else Path(row["file"])
            if image != row["image_id"] and not _is_path(image, path):
                continue
            yield {
                "image_id": row["image_id"],
                "dataset": dataset,
                "subset": file.parts[-2],
                "file": str(path),
                "there": path.is_file(),
                "width": row["width"],
                "height": row["height"],
                "digest": row["digest"],
                "objects": _of_image(file.with_name("objects.parquet"), row["image_id"]),
            }


def _is_path(named: str, path: Path) -> bool:
    """Whether a user may mean a file by this name: its path, or the last parts of it."""
    parts = PurePath(named).parts
    return path.parts[-len(parts) :] == parts or Path(named).absolute() == path.absolute()


def _fates(project: Project, name: str, sources: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a benchmark made of each of the image's sources that it draws from."""
    from farther.curation import benchmark

    made = benchmark(name, project.section("benchmarks")[name])
    folder = project.artifacts / "splits" / name
    for source in sources:
        image_id, place = source["image_id"], (source["dataset"], source["subset"])
        id_splits = [split for split, subset in made.subsets.items() if place == (made.id, subset)]
        drawing = [split for split, params in made.splits.items() if place == (params.dataset, params.subset)]
        for split in id_splits:
            yield {"image_id": image_id, **_place(place), **_of_id(folder, split, image_id, made.most.get(split))}
        if drawing:
            yield {
                "image_id": image_id,
                **_place(place),
                **_of_ood(folder, drawing, image_id, place),
                "decisions": _decisions(made.decisions, project, place, image_id),
                "similarity": _similarity(project.artifacts / "similarity" / name, drawing, image_id, place[0]),
            }


def _place(place: tuple[str, str]) -> dict[str, str]:
    return {"dataset": place[0], "subset": place[1]}


def _of_id(folder: Path, split: str, image_id: str, most: int | None) -> dict[str, Any]:
    if _of_image(folder / split / "images.parquet", image_id):
        return {"splits": [split], "why": "its subset is this ID split; rules are for OOD images"}
    why = "the split takes " + (f"{most:,} images of its subset, and not this one" if most else "all; run curate again")
    return {"splits": [], "why": f"not in ID split {split}: {why}"}


def _of_ood(folder: Path, drawing: list[str], image_id: str, place: tuple[str, str]) -> dict[str, Any]:
    from farther.curation.fates import Fates, why

    fates = Fates.read(folder / "fates.parquet")
    rows = np.flatnonzero(
        (fates.image_id == image_id) & (fates.dataset == place[0]) & (fates.subset == place[1])
    ).tolist()
    inside = [split for split in drawing if _of_image(folder / split / "images.parquet", image_id)]
    if not rows:
        return {"splits": inside, "why": "the benchmark was curated before the image was ingested: run curate again"}
    row = rows[0]
    decider = int(fates.object_id[row])
    return {
        "splits": inside,
        "fate": str(fates.fate[row]),
        "why": why(fates, row),
        "object_id": decider if decider >= 0 else None,
        "by_rules": str(fates.by_rules[row]),
    }


def _decisions(file: Path | None, project: Project, place: tuple[str, str], image_id: str) -> list[dict[str, str]]:
    """The lines of the decisions file about the image, as they stand there."""
    path = None if file is None else project.folder / file
    if path is None or not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as text:
        wanted = (*place, image_id)
        return [
            {key: str(value) for key, value in row.items() if key is not None}
            for row in csv.DictReader(text)
            if (row.get("dataset"), row.get("subset"), row.get("image_id")) == wanted
        ]


def _similarity(folder: Path, drawing: list[str], image_id: str, dataset: str) -> dict[str, Any] | None:
    """The image's row in the similarity table; ids are unique within one dataset and split only."""
    own = (pl.col("image_id") == image_id) & (pl.col("dataset") == dataset) & pl.col("split").is_in(drawing)
    rows = _rows(folder / "images.parquet", own)
    return rows[0] if rows else None


def _of_image(file: Path, image_id: str) -> list[dict[str, Any]]:
    return _rows(file, pl.col("image_id") == image_id)


def _rows(file: Path, wanted: pl.Expr) -> list[dict[str, Any]]:
    """Rows of a table, read lazily; none where there is no such table.

    Raises:
        DataError: the file is not a readable Parquet table.
    """
    if not file.is_file():
        return []
    try:
        return pl.scan_parquet(file, glob=False).filter(wanted).collect().to_dicts()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"not a readable Parquet table: {error}", file=file) from None


def _hint(project: Project, image: str) -> str:
    """Where to begin, or names that are nearly the same: file names for a file name, else ids."""
    files = sorted((project.artifacts / "tables").glob("*/*/images.parquet"))
    if not files:
        return " None is ingested: run `dvc repro` first"
    column = "file" if PurePath(image).suffix else "image_id"
    names = pl.scan_parquet(files, glob=False).select(pl.col(column).unique()).collect()[column].sort().to_list()
    if column == "file":
        image, names = PurePath(image).name, list(dict.fromkeys(PurePath(name).name for name in names))
    near = [name for name in names if image in name][:3]
    near = near or (difflib.get_close_matches(image, names, n=3, cutoff=0.8) if len(names) <= SEARCHED else [])
    return f" Did you mean {', '.join(map(repr, near))}?" if near else ""

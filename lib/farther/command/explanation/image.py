"""Why an image landed where it is: annotations, rule or decision, similarity, file."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from farther.command.project import Project
from farther.errors import DataError, ParameterError

#: Ids that are looked through for one that is nearly right.
SEARCHED = 20_000


def explain_image(project: Project, image_id: str, wanted: str | None = None) -> dict[str, Any]:
    """All that is known about an image.

    Args:
        project: Its tables and splits are read from `artifacts`.
        image_id: The image's id in its dataset.
        wanted: The benchmark to look at; all of them where None.

    Returns:
        image_id; `sources`: where it was ingested from, with its annotations; `benchmarks`: of each that draws from
        one of these, the splits that it is in and why, and what people decided.

    Raises:
        ParameterError: the benchmark is unknown, or no ingested dataset has such an image.
        DataError: a table is damaged.
    """
    names = project.benchmark_names(wanted)
    sources = list(_sources(project, image_id))
    if not sources:
        raise ParameterError(f"no ingested dataset has an image {image_id!r}.{_hint(project, image_id)}")
    found = {name: list(_fates(project, name, image_id, sources)) for name in names}
    return {"image_id": image_id, "sources": sources, "benchmarks": {k: v for k, v in found.items() if v}}


def _sources(project: Project, image_id: str) -> Iterator[dict[str, Any]]:
    """The ingested subsets that have the image."""
    from farther.datasets import image_roots

    tables = project.artifacts / "tables"
    roots = image_roots(project.section("datasets"), tables, project.folder)
    for file in sorted(tables.glob("*/*/images.parquet")):
        for image in _rows(file, image_id):
            dataset = file.parts[-3]
            path = roots[dataset] / image["file"] if dataset in roots else Path(image["file"])
            yield {
                "dataset": dataset,
                "subset": file.parts[-2],
                "file": str(path),
                "there": path.is_file(),
                "width": image["width"],
                "height": image["height"],
                "digest": image["digest"],
                "objects": _rows(file.with_name("objects.parquet"), image_id),
            }


def _fates(project: Project, name: str, image_id: str, sources: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a benchmark made of each of the image's sources that it draws from."""
    from farther.curation import benchmark

    made = benchmark(name, project.section("benchmarks")[name])
    folder = project.artifacts / "splits" / name
    for source in sources:
        place = (source["dataset"], source["subset"])
        id_splits = [split for split, subset in made.subsets.items() if place == (made.id, subset)]
        drawing = [split for split, params in made.splits.items() if place == (params.dataset, params.subset)]
        for split in id_splits:
            yield {**_place(place), **_of_id(folder, split, image_id, made.most.get(split))}
        if drawing:
            yield {
                **_place(place),
                **_of_ood(folder, drawing, image_id, place),
                "decisions": _decisions(made.decisions, project, place, image_id),
                "similarity": _similarity(project.artifacts / "similarity" / name / "images.parquet", image_id),
            }


def _place(place: tuple[str, str]) -> dict[str, str]:
    return {"dataset": place[0], "subset": place[1]}


def _of_id(folder: Path, split: str, image_id: str, most: int | None) -> dict[str, Any]:
    if _rows(folder / split / "images.parquet", image_id):
        return {"splits": [split], "why": "its subset is this ID split; rules are for OOD images"}
    why = "the split takes " + (f"{most:,} images of its subset, and not this one" if most else "all; run curate again")
    return {"splits": [], "why": f"not in ID split {split}: {why}"}


def _of_ood(folder: Path, drawing: list[str], image_id: str, place: tuple[str, str]) -> dict[str, Any]:
    from farther.curation.fates import Fates, why

    fates = Fates.read(folder / "fates.parquet")
    rows = np.flatnonzero(
        (fates.image_id == image_id) & (fates.dataset == place[0]) & (fates.subset == place[1])
    ).tolist()
    inside = [split for split in drawing if _rows(folder / split / "images.parquet", image_id)]
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


def _similarity(file: Path, image_id: str) -> dict[str, Any] | None:
    rows = _rows(file, image_id)
    return rows[0] if rows else None


def _rows(file: Path, image_id: str) -> list[dict[str, Any]]:
    """The rows of a table that are about an image; none where there is no such table.

    Raises:
        DataError: the file is no Parquet.
    """
    if not file.is_file():
        return []
    try:
        table = pq.read_table(file, filters=[("image_id", "=", image_id)])  # millions of rows are not held at once
    except (OSError, ValueError) as error:
        raise DataError(f"not a readable Parquet file: {error}", file=file) from None
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _hint(project: Project, image_id: str) -> str:
    """Says how to begin, or an id that is nearly the same."""
    files = sorted((project.artifacts / "tables").glob("*/*/images.parquet"))
    if not files:
        return " None is ingested: run `dvc repro` first"
    ids = [name for file in files for name in pq.read_table(file, columns=["image_id"])["image_id"].to_pylist()]
    near = difflib.get_close_matches(image_id, ids, n=3, cutoff=0.8) if len(ids) <= SEARCHED else []
    near = near or [name for name in ids if image_id in name][:3]
    return f" Did you mean {', '.join(map(repr, near))}?" if near else ""

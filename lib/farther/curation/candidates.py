"""Candidates for a split: images of a larger pool to be reviewed, in a file under version control.

    dataset,subset,image_id,distance,category,shown,neighbour,similarity
    coco,train2017,000000000036,near,zebra,12,2008_000008,0.8123

Besides the image, a row gives the category that it was chosen for, the number of images of the benchmark's splits and
of earlier candidates that show this category, and, where images are embedded, the most similar ID image.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from farther.datasets.records import read_text
from farther.errors import DataError
from farther.tables.files import write_aside

COLUMNS = ("dataset", "subset", "image_id", "distance", "category", "shown", "neighbour", "similarity")


class Candidate(NamedTuple):
    """One row of a file of candidates.

    Args:
        dataset, subset, image_id: The image.
        distance: Its distance by the benchmark's rules: `near`, `far` or `farther`.
        category: The category it was chosen for; "" for an image that was reviewed before.
        shown: Number of images with the category among the benchmark's splits of that distance and the candidates
            chosen before.
        neighbour: The most similar ID image, "" without embeddings.
        similarity: Its cosine, None without embeddings.
    """

    dataset: str
    subset: str
    image_id: str
    distance: str
    category: str
    shown: int
    neighbour: str = ""
    similarity: float | None = None


def write_candidates(path: str | Path, candidates: Iterable[Candidate]) -> None:
    """Writes a file of candidates, replacing an existing one."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow(COLUMNS)
    for one in candidates:
        similarity = "" if one.similarity is None else f"{one.similarity:.4f}"
        rows.writerow((*one[: len(COLUMNS) - 1], similarity))
    with write_aside(path) as aside:
        aside.write_text(written.getvalue(), encoding="utf-8")


def listed(path: str | Path, dataset: str, subset: str, image_id: Sequence[str] | np.ndarray) -> np.ndarray:
    """Mask of the images of a subset that a file of candidates lists.

    Args:
        path: The file; only `dataset`, `subset` and `image_id` are read, so that it may be written by hand.
        dataset, subset: The subset.
        image_id: Its images.

    Returns:
        ndarray of shape (number of images,), bool.

    Raises:
        DataError: the file is absent or not of this form, or lists an image that the subset does not have; names row
            and field.
    """
    row_of = {name: row for row, name in enumerate(image_id)}
    mask = np.zeros(len(row_of), dtype=bool)
    for line, (of_dataset, of_subset, name) in _rows(Path(path)):
        if (of_dataset, of_subset) != (dataset, subset):
            continue
        if name not in row_of:
            problem = f"{dataset} {subset} has no image {name!r}; delete the row, or choose candidates again"
            raise DataError(problem, file=path, row=line, field="image_id")
        mask[row_of[name]] = True
    return mask


def _rows(path: Path) -> list[tuple[int, tuple[str, str, str]]]:
    """Line, and dataset, subset and image, of each row."""
    text = read_text(path, "the file does not exist; `farther enrich` writes it, see docs/enrichment.md")
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    found = []
    try:
        missing = [name for name in COLUMNS[:3] if name not in (reader.fieldnames or ())]
        if missing:
            raise DataError(f"no column {missing[0]!r}: expected {', '.join(COLUMNS)}", file=path, row=1)
        for values in reader:
            named = [values[name] for name in COLUMNS[:3]]
            if not all(named):
                raise DataError("expected dataset, subset and image_id", file=path, row=reader.line_num)
            found.append((reader.line_num, (named[0], named[1], named[2])))
    except csv.Error as error:
        raise DataError(f"not CSV: {error}", file=path, row=reader.line_num) from None
    return found

"""Candidates for a split: images of a larger pool to be reviewed, in a file under version control.

    dataset,subset,image_id,distance,category,shown,neighbour,similarity
    coco,train2017,000000000036,near,zebra,12,2008_000008,0.8123

Besides the image, a row gives the category that it was chosen for, the number of images of the
benchmark's splits and of earlier candidates that show this category, and, where images are
embedded, the most similar ID image.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.tables.files import read_text, separator_of
from farther.tables.writing import write_aside

#: Folder of the files that the stage `enrich` writes, one per benchmark; those that people write
#: are elsewhere.
FROM_POOLS = Path("data/candidates/pools")

#: Columns of a frame of candidates: the image; its distance by the rules; the category it was
#: chosen for, or "" for an image reviewed before; images with this category among the benchmark's
#: splits of that distance and the candidates chosen before; the most similar ID image and its
#: cosine, "" and null without embeddings.
CANDIDATES = pl.Schema(
    {
        "dataset": pl.String,
        "subset": pl.String,
        "image_id": pl.String,
        "distance": pl.String,
        "category": pl.String,
        "shown": pl.Int64,
        "neighbour": pl.String,
        "similarity": pl.Float64,
    }
)

#: The columns that a file of candidates must have, in each row; they name the image.
_REQUIRED = ("dataset", "subset", "image_id")


def write_candidates(path: str | Path, candidates: pl.DataFrame) -> None:
    """Writes a frame of `CANDIDATES`, replacing an existing file."""
    text = pl.col(pl.String)
    empty_is_null = pl.when(text != "").then(text).name.keep()
    with write_aside(path) as aside:
        candidates.with_columns(empty_is_null).write_csv(aside, float_precision=4)


def candidate_mask(
    path: str | Path, dataset: str, subset: str, image_id: Sequence[str] | np.ndarray
) -> np.ndarray:
    """Mask of the images of a subset that a file of candidates lists.

    Returns:
        ndarray of shape (number of images,), bool.

    Raises:
        DataError: the file is absent or not of this form, or lists an image that the subset does
            not have; names row and field.
    """
    candidates = _read(Path(path)).filter(pl.col("dataset") == dataset, pl.col("subset") == subset)
    images = pl.Series("image_id", image_id, dtype=pl.String)
    unknown = candidates.filter(~pl.col("image_id").is_in(images.implode()))
    if unknown.height:
        name = unknown["image_id"][0]
        problem = (
            f"{dataset} {subset} has no image {name!r}; delete the row, or choose candidates again"
        )
        raise DataError(problem, file=path, row=unknown["row"][0], field="image_id")
    return images.is_in(candidates["image_id"].implode()).to_numpy()


def _read(path: Path) -> pl.DataFrame:
    """Line (`row`), and dataset, subset and image, of each candidate."""
    if_absent = (
        "the file does not exist; the stage `enrich` writes candidates from pools, "
        "see farther list params enrich"
    )
    text = read_text(path, if_absent)
    try:
        frame = pl.read_csv(
            text.encode(),
            infer_schema=False,
            separator=separator_of(text.partition("\n")[0]),
            row_index_name="row",
            row_index_offset=2,
        )
    except pl.exceptions.PolarsError as error:
        raise DataError(f"not CSV: {error}", file=path) from None
    for name in _REQUIRED:
        if name not in frame.columns:
            problem = f"no column {name!r}: expected {', '.join(CANDIDATES)}"
            raise DataError(problem, file=path, row=1)

    is_null = pl.col(_REQUIRED).is_null()
    frame = frame.select("row", *_REQUIRED).filter(~pl.all_horizontal(is_null))
    incomplete = frame.filter(pl.any_horizontal(is_null))
    if incomplete.height:
        problem = "expected dataset, subset and image_id"
        raise DataError(problem, file=path, row=incomplete["row"][0])
    return frame

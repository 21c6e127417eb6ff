"""The regions folders of a benchmark's splits: which must be made, and how their regions are numbered."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.keyed import Keyed
from farther.tables import Images, RegionsFolder
from farther.tables.folders import listed
from farther.tables.writing import delete_work

#: `region_id` is the row of its image times this, plus its rank among the image's regions.
REGIONS_PER_IMAGE = 1 << 16


def region_ids(rows: np.ndarray, image_id: Sequence[str] | pl.Series) -> np.ndarray:
    """Numbers of regions: row of the image × 65,536 + rank within the image.

    Args:
        rows: Row of the image of each region, rising, ndarray of shape (N,), int64.
        image_id: The image of each region.

    Raises:
        DataError: an image has more regions than can be numbered.
    """
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    if len(rank) and rank.max() >= REGIONS_PER_IMAGE:
        name = image_id[int(rank.argmax())]
        problem = f"{rank.max() + 1} regions in image {name!r}, at most {REGIONS_PER_IMAGE} can be numbered"
        raise DataError(f"{problem}. Raise 'score_threshold'")
    return rows * REGIONS_PER_IMAGE + rank


def read_splits(folder: str | Path) -> dict[str, Images]:
    """Images of each split.

    Args:
        folder: Its sub-folders are the splits; each holds `images.parquet`.

    Raises:
        DataError: the folder has no splits, or a table is missing or damaged.
    """
    folder = Path(folder)
    names = [entry.name for entry in listed(folder, "*") if entry.is_dir()]
    if not names:
        raise DataError("no split here: expected sub-folders with images.parquet, as curate writes them", file=folder)
    return {name: Images.read(folder / name / "images.parquet") for name in names}


def update_splits(
    keys: dict[str, str],
    out: str | Path,
    work: str | Path,
    make: Callable[[str, Path, Path], str],
    log: Callable[[str], None],
    is_current: Callable[[Path], bool] | None = None,
) -> dict[str, RegionsFolder]:
    """Makes the regions folders whose cache key changed, and deletes those of splits that no longer exist.

    Splits with one key have the same images: their regions are made once.

    Args:
        keys: Cache key of each split.
        out, work: Folders of the results and of unfinished work; each split has a sub-folder of its name.
        make: Called with split, folder to write, and folder for unfinished work; returns a summary.
        log: Takes one line per split.
        is_current: Whether a folder made under the same key can stay; `is_whole` when None.

    Returns:
        The regions folder of each split.
    """
    out, work, is_current = Path(out), Path(work), is_current or is_whole
    for entry in sorted(work.iterdir()) if work.is_dir() else []:
        if entry.name not in keys:
            delete_work(entry)

    def make_once(split: str, to: Path) -> str:
        alike = (other for other, key in keys.items() if key == keys[split] and other != split and other in made)
        if (other := next(alike, None)) is None:
            made.append(split)
            return make(split, to, work / split)
        shutil.copytree(out / other, to)
        return f"the images of {other}"

    kept = Keyed(out)
    made = [split for split, key in keys.items() if kept.is_current(split, key) and is_current(out / split)]
    kept.update(keys, make_once, log, is_current)
    return {split: RegionsFolder(out / split) for split in keys}


def is_whole(folder: Path) -> bool:
    """True if a regions folder has all of its shards."""
    try:
        return all(shard.is_file() for shard in RegionsFolder(folder).shards)
    except DataError:
        return False

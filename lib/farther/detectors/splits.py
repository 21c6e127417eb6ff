"""The regions folders of a benchmark's splits: which must be made, and how their regions are numbered."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.keyed import Keyed
from farther.tables import Header, Images, RegionsFolder
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
        raise DataError(
            "no split here: expected sub-folders with images.parquet, as curate writes them",
            file=folder,
        )
    return {name: Images.read(folder / name / "images.parquet") for name in names}


def update_splits(
    keys: dict[str, str],
    out: str | Path,
    work: str | Path,
    make: Callable[[str, Path, Path], str],
    log: Callable[[str], None],
    is_current: Callable[[str], bool] | None = None,
) -> Keyed:
    """Makes the regions folders whose key changed, and deletes those of splits that no longer exist.

    Splits with one key have the same images: their regions are made once.

    Args:
        keys: Key of each split.
        out, work: Folders of the results and of unfinished work; each split has a sub-folder of its
            name.
        make: Called with split, folder to write, and folder for unfinished work; returns a summary.
        log: Takes one line per split.
        is_current: Whether what is written beside the regions of a split is current, too.

    Returns:
        The regions folders, one per split.
    """
    out, work = Path(out), Path(work)
    for entry in sorted(work.iterdir()) if work.is_dir() else []:
        if entry.name not in keys:
            delete_work(entry)

    folders = Keyed(out)
    for split in folders.keep_only(keys):
        log(f"{split}: removed")
    outdated = folders.outdated(keys)
    if is_current is not None:
        outdated = [split for split in keys if split in outdated or not is_current(split)]
    current = [split for split in keys if split not in outdated]
    for split in keys:
        if split not in outdated:
            log(f"{split}: unchanged")
            continue
        with folders.make(split, keys[split]) as to:
            same = _with_key(keys[split], current, keys)
            if same is None:
                summary = make(split, to, work / split)
            else:
                shutil.copytree(out / same, to)
                summary = f"the images of {same}"
        current.append(split)
        log(f"{split}: {summary}")
    return folders


def rename_classes(
    folders: Keyed, splits: Sequence[str], header: Header
) -> dict[str, RegionsFolder]:
    """Stores regions folders with a header's names of classes, which are no part of their keys.

    Args:
        folders: The folders.
        splits: Their items.
        header: Has the names.

    Returns:
        The folder of each item.
    """
    renamed = {}
    for split in splits:
        renamed[split] = RegionsFolder(folders.path(split)).renamed(header)
        folders.refresh(split)
    return renamed


def _with_key(key: str, splits: Sequence[str], keys: dict[str, str]) -> str | None:
    """The first of some splits that has a key; None where none has."""
    for split in splits:
        if keys[split] == key:
            return split
    return None

"""The regions folders of a benchmark's splits, and the numbers of their regions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.incremental.keyed import Keyed
from farther.tables import Header, Images, RegionsFolder
from farther.tables.folders import listed
from farther.tables.writing import delete_work

#: `region_id` is the row of its image times this, plus its rank among the image's regions.
REGIONS_PER_IMAGE = 1 << 16


def region_ids(rows: np.ndarray, image_id: Sequence[str] | pl.Series) -> np.ndarray:
    """Numbers of regions: row of the image × 65,536 + rank within the image.

    Args:
        rows: Row of the image of each region, ascending, ndarray of shape (N,), int64.
        image_id: The image of each region.

    Raises:
        DataError: an image has more regions than can be numbered.
    """
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    if len(rank) and rank.max() >= REGIONS_PER_IMAGE:
        name = image_id[int(rank.argmax())]
        raise DataError(
            f"{rank.max() + 1} regions in image {name!r}, at most {REGIONS_PER_IMAGE} can be "
            "numbered. Raise 'score_threshold'"
        )
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


class SplitFolders:
    """The regions folders of a benchmark's splits, which are computed again if their key changed.

    Args:
        out, work: Folders of the results and of unfinished work; each split has a sub-folder of its
            name.
        keys: Cache key of each split.
        log: Takes one line per split that is not computed.

    Attributes:
        keyed: The regions folders, one item per split.
    """

    def __init__(
        self,
        out: str | Path,
        work: str | Path,
        keys: Mapping[str, str],
        log: Callable[[str], None],
    ):
        self.keyed = Keyed(out)
        self.work = Path(work)
        self._keys = keys
        self._log = log

    def outdated(self, is_current: Callable[[str], bool] | None = None) -> Iterator[str]:
        """Yields each split whose regions must be computed; the caller writes them with `make`.

        First, the folders of splits that no longer exist are deleted. Splits with the same key have
        the same images: the regions of the first one are copied for the others.

        Args:
            is_current: Whether further outputs beside the regions of a split are current, too.
        """
        self._delete_removed_splits()
        outdated = self.keyed.outdated(self._keys)
        if is_current is not None:
            outdated = [s for s in self._keys if s in outdated or not is_current(s)]
        current = [split for split in self._keys if split not in outdated]

        for split in self._keys:
            if split not in outdated:
                self._log(f"{split}: unchanged")
                continue
            source = self._first_with_key(self._keys[split], current)
            if source is None:
                yield split
            else:
                with self.make(split) as folder:
                    shutil.copytree(self.keyed.path(source), folder)
                self._log(f"{split}: the images of {source}")
            current.append(split)

    def make(self, split: str) -> AbstractContextManager[Path]:
        """A path to write the regions of a split to; see `Keyed.make`."""
        return self.keyed.make(split, self._keys[split])

    def rename_classes(self, header: Header) -> dict[str, RegionsFolder]:
        """Stores all regions folders with a header's names of classes; see `rename_classes`."""
        return rename_classes(self.keyed, list(self._keys), header)

    def _delete_removed_splits(self) -> None:
        """Deletes the results and the unfinished work of splits that no longer exist."""
        if self.work.is_dir():
            for entry in sorted(self.work.iterdir()):
                if entry.name not in self._keys:
                    delete_work(entry)
        for split in self.keyed.keep_only(self._keys):
            self._log(f"{split}: removed")

    def _first_with_key(self, key: str, splits: Sequence[str]) -> str | None:
        """The first of some splits that has a key; None if none has."""
        for split in splits:
            if self._keys[split] == key:
                return split
        return None


def rename_classes(
    folders: Keyed, splits: Sequence[str], header: Header
) -> dict[str, RegionsFolder]:
    """Stores regions folders with a header's names of classes, which are not part of their keys.

    Args:
        folders: Has the regions folders as items.
        splits: Names of the items.
        header: Has the names of the classes.

    Returns:
        The regions folder of each item.
    """
    renamed = {}
    for split in splits:
        renamed[split] = RegionsFolder(folders.path(split)).renamed(header)
        folders.refresh(split)
    return renamed

"""Detections made elsewhere, put into the regions folders of a benchmark's splits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from farther.code import digest_of
from farther.detectors.imported.base import Imported, Source
from farther.detectors.imported.spool import Spool, spooled
from farther.detectors.inference import InferenceParams, update_splits
from farther.detectors.shards import REGIONS_PER_IMAGE
from farther.errors import DataError
from farther.tables import Header, Images, RegionsFolder, RegionsWriter
from farther.tables.files import digest

#: Width to which COCO pads the numbers of its images.
COCO_DIGITS = 12


def import_splits(
    adapter: Imported,
    splits: str | Path,
    out: str | Path,
    work: str | Path,
    params: InferenceParams | None = None,
    *,
    say: Callable[[str], None] = print,
) -> dict[str, RegionsFolder]:
    """Puts detections into a regions folder a split, but for the splits where nothing changed.

    All files are read once, if any split needs them, and laid down as columns in the work folder (about as large as the
    regions will be); then each split picks its rows, a shard at a time. Rows stand in the order of the images table,
    those of one image in the order of the file; regions are numbered as `farther.detectors.inference.infer` does.

    Args:
        adapter: Reads the detections.
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        out: The regions of a split go to the sub-folder of the same name.
        work: Unfinished work, likewise, on the same file system.
        params: Of these, only `shard_images` matters.
        say: Takes a line about each split, and one about detections that no split wants.

    Returns:
        The regions folder of each split.

    Raises:
        DataError: a file or a row is wrong; no image of a split is known to the files; two of them show detections of
            the same image.
    """
    params = params or InferenceParams()
    header = adapter.header()
    work = Path(work)
    with ExitStack() as stack:
        making = _Making(adapter, header, Scopes.read(splits), work / ".rows", params.shard_images, stack, say)
        folders = update_splits(splits, out, work, making.key, making.make, say)
        making.say_unused({name: Images.read(Path(splits) / name / "images.parquet") for name in folders})
    return folders


@dataclass(frozen=True)
class Scopes:
    """Names that say what a source serves.

    Args:
        splits: The benchmark's splits.
        datasets: The datasets that their images come from.
    """

    splits: frozenset[str]
    datasets: frozenset[str]

    @classmethod
    def read(cls, folder: str | Path) -> Scopes:
        """Those of a folder of splits."""
        tables = {file.parent.name: Images.read(file) for file in sorted(Path(folder).glob("*/images.parquet"))}
        return cls(frozenset(tables), frozenset(name for images in tables.values() for name in images.dataset))

    def of(self, source: Source) -> str:
        """What a source serves: one "split", one "dataset", or "all"."""
        return "split" if source.name in self.splits else "dataset" if source.name in self.datasets else "all"


class _Making:
    """Makes the folders of splits; the files are read when the first of them is made."""

    def __init__(
        self,
        adapter: Imported,
        header: Header,
        scopes: Scopes,
        folder: Path,
        shard_images: int,
        stack: ExitStack,
        say: Callable[[str], None],
    ):
        self.adapter, self.header, self.scopes = adapter, header, scopes
        self._folder, self._shard_images, self._stack, self._say = folder, shard_images, stack, say

    @cached_property
    def spool(self) -> Spool:
        """All detections."""
        spool = self._stack.enter_context(spooled(self.adapter, self.header, self._folder))
        optional = [n for n in ("logits", "features", "latent", "box_variance", "uncertainty") if n in spool.columns]
        self._say(f"read {len(spool)} detections, each with {', '.join(optional) or 'neither logits nor features'}")
        return spool

    def key(self, split: str, images: Images) -> str:
        """Names all that a split's regions folder is made from."""
        scopes = [[source.name, self.scopes.of(source)] for source in self.adapter.sources()]
        shared = json.dumps([self.header.to_json(), self._shard_images, split, scopes], sort_keys=True)
        layer = [part.tobytes() for part in (self.header.weight, self.header.bias) if part is not None]
        columns = (json.dumps(values.tolist()) for values in images.columns().values())
        return digest(shared, *layer, digest_of(__name__, type(self.adapter).__module__), *columns)

    def make(self, split: str, images: Images, out: Path, work: Path) -> RegionsFolder:
        """Writes the regions folder of a split."""
        place = places(self.spool.names, split, images, self.scopes)
        _refuse_unknown_split(self.spool, place, split, images)
        _refuse_two_sources(self.spool, place, split, images)
        rows = place[self.spool.image]
        order = np.argsort(rows, kind="stable")
        order = order[np.searchsorted(rows[order], 0) :]
        rows = rows[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        if len(rank) and rank.max() >= REGIONS_PER_IMAGE:
            image_id = images.image_id[rows[rank.argmax()]]
            problem = f"{rank.max() + 1} detections in image {image_id!r}, at most {REGIONS_PER_IMAGE} can be numbered"
            raise DataError(f"{problem}. Raise 'score_threshold'", file=self.adapter.weights)
        writer = RegionsWriter(out, self.header, work, self.key(split, images))
        starts = range(0, len(images), self._shard_images)
        for shard, start in enumerate(starts):
            stop = min(start + self._shard_images, len(images))
            low, high = np.searchsorted(rows, [start, stop])
            number = rows[low:high] * REGIONS_PER_IMAGE + rank[low:high]
            regions = self.spool.take(order[low:high], images.image_id[rows[low:high]], number, self.header)
            writer.write_shard(shard, regions, stop - start)
        writer.close(len(starts))
        empty = len(images) - len(np.unique(rows))
        self._say(f"{split}: {len(images)} images, {len(rows)} regions; {empty} images are without a detection")
        return RegionsFolder(out)

    def say_unused(self, splits: dict[str, Images]) -> None:
        """Says how many detections no split wants, if the files were read at all."""
        if "spool" not in self.__dict__:
            return
        wanted = np.zeros(len(self.spool.names), bool)
        for split, images in splits.items():
            wanted |= places(self.spool.names, split, images, self.scopes) >= 0
        counts = np.bincount(self.spool.image, minlength=len(wanted))
        shown = counts > 0
        unused = int(counts[~wanted].sum())
        if unused:
            self._say(f"{unused} detections of {int((shown & ~wanted).sum())} images are in no split: left out")


def places(names: Sequence[tuple[Source, str]], split: str, images: Images, scopes: Scopes) -> np.ndarray:
    """Where the images that sources name stand in a split's table.

    Args:
        names: Sources, and their names of images.
        split: The split's name.
        images: Its images.
        scopes: What sources may be called after.

    Returns:
        ndarray of shape (len(names),), int64: rows of the table, -1 for an image that it does not have or that the
        source does not serve.

    Raises:
        DataError: a file name fits two images.
    """
    lookup = _Lookup(images)
    found = np.full(len(names), -1, np.int64)
    for number, (source, name) in enumerate(names):
        scope = scopes.of(source)
        if scope == "split" and source.name != split:
            continue
        row = lookup.row(source, name)
        if scope != "dataset" or images.dataset[row] == source.name:
            found[number] = row
    return found


class _Lookup:
    """Finds images of a table by the names that sources give them."""

    def __init__(self, images: Images):
        self._by_id = {image_id: row for row, image_id in enumerate(images.image_id)}
        self._files = images.file
        self._by_name: dict[str, list[int]] = {}
        for row, file in enumerate(images.file):
            self._by_name.setdefault(PurePosixPath(file).name, []).append(row)

    def row(self, source: Source, name: str) -> int:
        """Row of an image, -1 where the table does not have it."""
        if source.image_files is not None:
            return self._row_of_file(source, source.image_files[int(name)])
        row = self._by_id.get(name, -1)
        if row < 0 and name.isdecimal():
            row = self._by_id.get(name.zfill(COCO_DIGITS), -1)
        return row

    def _row_of_file(self, source: Source, file: str) -> int:
        candidates = self._by_name.get(PurePosixPath(file).name, [])
        fitting = [row for row in candidates if _ends_alike(file, self._files[row])]
        if len(fitting) > 1:
            first, second = (self._files[row] for row in fitting[:2])
            problem = f"{file!r} may be {first!r} or {second!r}: give its folders too"
            raise DataError(problem, file=source.path, field="file_name")
        return fitting[0] if fitting else -1


def _ends_alike(one: str, other: str) -> bool:
    """Whether the shorter of two paths is the end of the longer."""
    parts = [PurePosixPath(path).parts for path in (one, other)]
    length = min(len(p) for p in parts)
    return parts[0][-length:] == parts[1][-length:]


def _refuse_unknown_split(spool: Spool, place: np.ndarray, split: str, images: Images) -> None:
    if not len(images) or (place >= 0).any():
        return
    shown = [name if source.image_files is None else source.image_files[int(name)] for source, name in spool.names]
    theirs = ", ".join(repr(name) for name in shown[:3]) or "none"
    ours = ", ".join(f"{i!r} ({file})" for i, file in zip(images.image_id[:3], images.file[:3], strict=True))
    raise DataError(
        f"no image of split {split!r} is in the detections. They name {theirs}; the split has {ours}. Use the same "
        "names, or say in the parameter 'annotations' which file each number stands for"
    )


def _refuse_two_sources(spool: Spool, place: np.ndarray, split: str, images: Images) -> None:
    shown = np.bincount(spool.image, minlength=len(spool.names)) > 0
    owner: dict[int, Source] = {}
    for number in np.flatnonzero(shown & (place >= 0)):
        source, row = spool.names[number][0], int(place[number])
        other = owner.setdefault(row, source)
        if other.name != source.name:
            raise DataError(
                f"image {images.image_id[row]!r} of split {split!r} has detections in {other.path} and in "
                f"{source.path}. Name a file as the split or the dataset that it is for"
            )

"""Detections of other programs, written into the regions folders of a benchmark's splits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from farther.code import digest_of
from farther.detectors.imported.base import DetectionsSource, Imported
from farther.detectors.imported.spool import Spool, spooled
from farther.detectors.known_classes import Names, renamed
from farther.detectors.splits import read_splits, region_ids, rename_classes, update_splits
from farther.errors import DataError, shorten
from farther.images.stream import columns_as_json
from farther.keyed import key_of
from farther.tables import Header, Images, RegionsFolder, RegionsWriter
from farther.terminal import say

#: Width to which COCO pads the numbers of its images.
COCO_DIGITS = 12
#: Largest part of a split's boxes that may lie outside of their images by more than half of their area.
OUTSIDE = 0.25
#: Boxes that are checked at once.
BOXES = 2**18


def import_splits(
    adapter: Imported,
    splits: str | Path,
    out: str | Path,
    work: str | Path,
    shard_images: int = 512,
    *,
    classes: Names | None = None,
    without: Collection[str] = (),
    log: Callable[[str], None] = say,
) -> dict[str, RegionsFolder]:
    """Imports detections into one regions folder per split, for those splits whose cache key changed.

    All files are read once, if any split needs them, and stored as columns in the work folder (about as large as the
    regions will be); then each split selects its rows, shard by shard. Rows are in the order of the images table, those
    of one image in the order of the file; regions are numbered as `farther.detectors.inference.infer` does.

    Args:
        adapter: Reads the detections.
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        out, work: Folders of the results and of unfinished work, on one file system.
        shard_images: Images in one shard.
        classes: Other names of the classes, see `farther.detectors.known_classes.renamed`.
        without: Splits to leave out.
        log: Takes one line per split, and one about detections that no split uses.

    Returns:
        The regions folder of each split.

    Raises:
        DataError: a file or a row is wrong; no image of a split is known to the files; two of them have detections of
            the same image.
    """
    work, tables = Path(work), read_splits(splits)
    scopes = Scopes(frozenset(tables), frozenset(name for images in tables.values() for name in images.dataset))
    tables = {split: images for split, images in tables.items() if split not in without}
    with ExitStack() as stack:
        making = _Making(adapter, adapter.header(), tables, scopes, shard_images, stack, work / ".rows", log)
        named = renamed(making.header, classes)
        folders = update_splits({split: making.key(split) for split in tables}, out, work, making.make, log)
        making.log_unused()
    return rename_classes(folders, list(tables), named)


def check_import(adapter: Imported, splits: Mapping[str, Images], names: Scopes, folder: Path) -> str:
    """Reads all detections as `import_splits` does, and looks for the images of splits.

    Args:
        adapter: Reads the detections.
        splits: Images that each split selects from.
        names: All splits and datasets of the benchmark.
        folder: Folder for unfinished work.

    Returns:
        How many detections there are, and how many of them belong to no split.

    Raises:
        DataError: as in `import_splits`.
    """
    with spooled(adapter, adapter.header(), folder) as spool:
        said = [f"{len(spool)} detections"]
        for split, images in splits.items():
            place = checked_places(spool, split, images, names, adapter.weights)
            said.append(check_boxes(spool, place, images, adapter))
        said.append(unused(spool, splits, names) if names.splits <= splits.keys() else "")
        return "; ".join(filter(None, said))


@dataclass(frozen=True)
class Scopes:
    """Names of sources that restrict them to a split or a dataset.

    Args:
        splits: The benchmark's splits.
        datasets: The datasets that their images come from.
    """

    splits: frozenset[str]
    datasets: frozenset[str]

    def of(self, source: DetectionsSource) -> str:
        """Scope of a source: one "split", one "dataset", or "all"."""
        return "split" if source.name in self.splits else "dataset" if source.name in self.datasets else "all"


@dataclass
class _Making:
    """Makes the folders of splits; the files are read when the first of them is made."""

    adapter: Imported
    header: Header
    tables: dict[str, Images]
    scopes: Scopes
    shard_images: int
    stack: ExitStack
    folder: Path
    log: Callable[[str], None]

    @cached_property
    def spool(self) -> Spool:
        """All detections."""
        spool = self.stack.enter_context(spooled(self.adapter, self.header, self.folder))
        optional = [n for n in ("logits", "features", "latent", "box_variance", "uncertainty") if n in spool.columns]
        self.log(f"read {len(spool)} detections, each with {', '.join(optional) or 'neither logits nor features'}")
        return spool

    def key(self, split: str) -> str:
        """Digest of everything that a split's regions folder depends on."""
        scopes = [[source.name, self.scopes.of(source)] for source in self.adapter.sources()]
        params = {
            "header": self.header.to_json(),
            "last_layer": self.header.layer_digest(),
            "shard_images": self.shard_images,
            "split": split,
            "scopes": scopes,
            "images": columns_as_json(self.tables[split]),
            "code": digest_of(__name__, type(self.adapter).__module__),
        }
        return key_of([], params)

    def make(self, split: str, out: Path, work: Path) -> str:
        """Writes the regions folder of a split."""
        images = self.tables[split]
        place = checked_places(self.spool, split, images, self.scopes, self.adapter.weights)
        if odd := check_boxes(self.spool, place, images, self.adapter):
            self.log(f"{split}: {odd}")
        rows = place[self.spool.image]
        order = np.argsort(rows, kind="stable")
        order = order[np.searchsorted(rows[order], 0) :]
        rows = rows[order]
        image_id = images.image_id[rows]
        numbers = region_ids(rows, image_id)
        writer = RegionsWriter(out, self.header, work, self.key(split))
        starts = range(0, len(images), self.shard_images)
        for shard, start in enumerate(starts):
            stop = min(start + self.shard_images, len(images))
            part = slice(*np.searchsorted(rows, [start, stop]))
            sides = np.stack([images.width, images.height] * 2, axis=1)[rows[part]]
            unit = sides if self.adapter.in_fractions else np.ones(1)
            regions = self.spool.take(order[part], image_id[part], numbers[part], self.header, unit)
            writer.write_shard(shard, regions, stop - start)
        writer.close(len(starts))
        empty = len(images) - len(np.unique(rows))
        return f"{len(images)} images, {len(rows)} regions; {empty} images have no detections"

    def log_unused(self) -> None:
        """Logs how many detections no split uses, if the files were read at all."""
        if "spool" not in self.__dict__:
            return
        if text := unused(self.spool, self.tables, self.scopes):
            self.log(text)


def unused(spool: Spool, splits: Mapping[str, Images], scopes: Scopes) -> str:
    """How many detections of how many images no split uses; empty where all are used."""
    wanted = np.zeros(len(spool.names), bool)
    for split, images in splits.items():
        wanted |= places(spool.names, split, images, scopes) >= 0
    counts = np.bincount(spool.image, minlength=len(wanted)) * ~wanted
    if not counts.any():
        return ""
    count, (source, name) = counts.sum(), spool.names[int(counts.argmax())]
    shown = shorten(name if source.image_files is None else source.image_files[int(name)])
    return (
        f"{count} detection{'' if count == 1 else 's'} ignored: not in any split (images: {np.count_nonzero(counts)}, "
        f"as {shown})"
    )


def places(names: Sequence[tuple[DetectionsSource, str]], split: str, images: Images, scopes: Scopes) -> np.ndarray:
    """Rows in a split's table of the images that sources name.

    Args:
        names: Sources, and their names of images.
        split: The split's name.
        images: Its images.
        scopes: Names that restrict sources.

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
        self._files = list(images.file)
        self._stems = [str(path.parent / path.stem) for path in map(PurePosixPath, images.file)]
        self._numbered = any(image_id.isdecimal() for image_id in self._by_id)
        self._by_name: dict[str, list[int]] = {}
        self._by_stem: dict[str, list[int]] = {}
        for row, file in enumerate(images.file):
            self._by_name.setdefault(PurePosixPath(file).name, []).append(row)
            self._by_stem.setdefault(PurePosixPath(file).stem, []).append(row)

    def row(self, source: DetectionsSource, name: str) -> int:
        """Row of an image, -1 where the table does not have it."""
        if source.image_files is not None:
            return self._row_of_file(source, source.image_files[int(name)])
        row = -1
        if source.named == "id":
            row = self._by_id.get(name, -1)
            if row < 0 and name.isdecimal():
                row = self._by_id.get(name.zfill(COCO_DIGITS), -1)
        file = name.replace("\\", "/")
        row = row if row >= 0 else self._row_of_file(source, file)
        if row < 0 and (source.named == "file" or not (self._numbered and name.isdecimal())):
            row = self._row_of_stem(source, file)
        return row

    def _row_of_file(self, source: DetectionsSource, file: str) -> int:
        return self._only(source, file, self._by_name, self._files)

    def _row_of_stem(self, source: DetectionsSource, file: str) -> int:
        """Row of the image whose file has this name before its ending."""
        return self._only(source, file, self._by_stem, self._stems)

    def _only(self, source: DetectionsSource, file: str, rows: dict[str, list[int]], paths: Sequence[str]) -> int:
        """The row whose path ends as a file's name does."""
        fitting = [row for row in rows.get(PurePosixPath(file).name, []) if _ends_alike(file, paths[row])]
        if len(fitting) > 1:
            first, second = (self._files[row] for row in fitting[:2])
            problem = f"{file!r} may be {first!r} or {second!r}: give its folders too"
            raise DataError(problem, file=source.path, field="file_name")
        return fitting[0] if fitting else -1


def _ends_alike(one: str, other: str) -> bool:
    """True if the shorter of two paths is the end of the longer."""
    parts = [PurePosixPath(path).parts for path in (one, other)]
    length = min(len(p) for p in parts)
    return parts[0][-length:] == parts[1][-length:]


def checked_places(spool: Spool, split: str, images: Images, scopes: Scopes, weights: Path) -> np.ndarray:
    """`places` of the images of a spool that was read from `weights`.

    Raises:
        DataError: none of them is in the split, two sources have detections of the same one, or see `places`.
    """
    place = places(spool.names, split, images, scopes)
    if len(images) and not (place >= 0).any():
        shown = [name if of.image_files is None else of.image_files[int(name)] for of, name in spool.names[:3]]
        theirs = ", ".join(map(repr, shown)) or "none"
        ours = ", ".join(f"{i!r} ({file})" for i, file in zip(images.image_id[:3], images.file[:3], strict=True))
        raise DataError(
            f"no image of split {split!r} is in the detections. They name {theirs}; the split has {ours}. Use the same "
            "names; for the numbers of COCO results, give the parameter 'annotations', which maps them to files",
            file=spool.names[0][0].path if spool.names else weights,
        )
    detected = np.bincount(spool.image, minlength=len(spool.names)) > 0
    owner: dict[int, DetectionsSource] = {}
    for number in np.flatnonzero(detected & (place >= 0)):
        source, row = spool.names[number][0], int(place[number])
        other = owner.setdefault(row, source)
        if other.name != source.name:
            raise DataError(
                f"image {images.image_id[row]!r} of split {split!r} has detections in {other.path} and in "
                f"{source.path}. Name a file as the split or the dataset that it is for"
            )
    return place


def check_boxes(spool: Spool, place: np.ndarray, images: Images, adapter: Imported) -> str:
    """Looks for boxes in another unit than pixels of their images, or than the fractions that were announced.

    Args:
        spool: All detections.
        place: Row of `images` of each of its names, -1 for none; see `places`.
        images: Images of a split, with their sizes; boxes in those without a size are not looked at.
        adapter: Where the detections are from.

    Returns:
        How many boxes lie outside of their images, or within the first pixel; empty where none does.

    Raises:
        DataError: more than `OUTSIDE` of the boxes lie outside of their images, or all of them within the first pixel.
    """
    placed = np.flatnonzero(place[spool.image] >= 0)
    placed = placed[images.width[place[spool.image[placed]]] > 0]
    sizes = np.stack([images.width, images.height] * 2, axis=1).astype(np.float64)
    counts, examples = np.zeros(2, np.int64), dict[int, int]()
    for start in range(0, len(placed), BOXES):
        rows = placed[start : start + BOXES]
        size, box = sizes[place[spool.image[rows]]], spool.columns["box"][rows].astype(np.float64)
        wrong = _is_outside_or_tiny(box * size if adapter.in_fractions else box, size[:, :2])
        counts += wrong.sum(axis=1)
        examples = {kind: int(rows[found.argmax()]) for kind, found in enumerate(wrong) if found.any()} | examples
    if not counts.any():
        return ""
    kind = int(counts.argmax())
    image, box = place[spool.image[examples[kind]]], spool.columns["box"][examples[kind]].astype(float).round(3)
    where = ("outside of their images", "within the first pixel of their images")[kind]
    size = f"{images.width[image]} x {images.height[image]} pixels"
    unit = "fractions of the image's width and height" if adapter.in_fractions else "pixels of the image"
    problem = (
        f"{counts[kind]} of {len(placed)} boxes lie {where}, as {box.tolist()} (xmin, ymin, xmax, ymax) of "
        f"{shorten(images.image_id[image])} ({size}): are they in {unit}?"
    )
    if counts[0] > OUTSIDE * len(placed) or counts[1] == len(placed):
        raise DataError(problem, file=adapter.weights, field="box")
    return problem


def _is_outside_or_tiny(box: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Whether each box lies outside of its image by more than half of its area, and within the first pixel: (2, N)."""
    inner = np.clip(np.minimum(box[:, 2:], size) - np.maximum(box[:, :2], 0), 0, None).prod(axis=1)
    sides = box[:, 2:] - box[:, :2]
    return np.stack([inner < sides.prod(axis=1) / 2, (box[:, 2:] <= 1).all(axis=1) & (sides < 1).any(axis=1)])

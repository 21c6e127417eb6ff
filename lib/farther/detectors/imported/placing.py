"""Detections of other programs, written into the regions folders of a benchmark's splits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from farther.code import digest_of
from farther.detectors.imported.base import DetectionsSource, Imported
from farther.detectors.imported.images import (
    BenchmarkImage,
    BenchmarkImages,
    ImagePlaces,
    Scopes,
    examples,
)
from farther.detectors.imported.spool import Spool, spooled
from farther.detectors.known_classes import Names, renamed
from farther.detectors.splits import read_splits, region_ids, rename_classes, update_splits
from farther.errors import DataError, shorten
from farther.images.stream import columns_as_json
from farther.keyed import key_of
from farther.tables import Header, Images, RegionsFolder, RegionsWriter
from farther.terminal import say

#: Largest part of a split's boxes that may lie outside of their images by more than half of their
#: area.
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
    roots: Mapping[str, Path] | None = None,
    left_out: Sequence[BenchmarkImage] = (),
    log: Callable[[str], None] = say,
) -> dict[str, RegionsFolder]:
    """Imports detections into one regions folder per split, for those splits whose cache key changed.

    All files are read once, if any split needs them, and stored as columns in the work folder
    (about as large as the regions will be); then each split selects its rows, shard by shard. Rows
    are in the order of the images table, those of one image in the order of the file; regions are
    numbered as `farther.detectors.inference.infer` does.

    Args:
        adapter: Reads the detections.
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        out, work: Folders of the results and of unfinished work, on one file system.
        shard_images: Images in one shard.
        classes: Other names of the classes, see `farther.detectors.known_classes.renamed`.
        without: Splits to leave out.
        roots: Folder of the image files of each dataset: names with these folders are told apart.
        left_out: Images of the datasets that no split has: detections in them are not for images of
            the same name.
        log: Takes one line per split, and one about detections that no split uses.

    Returns:
        The regions folder of each split.

    Raises:
        DataError: a file or a row is wrong; a name of an image fits two images of the benchmark; no
            image of a split is known to the files; two of them have detections of the same image.
    """
    work, every = Path(work), read_splits(splits)
    datasets = frozenset(name for images in every.values() for name in images.dataset)
    scopes = Scopes(frozenset(every), datasets, roots or {})
    tables = {split: images for split, images in every.items() if split not in without}
    with ExitStack() as stack:
        making = _Making(
            adapter,
            adapter.header(),
            every,
            tables,
            scopes,
            left_out,
            shard_images,
            stack,
            work / ".rows",
            log,
        )
        named = renamed(making.header, classes)
        folders = update_splits(
            {split: making.key(split) for split in tables}, out, work, making.make, log
        )
        making.log_unused()
    return rename_classes(folders, list(tables), named)


def check_import(
    adapter: Imported, splits: Mapping[str, Images], names: Scopes, folder: Path
) -> str:
    """Reads all detections as `import_splits` does, and looks for the images of splits.

    Args:
        adapter: Reads the detections.
        splits: Images that each split selects from.
        names: All splits and datasets of the benchmark.
        folder: Folder for unfinished work.

    Returns:
        How many detections there are, how many images of each split have none, and how many
        detections belong to no split.

    Raises:
        DataError: as in `import_splits`.
    """
    with spooled(adapter, adapter.header(), folder) as spool:
        counted = [f"{len(spool)} detections"]
        places = BenchmarkImages(splits, names).place(spool.names)
        for split, images in splits.items():
            place = places.in_split(split)
            check_place(spool, place, split, images, adapter.weights)
            counted.append(check_boxes(spool, place, images, adapter))
            counted.append(_without_detections(split, images, uncovered(spool, place, images)))
        if names.splits <= splits.keys():
            counted.append(unused(spool, places))
        return "; ".join(filter(None, counted))


def _without_detections(split: str, images: Images, rows: np.ndarray) -> str:
    """How many images of a split have no detection, and the first of them; empty where all have some."""
    if not len(rows):
        return ""
    return f"{len(rows)} of {len(images)} images of {split} have no detection, as {shorten(images.file[rows[0]])}"


@dataclass
class _Making:
    """Makes the folders of splits; the files are read when the first of them is made."""

    adapter: Imported
    header: Header
    every: dict[str, Images]
    tables: dict[str, Images]
    scopes: Scopes
    left_out: Sequence[BenchmarkImage]
    shard_images: int
    stack: ExitStack
    folder: Path
    log: Callable[[str], None]

    @cached_property
    def spool(self) -> Spool:
        """All detections."""
        spool = self.stack.enter_context(spooled(self.adapter, self.header, self.folder))
        optional = [
            n
            for n in ("logits", "features", "latent", "box_variance", "uncertainty")
            if n in spool.columns
        ]
        self.log(
            f"read {len(spool)} detections, each with {', '.join(optional) or 'neither logits nor features'}"
        )
        return spool

    @cached_property
    def places(self) -> ImagePlaces:
        """The image that each name of the detections means, among those of all splits of the benchmark."""
        return BenchmarkImages(self.every, self.scopes, self.left_out).place(self.spool.names)

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
        place = self.places.in_split(split)
        check_place(self.spool, place, split, images, self.adapter.weights)
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
        text = unused(self.spool, self.places)
        if text:
            self.log(text)


def unused(spool: Spool, places: ImagePlaces) -> str:
    """How many detections of how many images no split uses; empty where all are used.

    Args:
        spool: All detections.
        places: The images of its names.
    """
    counts = np.bincount(spool.image, minlength=len(spool.names)) * ~places.is_placed
    if not counts.any():
        return ""
    count = int(counts.sum())
    source, name = spool.names[int(counts.argmax())]
    plural = "" if count == 1 else "s"
    images = f"images: {np.count_nonzero(counts)}, as {shorten(source.file_of(name))}"
    return f"{count} detection{plural} ignored: not in any split ({images})"


def uncovered(spool: Spool, place: np.ndarray, images: Images) -> np.ndarray:
    """Rows of a split's images without any detection.

    Args:
        spool: All detections.
        place: Row of `images` of each of its names, −1 for none.
        images: Images of the split.
    """
    rows = place[spool.image]
    is_covered = np.zeros(len(images), bool)
    is_covered[rows[rows >= 0]] = True
    return np.flatnonzero(~is_covered)


def check_place(spool: Spool, place: np.ndarray, split: str, images: Images, weights: Path) -> None:
    """Refuses detections that are for other images than those of a split, or twice for one of them.

    Args:
        spool: All detections, which were read from `weights`.
        place: Row of `images` of each of its names, −1 for none.
        split: The split.
        images: Its images.

    Raises:
        DataError: no name is of an image of the split, or two sources have detections of the same
            one.
    """
    if len(images) and not (place >= 0).any():
        ours = ", ".join(
            f"{i!r} ({file})" for i, file in zip(images.image_id[:3], images.file[:3], strict=True)
        )
        raise DataError(
            f"no image of split {split!r} is in the detections. They name {examples(spool.names)}; the split has "
            f"{ours}. Detect in these images too, and use the same names; for the numbers of COCO results, give the "
            "parameter 'annotations', which maps them to files",
            file=spool.names[0][0].path if spool.names else weights,
        )
    is_detected = np.bincount(spool.image, minlength=len(spool.names)) > 0
    source_by_row: dict[int, DetectionsSource] = {}
    for number in np.flatnonzero(is_detected & (place >= 0)):
        source, row = spool.names[number][0], int(place[number])
        other = source_by_row.setdefault(row, source)
        if other.name != source.name:
            raise DataError(
                f"image {images.image_id[row]!r} of split {split!r} has detections in {other.path} and in "
                f"{source.path}. Name a file as the split or the dataset that it is for"
            )


def check_boxes(spool: Spool, place: np.ndarray, images: Images, adapter: Imported) -> str:
    """Looks for boxes in another unit than pixels of their images, or than the fractions that were announced.

    Args:
        spool: All detections.
        place: Row of `images` of each of its names, -1 for none; see `places`.
        images: Images of a split, with their sizes; boxes in those without a size are not looked
            at.
        adapter: Where the detections are from.

    Returns:
        How many boxes lie outside of their images, or within the first pixel; empty where none
        does.

    Raises:
        DataError: more than `OUTSIDE` of the boxes lie outside of their images, or all of them
            within the first pixel.
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
        examples = {
            kind: int(rows[found.argmax()]) for kind, found in enumerate(wrong) if found.any()
        } | examples
    if not counts.any():
        return ""
    kind = int(counts.argmax())
    image, box = (
        place[spool.image[examples[kind]]],
        spool.columns["box"][examples[kind]].astype(float).round(3),
    )
    where = ("outside of their images", "within the first pixel of their images")[kind]
    size = f"{images.width[image]} x {images.height[image]} pixels"
    unit = (
        "fractions of the image's width and height"
        if adapter.in_fractions
        else "pixels of the image"
    )
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
    return np.stack(
        [inner < sides.prod(axis=1) / 2, (box[:, 2:] <= 1).all(axis=1) & (sides < 1).any(axis=1)]
    )

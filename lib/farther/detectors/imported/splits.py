"""Detections of other programs, written into the regions folders of a benchmark's splits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from farther.detectors.imported.base import DetectionsSource, Imported
from farther.detectors.imported.images import (
    BenchmarkImage,
    BenchmarkImages,
    MatchedNames,
    Scopes,
    examples,
)
from farther.detectors.imported.spool import Spool, spooled
from farther.detectors.known_classes import ClassNames, with_class_names
from farther.detectors.splits import SplitFolders, read_splits, region_ids
from farther.errors import DataError, shorten
from farther.images.job import columns_as_json
from farther.incremental.code import modules_digest
from farther.incremental.keyed import key_of
from farther.tables import Header, Images, RegionsFolder, RegionsWriter
from farther.text.terminal import say

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
    classes: ClassNames | None = None,
    without: Collection[str] = (),
    roots: Mapping[str, Path] | None = None,
    left_out: Sequence[BenchmarkImage] = (),
    log: Callable[[str], None] = say,
) -> dict[str, RegionsFolder]:
    """Imports detections into one regions folder per split, if the split's cache key changed.

    All files are read once, if any split needs them, and stored as columns in the work folder
    (about as large as the regions will be); then each split selects its rows, shard by shard. Rows
    are in the order of the images table, those of one image in the order of the file; regions are
    numbered as `farther.detectors.inference.infer` does.

    Args:
        adapter: Reads the detections.
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        out, work: Folders of the results and of unfinished work, on one file system.
        shard_images: Images in one shard.
        classes: Other names of the classes, see `farther.detectors.known_classes.with_class_names`.
        without: Splits to leave out.
        roots: Folder of the image files of each dataset, which distinguishes images of one name.
        left_out: Images of the datasets that no split has: detections in them are not for images of
            the same name.
        log: Takes one line per split, and one about detections that no split uses.

    Returns:
        The regions folder of each split.

    Raises:
        DataError: a file or a row is wrong; a name of an image fits two images of the benchmark; no
            image of a split is known to the files; two of them have detections of the same image.
    """
    work = Path(work)
    images_by_split = read_splits(splits)
    header = adapter.header()
    scopes = _scopes(images_by_split, roots or {})

    benchmark_digest = _benchmark_digest(images_by_split, left_out, scopes)
    keys = {}
    for split in images_by_split:
        if split not in without:
            keys[split] = _split_key(adapter, header, split, benchmark_digest, shard_images)

    folders = SplitFolders(out, work, keys, log)
    spool: Spool | None = None
    with ExitStack() as stack:
        for split in folders.outdated():
            if spool is None:
                spool = stack.enter_context(spooled(adapter, header, work / ".rows"))
                log(f"read {len(spool)} detections, each with {_optional_columns(spool)}")
                for note in spool.notes():
                    log(note)
                matches = BenchmarkImages(images_by_split, scopes, left_out).place(spool.names)
            images = images_by_split[split]
            row_of_name = matches.in_split(split)
            check_images(spool, row_of_name, split, images, adapter.weights)
            problem = check_boxes(spool, row_of_name, images, adapter)
            if problem:
                log(f"{split}: {problem}")
            with folders.make(split) as folder:
                writer = RegionsWriter(folder, header, work / split, keys[split])
                summary = _write_split(writer, spool, row_of_name, images, adapter, shard_images)
            log(f"{split}: {summary}")
        if spool is not None:
            unused_detections = unused(spool, matches)
            if unused_detections:
                log(unused_detections)
    return folders.rename_classes(with_class_names(header, classes))


def check_import(
    adapter: Imported,
    splits: Mapping[str, Images],
    names: Scopes,
    folder: Path,
    most: int | None = None,
) -> str:
    """Reads detections as `import_splits` does, and looks for the images of splits.

    Args:
        adapter: Reads the detections.
        splits: Images that each split selects from.
        names: All splits and datasets of the benchmark.
        folder: Folder for unfinished work.
        most: Number of detections of each source after which no more are read; None for all.

    Returns:
        How many detections there are, how many images of each split have none, and how many
        detections belong to no split.

    Raises:
        DataError: as in `import_splits`.
    """
    with spooled(adapter, adapter.header(), folder, most) as spool:
        count = f"{len(spool)} detections"
        if most is not None:
            count = f"the first {len(spool)} detections of large files"
        findings = [count, *spool.notes()]
        matches = BenchmarkImages(splits, names).place(spool.names)
        for split, images in splits.items():
            row_of_name = matches.in_split(split)
            if most is not None:
                findings.append(check_boxes(spool, row_of_name, images, adapter))
                continue
            check_images(spool, row_of_name, split, images, adapter.weights)
            findings.append(check_boxes(spool, row_of_name, images, adapter))
            findings.append(
                _without_detections(split, images, uncovered(spool, row_of_name, images))
            )
        if most is None and names.splits <= splits.keys():
            findings.append(unused(spool, matches))
        # Splits of one subset have the same findings.
        return "; ".join(dict.fromkeys(finding for finding in findings if finding))


def _without_detections(split: str, images: Images, rows: np.ndarray) -> str:
    """Message on the images of a split without detections, at `rows`; empty if there are none."""
    if not len(rows):
        return ""
    example = shorten(images.file[rows[0]])
    return f"{len(rows)} of {len(images)} images of {split} have no detection, as {example}"


def _scopes(images_by_split: Mapping[str, Images], roots: Mapping[str, Path]) -> Scopes:
    """The splits and the datasets of a benchmark, which detections can be for."""
    datasets: set[str] = set()
    for images in images_by_split.values():
        datasets.update(images.dataset)
    return Scopes(frozenset(images_by_split), frozenset(datasets), roots)


def _benchmark_digest(
    images_by_split: Mapping[str, Images], left_out: Sequence[BenchmarkImage], scopes: Scopes
) -> str:
    """Digest of everything that decides which image a name in the detections is of.

    These are the images of all splits and those that are left out: a name may fit several.
    """
    images_as_json = {split: columns_as_json(images) for split, images in images_by_split.items()}
    params = {
        "images": images_as_json,
        "left_out": sorted([image.dataset, image.file, image.image_id] for image in left_out),
        "datasets": sorted(scopes.datasets),
        "roots": {dataset: str(root) for dataset, root in scopes.roots.items()},
    }
    return key_of([], params)


def _split_key(
    adapter: Imported, header: Header, split: str, benchmark_digest: str, shard_images: int
) -> str:
    """Cache key of a split's regions folder."""
    params = {
        "header": header.to_json(),
        "last_layer": header.layer_digest(),
        "shard_images": shard_images,
        "split": split,
        "sources": [source.name for source in adapter.sources()],
        "benchmark": benchmark_digest,
        "code": modules_digest(__name__, type(adapter).__module__),
    }
    return key_of([], params)


def _optional_columns(spool: Spool) -> str:
    """The optional columns of detections, for a message."""
    columns = ("logits", "features", "latent", "box_variance", "uncertainty")
    present = [column for column in columns if column in spool.columns]
    return ", ".join(present) or "neither logits nor features"


def _write_split(
    writer: RegionsWriter,
    spool: Spool,
    row_of_name: np.ndarray,
    images: Images,
    adapter: Imported,
    shard_images: int,
) -> str:
    """Writes the regions of a split.

    Args:
        writer: Writes the regions folder.
        spool: All detections.
        row_of_name: Row of `images` of each name of the detections, −1 for none.
        images: The images of the split.
        adapter: Has read the detections.
        shard_images: Images in one shard.

    Returns:
        A summary.
    """
    # The detections in images of this split, sorted by the image's row.
    rows = row_of_name[spool.image]
    order = np.argsort(rows, kind="stable")
    order = order[np.searchsorted(rows[order], 0) :]
    rows = rows[order]
    image_id = images.image_id[rows]
    numbers = region_ids(rows, image_id)

    starts = range(0, len(images), shard_images)
    for shard, start in enumerate(starts):
        stop = min(start + shard_images, len(images))
        part = slice(*np.searchsorted(rows, [start, stop]))
        unit = np.ones(1)
        if adapter.in_fractions:
            unit = _corner_units(images, rows[part])
        regions = spool.take(order[part], image_id[part], numbers[part], writer.header, unit)
        writer.write_shard(shard, regions, stop - start)
    writer.close(len(starts))

    empty = len(images) - len(np.unique(rows))
    return f"{len(images)} images, {len(rows)} regions; {empty} images have no detections"


def _corner_units(images: Images, rows: np.ndarray) -> np.ndarray:
    """Width, height, width, height of the images at `rows`, shape (N, 4)."""
    return np.stack([images.width, images.height] * 2, axis=1)[rows]


def unused(spool: Spool, matches: MatchedNames) -> str:
    """Message on the detections that no split uses; empty if all are used.

    Args:
        spool: All detections.
        matches: The images of its names.
    """
    detections_by_name = np.bincount(spool.image, minlength=len(spool.names))
    unused_by_name = detections_by_name * ~matches.is_matched
    if not unused_by_name.any():
        return ""
    count = int(unused_by_name.sum())
    source, name = spool.names[int(unused_by_name.argmax())]
    detections = f"{count} detection" if count == 1 else f"{count} detections"
    images = f"images: {np.count_nonzero(unused_by_name)}, as {shorten(source.file_of(name))}"
    return f"{detections} ignored: not in any split ({images})"


def uncovered(spool: Spool, row_of_name: np.ndarray, images: Images) -> np.ndarray:
    """Rows of a split's images without any detection.

    Args:
        spool: All detections.
        row_of_name: Row of `images` of each of its names, −1 for none.
        images: Images of the split.
    """
    rows = row_of_name[spool.image]
    is_covered = np.zeros(len(images), bool)
    is_covered[rows[rows >= 0]] = True
    return np.flatnonzero(~is_covered)


def check_images(
    spool: Spool, row_of_name: np.ndarray, split: str, images: Images, weights: Path
) -> None:
    """Refuses detections that are for other images than those of a split, or twice for one of them.

    Args:
        spool: All detections, which were read from `weights`.
        row_of_name: Row of `images` of each of its names, −1 for none.
        split: The split.
        images: Its images.

    Raises:
        DataError: no name is of an image of the split, or two sources have detections of the same
            one.
    """
    if len(images) and not (row_of_name >= 0).any():
        raise DataError(
            f"no image of split {split!r} is in the detections. They name "
            f"{examples(spool.names)}; the split has {_examples_of(images)}. Detect in these "
            "images too, and use the same names; for the numbers of COCO results, give the "
            "parameter 'annotations', which maps them to files",
            file=spool.names[0][0].path if spool.names else weights,
        )

    has_detections = np.bincount(spool.image, minlength=len(spool.names)) > 0
    source_by_row: dict[int, DetectionsSource] = {}
    for number in np.flatnonzero(has_detections & (row_of_name >= 0)):
        source = spool.names[number][0]
        row = int(row_of_name[number])
        first_source = source_by_row.setdefault(row, source)
        if first_source.name != source.name:
            raise DataError(
                f"image {images.image_id[row]!r} of split {split!r} has detections in "
                f"{first_source.path} and in {source.path}. Name a file as the split or the "
                "dataset that it is for"
            )


def _examples_of(images: Images) -> str:
    """The names and files of the first three images of a split."""
    first_images = zip(images.image_id[:3], images.file[:3], strict=True)
    return ", ".join(f"{image_id!r} ({file})" for image_id, file in first_images)


def check_boxes(spool: Spool, row_of_name: np.ndarray, images: Images, adapter: Imported) -> str:
    """Looks for boxes in another unit than the adapter's: pixels, or fractions of the image.

    Args:
        spool: All detections.
        row_of_name: Row of `images` of each of its names, −1 for none.
        images: Images of a split, with their sizes; boxes in images without a size are not checked.
        adapter: Has read the detections.

    Returns:
        A message on boxes outside of their images, or within the first pixel; empty if there are
        none.

    Raises:
        DataError: more than `OUTSIDE` of the boxes lie outside of their images, or all of them
            within the first pixel.
    """
    rows = np.flatnonzero(row_of_name[spool.image] >= 0)
    rows = rows[images.width[row_of_name[spool.image[rows]]] > 0]
    outside = _Suspects("outside of their images")
    tiny = _Suspects("within the first pixel of their images")
    for start in range(0, len(rows), BOXES):
        batch = rows[start : start + BOXES]
        box = spool.columns["box"][batch].astype(np.float64)
        size = _corner_units(images, row_of_name[spool.image[batch]]).astype(np.float64)
        if adapter.in_fractions:
            box = box * size
        outside.add(batch, _is_outside(box, size[:, :2]))
        tiny.add(batch, _is_tiny(box))

    suspects = tiny if tiny.count > outside.count else outside
    if suspects.count == 0:
        return ""
    problem = _box_problem(spool, row_of_name, images, adapter, suspects, len(rows))
    if outside.count > OUTSIDE * len(rows) or tiny.count == len(rows):
        raise DataError(problem, file=adapter.weights, field="box")
    return problem


class _Suspects:
    """Boxes that are probably in another unit: their number, and the row of the first one."""

    def __init__(self, where: str):
        self.where = where
        self.count = 0
        self.first_row = -1

    def add(self, rows: np.ndarray, is_suspect: np.ndarray) -> None:
        """Counts those of some boxes that are suspect."""
        suspect_rows = rows[is_suspect]
        if len(suspect_rows) and self.count == 0:
            self.first_row = int(suspect_rows[0])
        self.count += len(suspect_rows)


def _is_outside(box: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Whether more than half of each box's area lies outside of its image, shape (N,).

    Args:
        box: Corners in pixels, shape (N, 4).
        size: Width and height of the images, shape (N, 2).
    """
    inner_corner = np.maximum(box[:, :2], 0)
    outer_corner = np.minimum(box[:, 2:], size)
    inner_area = np.clip(outer_corner - inner_corner, 0, None).prod(axis=1)
    area = (box[:, 2:] - box[:, :2]).prod(axis=1)
    return inner_area < area / 2


def _is_tiny(box: np.ndarray) -> np.ndarray:
    """Whether each box of shape (N, 4) lies within the first pixel of its image, shape (N,)."""
    sides = box[:, 2:] - box[:, :2]
    return (box[:, 2:] <= 1).all(axis=1) & (sides < 1).any(axis=1)


def _box_problem(
    spool: Spool,
    row_of_name: np.ndarray,
    images: Images,
    adapter: Imported,
    suspects: _Suspects,
    checked: int,
) -> str:
    """Message on boxes that are probably in another unit; `checked` is the number of all boxes."""
    row = suspects.first_row
    image = row_of_name[spool.image[row]]
    box = spool.columns["box"][row].astype(float).round(3).tolist()
    size = f"{images.width[image]} x {images.height[image]} pixels"
    unit = "pixels of the image"
    if adapter.in_fractions:
        unit = "fractions of the image's width and height"
    problem = (
        f"{suspects.count} of {checked} boxes lie {suspects.where}, as {box} (xmin, ymin, xmax, "
        f"ymax) of {shorten(images.image_id[image])} ({size}): are they in {unit}?"
    )
    xmin, ymin, xmax, ymax = box
    is_right_of = max(xmin, 1) < xmax - xmin <= images.width[image]
    is_below = max(ymin, 1) < ymax - ymin <= images.height[image]
    if is_right_of and is_below and not adapter.in_fractions:
        problem += (
            f" If the file says {xmin:g}, {ymin:g}, {xmax - xmin:g}, {ymax - ymin:g} and means "
            "xmin, ymin, xmax, ymax: COCO's boxes are x, y, width, height"
        )
    return problem

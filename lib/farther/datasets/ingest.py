"""Ingest: a dataset in its own format becomes the tables `images` and `objects`."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tqdm import tqdm

from farther.datasets.base import Annotations, DataWarning, ImageAttribute, Reader
from farther.datasets.image_attributes import ImageTable, brightness_attributes
from farther.datasets.orientation import as_displayed
from farther.datasets.presence import (
    EXTRACTED,
    refuse_fractions,
    refuse_many,
    refuse_missing_folders,
)
from farther.datasets.tidying import absence_warnings, corrected
from farther.errors import DataError
from farther.images.orientation import UPRIGHT
from farther.images.prepare import map_batches
from farther.images.read import problem_with, read_header
from farther.processes import count_cores
from farther.tables import ImageAttributes, Images, Objects
from farther.tables.annotations import UNLABELLED
from farther.tables.documents import write_json
from farther.tables.files import FileContent, digest, inside
from farther.tables.stored import ATTRIBUTES, WARNINGS
from farther.tables.writing import write_aside

#: A box that leaves its image by at most this many pixels was rounded; it is clipped and not
#: listed.
ROUNDING = 1.0

#: Edges beyond this are not fractions of an image.
LARGEST_FRACTION = 2.0

#: Number of objects whose boxes are checked at once.
BLOCK = 500_000

#: Number of images whose headers a thread reads in one task, and a process.
IMAGES_PER_TASK = 16
IMAGES_PER_BATCH = 512
#: Number of threads per process.
THREADS = 4
#: Number of images from which on processes read them.
IMAGES_FOR_PROCESSES = 2_000
#: Most bytes of an image file that is read whole: opened once for its header and its digest.
SMALL_BYTES = 1_000_000

#: Problems of boxes.
EMPTY = "box empty"
OUTSIDE = "box outside its image"
LEAVES = "box leaves its image"
TINY = "box smaller than a pixel"

#: Action by problem for the boxes that stay in the table; all others are dropped.
TOLERATED = {LEAVES: "clipped", TINY: "kept as it is"}


@dataclass(frozen=True, slots=True)
class _Header:
    """Displayed size, EXIF orientation and digest of an image file, or the problem with it."""

    width: int = 0
    height: int = 0
    orientation: int = UPRIGHT
    digest: str = ""
    problem: str = ""
    is_missing: bool = False


@dataclass(frozen=True)
class _SubsetTables:
    """The tables of a subset, and what `ingest` writes beside them.

    Args:
        images, objects: The tables.
        warnings: All warnings about the subset.
        attributes: Attributes of its images.
        categories: Names of the classes, in the dataset's order.
        parents: Ancestors by class.
    """

    images: Images
    objects: Objects
    warnings: list[DataWarning]
    attributes: list[ImageAttribute]
    categories: list[str]
    parents: dict[str, list[str]]

    def write(self, folder: Path) -> None:
        """Writes the tables to a folder."""
        self.images.write(folder / "images.parquet")
        self.objects.write(folder / "objects.parquet")
        if self.attributes:
            _write_attributes(self.attributes, self.images, folder / ATTRIBUTES)

    def counts(self) -> dict[str, int]:
        """Numbers of images, objects, categories that occur, and warnings."""
        labelled = self.objects[~self.objects.is_unlabelled]
        return {
            "images": len(self.images),
            "objects": len(labelled),
            "categories": len(set(labelled.category)),
            "warnings": len(self.warnings),
        }


@dataclass(frozen=True)
class _ClippedBoxes:
    """The boxes of a subset within their images.

    Args:
        box: Edges in pixels, float32 of shape (M, 4).
        keep: Mask of the boxes that stay in the table, shape (M,).
        warnings: A warning for each box that is changed or dropped, except those of unreadable
            images.
    """

    box: np.ndarray
    keep: np.ndarray
    warnings: list[DataWarning]


def ingest(reader: Reader, name: str, out: str | Path) -> dict[str, dict[str, int]]:
    """Reads all subsets of a dataset, checks them, and writes the tables.

    The header of each image file is opened; its pixels are not decoded.

    Tolerated and listed in `warnings.json`, beside what the reader tolerates: an unreadable image
    (dropped, with its objects); a missing one where the reader's `missing_images` is "drop"; an
    image of another size than annotated (the file's size is used); a box that leaves its image
    (clipped; by up to a pixel it is not listed); one that is empty or lies outside (dropped); one
    smaller than a pixel (kept); a subset without any object. Also listed: each image that its EXIF
    orientation turns, and what its boxes refer to (`Reader.orientation`); repeated objects, names
    of files in another spelling, and subsets that are absent; see `farther.datasets.tidying`.

    Attributes of images, such as the weather, are those of the annotations, of the table
    `images.csv` (see `farther.datasets.image_attributes`), and the brightness where the reader has
    it measured. Rows of the table without an image, and images without a row, are listed.

    Images that the annotations contain (Parquet) are written to files once, in
    `out/extracted-images`; `farther.datasets.image_roots` finds them there.

    Args:
        reader: From `farther.datasets.create`.
        name: The dataset's name, for the column `dataset`.
        out: Folder to write, aside first and then renamed: `<subset>/images.parquet`,
            `<subset>/objects.parquet`, `<subset>/attributes.parquet` where the dataset has
            attributes of images, `categories.json` (`categories` in the dataset's order, `parents`:
            ancestors by category), `warnings.json` (`counts` by kind, `warnings`).

    Returns:
        Numbers of images, objects, categories that occur, and warnings, by subset.

    Raises:
        DataError: see the reader; or an image or a folder of images is missing, no image is left,
            boxes are fractions of the image where pixels are expected, or more than the reader's
            `max_warnings` of the images or of the objects have a warning.
    """
    summary: dict[str, dict[str, int]] = {}
    categories: dict[str, None] = {}
    parents: dict[str, list[str]] = {}
    warnings: list[dict[str, Any]] = []
    image_table = ImageTable.read(reader.root)
    with write_aside(out) as aside:
        for subset in reader.subsets():
            if subset == EXTRACTED:
                raise DataError(
                    f"no subset may be called {EXTRACTED!r}: images are put there", file=reader.root
                )
            is_first = not summary
            tables = _read_subset(
                reader, subset, name, aside / EXTRACTED, with_absence_warnings=is_first
            )
            if image_table is not None:
                tables.attributes.extend(image_table.attributes_of(tables.images))
            tables.write(inside(aside, subset))

            categories.update(dict.fromkeys(tables.categories))
            parents.update(tables.parents)
            warnings += [{"subset": subset, **asdict(warning)} for warning in tables.warnings]
            summary[subset] = tables.counts()

        if image_table is not None:
            for warning in image_table.absence_warnings():
                warnings.append({"subset": "", **asdict(warning)})
        write_json(aside / "categories.json", {"categories": list(categories), "parents": parents})
        counts = Counter(str(warning["kind"]) for warning in warnings)
        write_json(aside / WARNINGS, {"counts": dict(sorted(counts.items())), "warnings": warnings})
    return summary


def _read_subset(
    reader: Reader, subset: str, name: str, extracted: Path, *, with_absence_warnings: bool
) -> _SubsetTables:
    """The tables of a subset.

    The annotations are freed on return: they take a gigabyte for the 14 million boxes of
    OpenImages, and writing the tables needs the memory.

    Args:
        reader: The dataset.
        subset: Name of the subset.
        name: The dataset's name.
        extracted: Folder for images that the annotations contain.
        with_absence_warnings: Add the warnings about absent subsets, which are listed once.
    """
    annotations = extract(reader.read(subset), extracted)
    if with_absence_warnings:
        warnings = annotations.warnings + absence_warnings(reader)
        annotations = replace(annotations, warnings=warnings)

    categories = list(annotations.categories)
    if len(annotations.unlabelled):
        categories.append(UNLABELLED)

    images, objects, warnings = to_tables(annotations, reader, name)
    attributes = list(annotations.attributes)
    if reader.brightness:
        root = annotations.image_root or annotations.root
        attributes += brightness_attributes(images, root)
    return _SubsetTables(images, objects, warnings, attributes, categories, annotations.parents)


def _write_attributes(attributes: Sequence[ImageAttribute], images: Images, path: Path) -> None:
    """Writes the attributes of the images that are in the table.

    Args:
        attributes: See `Annotations`.
        images: The images of the subset.
        path: The file.
    """
    schema = dict.fromkeys(("image_id", "attribute", "value"), pl.String)
    frame = pl.DataFrame(attributes, schema=schema, orient="row")
    frame = frame.filter(pl.col("image_id").is_in(images.image_id.tolist()))
    ImageAttributes.from_frame(frame).write(path)


def extract(annotations: Annotations, folder: Path) -> Annotations:
    """Writes the images that the annotations contain to a folder.

    Annotations without images are returned as they are.

    Raises:
        DataError: another image of the same name, with other content, was written there before.
    """
    if annotations.embedded is None:
        return annotations

    contents = tqdm(
        annotations.embedded(),
        "extracted",
        len(annotations.images),
        unit="image",
        leave=False,
        disable=None,
    )
    for row, content in contents:
        path = inside(folder, annotations.images.file[row])
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_bytes() != content:
            raise DataError(
                f"two images are called {annotations.images.file[row]!r}; "
                "a file name must name one image",
                file=annotations.root / annotations.file(row),
            )
        path.write_bytes(content)
    return replace(annotations, image_root=folder)


def to_tables(
    annotations: Annotations, reader: Reader, name: str
) -> tuple[Images, Objects, list[DataWarning]]:
    """The two tables of one subset, and all its warnings.

    Args:
        annotations: Annotations that `reader` read.
        reader: Its root and its limits are used.
        name: The dataset's name.

    Raises:
        DataError: see `ingest`.
    """
    refuse_fractions(annotations)
    annotations = corrected(annotations)

    refuse_missing_folders(annotations)
    headers = _read_headers(annotations)
    if reader.missing_images == "error":
        _refuse_missing(annotations, headers)
    is_readable = np.array([not header.problem for header in headers], dtype=bool)
    if not is_readable.any():
        raise DataError(
            "no image can be read; parameter 'root' says where the dataset is",
            file=annotations.root.joinpath(*annotations.files[:1]),
        )
    size = np.array([(header.width, header.height) for header in headers], dtype=np.int64)
    orientation = np.array([header.orientation for header in headers], dtype=np.int64)

    annotated_box = annotations.objects.box
    annotations = as_displayed(annotations, size, orientation, reader.orientation)
    clipped = _clip(annotations, size, is_readable, annotated_box)

    warnings = [
        *annotations.warnings,
        *_image_warnings(annotations, headers),
        *clipped.warnings,
    ]
    refuse_many(annotations, warnings, reader.max_warnings)
    if _is_without_objects(annotations):
        warnings.append(_no_objects_warning(annotations))

    images = _images_table(annotations, headers, name)
    objects = _objects_table(annotations, clipped)
    objects = _with_unlabelled(objects, annotations, size, is_readable)
    return images, objects, warnings


def _images_table(annotations: Annotations, headers: Sequence[_Header], name: str) -> Images:
    """The readable images of a dataset's subset."""
    is_readable = []
    widths = []
    heights = []
    digests = []
    for header in headers:
        is_readable.append(not header.problem)
        if not header.problem:
            widths.append(header.width)
            heights.append(header.height)
            digests.append(header.digest)

    rows = np.array(is_readable, dtype=bool)
    return Images(
        image_id=annotations.images.image_id[rows],
        dataset=np.full(len(digests), name, dtype=object),
        file=annotations.images.file[rows],
        width=np.array(widths, dtype=np.int64),
        height=np.array(heights, dtype=np.int64),
        digest=np.array(digests, dtype=object),
    )


def _objects_table(annotations: Annotations, clipped: _ClippedBoxes) -> Objects:
    """The objects of a subset whose boxes stay in the table."""
    objects = annotations.objects
    keep = clipped.keep
    categories = np.array(annotations.categories, dtype=object)
    return Objects(
        image_id=annotations.images.image_id[objects.image[keep]],
        object_id=objects.object_id[keep],
        box=clipped.box[keep],
        category=categories[objects.category[keep]],
        is_crowd=objects.is_crowd[keep],
        is_difficult=objects.is_difficult[keep],
    )


def _with_unlabelled(
    objects: Objects, annotations: Annotations, size: np.ndarray, is_readable: np.ndarray
) -> Objects:
    """The objects, and a crowd as large as the image for each readable unlabelled image."""
    rows = annotations.unlabelled[is_readable[annotations.unlabelled]]
    if not len(rows):
        return objects
    first_id = int(objects.object_id.max(initial=-1)) + 1
    crowds = Objects(
        image_id=annotations.images.image_id[rows],
        object_id=first_id + np.arange(len(rows)),
        box=np.concatenate([np.zeros((len(rows), 2)), size[rows]], axis=1),
        category=np.full(len(rows), UNLABELLED, dtype=object),
        is_crowd=np.ones(len(rows), dtype=bool),
    )
    return Objects.concatenate([objects, crowds])


def _read_headers(annotations: Annotations) -> list[_Header]:
    """Size and digest of each image, in order."""
    count = len(annotations.images)
    processes = count_cores() if count >= IMAGES_FOR_PROCESSES else 0
    headers: list[_Header] = []
    with tqdm(total=count, desc="images", unit="image", leave=False, disable=None) as progress:
        batches = _path_batches(annotations)
        for _, headers_of_batch in map_batches(_read_headers_of, batches, processes):
            headers += headers_of_batch
            progress.update(len(headers_of_batch))
    return headers


def _path_batches(annotations: Annotations) -> Iterator[list[Path]]:
    """The paths of the images, `IMAGES_PER_BATCH` at a time."""
    count = len(annotations.images)
    for start in range(0, count, IMAGES_PER_BATCH):
        stop = min(start + IMAGES_PER_BATCH, count)
        yield [annotations.image_path(row) for row in range(start, stop)]


def _read_headers_of(paths: list[Path]) -> list[_Header]:
    """Size and digest of some images; threads wait for the disk together."""
    with ThreadPool(THREADS) as pool:
        return pool.map(_read_header, paths, chunksize=IMAGES_PER_TASK)


def _read_header(path: Path) -> _Header:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("not a file")
        with path.open("rb") as file:
            content = file.read(SMALL_BYTES + 1)
        if len(content) > SMALL_BYTES:
            width, height, orientation = read_header(path)
            content_digest = digest(path)
        else:
            width, height, orientation = read_header(BytesIO(content))
            content_digest = digest(FileContent(content))
        return _Header(width, height, orientation, content_digest)
    except FileNotFoundError:
        return _Header(problem="no such file", is_missing=True)
    except Exception as error:
        # Decoders raise nearly anything for damaged files: OSError, SyntaxError, struct.error, …
        return _Header(problem=problem_with(error, path))


def _refuse_missing(annotations: Annotations, headers: Sequence[_Header]) -> None:
    """Refuses annotated images without a file."""
    missing_rows = [row for row, header in enumerate(headers) if header.is_missing]
    if not missing_rows:
        return
    first = missing_rows[0]
    raise DataError(
        f"the image {annotations.images.image_id[first]!r} is annotated, but its file does not "
        f"exist ({len(missing_rows)} of {len(headers)} are missing); place it there, or set "
        "missing_images: drop",
        file=annotations.image_path(first),
    )


def _image_warnings(annotations: Annotations, headers: Sequence[_Header]) -> list[DataWarning]:
    """A warning for each image that cannot be read, or has another size than annotated."""
    images = annotations.images
    warnings = []
    for row, header in enumerate(headers):
        if header.problem:
            kind = "image missing" if header.is_missing else "image unreadable"
            warnings.append(
                DataWarning(
                    kind=kind,
                    about="image",
                    file=images.file[row],
                    row=None,
                    field=None,
                    found=header.problem,
                    action="dropped with its objects",
                )
            )
            continue

        width = images.width[row]
        height = images.height[row]
        is_annotated = width != 0 and height != 0
        if is_annotated and (width, height) != (header.width, header.height):
            warnings.append(
                DataWarning(
                    kind="image of another size",
                    about="image",
                    file=images.file[row],
                    row=None,
                    field=None,
                    found=f"{header.width}×{header.height}, annotated as {width}×{height}",
                    action="the file's size is used",
                )
            )
    return warnings


def _is_without_objects(annotations: Annotations) -> bool:
    """True where a subset has annotated images, and no object in any of them."""
    has_annotated_images = len(annotations.unlabelled) < len(annotations.images)
    return has_annotated_images and not len(annotations.objects)


def _no_objects_warning(annotations: Annotations) -> DataWarning:
    """A warning about a subset without any object."""
    file = annotations.files[0] if len(annotations.files) == 1 else "."
    return DataWarning(
        kind="no object is labelled",
        about="dataset",
        file=file,
        row=None,
        field=None,
        found=f"no object in {len(annotations.images)} images",
        action="read as it is",
    )


def _clip(
    annotations: Annotations, size: np.ndarray, is_readable: np.ndarray, annotated_box: np.ndarray
) -> _ClippedBoxes:
    """Clips the boxes to their images, and selects those that stay in the table.

    Args:
        annotations: M objects in N images.
        size: True width and height of each image, shape (N, 2).
        is_readable: Mask of the images whose files can be read, shape (N,).
        annotated_box: The boxes before any was turned with its image, shape (M, 4), for messages.
    """
    objects = annotations.objects
    clipped_box = np.empty((len(objects), 4), dtype=np.float32)
    keep = np.empty(len(objects), dtype=bool)
    warnings: list[DataWarning] = []
    for start in range(0, len(objects), BLOCK):
        block = slice(start, start + BLOCK)
        image = objects.image[block]
        limit = np.tile(size[image], 2).astype(np.float64)
        box = objects.box[block]
        if objects.unit == "image":
            box = box * limit
        clipped = np.clip(box, 0, limit)
        problem = _box_problem(box, clipped)

        is_listed = (problem != "") & is_readable[image]
        for offset in np.flatnonzero(is_listed).tolist():
            index = start + offset
            kind = str(problem[offset])
            description = _described(
                annotated_box[index], box[offset], limit[offset, :2], objects.unit
            )
            action = TOLERATED.get(kind, "dropped")
            warnings.append(annotations.warning(index, kind, description, action))

        clipped_box[block] = clipped
        keep[block] = is_readable[image] & np.isin(problem, ["", *TOLERATED])
    return _ClippedBoxes(clipped_box, keep, warnings)


def _described(annotated: np.ndarray, pixels: np.ndarray, size: np.ndarray, unit: str) -> str:
    """A box as annotated and, where it differs, in pixels of the displayed image.

    Args:
        annotated: Edges as annotated, shape (4,), in `unit`.
        pixels: Edges in pixels of the displayed image, shape (4,).
        size: Its width and height, shape (2,).
        unit: Unit of the annotations.
    """
    text = f"edges {_joined(annotated)}"
    if unit == "image":
        text += " in widths and heights of the image"
        if np.abs(annotated).max() > LARGEST_FRACTION:
            text += (
                " (this format has fractions; are these pixels? "
                "Divide them by the image's width and height)"
            )
    if unit == "image" or (annotated != pixels).any():
        text += f", which are {_joined(pixels)}"
    return f"{text} in an image of {size[0]:g}×{size[1]:g}"


def _joined(edges: np.ndarray) -> str:
    return ", ".join(f"{edge:g}" for edge in edges)


def _box_problem(box: np.ndarray, clipped: np.ndarray) -> np.ndarray:
    """Problem of each box, "" for none.

    Args:
        box: Edges in pixels, shape (M, 4).
        clipped: Edges within the image, shape (M, 4).
    """
    is_empty = (box[:, 2:] <= box[:, :2]).any(axis=1)
    is_outside = (clipped[:, 2:] <= clipped[:, :2]).any(axis=1)
    leaves = (np.abs(box - clipped) > ROUNDING).any(axis=1)
    is_tiny = (clipped[:, 2:] - clipped[:, :2] < 1).all(axis=1)
    return np.select([is_empty, is_outside, leaves, is_tiny], [EMPTY, OUTSIDE, LEAVES, TINY], "")

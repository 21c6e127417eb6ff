"""Ingest: a dataset in its own format becomes the tables `images` and `objects`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import UnidentifiedImageError
from tqdm import tqdm

from farther.cores import count_cores
from farther.datasets.base import Annotations, DataWarning, Reader
from farther.datasets.orientation import as_displayed
from farther.datasets.presence import EXTRACTED, refuse_fractions, refuse_many
from farther.datasets.tidying import absence_warnings, tidied
from farther.errors import DataError
from farther.images.orientation import UPRIGHT
from farther.images.read import read_header
from farther.tables import ImageAttributes, Images, Objects
from farther.tables.annotations import UNLABELLED
from farther.tables.documents import write_json
from farther.tables.files import digest, inside
from farther.tables.stored import ATTRIBUTES, WARNINGS
from farther.tables.writing import write_aside

#: A box that leaves its image by no more pixels than this was rounded; it is clipped and not
#: listed.
ROUNDING = 1.0

#: Edges beyond this are no fractions of an image.
LARGEST_FRACTION = 2.0

#: Objects whose boxes are checked at once.
BLOCK = 500_000

LEAVES, TINY = "box leaves its image", "box smaller than a pixel"
#: Actions on the boxes that are kept; the others are dropped.
KEPT = {LEAVES: "clipped", TINY: "kept as it is"}


@dataclass(frozen=True, slots=True)
class _Header:
    """Displayed size, EXIF orientation and digest of an image file, or the problem in reading it."""

    width: int = 0
    height: int = 0
    orientation: int = UPRIGHT
    digest: str = ""
    problem: str = ""
    is_missing: bool = False


def ingest(reader: Reader, name: str, out: str | Path) -> dict[str, dict[str, int]]:
    """Reads all subsets of a dataset, opens the header of each image, checks, and writes the tables.

    Tolerated and listed in `warnings.json`, beside what the reader tolerates: an unreadable image
    (dropped, with its objects); a missing one where the reader's `missing_images` is "drop"; an
    image of another size than annotated (the file's size is used); a box that leaves its image
    (clipped; by up to a pixel it is not listed); one that is empty or lies outside (dropped); one
    smaller than a pixel (kept); a subset without any object. Listed, too: each image that its EXIF
    orientation turns, and what its boxes refer to (`Reader.orientation`); repeated objects, names
    of files in another spelling, and subsets that are not there; see `farther.datasets.tidying`.

    Images that the annotations contain (Parquet) are written to files once, in
    `out/extracted-images`; `farther.datasets.image_roots` finds them there.

    Args:
        reader: From `farther.datasets.create`.
        name: The dataset's name, for the column `dataset`.
        out: Folder to write, aside first and then renamed: `<subset>/images.parquet`,
            `<subset>/objects.parquet`, `<subset>/attributes.parquet` where the dataset says more of
            its images, `categories.json` (`categories` in the dataset's order, `parents`: ancestors
            by category), `warnings.json` (`counts` by kind, `warnings`).

    Returns:
        Numbers of images, objects, categories that occur, and warnings, by subset.

    Raises:
        DataError: see the reader; or an image is missing, no image is left, boxes are fractions of
            the image where pixels are expected, or more than the reader's `max_warnings` of the
            images or of the objects have a warning.
    """
    summary: dict[str, dict[str, int]] = {}
    categories: list[str] = []
    parents: dict[str, list[str]] = {}
    listed: list[dict[str, Any]] = []
    with write_aside(out) as aside:
        for subset in reader.subsets():
            if subset == EXTRACTED:
                raise DataError(
                    f"no subset may be called {EXTRACTED!r}: images are put there", file=reader.root
                )
            annotations = extract(reader.read(subset), aside / EXTRACTED)
            if not summary:
                annotations = replace(
                    annotations, warnings=annotations.warnings + absence_warnings(reader)
                )
            more = [UNLABELLED] if len(annotations.unlabelled) else []
            categories += [c for c in (*annotations.categories, *more) if c not in categories]
            parents |= annotations.parents
            images, objects, warnings = to_tables(annotations, reader, name)
            attributes = annotations.attributes
            del (
                annotations
            )  # a gigabyte for the 14 million boxes of OpenImages: writing needs the room
            images.write(inside(aside, subset) / "images.parquet")
            objects.write(inside(aside, subset) / "objects.parquet")
            if attributes:
                _write_attributes(attributes, images, inside(aside, subset) / ATTRIBUTES)
            listed += [{"subset": subset, **asdict(warning)} for warning in warnings]
            labelled = objects[~objects.is_unlabelled]
            summary[subset] = {
                "images": len(images),
                "objects": len(labelled),
                "categories": len(set(labelled.category)),
                "warnings": len(warnings),
            }
        write_json(aside / "categories.json", {"categories": categories, "parents": parents})
        counts = Counter(str(warning["kind"]) for warning in listed)
        write_json(aside / WARNINGS, {"counts": dict(sorted(counts.items())), "warnings": listed})
    return summary


def _write_attributes(
    attributes: Sequence[tuple[str, str, str]], images: Images, path: Path
) -> None:
    """Writes the attributes of the images that are in the table.

    Args:
        attributes: See `Annotations`.
        images: The images of the subset.
        path: The file.
    """
    columns = dict.fromkeys(("image_id", "attribute", "value"), pl.String)
    frame = pl.DataFrame(attributes, schema=columns, orient="row")
    frame = frame.filter(pl.col("image_id").is_in(images.image_id.tolist()))
    ImageAttributes.from_frame(frame).write(path)


def extract(annotations: Annotations, folder: Path) -> Annotations:
    """Writes the images that the annotations contain to a folder; annotations without any are returned as they are.

    Raises:
        DataError: another image of the same name, with other content, was written there before.
    """
    if annotations.embedded is None:
        return annotations
    contents, count = annotations.embedded(), len(annotations.images)
    for row, content in tqdm(contents, "extracted", count, unit="image", leave=False, disable=None):
        path = inside(folder, annotations.images.file[row])
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_bytes() != content:
            problem = f"two images are called {annotations.images.file[row]!r}; a file name must name one image"
            raise DataError(problem, file=annotations.root / annotations.file(row))
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
    annotations = tidied(annotations)
    headers = _read_headers(annotations)
    if reader.missing_images == "error":
        _refuse_missing(annotations, headers)
    readable = np.array([not header.problem for header in headers], dtype=bool)
    if not readable.any():
        place = annotations.root.joinpath(*annotations.files[:1])
        raise DataError(
            "no image can be read; parameter 'root' says where the dataset is", file=place
        )
    size = np.array([(header.width, header.height) for header in headers], dtype=np.int64)
    orientation = np.array([header.orientation for header in headers], dtype=np.int64)
    as_annotated = annotations
    annotations = as_displayed(annotations, size, orientation, reader.orientation)
    box, keep, box_warnings = _clip(annotations, size, readable, as_annotated.objects.box)
    warnings = [
        *annotations.warnings,
        *_image_warnings(annotations, headers),
        *box_warnings,
    ]
    refuse_many(annotations, warnings, reader.max_warnings)
    rows, objects = annotations.images, annotations.objects
    if not len(objects) and len(annotations.unlabelled) < len(rows):
        file = annotations.files[0] if len(annotations.files) == 1 else "."
        found = f"no object in {len(rows)} images"
        warnings.append(
            DataWarning(
                "no object is labelled", "dataset", file, None, None, found, "read as it is"
            )
        )
    images = Images(
        image_id=rows.image_id[readable],
        dataset=np.full(int(readable.sum()), name, dtype=object),
        file=rows.file[readable],
        width=size[readable, 0],
        height=size[readable, 1],
        digest=np.array([header.digest for header in headers if not header.problem], dtype=object),
    )
    kept = Objects(
        image_id=rows.image_id[objects.image[keep]],
        object_id=objects.object_id[keep],
        box=box[keep],
        category=np.array(annotations.categories, dtype=object)[objects.category[keep]],
        is_crowd=objects.is_crowd[keep],
        is_difficult=objects.is_difficult[keep],
    )
    return images, _with_unlabelled(kept, annotations, size, readable), warnings


def _with_unlabelled(
    objects: Objects, annotations: Annotations, size: np.ndarray, readable: np.ndarray
) -> Objects:
    """The objects, and a crowd as large as the image for each one that nobody annotated."""
    rows = annotations.unlabelled[readable[annotations.unlabelled]]
    if not len(rows):
        return objects
    first = int(objects.object_id.max(initial=-1)) + 1
    crowds = Objects(
        image_id=annotations.images.image_id[rows],
        object_id=first + np.arange(len(rows)),
        box=np.concatenate([np.zeros((len(rows), 2)), size[rows]], axis=1),
        category=np.full(len(rows), UNLABELLED, dtype=object),
        is_crowd=np.ones(len(rows), dtype=bool),
    )
    return Objects.concatenate([objects, crowds])


def _read_headers(annotations: Annotations) -> list[_Header]:
    """Size and digest of each image, in order."""
    count = len(annotations.images)
    with ThreadPool(min(16, 4 * count_cores())) as pool:
        # rows, not paths: the pool takes all of them at once
        found = pool.imap(
            lambda row: _read_header(annotations.image_path(row)), range(count), chunksize=16
        )
        return list(
            tqdm(found, total=count, desc="images", unit="image", leave=False, disable=None)
        )


def _read_header(path: Path) -> _Header:
    try:
        return _Header(*read_header(path), digest(path))
    except FileNotFoundError:
        return _Header(problem="no such file", is_missing=True)
    except UnidentifiedImageError:
        return _Header(problem="unknown image format")
    except (
        Exception
    ) as error:  # decoders meet damage with nearly anything: OSError, SyntaxError, struct.error, …
        return _Header(problem=f"{type(error).__name__}: {error}".replace(str(path), path.name))


def _refuse_missing(annotations: Annotations, headers: Sequence[_Header]) -> None:
    missing = [row for row, header in enumerate(headers) if header.is_missing]
    if missing:
        raise DataError(
            f"the image {annotations.images.image_id[missing[0]]!r} is annotated, but its file does not exist "
            f"({len(missing)} of {len(headers)} are missing); place it there, or set missing_images: drop",
            file=annotations.image_path(missing[0]),
        )


def _image_warnings(annotations: Annotations, headers: Sequence[_Header]) -> Iterator[DataWarning]:
    rows = annotations.images
    for file, *annotated, header in zip(rows.file, rows.width, rows.height, headers, strict=True):
        kind, found, action = "image of another size", "", "the file's size is used"
        if header.problem:
            kind = "image missing" if header.is_missing else "image unreadable"
            found, action = header.problem, "dropped with its objects"
        elif all(annotated) and annotated != [header.width, header.height]:
            found = f"{header.width}×{header.height}, annotated as {annotated[0]}×{annotated[1]}"
        if found:
            yield DataWarning(kind, "image", file, None, None, found, action)


def _clip(
    annotations: Annotations, size: np.ndarray, readable: np.ndarray, written: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[DataWarning]]:
    """Boxes within their images, which of them to keep, and what was done to the rest.

    Args:
        annotations: M objects in N images.
        size: True width and height of each image, shape (N, 2).
        readable: Mask of the images whose files can be read, shape (N,).
        written: The boxes before any was turned with its image, shape (M, 4), for messages.

    Returns:
        Edges in pixels, float32 of shape (M, 4); which to keep, shape (M,); and a warning for each
        box that was changed or is not kept, but for those of unreadable images.
    """
    box = np.empty((len(annotations.objects), 4), dtype=np.float32)
    keep = np.empty(len(annotations.objects), dtype=bool)
    warnings: list[DataWarning] = []
    for start in range(0, len(keep), BLOCK):
        rows = slice(start, start + BLOCK)
        image = annotations.objects.image[rows]
        limit = np.tile(size[image], 2).astype(np.float64)
        whole = annotations.objects.box[rows] * (
            limit if annotations.objects.unit == "image" else 1.0
        )
        clipped = np.clip(whole, 0, limit)
        problem = _box_problem(whole, clipped)
        for index in np.flatnonzero((problem != "") & readable[image]).tolist():
            found = _described(
                written[start + index], whole[index], limit[index, :2], annotations.objects.unit
            )
            action = KEPT.get(problem[index], "dropped")
            warnings.append(annotations.warning(start + index, str(problem[index]), found, action))
        box[rows] = clipped
        keep[rows] = readable[image] & np.isin(problem, ["", *KEPT])
    return box, keep, warnings


def _described(written: np.ndarray, pixels: np.ndarray, size: np.ndarray, unit: str) -> str:
    """A box as it is in the annotations and, where it differs, in pixels of the displayed image.

    Args:
        written: Edges as annotated, shape (4,), in `unit`.
        pixels: Edges in pixels of the displayed image, shape (4,).
        size: Its width and height, shape (2,).
        unit: That of the annotations.
    """
    text = f"edges {_joined(written)}"
    if unit == "image":
        text += " in widths and heights of the image"
        if np.abs(written).max() > LARGEST_FRACTION:
            text += " (this format has fractions; are these pixels? Divide them by the image's width and height)"
    if unit == "image" or (written != pixels).any():
        text += f", which are {_joined(pixels)}"
    return f"{text} in an image of {size[0]:g}×{size[1]:g}"


def _joined(edges: np.ndarray) -> str:
    return ", ".join(f"{edge:g}" for edge in edges)


def _box_problem(whole: np.ndarray, clipped: np.ndarray) -> np.ndarray:
    """Problem of each box, "" for none; both arrays have shape (M, 4)."""
    empty = (whole[:, 2:] <= whole[:, :2]).any(axis=1)
    outside = (clipped[:, 2:] <= clipped[:, :2]).any(axis=1)
    leaves = (np.abs(whole - clipped) > ROUNDING).any(axis=1)
    tiny = ((clipped[:, 2:] - clipped[:, :2]) < 1).all(axis=1)
    return np.select(
        [empty, outside, leaves, tiny], ["box empty", "box outside its image", LEAVES, TINY], ""
    )

"""Endings of users' files, in any case: images, videos, labels, annotations."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path, PurePath

from farther.errors import DataError

#: Image files in HEIF, which `farther.images.read` reads with the package pillow-heif.
HEIF = (".heic", ".heif", ".hif")
#: Image files that `farther.images.read` reads: the formats are its `FORMATS`.
IMAGES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    *(".png", ".apng"),
    ".webp",
    *(".bmp", ".gif"),
    *(".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
    *(".jp2", ".j2k", ".jpx", ".jpf", ".jpc", ".j2c"),
    *(".avif", ".avifs"),
    *HEIF,
)
#: Image files that are not read, and the name of their format.
UNREAD_IMAGES = {
    ".jxl": "JPEG XL",
    ".jxr": "JPEG XR",
    ".psd": "Photoshop",
    ".svg": "SVG",
    ".eps": "EPS",
    ".exr": "OpenEXR",
    ".hdr": "Radiance HDR",
    ".pfm": "PFM",
    ".tga": "TGA",
    ".ico": "ICO",
    ".pcx": "PCX",
    ".dds": "DDS",
    ".dcm": "DICOM",
    ".fits": "FITS",
    ".ecw": "ECW",
    **dict.fromkeys(
        (".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw"),
        "a camera's raw format",
    ),
}
#: Video files.
VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v")
#: YOLO's label files, and lists of images or names.
TEXT = (".txt",)
#: Text files with the name of a class in each line.
CLASS_NAMES = (*TEXT, ".names")
JSON = (".json",)
XML = (".xml",)
YAML = (".yaml", ".yml")
#: Tables of text.
TABLES = (".csv", ".tsv")
#: Files that annotation tools write, except label files.
ANNOTATIONS = frozenset(
    {
        *JSON,
        *XML,
        *TABLES,
        ".jsonl",
        ".ndjson",
        ".parquet",
        ".arrow",
        ".tfrecord",
        ".mat",
    }
)


def has_ending(path: PurePath | str, endings: Collection[str]) -> bool:
    """Whether a file has one of some endings, in any case.

    >>> has_ending("labels/a.TXT", TEXT), has_ending("atxt", TEXT)
    (True, False)
    """
    if isinstance(path, str) and not path.endswith("/"):
        return os.path.splitext(path)[1].lower() in endings  # noqa: PTH122, much faster
    return PurePath(path).suffix.lower() in endings


def is_image(path: PurePath | str) -> bool:
    """Whether a file is an image that is read, by its ending."""
    return has_ending(path, IMAGES)


def is_unread_image(path: PurePath | str) -> bool:
    """Whether a file is an image in a format that is not read, by its ending."""
    return has_ending(path, UNREAD_IMAGES)


def is_video(path: PurePath | str) -> bool:
    """Whether a file is a video, by its ending."""
    return has_ending(path, VIDEOS)


def why_unread(path: PurePath | str) -> str:
    """Why an image of `UNREAD_IMAGES` is not read, and what to do."""
    return f"{UNREAD_IMAGES[PurePath(path).suffix.lower()]} is not read: convert it to PNG or JPEG"


def with_lower_ending(path: str) -> str:
    """A path with its ending in lower case.

    >>> with_lower_ending("labels/A.TXT")
    'labels/A.txt'
    """
    ending = PurePath(path).suffix
    return path.removesuffix(ending) + ending.lower()


def refuse_twins(files: Iterable[Path]) -> None:
    """Refuses two files whose paths differ in the case of their ending alone.

    One of them would be taken for the other's partner and be lost.

    Raises:
        DataError: there are two.
    """
    first_by_path: dict[str, Path] = {}
    for file in files:
        first = first_by_path.setdefault(with_lower_ending(str(file)), file)
        if first != file:
            raise DataError(
                f"{first.name} and {file.name} differ in the case of their ending alone: delete or "
                "rename one of them",
                file=file,
            )

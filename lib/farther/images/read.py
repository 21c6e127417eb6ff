"""Reads one image file of any kind as RGB pixels."""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from farther.errors import DataError
from farther.images.orientation import orientation_of, turned_size, upright
from farther.tables.endings import is_unread_image, why_unread

#: Formats of image files, as Pillow names them. Others are refused: some of its readers start other
#: programs (EPS).
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF")

#: The default limit of pixels, from which on Pillow refuses images: 13,377 × 13,377 pixels, half a
#: gigabyte as RGB.
MAX_PIXELS = 178_956_970

#: How to have larger images read, where nothing else is known.
RAISE = "raise max_pixels"

#: What HEIF files begin with, after the size of their first box.
HEIF_BRANDS = (b"ftypheic", b"ftypheix", b"ftyphevc", b"ftyphevx", b"ftypmif1", b"ftypmsf1")
#: The package that reads HEIF, the module that it installs, and its name for the format.
HEIF_PACKAGE = "pillow-heif"
HEIF_MODULE = "pillow_heif"
HEIF_FORMAT = "HEIF"

#: Bytes at the end of complete files, by format.
ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}

#: Number of last bytes of a file in which `ENDS` are looked for.
TAIL = 16


class _PillowLimit:
    """Pillow's own limit of pixels, which is one number for the whole process.

    Attributes:
        lock: Guards the others.
        users: Number of blocks that it is lifted for.
        limit: Its value outside of these.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.limit: int | None = None


_pillow_limit = _PillowLimit()


@contextmanager
def without_pillow_limit() -> Iterator[None]:
    """Lifts Pillow's limit of pixels, and its warnings from half of it, for a block.

    The limits of farther are parameters. Blocks of several threads may overlap.
    """
    state = _pillow_limit
    with state.lock:
        if not state.users:
            state.limit = Image.MAX_IMAGE_PIXELS
            Image.MAX_IMAGE_PIXELS = None
        state.users += 1
    try:
        yield
    finally:
        with state.lock:
            state.users -= 1
            if not state.users:
                Image.MAX_IMAGE_PIXELS = state.limit


def load(path: str | Path, max_pixels: int = MAX_PIXELS, advice: str = RAISE) -> np.ndarray:
    """Reads an image file, turned upright; see `farther.images.orientation`.

    Grey, palette and CMYK images become RGB, 16-bit channels lose their low byte, transparency is
    dropped (the colour that is stored under it shows), and of an animation the first frame is
    taken.

    Args:
        path: The file: JPEG, PNG, WebP, BMP, GIF, TIFF, PPM, JPEG 2000 or AVIF, whatever its name
            ends in; HEIF where pillow-heif is installed.
        max_pixels: Images with more are refused before they are decoded.
        advice: How to have larger images read, for the message.

    Returns:
        ndarray of shape (height, width, 3), uint8: red, green, blue. It is writable.

    Raises:
        DataError: the file is absent, no image, truncated or damaged, has too many pixels, or has
            32-bit channels, whose values of black and white are unknown.
    """
    path = Path(path)
    try:
        with open_image(path) as image:
            problem = excess(image.size, max_pixels, advice)
            if problem:
                raise DataError(problem, file=path)
            return rgb(upright(image))
    except MemoryError:
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, …
        raise DataError(problem_with(error, path), file=path) from None


def problem_with(error: Exception, path: Path) -> str:
    """What is wrong with an image file, by the error of opening or decoding it."""
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    if isinstance(error, DataError):
        return error.problem
    if isinstance(error, UnidentifiedImageError):
        if is_unread_image(path):
            return why_unread(path)
        return f"unknown image format: not one of {', '.join(FORMATS)}"
    return f"cannot be read: {error or type(error).__name__}".replace(str(path), path.name)


def excess(size: tuple[int, int], max_pixels: int, advice: str) -> str:
    """The problem of an image with too many pixels, by its width and height; "" for others."""
    width, height = size
    pixels = width * height
    if pixels <= max_pixels:
        return ""
    return (
        f"{width:,} × {height:,} = {pixels:,} pixels, more than the limit of {max_pixels:,}: "
        f"{advice}, or cut it into tiles"
    )


def problem_of(
    path: str | Path, max_pixels: int = MAX_PIXELS, advice: str = RAISE
) -> tuple[str, bool]:
    """The problem of an image file, and whether it is an image at all.

    A JPEG or PNG file whose last bytes are the end of its format is taken as complete, and is not
    decoded. Every other image is.

    Args:
        path: The file.
        max_pixels, advice: See `load`.

    Returns:
        "" and True for an image that can be used; a reason and True for an image that cannot be
        decoded; a reason and False for a file that is absent or lacks the header of an image.
    """
    path = Path(path)
    try:
        with open_image(path) as image:
            end = ENDS.get(str(image.format))
            size_problem = excess(image.size, max_pixels, advice)
        if size_problem:
            return size_problem, True
        with path.open("rb") as file:
            file.seek(-min(path.stat().st_size, TAIL), 2)
            if end is not None and end in file.read():
                return "", True
    except Exception as error:  # as in `load`
        return problem_with(error, path), False
    try:
        load(path, max_pixels, advice)
    except DataError as error:
        return error.problem, True
    return "", True


def read_header(file: IO[bytes] | Path) -> tuple[int, int, int]:
    """Width and height of an image file as it is displayed, and its orientation.

    The pixels are not decoded.

    Raises:
        OSError, ValueError, SyntaxError, …: see `open_image`.
    """
    with open_image(file) as image:
        if image.format == "PNG" and "exif" not in image.info:
            # Pillow reads the chunks behind the pixels with these.
            image.info["exif"] = _exif_of_png(file)
        width, height = image.size
        orientation = orientation_of(image)
        if image.format != "TIFF":  # of which Pillow gives the displayed size
            width, height = turned_size(width, height, orientation)
        return width, height, orientation


def open_image(file: IO[bytes] | Path) -> Image.Image:
    """Opens an image with Pillow's `Image.open`, of `FORMATS` only; of any number of pixels.

    Ultralytics replaces Pillow's function by one that installs a package if a file is not an image.

    Raises:
        OSError, ValueError, SyntaxError: the file is absent, no image, or damaged; a pipe or a
            device is not opened.
        DataError: it is HEIF, and pillow-heif is not installed.
    """
    if isinstance(file, Path) and file.exists() and not file.is_file():
        raise OSError("not a file")
    try:
        return _pillow_open(file, FORMATS)
    except UnidentifiedImageError:
        if not _is_heif(file):
            raise
    _register_heif()
    return _pillow_open(file, (HEIF_FORMAT,))


def _pillow_open(file: IO[bytes] | Path, formats: tuple[str, ...]) -> Image.Image:
    """Pillow's `Image.open`."""
    ultralytics = sys.modules.get("ultralytics.utils.patches")
    pillow_open = getattr(ultralytics, "_image_open", Image.open)
    with without_pillow_limit():
        image: Image.Image = pillow_open(file, formats=formats)
    return image


def _is_heif(file: IO[bytes] | Path) -> bool:
    """Whether a file begins as HEIF does."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            head = opened.read(12)
    else:
        file.seek(0)
        head = file.read(12)
    return head[4:] in HEIF_BRANDS


def _register_heif() -> None:
    """Makes HEIF one of Pillow's formats.

    Raises:
        DataError: pillow-heif is not installed.
    """
    try:
        import_module(HEIF_MODULE).register_heif_opener()
    except ImportError as error:
        raise DataError(
            f"HEIF (HEIC) is read with the package {HEIF_PACKAGE}, which cannot be imported "
            f"({error}): pip install {HEIF_PACKAGE}, or convert the image to PNG or JPEG"
        ) from None


def _exif_of_png(file: IO[bytes] | Path) -> bytes:
    """The EXIF data of a PNG file, which may be behind the pixels; empty without any.

    Of the other chunks only length and type are read.
    """
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return _exif_of_png(opened)
    file.seek(8)
    head = file.read(8)
    while len(head) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind == b"eXIf":
            return file.read(length)
        file.seek(length + 4, os.SEEK_CUR)
        head = file.read(8)
    return b""


def rgb(image: Image.Image) -> np.ndarray:
    """The pixels of an image as RGB, ndarray of shape (height, width, 3), uint8."""
    if image.mode in ("I", "F"):
        raise ValueError(
            "its channels have 32 bits, and nothing says which value is white; "
            "store it with 8 or 16 bits"
        )
    if image.mode.startswith("I;16"):
        # Pillow's own conversion clips, which turns nearly every 16-bit image white.
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))

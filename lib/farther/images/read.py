"""Reads one image file of any kind as RGB pixels."""

from __future__ import annotations

import os
import struct
import sys
import threading
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from farther.errors import DataError
from farther.images.orientation import orientation_of, turned_size, upright

#: Formats of image files, as Pillow names them. Others are refused: some of its readers start other
#: programs (EPS).
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF")

#: Pillow's own limit (it warns from half of it): 13,377 × 13,377 pixels, half a gigabyte as RGB.
MAX_PIXELS = 178_956_970

#: Bytes at the end of complete files, by format.
ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}

#: Number of last bytes of a file in which `ENDS` are looked for.
TAIL = 16

#: Serialises changes of Pillow's limit, which is one number for the whole process.
_pillow_limit = threading.Lock()


def load(path: str | Path, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Reads an image file, turned upright; see `farther.images.orientation`.

    Grey, palette and CMYK images become RGB, 16-bit channels lose their low byte, transparency is
    dropped (the colour that is stored under it shows), and of an animation the first frame is
    taken.

    Args:
        path: The file: JPEG, PNG, WebP, BMP, GIF, TIFF, PPM, JPEG 2000 or AVIF, whatever its name
            ends in.
        max_pixels: Images with more are refused before they are decoded.

    Returns:
        ndarray of shape (height, width, 3), uint8: red, green, blue. It is writable.

    Raises:
        DataError: the file is absent, no image, truncated or damaged, has too many pixels, or has
            32-bit channels, whose values of black and white are unknown.
    """
    path = Path(path)
    try:
        with _open(path, max_pixels) as image:
            if image.width * image.height > max_pixels:
                raise Image.DecompressionBombError
            return _rgb(upright(image))
    except MemoryError:
        raise
    except FileNotFoundError:
        raise DataError("the file does not exist", file=path) from None
    except UnidentifiedImageError:
        raise DataError(
            f"not an image, or in another format than {', '.join(FORMATS)}", file=path
        ) from None
    except Image.DecompressionBombError:
        raise DataError(
            f"more than max_pixels = {max_pixels} pixels; raise it to read the image", file=path
        ) from None
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, …
        raise DataError(f"cannot be read: {error or type(error).__name__}", file=path) from None


def problem_of(path: str | Path) -> tuple[str, bool]:
    """The problem of an image file, and whether it is an image at all.

    A JPEG or PNG file whose last bytes are the end of its format is taken as complete, and is not
    decoded. Every other image is.

    Returns:
        "" and True for an image that can be used; a reason and True for an image that cannot be
        decoded; a reason and False for a file that is absent or lacks the header of an image.
    """
    path = Path(path)
    try:
        with _open(path, MAX_PIXELS) as image:
            end = ENDS.get(str(image.format))
        with path.open("rb") as file:
            file.seek(-min(path.stat().st_size, TAIL), 2)
            if end is not None and end in file.read():
                return "", True
    except Exception as error:  # as in `load`
        reason = "unknown image format" if isinstance(error, UnidentifiedImageError) else str(error)
        return reason.replace(str(path), path.name) or type(error).__name__, False
    try:
        load(path)
    except DataError as error:
        return error.problem, True
    return "", True


def read_header(path: Path) -> tuple[int, int, int]:
    """Width and height of an image file as it is displayed, and its orientation.

    The pixels are not decoded.

    Raises:
        OSError, ValueError, SyntaxError, …: see `open_image`.
    """
    with open_image(path) as image:
        if image.format == "PNG" and "exif" not in image.info and _has_exif(path):
            image.load()  # reads the chunks behind the pixels
        width, height = image.size
        orientation = orientation_of(image)
        if image.format != "TIFF":  # of which Pillow gives the displayed size
            width, height = turned_size(width, height, orientation)
        return width, height, orientation


def as_pixels(image: np.ndarray | str | Path | Image.Image, name: str) -> np.ndarray:
    """The pixels of an image as an array of shape (height, width, 3), uint8.

    Args:
        image: A file or a PIL image, which are turned upright; or the array.
        name: Name of the image, for messages.

    Raises:
        DataError: the file cannot be read, or the array has another shape or type.
    """
    if isinstance(image, (str, Path)):
        return load(image)
    if isinstance(image, Image.Image):
        return _rgb(upright(image))
    if not isinstance(image, np.ndarray):
        kind = type(image).__name__
        raise DataError(f"image {name!r}: expected a path, a PIL image or an array, found {kind}")
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        kind = f"{image.dtype} of shape {image.shape}"
        raise DataError(f"image {name!r}: expected uint8 of shape (height, width, 3), found {kind}")
    return image


def open_image(file: IO[bytes] | Path) -> Image.Image:
    """Opens an image with Pillow's `Image.open`, of `FORMATS` only.

    Ultralytics replaces Pillow's function by one that installs a package if a file is not an image.

    Raises:
        OSError, ValueError, SyntaxError: the file is absent, no image, or damaged; a pipe or a
            device is not opened.
    """
    if isinstance(file, Path) and file.exists() and not file.is_file():
        raise OSError("not a file")
    ultralytics = sys.modules.get("ultralytics.utils.patches")
    pillow_open = getattr(ultralytics, "_image_open", Image.open)
    image: Image.Image = pillow_open(file, formats=FORMATS)
    return image


def _has_exif(png: Path) -> bool:
    """True if a PNG file has EXIF data; of each chunk only length and type are read."""
    with png.open("rb") as file:
        file.seek(8)
        head = file.read(8)
        while len(head) == 8:
            length, kind = struct.unpack(">I4s", head)
            if kind == b"eXIf":
                return True
            file.seek(length + 4, os.SEEK_CUR)
            head = file.read(8)
    return False


def _open(file: Path, max_pixels: int) -> Image.Image:
    """Opens an image under a limit of pixels; Pillow's is put back at once."""
    with _pillow_limit:
        limit = Image.MAX_IMAGE_PIXELS
        Image.MAX_IMAGE_PIXELS = max_pixels
        try:
            return open_image(file)
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _rgb(image: Image.Image) -> np.ndarray:
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

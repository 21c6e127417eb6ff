"""What users give as images: files, PIL images and arrays, one or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from farther.errors import DataError
from farther.images.orientation import upright
from farther.images.read import load, rgb


def is_one(images: Any) -> bool:
    """Whether an argument is one image, or something that cannot be several.

    A list, an array of four dimensions and any other iterable are several.
    """
    if isinstance(images, np.ndarray):
        is_list = images.ndim == 1 and images.dtype == object
        return images.ndim != 4 and not is_list
    one = (str, Path, Image.Image, bytes, bytearray, memoryview, Mapping)
    if isinstance(images, one) or hasattr(images, "shape"):
        return True
    return not isinstance(images, Iterable)


def images_of(images: Any) -> Iterable[Any]:
    """The images of an argument that is one image or several."""
    if is_one(images):
        return [images]
    iterable: Iterable[Any] = images
    return iterable


def name_of(image: Any, number: int) -> str:
    """The name of an image that users gave none: the path of a file, else its number."""
    if isinstance(image, (str, Path)):
        return str(image)
    return str(number)


def as_pixels(image: Any, name: str) -> np.ndarray:
    """The pixels of an image as an array of shape (height, width, 3), uint8.

    Args:
        image: A file or a PIL image, which are turned upright; or an array of shape (height,
            width, 3), or grey of shape (height, width) or (height, width, 1), uint8.
        name: Name of the image, for messages.

    Raises:
        DataError: the file cannot be read, or the image is something else.
    """
    if isinstance(image, (str, Path)):
        return load(image, advice="give its pixels, as an array or PIL image")
    if isinstance(image, Image.Image):
        if 0 in image.size:
            raise DataError(f"image {name!r}: {_size_text(image)}: it has no pixels")
        try:
            return rgb(upright(image))
        except MemoryError:
            raise
        except Exception as error:  # as in `load`: files that Pillow opened are decoded here
            raise DataError(f"image {name!r}: cannot be read: {error}") from None
    problem = problem_of_input(image)
    if problem:
        raise DataError(f"image {name!r}: {problem}")
    if image.ndim == 2:
        image = image[:, :, np.newaxis]
    if image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
    # PyTorch takes no negative steps, as those of `bgr[:, :, ::-1]` are.
    return np.ascontiguousarray(image)


def problem_of_input(image: Any) -> str:
    """The problem of what was given as an image, unless it is a path or a PIL image; "" for none.

    Says what it is, and what to give instead.
    """
    expected = (
        "expected a path, a PIL image or an array of shape (height, width, 3) or (height, width), "
        "uint8"
    )
    if image is None:
        return f"{expected}, found None, which cv2.imread returns where it cannot read a file"
    shape = getattr(image, "shape", None)
    if not isinstance(image, np.ndarray):
        found = type(image).__name__
        if isinstance(image, (bytes, bytearray, memoryview)):
            return f"{expected}, found {found}: give PIL.Image.open(io.BytesIO(…)) or a path"
        if shape is not None:
            found += f" of shape {tuple(shape)}: give tensor.permute(1, 2, 0).cpu().numpy()"
        return f"{expected}, found {found}"

    found = f"{image.dtype} of shape {shape}"
    if image.ndim in (2, 3) and 0 in image.shape:
        return f"{expected}, found {found}: it has no pixels"
    if image.ndim == 3 and image.shape[2] == 4:
        return f"{expected}, found {found}: leave out the alpha channel, image[:, :, :3]"
    if image.ndim == 3 and image.shape[2] not in (1, 3) and image.shape[0] in (1, 3):
        return f"{expected}, found {found}: channels come last, image.transpose(1, 2, 0)"
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3)):
        return f"{expected}, found {found}"
    if image.dtype.kind == "f":
        return f"{expected}, found {found}: of 0 to 1, give (255 * image).round().astype('uint8')"
    if image.dtype == bool:
        return f"{expected}, found {found}: give 255 * image.astype('uint8')"
    if image.dtype.kind in "iu" and image.dtype != np.uint8:
        return f"{expected}, found {found}: of 0 to 255, give image.astype('uint8')"
    if image.dtype != np.uint8:
        return f"{expected}, found {found}"
    return ""


def _size_text(image: Image.Image) -> str:
    return f"{image.width} × {image.height} pixels"

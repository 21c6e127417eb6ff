"""MNIST (LeCun et al., 1998) and datasets in its file format, such as Fashion-MNIST and KMNIST."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.datasets.base import Annotations, Expected, Reader, register
from farther.datasets.pixels import Block, labelled
from farther.errors import DataError
from farther.naming.registry import STRICT
from farther.tables.files import open_binary

#: Largest number of bytes of an uncompressed file.
MOST_BYTES = 2**30

#: First part of the names of each subset's files.
PREFIXES = {"train": "train", "test": "t10k"}

#: Names of the files of images and of labels, without prefix and ending.
IMAGES = "images-idx3"
LABELS = "labels-idx1"

#: Folders below the root that the files may lie in: torchvision's layout, or the root itself.
FOLDERS = ("", "MNIST/raw/", "raw/")


@register("mnist")
@dataclass(config=STRICT, kw_only=True)
class MNIST(Reader):
    """MNIST: grey images of 28 × 28 pixels, each one object of its class.

    They are in idx files, gzipped or not. `ingest` writes each image to a PNG file. The image id is
    the image's number in the subset, with six digits.

    Errors: a file that is absent, is not idx of bytes, or is cut short; other numbers of images and
    labels; a label that no class has.

    Args:
        categories: Names of the classes by label.
    """

    SOURCE: ClassVar[str] = "yann.lecun.com/exdb/mnist (LeCun et al., 1998, doi:10.1109/5.726791)"
    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "test")

    categories: tuple[str, ...] = tuple("0123456789")

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        prefix = PREFIXES.get(subset, subset)
        return [
            Expected("images", self._paths(subset, IMAGES), f"{prefix}-{IMAGES}-ubyte.gz"),
            Expected("labels", self._paths(subset, LABELS), f"{prefix}-{LABELS}-ubyte.gz"),
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        image_path = self._first_present(self._paths(subset, IMAGES), subset, "root")
        label_path = self._first_present(self._paths(subset, LABELS), subset, "root")
        pixels = _read(image_path, 3)
        labels = _read(label_path, 1)
        if len(pixels) != len(labels):
            raise DataError(
                f"{len(labels)} labels of {len(pixels)} images; are both files of {subset}?",
                file=label_path,
            )
        block = Block(label_path, pixels, labels)
        return labelled(self.root, subset, [block], self.categories)

    def _paths(self, subset: str, kind: str) -> tuple[str, ...]:
        """Paths within the root that a file may have."""
        name = f"{PREFIXES.get(subset, subset)}-{kind}-ubyte"
        paths = []
        for folder in FOLDERS:
            paths += [f"{folder}{name}", f"{folder}{name}.gz"]
        return tuple(paths)


def _read(path: Path, dimensions: int) -> np.ndarray:
    """The array in an idx file of bytes.

    The file has the bytes 0, 0, 8 (uint8) and the number of dimensions, then each size as a number
    of four bytes, then the values.

    Raises:
        DataError: the file has another type or number of dimensions, or is cut short.
    """
    content = _content(path)
    magic = bytes((0, 0, 8, dimensions))
    start = len(magic) + 4 * dimensions
    if not content.startswith(magic) or len(content) < start:
        raise DataError(
            f"expected an idx file of bytes with {dimensions} dimensions, found the first bytes "
            f"{content[:4]!r}",
            file=path,
        )
    shape = np.frombuffer(content, ">u4", dimensions, offset=len(magic)).astype(int).tolist()
    values = np.frombuffer(content, np.uint8, offset=start)
    if len(values) != np.prod(shape):
        size = " × ".join(str(length) for length in shape)
        raise DataError(
            f"expected {size} bytes of values, found {len(values)}; is the file complete?",
            file=path,
        )
    return values.reshape(shape)


def _content(path: Path) -> bytes:
    """The bytes of a file, uncompressed, up to `MOST_BYTES`."""
    try:
        with open_binary(path) as file:
            if path.suffix != ".gz":
                return file.read(MOST_BYTES)
            with gzip.open(file) as uncompressed:
                return uncompressed.read(MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"not readable gzip: {error}; is the file complete?", file=path) from None

"""MNIST (LeCun et al., 1998) and datasets in its file format, such as Fashion-MNIST and KMNIST."""

from __future__ import annotations

import gzip
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.datasets.base import Annotations, Expected, Reader, register
from farther.datasets.pixels import Block, labelled
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import open_binary

#: Most bytes of a file, unpacked.
MOST_BYTES = 2**30

#: First part of the names of each subset's files.
PREFIXES = {"train": "train", "test": "t10k"}

#: Folders below the root that the files may lie in: torchvision's layout, or the root itself.
FOLDERS = ("", "MNIST/raw/", "raw/")


@register("mnist")
@dataclass(config=STRICT, kw_only=True)
class MNIST(Reader):
    """MNIST: grey images of 28 × 28 pixels, each one object of its class, in idx files, gzipped or not.

    `ingest` writes each image to a PNG file. The image id is the image's number in the subset, with
    six digits.

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
        return [
            Expected(
                what, self._paths(subset, kind), f"{PREFIXES.get(subset, subset)}-{kind}-ubyte.gz"
            )
            for what, kind in (("images", "images-idx3"), ("labels", "labels-idx1"))
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        images, path = (
            self._first_present(self._paths(subset, kind), subset, "root")
            for kind in ("images-idx3", "labels-idx1")
        )
        pixels, labels = _read(images, 3), _read(path, 1)
        if len(pixels) != len(labels):
            raise DataError(
                f"{len(labels)} labels of {len(pixels)} images; are both files of {subset}?",
                file=path,
            )
        return labelled(self.root, subset, [Block(path, pixels, labels)], self.categories)

    def _paths(self, subset: str, kind: str) -> tuple[str, ...]:
        """Paths within the root that a file may have."""
        name = f"{PREFIXES.get(subset, subset)}-{kind}-ubyte"
        return tuple(f"{folder}{name}{ending}" for folder in FOLDERS for ending in ("", ".gz"))


def _read(path: Path, dimensions: int) -> np.ndarray:
    """The array in an idx file: bytes 0, 0, 8 (uint8) and number of dimensions, each size in four bytes, the values."""
    try:
        with (
            open_binary(path) as file,
            gzip.open(file) if path.suffix == ".gz" else nullcontext(file) as bytes_,
        ):
            content = bytes_.read(MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"not readable gzip: {error}; is the file complete?", file=path) from None
    start = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) < start:
        problem = f"expected an idx file of bytes with {dimensions} dimensions, found the first bytes {content[:4]!r}"
        raise DataError(problem, file=path)
    shape = np.frombuffer(content, ">u4", dimensions, 4).astype(int).tolist()
    values = np.frombuffer(content, np.uint8, offset=start)
    if len(values) != np.prod(shape):
        size = " × ".join(map(str, shape))
        raise DataError(
            f"expected {size} bytes of values, found {len(values)}; is the file complete?",
            file=path,
        )
    return values.reshape(shape)

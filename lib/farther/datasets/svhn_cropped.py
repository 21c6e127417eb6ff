"""SVHN's cropped digits (Netzer et al., 2011): images of 32 × 32 pixels, each labelled with the digit at its centre."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.datasets.base import Annotations, Expected, Reader, register
from farther.datasets.pixels import Block, labelled
from farther.datasets.svhn import ORIGINALS
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import inside, open_binary

#: Types of elements of a MATLAB file; classes of arrays, and how their values are stored, as NumPy types.
MATRIX, COMPRESSED = 14, 15
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
STORED = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}

#: Most bytes of a variable, unpacked; the largest set has 1.6 GB.
MOST_BYTES = 2**32


@register("svhn_cropped")
@dataclass(config=STRICT, kw_only=True)
class CroppedSVHN(Reader):
    """SVHN's format 2: cropped digits of 32 × 32 pixels in MATLAB files of version 5, each image one object.

    Classes are the digits "0" to "9"; the file's label 10 is the digit 0. `ingest` writes each image to a PNG file.
    The image id is the image's number in the subset, with six digits. For full numbers see the format `svhn`.

    Errors: a file that is absent, damaged or has another structure; a label that is not 1 to 10.

    Args:
        subset_names: Subsets to read. When empty, those of train, test and extra that are present.
    """

    SOURCE: ClassVar[str] = "ufldl.stanford.edu/housenumbers (Netzer et al., 2011), 'Format 2'"

    subset_names: tuple[str, ...] = ()

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        return self._subsets_present(self.subset_names, {subset: [f"{subset}_32x32.mat"] for subset in ORIGINALS})

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        return [Expected("images and labels", (f"{subset}_32x32.mat",), f"{subset}_32x32.mat")]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        path = inside(self.root, f"{subset}_32x32.mat")
        content = _content(path)
        pixels, labels = np.asarray(content.get("X")), np.asarray(content.get("y"))
        fits = pixels.dtype == np.uint8 and pixels.ndim == 4 and pixels.shape[2] == 3 and 0 not in pixels.shape[:2]
        if not fits or labels.dtype.kind not in "iuf" or labels.shape != (pixels.shape[3], 1):
            found = f"X: {pixels.dtype} {pixels.shape}, y: {labels.dtype} {labels.shape}"
            raise DataError(f"expected X: uint8 (32, 32, 3, N) and y: (N, 1), found {found}", file=path)
        wrong = np.flatnonzero(~np.isin(labels[:, 0], np.arange(1, 11)))
        if wrong.size:
            problem = f"expected 1 to 10, found {labels[wrong[0], 0]:g}"
            raise DataError(problem, file=path, row=f"[{wrong[0]}]", field="y")
        digits = labels[:, 0].astype(np.int64) % 10
        block = Block(path, pixels.transpose(3, 0, 1, 2), digits, field="y")
        return labelled(self.root, subset, [block], [str(digit) for digit in range(10)])


def _content(path: Path) -> dict[str, np.ndarray]:
    """The variables of a MATLAB file; not by SciPy, whose reader a damaged file can end with the process."""
    try:
        with open_binary(path, "the file does not exist; parameter 'root' says where the dataset lies") as file:
            return dict(_variables(file.read()))
    except (struct.error, zlib.error, LookupError, ValueError, OverflowError) as error:
        raise DataError(f"not a MATLAB file of version 5 with plain arrays: {error}", file=path) from None


def _variables(content: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """Name and value of each variable that is an array of numbers."""
    if content[124:128] != b"\0\1IM":
        raise ValueError("its header is another")
    for kind, part in _elements(memoryview(content)[128:]):
        if kind == COMPRESSED:
            kind, part = next(_elements(memoryview(zlib.decompressobj().decompress(part, MOST_BYTES))), (0, part))
        if kind != MATRIX:
            continue
        flags, shape, name, (stored, values) = islice(_elements(part), 4)
        array = np.frombuffer(values, STORED[stored]).astype(CLASSES[flags[1][0]], copy=False)
        yield bytes(name[1]).decode("latin-1"), array.reshape(np.frombuffer(shape[1], "<i4"), order="F")


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each element."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:  # up to four bytes, which are in the tag itself
            yield kind & 0xFFFF, data[at + 4 : at + 4 + min(kind >> 16, 4)]
            at += 8
            continue
        if at + 8 + size > len(data):
            raise ValueError("an element is cut off; is the file whole?")
        yield kind, data[at + 8 : at + 8 + size]
        at += 8 + size + (-size % 8 if kind != COMPRESSED else 0)

"""SVHN, street view house numbers (Netzer et al., 2011): full images with the boxes of digits, and cropped digits."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.datasets.base import Annotations, Collector, Expected, Reader, image_file, register
from farther.datasets.pixels import Block, labelled
from farther.datasets.records import Location
from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.tables.files import inside, open_binary, regular_file

ABSENT = "the file does not exist; parameter 'root' says where the dataset is"

#: The classes; the label 10 in the files is the digit 0.
DIGITS = [str(digit) for digit in range(10)]

#: Values of a box in the file of full numbers, and the digit.
PARTS = ("left", "top", "width", "height", "label")

#: Types of elements of a MATLAB file; the values that arrays store, as NumPy types.
MATRIX, COMPRESSED = 14, 15
STORED = {
    1: "i1",
    2: "u1",
    3: "<i2",
    4: "<u2",
    5: "<i4",
    6: "<u4",
    7: "<f4",
    9: "<f8",
    12: "<i8",
    13: "<u8",
}

#: Most bytes of a variable, unpacked; the largest set has 1.6 GB.
MOST_BYTES = 2**32


@register("svhn")
@dataclass(config=STRICT, kw_only=True)
class SVHN(Reader):
    """SVHN's format 1: full numbers, with a box per digit in MATLAB's `digitStruct.mat` (version 7.3, which is HDF5).

    The image id is the file's name. Classes are the digits "0" to "9"; the file's label 10 is the
    digit 0. Boxes are left, top, width, height. Reading needs h5py: `pip install 'farther[svhn]'`.

    Errors: a file that is absent or has another structure; a label that is not 1 to 10; a name that
    leaves its folder.
    """

    SOURCE: ClassVar[str] = "ufldl.stanford.edu/housenumbers (Netzer et al., 2011), 'Format 1'"
    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "test", "extra")

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        parts = {"boxes of digits": f"{subset}/digitStruct.mat", "images": subset}
        return [Expected(what, (path,), f"{subset}.tar.gz") for what, path in parts.items()]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        path = inside(self.root, f"{subset}/digitStruct.mat")
        found = Collector(self.root)
        for row, (name, digits) in enumerate(_numbers(path)):
            place = f"digitStruct({row + 1})"
            location = Location(path, place, "name")
            image = found.add_image(name, image_file(self.root, subset, name, location), location)
            for left, top, width, height, label in digits:
                if label not in range(1, 11):
                    raise DataError(
                        f"expected 1 to 10, found {label:g}", file=path, row=place, field="label"
                    )
                found.add_object(
                    image, (left, top, left + width, top + height), int(label) % 10, row + 1
                )
        file = path.relative_to(self.root).as_posix()
        return found.annotations(
            categories=DIGITS, files=[file], row="digitStruct({row})", box_field="bbox"
        )


@register("svhn_cropped")
@dataclass(config=STRICT, kw_only=True)
class CroppedSVHN(Reader):
    """SVHN's format 2: cropped digits of 32 × 32 pixels in MATLAB files of version 5, each image one object.

    Classes are the digits "0" to "9"; the file's label 10 is the digit 0. `ingest` writes each
    image to a PNG file. The image id is the image's number in the subset, with six digits. For full
    numbers see the format `svhn`.

    Errors: a file that is absent, damaged or has another structure; a label that is not 1 to 10.
    """

    SOURCE: ClassVar[str] = "ufldl.stanford.edu/housenumbers (Netzer et al., 2011), 'Format 2'"
    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "test", "extra")

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        return [Expected("images and labels", (f"{subset}_32x32.mat",), f"{subset}_32x32.mat")]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        path = inside(self.root, f"{subset}_32x32.mat")
        content = _content(path)
        pixels, labels = np.asarray(content.get("X")), np.asarray(content.get("y"))
        fits = (
            pixels.dtype == np.uint8
            and pixels.ndim == 4
            and pixels.shape[2] == 3
            and 0 not in pixels.shape[:2]
        )
        if not fits or labels.dtype.kind not in "iuf" or labels.shape != (pixels.shape[3], 1):
            found = f"X: {pixels.dtype} {pixels.shape}, y: {labels.dtype} {labels.shape}"
            raise DataError(
                f"expected X: uint8 (32, 32, 3, N) and y: (N, 1), found {found}", file=path
            )
        wrong = np.flatnonzero(~np.isin(labels[:, 0], np.arange(1, 11)))
        if wrong.size:
            problem = f"expected 1 to 10, found {labels[wrong[0], 0]:g}"
            raise DataError(problem, file=path, row=f"[{wrong[0]}]", field="y")
        digits = labels[:, 0].astype(np.int64) % 10
        block = Block(path, pixels.transpose(3, 0, 1, 2), digits, field="y")
        return labelled(self.root, subset, [block], DIGITS)


def _numbers(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Name of each image, and left, top, width, height and label of its digits, shape (n, 5)."""
    try:
        import h5py
    except ImportError:
        raise ParameterError(
            "datasets of format 'svhn' need h5py: pip install 'farther[svhn]'"
        ) from None
    regular_file(path, ABSENT)
    done = 0
    try:
        with h5py.File(path, "r") as file:
            if not isinstance(
                file.get("digitStruct", getlink=True), h5py.HardLink
            ):  # others may lead out of the file
                raise KeyError("digitStruct")
            names, boxes = file["digitStruct/name"], file["digitStruct/bbox"]
            for name, box in zip(names[:, 0], boxes[:, 0], strict=True):
                text = "".join(chr(letter) for letter in file[name][:, 0])
                values = [_values(file, file[box][part]) for part in PARTS]
                yield text, np.array(values, dtype=np.float64).reshape(len(PARTS), -1).T
                done += 1
    except (
        Exception
    ) as error:  # h5py meets damage with nearly anything: OSError, RuntimeError, KeyError, …
        problem = f"not SVHN's digitStruct.mat of version 7.3: {error}"
        raise DataError(problem, file=path, row=f"digitStruct({done + 1})") from None


def _values(file: Any, part: Any) -> list[float]:
    """One value, or where an image has several digits one reference per digit."""
    return (
        [float(part[0, 0])]
        if len(part) == 1
        else [float(file[reference][0, 0]) for reference in part[:, 0]]
    )


def _content(path: Path) -> dict[str, np.ndarray]:
    """The variables of a MATLAB file; not by SciPy, whose reader a damaged file can end with the process."""
    try:
        with open_binary(path, ABSENT) as file:
            return dict(_variables(file.read()))
    except (struct.error, zlib.error, LookupError, ValueError, OverflowError) as error:
        raise DataError(
            f"not a MATLAB file of version 5 with plain arrays: {error}", file=path
        ) from None


def _variables(content: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """Name and value of each variable that is an array of numbers."""
    if content[124:128] != b"\0\1IM":
        raise ValueError("its header is another")
    for kind, part in _elements(memoryview(content)[128:]):
        if kind == COMPRESSED:
            kind, part = next(
                _elements(memoryview(zlib.decompressobj().decompress(part, MOST_BYTES))), (0, part)
            )
        if kind != MATRIX:
            continue
        _, shape, name, (stored, values) = islice(_elements(part), 4)
        array = np.frombuffer(values, STORED[stored])
        yield (
            bytes(name[1]).decode("latin-1"),
            array.reshape(np.frombuffer(shape[1], "<i4"), order="F"),
        )


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
            raise ValueError("an element is cut off; is the file complete?")
        yield kind, data[at + 8 : at + 8 + size]
        at += 8 + size + (-size % 8 if kind != COMPRESSED else 0)

"""SVHN, street view house numbers (Netzer et al., 2011).

There are two formats: full images with the boxes of digits, and cropped digits.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic.dataclasses import dataclass

from farther.datasets.base import Annotations, Collector, Expected, Reader, image_file, register
from farther.datasets.pixels import Block, labelled
from farther.datasets.records import Location
from farther.errors import DataError, ParameterError
from farther.naming.registry import STRICT
from farther.tables.files import inside, open_binary, regular_file

ABSENT = "the file does not exist; parameter 'root' says where the dataset is"

#: The classes; the label 10 in the files is the digit 0.
DIGITS = [str(digit) for digit in range(10)]

#: Labels of the digits in the files.
LABELS = range(1, 11)

#: Fields of a digit in the file of full numbers.
FIELDS = ("left", "top", "width", "height", "label")

#: Number of bytes of a MATLAB file's header, and its last four bytes.
HEADER_BYTES = 128
LITTLE_ENDIAN_VERSION_5 = b"\0\1IM"

#: Types of the elements of a MATLAB file that are an array, or a compressed element.
MATRIX = 14
COMPRESSED = 15

#: NumPy type by the type of the element that holds an array's values.
VALUE_TYPES = {
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

#: Largest number of bytes of an uncompressed variable; that of the largest set has 1.6 GB.
MOST_BYTES = 2**32


class _Image(NamedTuple):
    """An image of full numbers.

    Args:
        name: Name of its file.
        digits: Left, top, width, height and label of its digits, float64 of shape (n, 5).
    """

    name: str
    digits: np.ndarray


class _Element(NamedTuple):
    """An element of a MATLAB file: the number of its type, and its bytes."""

    type: int
    data: memoryview


@register("svhn")
@dataclass(config=STRICT, kw_only=True)
class SVHN(Reader):
    """SVHN's format 1: full numbers, with one box per digit.

    Boxes are in MATLAB's `digitStruct.mat` (version 7.3, which is HDF5). The image id is the file's
    name. Classes are the digits "0" to "9"; the file's label 10 is the digit 0. Boxes are left,
    top, width, height. Reading needs h5py: `pip install 'farther[svhn]'`.

    Errors: a file that is absent or has another structure; a label that is not 1 to 10; a name that
    leaves its folder.
    """

    SOURCE: ClassVar[str] = "ufldl.stanford.edu/housenumbers (Netzer et al., 2011), 'Format 1'"
    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "test", "extra")

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        archive = f"{subset}.tar.gz"
        return [
            Expected("boxes of digits", (f"{subset}/digitStruct.mat",), archive),
            Expected("images", (subset,), archive),
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        path = inside(self.root, f"{subset}/digitStruct.mat")
        collector = Collector(self.root)
        for row, image in enumerate(_images(path), start=1):
            location = Location(path, f"digitStruct({row})", "name")
            file = image_file(self.root, subset, image.name, location)
            image_row = collector.add_image(image.name, file, location)
            for left, top, width, height, label in image.digits:
                if label not in LABELS:
                    raise replace(location, field="label").error(
                        f"expected 1 to 10, found {label:g}"
                    )
                box = (left, top, left + width, top + height)
                collector.add_object(image_row, box, int(label) % 10, row)
        return collector.annotations(
            categories=DIGITS,
            files=[path.relative_to(self.root).as_posix()],
            row="digitStruct({row})",
            box_field="bbox",
        )


@register("svhn_cropped")
@dataclass(config=STRICT, kw_only=True)
class CroppedSVHN(Reader):
    """SVHN's format 2: cropped digits of 32 × 32 pixels in MATLAB files of version 5.

    Each image is one object. Classes are the digits "0" to "9"; the file's label 10 is the digit 0.
    `ingest` writes each image to a PNG file. The image id is the image's number in the subset, with
    six digits. For full numbers see the format `svhn`.

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
        arrays = _read_mat(path)
        pixels = np.asarray(arrays.get("X"))
        labels = np.asarray(arrays.get("y"))
        if not _have_shapes_of_svhn(pixels, labels):
            raise DataError(
                "expected X: uint8 (32, 32, 3, N) and y: (N, 1), found "
                f"X: {pixels.dtype} {pixels.shape}, y: {labels.dtype} {labels.shape}",
                file=path,
            )

        labels = labels[:, 0]
        invalid_rows = np.flatnonzero(~np.isin(labels, LABELS))
        if invalid_rows.size:
            row = invalid_rows[0]
            problem = f"expected 1 to 10, found {labels[row]:g}"
            raise DataError(problem, file=path, row=f"[{row}]", field="y")

        digits = labels.astype(np.int64) % 10
        block = Block(path, pixels.transpose(3, 0, 1, 2), digits, field="y")
        return labelled(self.root, subset, [block], DIGITS)


def _have_shapes_of_svhn(pixels: np.ndarray, labels: np.ndarray) -> bool:
    """True for uint8 pixels of shape (height, width, 3, N) with N numbers of shape (N, 1)."""
    if pixels.dtype != np.uint8 or pixels.ndim != 4:
        return False
    height, width, channels, count = pixels.shape
    if height == 0 or width == 0 or channels != 3:
        return False
    return labels.dtype.kind in "iuf" and labels.shape == (count, 1)


def _images(path: Path) -> Iterator[_Image]:
    """The images of a file `digitStruct.mat`.

    Raises:
        ParameterError: h5py is not installed.
        DataError: the file is absent, damaged, or has another structure.
    """
    try:
        # Optional.
        import h5py
    except ImportError:
        raise ParameterError(
            "datasets of format 'svhn' need h5py: pip install 'farther[svhn]'"
        ) from None
    regular_file(path, ABSENT)
    number = 1
    try:
        with h5py.File(path, "r") as file:
            if not isinstance(file.get("digitStruct", getlink=True), h5py.HardLink):
                # Links of other kinds may lead out of the file.
                raise KeyError("digitStruct")
            name_references = file["digitStruct/name"][:, 0]
            box_references = file["digitStruct/bbox"][:, 0]
            for name, boxes in zip(name_references, box_references, strict=True):
                text = "".join(chr(letter) for letter in file[name][:, 0])
                columns = [_values(file, file[boxes][field]) for field in FIELDS]
                digits = np.array(columns, dtype=np.float64).reshape(len(FIELDS), -1).T
                yield _Image(text, digits)
                number += 1
    except Exception as error:
        # h5py raises nearly anything for damaged files: OSError, RuntimeError, KeyError, …
        problem = f"not SVHN's digitStruct.mat of version 7.3: {error}"
        raise DataError(problem, file=path, row=f"digitStruct({number})") from None


def _values(file: Any, field: Any) -> list[float]:
    """The values of a field of an image's digits.

    Args:
        file: The HDF5 file.
        field: The field: a value, or one reference per digit where the image has several digits.
    """
    if len(field) == 1:
        return [float(field[0, 0])]
    return [float(file[reference][0, 0]) for reference in field[:, 0]]


def _read_mat(path: Path) -> dict[str, np.ndarray]:
    """The numeric arrays of a MATLAB file of version 5, by their names.

    SciPy's reader is not used, because a damaged file can end the process there: a single flipped
    bit in the class of an array or in the type of its values is a segmentation fault (SciPy 1.17).

    Raises:
        DataError: the file is absent or damaged, or holds other variables.
    """
    try:
        with open_binary(path, ABSENT) as file:
            return _variables(file.read())
    except (struct.error, zlib.error, LookupError, ValueError, OverflowError) as error:
        raise DataError(
            f"not a MATLAB file of version 5 with plain arrays: {error}", file=path
        ) from None


def _variables(content: bytes) -> dict[str, np.ndarray]:
    """The variables of a MATLAB file that are numeric arrays, by their names."""
    if content[124:HEADER_BYTES] != LITTLE_ENDIAN_VERSION_5:
        raise ValueError("its header is another")
    arrays = {}
    for element in _elements(memoryview(content)[HEADER_BYTES:]):
        if element.type == COMPRESSED:
            element = _decompressed(element)
        if element.type == MATRIX:
            name, array = _named_array(element)
            arrays[name] = array
    return arrays


def _decompressed(element: _Element) -> _Element:
    """The element within a compressed one; the compressed one itself where there is none."""
    content = zlib.decompressobj().decompress(element.data, MOST_BYTES)
    return next(_elements(memoryview(content)), element)


def _named_array(matrix: _Element) -> tuple[str, np.ndarray]:
    """Name and value of a numeric array.

    Its elements are flags, shape, name and values, in this order.
    """
    _, shape, name, values = islice(_elements(matrix.data), 4)
    array = np.frombuffer(values.data, VALUE_TYPES[values.type])
    array = array.reshape(np.frombuffer(shape.data, "<i4"), order="F")
    return bytes(name.data).decode("latin-1"), array


def _elements(content: memoryview) -> Iterator[_Element]:
    """The elements of a MATLAB file, or within an element.

    An element starts with a tag, its type and its size in bytes, which are two numbers of four
    bytes. In a small element both have two bytes, and its data, at most four bytes, follow in the
    tag itself.
    """
    start = 0
    while start < len(content):
        type_, size = struct.unpack_from("<II", content, start)
        small_size = type_ >> 16
        if small_size:
            data_start = start + 4
            yield _Element(type_ & 0xFFFF, content[data_start : data_start + min(small_size, 4)])
            start += 8
            continue

        data_start = start + 8
        if data_start + size > len(content):
            raise ValueError("an element is cut off; is the file complete?")
        yield _Element(type_, content[data_start : data_start + size])
        start = data_start + size
        if type_ != COMPRESSED:
            start += -size % 8  # padded to a multiple of eight bytes

"""SVHN, street view house numbers (Netzer et al., 2011): full images with the boxes of digits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    Annotations,
    Collector,
    Expected,
    Reader,
    image_file,
    register,
)
from farther.datasets.records import Location
from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.tables.files import inside, regular_file

ORIGINALS = ("train", "test", "extra")

#: Values of a box in the file, and the digit.
PARTS = ("left", "top", "width", "height", "label")


@register("svhn")
@dataclass(config=STRICT, kw_only=True)
class SVHN(Reader):
    """SVHN's format 1: full numbers, with a box per digit in MATLAB's `digitStruct.mat` (version 7.3, which is HDF5).

    The image id is the file's name. Classes are the digits "0" to "9"; the file's label 10 is the digit 0. Boxes are
    left, top, width, height. Reading needs h5py: `pip install 'farther[svhn]'`.

    Errors: a file that is absent or has another structure; a label that is not 1 to 10; a name that leaves its folder.

    Args:
        subset_names: Subsets to read. When empty, those of train, test and extra that are present.
    """

    SOURCE: ClassVar[str] = "ufldl.stanford.edu/housenumbers (Netzer et al., 2011), 'Format 1'"

    subset_names: tuple[str, ...] = ()

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        return self._subsets_present(self.subset_names, {subset: [f"{subset}/digitStruct.mat"] for subset in ORIGINALS})

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
        found = Collector(self.root)
        for row, (name, digits) in enumerate(_numbers(path)):
            place = f"digitStruct({row + 1})"
            location = Location(path, place, "name")
            image = found.add_image(name, image_file(self.root, subset, name, location), location)
            for left, top, width, height, label in digits:
                if label not in range(1, 11):
                    raise DataError(f"expected 1 to 10, found {label:g}", file=path, row=place, field="label")
                found.add_object(image, (left, top, left + width, top + height), int(label) % 10, row + 1)
        return found.annotations(
            categories=[str(digit) for digit in range(10)],
            files=[path.relative_to(self.root).as_posix()],
            row="digitStruct({row})",
            box_field="bbox",
        )


def _numbers(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Name of each image, and left, top, width, height and label of its digits, shape (n, 5)."""
    try:
        import h5py
    except ImportError:
        raise ParameterError("datasets of format 'svhn' need h5py: pip install 'farther[svhn]'") from None
    regular_file(path, "the file does not exist; parameter 'root' says where the dataset lies")
    done = 0
    try:
        with h5py.File(path, "r") as file:
            if not isinstance(file.get("digitStruct", getlink=True), h5py.HardLink):  # others may lead out of the file
                raise KeyError("digitStruct")
            names, boxes = file["digitStruct/name"], file["digitStruct/bbox"]
            for name, box in zip(names[:, 0], boxes[:, 0], strict=True):
                text = "".join(chr(letter) for letter in file[name][:, 0])
                values = [_values(file, file[box][part]) for part in PARTS]
                yield text, np.array(values, dtype=np.float64).reshape(len(PARTS), -1).T
                done += 1
    except Exception as error:  # h5py meets damage with nearly anything: OSError, RuntimeError, KeyError, …
        problem = f"not SVHN's digitStruct.mat of version 7.3: {error}"
        raise DataError(problem, file=path, row=f"digitStruct({done + 1})") from None


def _values(file: Any, part: Any) -> list[float]:
    """One value, or where an image has several digits one reference per digit."""
    return [float(part[0, 0])] if len(part) == 1 else [float(file[reference][0, 0]) for reference in part[:, 0]]

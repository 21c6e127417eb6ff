"""SVHN's cropped digits (Netzer et al., 2011): images of 32 × 32 pixels, each labelled with the digit at its centre."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass
from scipy.io import loadmat

from farther.datasets.base import Annotations, Expected, Reader, register
from farther.datasets.pixels import Block, labelled
from farther.datasets.svhn import ORIGINALS
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import inside, regular_file


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
        fits = pixels.dtype == np.uint8 and pixels.ndim == 4 and pixels.shape[2] == 3
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


def _content(path: Path) -> dict[str, Any]:
    """The variables of a MATLAB file."""
    regular_file(path, "the file does not exist; parameter 'root' says where the dataset lies")
    try:
        return dict(loadmat(path, variable_names=["X", "y"]))
    except Exception as error:  # scipy meets damage with nearly anything: ValueError, zlib.error, TypeError, …
        raise DataError(f"not a MATLAB file of version 5: {error or type(error).__name__}", file=path) from None

"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) in their binary version."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from farther.datasets.base import Annotations, Expected, Reader, register
from farther.datasets.pixels import Block, labelled
from farther.datasets.records import read_lines
from farther.errors import DataError
from farther.naming.registry import STRICT
from farther.tables.files import inside, is_folder, is_present, regular_file

#: Bytes of an image: red, green and blue planes of 32 × 32.
PIXELS = 3 * 32 * 32

#: Files of each subset that consists of several, or is called otherwise than its file.
FILES = {
    "train": ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
    "test": ("test_batch",),
}

#: File of the names of the classes.
NAME_FILES: dict[int | str, str] = {
    10: "batches.meta.txt",
    100: "fine_label_names.txt",
    "100 coarse": "coarse_label_names.txt",
}

#: Index of the byte that has the label, among the bytes before each image.
LABEL_BYTES: dict[int | str, int] = {10: 0, 100: 1, "100 coarse": 0}


@register("cifar")
@dataclass(config=STRICT, kw_only=True)
class CIFAR(Reader):
    """CIFAR-10 and CIFAR-100: images of 32 × 32 pixels, each one object of its class.

    The binary version is read; `ingest` writes each image to a PNG file. The Python version is
    refused, as it is a set of pickles, which run code when they are read; the message names the
    binary archive with the same images. The image id is the image's number in the subset, with six
    digits.

    Errors: a file that is absent or whose length is not that of whole images; a label that no class
    has.

    Args:
        classes: 10 or 100; "100 coarse" for the 20 superclasses of CIFAR-100.
    """

    SOURCE: ClassVar[str] = "www.cs.toronto.edu/~kriz/cifar.html (Krizhevsky, 2009)"
    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "test")

    classes: Literal[10, 100, "100 coarse"] = 10

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        pickle = self._pickle()
        if pickle is not None and not self._has_binary_version():
            raise DataError(
                f"these are pickles, which run code when they are read; unpack {self._archive} "
                "(the binary version of the same images) beside them",
                file=pickle,
            )
        return super().subsets()

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        expected = [
            Expected("images and labels", (file,), self._archive) for file in self._files(subset)
        ]
        expected.append(Expected("names of the classes", (self._name_file,), self._archive))
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        lines = read_lines(inside(self.root, self._name_file), self._absent)
        categories = [line for line in lines if line]
        blocks = [self._block(inside(self.root, file)) for file in self._files(subset)]
        return labelled(self.root, subset, blocks, categories)

    def _pickle(self) -> Path | None:
        """A file or folder of the Python version; None where there is none."""
        names = (f"{self._name}-batches-py", f"{self._name}-python", "batches.meta", "meta")
        for name in names:
            if is_present(self.root / name):
                return self.root / name
        return None

    def _has_binary_version(self) -> bool:
        """True where a file of a subset exists."""
        return any(is_present(self.root / self._files(name)[0]) for name in self.ORIGINALS)

    @property
    def _name(self) -> str:
        return "cifar-10" if self.classes == 10 else "cifar-100"

    @property
    def _archive(self) -> str:
        return f"{self._name}-binary.tar.gz"

    @property
    def _name_file(self) -> str:
        """File of the names of the classes, within the root."""
        return self._within(NAME_FILES[self.classes])

    @property
    def _absent(self) -> str:
        return f"the file does not exist; unpack {self._archive} here, or correct parameter 'root'"

    def _files(self, subset: str) -> list[str]:
        """Files of a subset within the root."""
        stems: tuple[str, ...] = (subset,)
        if self.classes == 10:
            stems = FILES.get(subset, stems)
        return [self._within(f"{stem}.bin") for stem in stems]

    def _within(self, file: str) -> str:
        """Path within the root of a file of the archive.

        The root is the archive's folder, or the folder that contains it.
        """
        folder = "cifar-10-batches-bin" if self.classes == 10 else "cifar-100-binary"
        if is_folder(self.root / folder):
            return f"{folder}/{file}"
        return file

    def _block(self, path: Path) -> Block:
        """The images of one file."""
        regular_file(path, self._absent)
        label_bytes = 1 if self.classes == 10 else 2
        length = label_bytes + PIXELS
        content = np.fromfile(path, dtype=np.uint8)
        if not len(content) or len(content) % length:
            raise DataError(
                f"expected images of {length} bytes each, found {len(content)} bytes; "
                "is the file complete?",
                file=path,
            )
        records = content.reshape(-1, length)
        pixels = records[:, -PIXELS:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = records[:, LABEL_BYTES[self.classes]]
        return Block(path, pixels, labels)

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
from farther.registry import STRICT
from farther.tables.files import inside, is_folder, is_present, regular_file

#: Bytes of an image: red, green and blue planes of 32 × 32.
PIXELS = 3 * 32 * 32

#: Files of each subset that consists of several, or is called otherwise than its file.
FILES = {"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)}

#: File of the names of the classes, and the number of the byte before each image that has the
#: label.
LABELS = {
    10: ("batches.meta.txt", 0),
    100: ("fine_label_names.txt", 1),
    "100 coarse": ("coarse_label_names.txt", 0),
}


@register("cifar")
@dataclass(config=STRICT, kw_only=True)
class CIFAR(Reader):
    """CIFAR-10 and CIFAR-100: images of 32 × 32 pixels, each one object of its class.

    The binary version is read; `ingest` writes each image to a PNG file. The Python version is a
    set of pickles, which run code when they are read: it is refused, and the message names the
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
        pickles = (f"{self._name}-batches-py", f"{self._name}-python", "batches.meta", "meta")
        found = next((self.root / name for name in pickles if is_present(self.root / name)), None)
        if found is not None and not any(
            is_present(self.root / self._files(one)[0]) for one in self.ORIGINALS
        ):
            problem = "these are pickles, which run code when they are read; unpack "
            problem += f"{self._archive} (the binary version of the same images) beside them"
            raise DataError(problem, file=found)
        return super().subsets()

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        images = [
            Expected("images and labels", (file,), self._archive) for file in self._files(subset)
        ]
        return [
            *images,
            Expected(
                "names of the classes", (self._within(LABELS[self.classes][0]),), self._archive
            ),
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        names, label = LABELS[self.classes]
        categories = [
            name
            for name in read_lines(inside(self.root, self._within(names)), self._absent)
            if name
        ]
        blocks = [self._block(inside(self.root, file), label) for file in self._files(subset)]
        return labelled(self.root, subset, blocks, categories)

    @property
    def _name(self) -> str:
        return "cifar-10" if self.classes == 10 else "cifar-100"

    @property
    def _archive(self) -> str:
        return f"{self._name}-binary.tar.gz"

    @property
    def _absent(self) -> str:
        return f"the file does not exist; unpack {self._archive} here, or correct parameter 'root'"

    def _files(self, subset: str) -> list[str]:
        """Files of a subset within the root."""
        stems = FILES.get(subset, (subset,)) if self.classes == 10 else (subset,)
        return [self._within(f"{stem}.bin") for stem in stems]

    def _within(self, file: str) -> str:
        """Path of a file within the root, which is the archive's folder or the folder that it lies in."""
        folder = "cifar-10-batches-bin" if self.classes == 10 else "cifar-100-binary"
        return f"{folder}/{file}" if is_folder(self.root / folder) else file

    def _block(self, path: Path, label: int) -> Block:
        """The images of one file; `label` is the index of the label's byte."""
        regular_file(path, self._absent)
        length = PIXELS + (1 if self.classes == 10 else 2)
        content = np.fromfile(path, dtype=np.uint8)
        if not len(content) or len(content) % length:
            problem = f"expected images of {length} bytes each, found {len(content)} bytes; is the file complete?"
            raise DataError(problem, file=path)
        records = content.reshape(-1, length)
        pixels = records[:, -PIXELS:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return Block(path, pixels, records[:, label])

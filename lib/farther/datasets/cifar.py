"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) in their binary version."""

from __future__ import annotations

from dataclasses import dataclass as plain
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from farther.datasets.base import Annotations, Expected, Reader, register
from farther.datasets.pixels import Block, labelled
from farther.datasets.records import read_lines
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import inside, regular_file

#: Bytes of an image: red, green and blue planes of 32 × 32.
PIXELS = 3 * 32 * 32


@plain(frozen=True)
class _Version:
    """A published dataset: files of each subset, file of the names, label bytes before each image, archives."""

    subsets: dict[str, tuple[str, ...]]
    names: tuple[str, ...]
    label_bytes: int
    folder: str
    pickles: str
    archive: str


CIFAR10 = _Version(
    subsets={"train": tuple(f"data_batch_{k}.bin" for k in range(1, 6)), "test": ("test_batch.bin",)},
    names=("batches.meta.txt",),
    label_bytes=1,
    folder="cifar-10-batches-bin",
    pickles="cifar-10-batches-py",
    archive="cifar-10-binary.tar.gz",
)

CIFAR100 = _Version(
    subsets={"train": ("train.bin",), "test": ("test.bin",)},
    names=("coarse_label_names.txt", "fine_label_names.txt"),
    label_bytes=2,
    folder="cifar-100-binary",
    pickles="cifar-100-python",
    archive="cifar-100-binary.tar.gz",
)


@register("cifar")
@dataclass(config=STRICT, kw_only=True)
class CIFAR(Reader):
    """CIFAR-10 and CIFAR-100: images of 32 × 32 pixels, each one object of its class.

    The binary version is read; `ingest` writes each image to a PNG file. The Python version is a set of pickles, which
    run code when they are read: it is refused, and the message names the binary archive with the same images.
    The image id is the image's number in the subset, with six digits.

    Errors: a file that is absent or whose length is not that of whole images; a label that no class has.

    Args:
        classes: 10 or 100; "100 coarse" for the 20 superclasses of CIFAR-100.
    """

    SOURCE: ClassVar[str] = "www.cs.toronto.edu/~kriz/cifar.html (Krizhevsky, 2009)"

    classes: Literal[10, 100, "100 coarse"] = 10

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        self._refuse_pickles()
        files = {subset: [self._within(file) for file in files] for subset, files in self._version.subsets.items()}
        return self._subsets_present((), files)

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        version = self._version
        files = (*version.subsets.get(subset, (f"{subset}.bin",)), version.names[-1])
        return [Expected("images and labels" if file.endswith(".bin") else "names of the classes",
                         (self._within(file),), version.archive) for file in files]  # fmt: skip

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        self._refuse_pickles()
        version, coarse = self._version, self.classes == "100 coarse"
        names = inside(self.root, self._within(version.names[0 if coarse else -1]))
        categories = [name for name in read_lines(names, self._absent) if name]
        blocks = [
            self._block(inside(self.root, self._within(file)), 0 if coarse else version.label_bytes - 1)
            for file in version.subsets.get(subset, (f"{subset}.bin",))
        ]
        return labelled(self.root, subset, blocks, categories)

    @property
    def _version(self) -> _Version:
        return CIFAR10 if self.classes == 10 else CIFAR100

    @property
    def _absent(self) -> str:
        return f"the file does not exist; unpack {self._version.archive} here, or correct parameter 'root'"

    def _within(self, file: str) -> str:
        """Path of a file within the root, which is the archive's folder or the folder that it lies in."""
        folder = self._version.folder
        return f"{folder}/{file}" if (self.root / folder).is_dir() else file

    def _refuse_pickles(self) -> None:
        """An error where only the Python version is there."""
        version = self._version
        binary = any((self.root / self._within(f)).exists() for files in version.subsets.values() for f in files)
        pickles = [self.root / version.pickles, self.root / "batches.meta", self.root / "meta"]
        found = next((path for path in pickles if path.exists()), None)
        if found is not None and not binary:
            raise DataError(
                "these are pickles, which run code when they are read; unpack "
                f"{version.archive} (the binary version of the same images) beside them",
                file=found,
            )

    def _block(self, path: Path, label: int) -> Block:
        """The images of one file; `label` is the index of the label's byte."""
        regular_file(path, self._absent)
        length = self._version.label_bytes + PIXELS
        content = np.fromfile(path, dtype=np.uint8)
        if not len(content) or len(content) % length:
            problem = f"expected images of {length} bytes each, found {len(content)} bytes; is the file whole?"
            raise DataError(problem, file=path)
        records = content.reshape(-1, length)
        pixels = records[:, -PIXELS:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return Block(path, pixels, records[:, label])

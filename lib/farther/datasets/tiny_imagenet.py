"""Tiny ImageNet: 200 classes of ImageNet in images of 64 × 64 pixels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    WHOLE_IMAGE,
    Annotations,
    Collector,
    Expected,
    Reader,
    image_file,
    register,
)
from farther.datasets.records import Location, read_lines
from farther.errors import DataError, shorten
from farther.naming.registry import STRICT
from farther.tables.endings import is_image
from farther.tables.files import inside
from farther.tables.folders import listed

#: File of the names of the classes, one per line.
CLASSES = "wnids.txt"

#: File of the validation images and their classes.
VALIDATION = "val/val_annotations.txt"

#: Folder of the validation images.
VALIDATION_IMAGES = "val/images"

ABSENT = "the file does not exist; `root` is the folder tiny-imagenet-200 of the archive"


class _Labelled(NamedTuple):
    """An image: its path within the root, its class, and where the class is given."""

    file: str
    category: str
    location: Location


@register("tiny_imagenet")
@dataclass(config=STRICT, kw_only=True)
class TinyImageNet(Reader):
    """Tiny ImageNet, in the folders of its archive.

    Training images are `train/<class>/images/*.JPEG`; `val/val_annotations.txt` labels the
    validation images, which are in `val/images`. Classes are WordNet's ids (`n01443537`), in
    alphabetical order. An image is one object as large as the image; the image id is the path
    within the root. The boxes of the archive are not read, and its test images have no labels.

    Errors: a class of `wnids.txt` without training images; a line of the validation file without a
    file and a class, or with a class that `wnids.txt` does not have; an image that is listed twice;
    a path that leaves its folder.
    """

    SOURCE: ClassVar[str] = "cs231n.stanford.edu/tiny-imagenet-200.zip"
    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "val")

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        source = "tiny-imagenet-200.zip"
        if subset == "train":
            expected = [Expected("images", ("train",), source)]
        else:
            expected = [
                Expected("classes of the images", (VALIDATION,), source),
                Expected("images", (VALIDATION_IMAGES,), source),
            ]
        expected.append(Expected("names of the classes", (CLASSES,), source))
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        lines = read_lines(inside(self.root, CLASSES), ABSENT)
        categories = sorted(line for line in lines if line)
        if subset not in self.ORIGINALS:
            raise DataError(
                f"no subset is called {subset!r}. Known: {', '.join(self.ORIGINALS)}",
                file=self.root,
            )
        if subset == "train":
            images = self._training(categories)
            file = "train"
        else:
            images = self._validation()
            file = VALIDATION

        collector = Collector(self.root)
        index_by_category = {category: index for index, category in enumerate(categories)}
        for row, image in enumerate(images):
            if image.category not in index_by_category:
                raise image.location.error(
                    f"expected a class of {CLASSES}, found {shorten(image.category)}"
                )
            image_row = collector.add_image(image.file, image.file, image.location)
            collector.add_object(image_row, WHOLE_IMAGE, index_by_category[image.category], row)
        return collector.annotations(
            unit="image",
            categories=categories,
            files=[file],
            row="{image_id}",
            box_field="the whole image",
        )

    def _training(self, categories: list[str]) -> Iterator[_Labelled]:
        """The training images."""
        for category in categories:
            folder: Path = inside(self.root, f"train/{category}/images")
            images = [path for path in listed(folder, "*") if is_image(path)]
            if not images:
                raise DataError(f"no images of this class of {CLASSES}", file=folder)
            for path in images:
                file = path.relative_to(self.root).as_posix()
                yield _Labelled(file, category, Location(path))

    def _validation(self) -> Iterator[_Labelled]:
        """The validation images."""
        path = inside(self.root, VALIDATION)
        for number, line in enumerate(read_lines(path, ABSENT), start=1):
            if not line:
                continue
            location = Location(path, str(number), "class")
            fields = line.split("\t")
            if len(fields) < 2:
                raise location.error(f"expected a file, a tab and a class, found {shorten(line)}")
            name, category = fields[:2]
            file = image_file(self.root, VALIDATION_IMAGES, name, location)
            yield _Labelled(file, category, location)

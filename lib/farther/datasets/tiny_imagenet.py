"""Tiny ImageNet: 200 classes of ImageNet in images of 64 × 64 pixels, in the folders of its archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

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
from farther.datasets.image_folder import ENDINGS
from farther.datasets.records import Location, read_lines
from farther.errors import DataError, shorten
from farther.registry import STRICT
from farther.tables.files import inside
from farther.tables.folders import listed

#: File of the names of the classes, one per line.
CLASSES = "wnids.txt"

#: File of the validation images and their classes, and the folder of the images.
VALIDATION, VALIDATION_IMAGES = "val/val_annotations.txt", "val/images"

ABSENT = "the file does not exist; `root` is the folder tiny-imagenet-200 of the archive"


@register("tiny_imagenet")
@dataclass(config=STRICT, kw_only=True)
class TinyImageNet(Reader):
    """Tiny ImageNet: `train/<class>/images/*.JPEG`, and `val/val_annotations.txt` with the images in `val/images`.

    Classes are WordNet's ids (`n01443537`), in alphabetical order. An image is one object as large
    as the image; the image id is the path within the root. The boxes of the archive are not read,
    and its test images have no labels.

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
            images = [Expected("images", ("train",), source)]
        else:
            lists = Expected("classes of the images", (VALIDATION,), source)
            images = [lists, Expected("images", (VALIDATION_IMAGES,), source)]
        return [*images, Expected("names of the classes", (CLASSES,), source)]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        categories = sorted(line for line in read_lines(inside(self.root, CLASSES), ABSENT) if line)
        if subset not in self.ORIGINALS:
            raise DataError(
                f"no subset is called {subset!r}. Known: {', '.join(self.ORIGINALS)}",
                file=self.root,
            )
        collector = Collector(self.root)
        number_of = {name: number for number, name in enumerate(categories)}
        images = self._training(categories) if subset == "train" else self._validation()
        for row, (name, category, location) in enumerate(images):
            if category not in number_of:
                raise location.error(f"expected a class of {CLASSES}, found {shorten(category)}")
            image = collector.add_image(name, name, location)
            collector.add_object(image, WHOLE_IMAGE, number_of[category], row)
        files = ["train" if subset == "train" else VALIDATION]
        return collector.annotations(
            unit="image",
            categories=categories,
            files=files,
            row="{image_id}",
            box_field="the whole image",
        )

    def _training(self, categories: list[str]) -> Iterator[tuple[str, str, Location]]:
        """Path within the root, class, and place of each training image."""
        for category in categories:
            folder: Path = inside(self.root, f"train/{category}/images")
            images = [path for path in listed(folder, "*") if path.name.lower().endswith(ENDINGS)]
            if not images:
                raise DataError(f"no images of this class of {CLASSES}", file=folder)
            for path in images:
                yield path.relative_to(self.root).as_posix(), category, Location(path)

    def _validation(self) -> Iterator[tuple[str, str, Location]]:
        """Path within the root, class, and place of each validation image."""
        path = inside(self.root, VALIDATION)
        for number, line in enumerate(read_lines(path, ABSENT), start=1):
            if not line:
                continue
            location = Location(path, str(number), "class")
            fields = line.split("\t")
            if len(fields) < 2:
                raise location.error(f"expected a file, a tab and a class, found {shorten(line)}")
            yield image_file(self.root, VALIDATION_IMAGES, fields[0], location), fields[1], location

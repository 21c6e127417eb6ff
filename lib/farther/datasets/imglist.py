"""OpenOOD's lists of images: text files with a path and the number of a class on each line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    WHOLE_IMAGE,
    Annotations,
    Collector,
    Expected,
    Reader,
    fill,
    image_file,
    register,
)
from farther.datasets.records import Location, read_lines
from farther.errors import DataError, shorten
from farther.naming.registry import STRICT
from farther.tables.endings import refuse_twins
from farther.tables.files import inside, is_present
from farther.tables.folders import listed

#: Class of an image with the label -1, which OpenOOD gives to OOD images.
UNKNOWN = "unknown"

ABSENT = "the list does not exist; parameters 'lists' and 'subset_names' say which to read"


class _Line(NamedTuple):
    """A line of a list: path and label of an image, and the line's number."""

    image: str
    label: int
    row: int


@register("imglist")
@dataclass(config=STRICT, kw_only=True)
class ImgList(Reader):
    """Image labels in OpenOOD's lists: lines `cifar10/test/airplane/0298.png 0`.

    An image is one object as large as the image. The image id is the path, without the slash in
    front that the lists of Places365 have. The label -1 is the class "unknown". With `category`,
    labels are ignored and all images are of that class: OpenOOD ignores the labels of its lists of
    OOD images, of which not all are -1.

    Errors: a line without a label that is a whole number; a label that no class has; an image that
    is listed twice; a path that leaves the folder; a list without images.

    Args:
        lists: The list of a subset, within the root.
        images: The folder that the paths begin at, within the root.
        subset_names: Subsets to read. When empty, all that `lists` matches.
        categories: Names of the classes by label. When empty, the labels themselves: "0", "1", …
        category: The class of all images.
    """

    SOURCE: ClassVar[str] = (
        "github.com/Jingkang50/OpenOOD (Yang et al., 2022; Zhang et al., 2023, arXiv:2306.09301)"
    )

    lists: str = "{subset}.txt"
    images: str = "."
    categories: tuple[str, ...] = ()
    category: str = ""

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        if self.subset_names:
            return list(self.subset_names)
        self._check_root()
        paths = listed(self.root, fill(self.lists, "*"))
        if not paths:
            raise DataError(f"no list found; looked for {self.lists}", file=self.root)

        before, _, after = self.lists.partition("{subset}")
        files = [path.relative_to(self.root).as_posix() for path in paths]
        refuse_twins(paths)
        return sorted(file[len(before) : len(file) - len(after)] for file in files)

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        file = fill(self.lists, subset)
        expected = [Expected("list of images", (file,), "benchmark_imglist.zip")]
        folders = self._folders(inside(self.root, file))
        for folder in folders:
            source = f"the archive {Path(folder).name}.zip"
            expected.append(Expected("images", (folder,), source))
        if not folders and self.images != ".":
            source = "the archives of the lists' images"
            expected.append(Expected("images", (self.images,), source))
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        path = self._first_present([self.lists], subset, "lists")
        lines = list(self._lines(path))
        if not lines:
            raise DataError("the list is empty; expected lines: path label", file=path)
        name_by_label = self._name_by_label(lines)
        categories = list(dict.fromkeys(name_by_label.values()))
        collector = Collector(self.root)
        for line in lines:
            location = Location(path, str(line.row), "path")
            file = image_file(self.root, self.images, line.image, location)
            image = collector.add_image(line.image, file, location)
            if line.label not in name_by_label:
                raise replace(location, field="label").error(
                    f"expected -1 to {len(self.categories) - 1}, the labels of 'categories', "
                    f"found {line.label}"
                )
            category = categories.index(name_by_label[line.label])
            collector.add_object(image, WHOLE_IMAGE, category, line.row)
        return collector.annotations(
            unit="image",
            categories=categories,
            files=[fill(self.lists, subset)],
            row="{row}",
            box_field="label",
        )

    def _lines(self, path: Path) -> Iterator[_Line]:
        """The lines of a list that are not empty."""
        for row, text in enumerate(read_lines(path, ABSENT), start=1):
            if not text:
                continue
            image, _, label = text.rpartition(" ")
            if not image or not re.fullmatch(r"-?\d{1,9}", label):
                problem = f"expected a path, a space and an integer, found {shorten(text)}"
                raise DataError(problem, file=path, row=row, field="label")
            yield _Line(image.rstrip().lstrip("/"), int(label), row)

    def _name_by_label(self, lines: list[_Line]) -> dict[int, str]:
        """Name of the class by label, in the order of the labels, with -1 last."""
        labels = sorted({line.label for line in lines})
        if self.category:
            return dict.fromkeys(labels, self.category)
        if self.categories:
            name_by_label = dict(enumerate(self.categories))
        else:
            name_by_label = {label: str(label) for label in labels if label >= 0}
        if -1 in labels:
            name_by_label[-1] = UNKNOWN
        return name_by_label

    def _folders(self, path: Path) -> list[str]:
        """First folder of each path in a list, within the root; none where there is no list."""
        if not is_present(path):
            return []
        names: dict[str, None] = {}
        for line in self._lines(path):
            folder, separator, _ = line.image.partition("/")
            if separator:
                names[folder] = None
        return [image_file(self.root, self.images, name, Location(path)) for name in names]

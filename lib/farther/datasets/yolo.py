"""YOLO folders: `data.yaml`, images, and a text file of boxes or outlines beside each image's folder."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass as plain
from pathlib import Path
from typing import Any, ClassVar

from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    Annotations,
    Collector,
    Edges,
    Expected,
    Reader,
    below,
    image_file,
    register,
)
from farther.datasets.file_names import RESPELLED, Spellings
from farther.datasets.records import Location, are_texts, read_lines, read_mapping
from farther.datasets.yolo_labels import SUFFIXES, find_labels, label_file_of, labels_of
from farther.errors import DataError, shorten
from farther.registry import STRICT
from farther.tables.files import inside, is_folder, is_present
from farther.tables.folders import files_below, in_unicode, resolved

ABSENT = "the file does not exist, but the YAML file names it"
#: Endings of text files that name the classes.
NAMES = (".txt", ".names")
#: Names of folders by subset.
WORDS = {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}


@plain(frozen=True)
class _Image:
    """An image of a subset: its id, its file within the root, where it is named, and how, where a list names it."""

    image_id: str
    file: str
    location: Location
    written: str = ""


@register("yolo")
@dataclass(config=STRICT, kw_only=True)
class YOLO(Reader):
    """A dataset as ultralytics' trainers read it.

    `data.yaml` names the classes (`names`, a list, or a mapping from 0) and, for each of `train`,
    `val` and `test`, a folder of images, a text file that lists images, or several of these.
    Without these three, the folders say which subsets there are: `images/train` or `train/images`
    (`valid` is `val`), `obj_train_data` of Darknet, and otherwise all images are the subset `all`.
    The labels of `images/…/a.jpg` are in `labels/…/a.txt`: the last folder called `images` is
    exchanged. A row is a class, and centre and size of a box, or the corners of an outline, in
    fractions of the image; an outline's box is the smallest around it. The image id is the path of
    the image below the folder, or as listed, without `images/` and suffix.

    Tolerated, as the trainers do: an image with an empty label file (no objects); absolute paths
    below the root; numbers of classes that are text; a `path` in `data.yaml` (where a folder or
    list is not below the root, it is looked for below `path` in the root); `../` before a folder's
    name (it is looked for below the root). Tolerated and listed: images without a label file (no
    objects); a label file that is called like its image in another spelling (`a%20b.txt`), or with
    its ending (`a.jpg.txt`); a subset of `data.yaml` that is not there, beside others that are;
    each label file that belongs to no image, or lies beside its image where another folder has the
    labels (not read). Errors: a subset without any label file; `data.yaml` absent or not YAML,
    without `names`, or with an `nc` that differs; a folder or a listed image outside the root; two
    images whose labels would be one file; a row that is not a class with four numbers or with three
    corners and more; a class without a name; coordinates that are not finite numbers, or a negative
    size; rows of key points (`kpt_shape`).

    Args:
        subset_names: Subsets to read. When empty, those of train, val and test that `data.yaml`
            gives.
        file: The YAML file, within the root; or a text file with the name of a class in each line,
            as LabelImg, Label Studio (`classes.txt`), and Darknet and CVAT (`obj.names`) write it.
        confidence: Rows may have a sixth column, a confidence (`save_conf` of ultralytics), which
            is not read.
    """

    SOURCE: ClassVar[str] = "docs.ultralytics.com/datasets/detect (the format)"

    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "val", "test")

    file: str = "data.yaml"
    confidence: bool = False

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        if self.subset_names:
            return list(self.subset_names)
        self._check_root()
        named = self._named_subsets()
        absent = self.absent_subsets()
        return [subset for subset in named if subset not in absent]

    def absent_subsets(self) -> dict[str, str]:
        """Subsets that `data.yaml` names and that are not there, as exports name an empty test set; see `Reader`."""
        if self.subset_names:
            return {}
        absent: dict[str, str] = {}
        named = self._named_subsets()
        for subset in named:
            entries = self._entries(subset)
            if not any(_holds_files(below(self.root, entry)) for entry in entries):
                absent[subset] = entries[0]
        if len(absent) == len(named):
            return {}
        return absent

    def _named_subsets(self) -> list[str]:
        """The subsets that `data.yaml` names, or that folders have the names of."""
        content = self._content()
        return [subset for subset in (*self.ORIGINALS, "all") if content.get(subset)]

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        expected = [Expected("description", (self.file,), "the YAML file of the dataset")]
        if is_present(inside(self.root, self.file)):
            for entry in self._entries(subset):
                expected.append(Expected("images", (entry,), f"images of {subset}"))
                if not entry.endswith(".txt"):
                    expected.append(Expected("labels", (labels_of(entry),), f"labels of {subset}"))
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        categories = _categories(self._content(), inside(self.root, self.file))
        images = list(self._images(subset))
        collector = Collector(self.root)
        for image in images:
            collector.add_image(image.image_id, image.file, image.location)
        _refuse_common_labels(images)
        folders = [entry for entry in self._entries(subset) if not entry.endswith(".txt")]
        labels = find_labels(self.root, [image.file for image in images], folders)
        if images and not labels.by_image:
            raise self._no_labels(subset, images, labels.unmatched + labels.beside)
        for row, image in enumerate(images):
            path = inside(self.root, labels.by_image.get(image.file, label_file_of(image.file)))
            collector.annotated_by(path)
            for line, category, box in _rows(path, len(categories), confidence=self.confidence):
                collector.add_object(row, box, category, line)
        labels.warn(collector)
        _warn_respelled(collector, images)
        return collector.annotations(
            unit="image", categories=categories, row="{row}", box_field="box"
        )

    def _no_labels(self, subset: str, images: Sequence[_Image], others: Sequence[str]) -> DataError:
        """The error about a subset without any label file; `others` are label files that belong to no image."""
        first = images[0].file
        expected = label_file_of(first)
        problem = f"none of the {len(images)} images of {subset!r} has a label file; that of {first} would be {expected}"
        if others:
            problem += f". {len(others)} label files belong to no image, such as {others[0]}: rename or move them"
        return DataError(problem, file=inside(self.root, expected))

    def _content(self) -> dict[str, Any]:
        path, absent = (
            inside(self.root, self.file),
            "the file does not exist; parameter 'file' says where it is",
        )
        if path.suffix in NAMES:
            content: dict[str, Any] = {"names": [line for line in read_lines(path, absent) if line]}
        else:
            content = read_mapping(path, "names, train and val", absent)
        if "kpt_shape" in content:
            raise DataError(
                "rows of keypoints are not read; use a detection dataset",
                file=path,
                field="kpt_shape",
            )
        if any(content.get(subset) for subset in self.ORIGINALS):
            return content
        return {**content, **self._folders(), "path": None}

    def _folders(self) -> dict[str, str]:
        """The folder of images of each subset, by the names of folders; all images where none has such a name."""
        found: dict[str, str] = {}
        for subset, words in WORDS.items():
            for word in words:
                for folder in (f"images/{word}", f"{word}/images", f"obj_{word}_data"):
                    if is_folder(self.root / folder):
                        found.setdefault(subset, folder)
        if found:
            return found
        if is_folder(self.root / "images"):
            return {"all": "images"}
        return {"all": "."}

    def _entries(self, subset: str) -> list[str]:
        """Folders and lists of a subset, within the root."""
        location = Location(inside(self.root, self.file), None, subset)
        content = self._content()
        value, base = content.get(subset), content.get("path")
        entries: list[Any] = value if isinstance(value, list) else [value]
        if not entries or not are_texts(entries) or not all(entries):
            raise location.error(
                f"expected a folder, a list of images, or several of them, found {shorten(value)}"
            )
        if value in self._folders().values():
            return [str(value)]
        folder = Path(self.file).parent.as_posix()
        placed: list[str] = []
        for entry in entries:
            name = _below(self._relative(entry.replace("\\", "/")))
            placed.append(self._placed(image_file(self.root, folder, name, location), base))
        return placed

    def _placed(self, entry: str, base: Any) -> str:
        """An entry of `data.yaml` below its `path`, `base`, where it is not below the root."""
        if isinstance(base, str) and not is_present(inside(self.root, entry)):
            lower = Path(os.path.normpath(_below(self._relative(base))), entry).as_posix()
            is_below = not Path(lower).is_absolute() and not lower.startswith("..")
            if is_below and is_present(inside(self.root, lower)):
                return lower
        return entry

    def _relative(self, name: str) -> str:
        """A path below the root that is written as an absolute one, from the root on; others as they are."""
        path = Path(name)
        for root in (self.root.absolute(), resolved(self.root)):
            if path.is_absolute() and path.is_relative_to(root):
                return path.relative_to(root).as_posix()
        return name

    def _images(self, subset: str) -> Iterator[_Image]:
        """The images of a subset, sorted within each folder."""
        for entry in self._entries(subset):
            if entry.endswith(".txt"):
                yield from self._listed(entry)
            else:
                yield from self._in_folder(entry)

    def _in_folder(self, folder: str) -> Iterator[_Image]:
        path = below(self.root, folder)
        if not path.is_dir():
            raise DataError(f"the folder of images does not exist; {self.file} names it", file=path)
        for file in sorted(files_below(path)):
            if file.suffix.lower() in SUFFIXES and not file.name.startswith("."):
                name = in_unicode(file).relative_to(path).with_suffix("").as_posix()
                yield _Image(name, file.relative_to(self.root).as_posix(), Location(file))

    def _listed(self, file: str) -> Iterator[_Image]:
        path = inside(self.root, file)
        folder = Path(file).parent.as_posix()
        spellings = Spellings(self.root)
        for number, line in enumerate(read_lines(path, ABSENT), start=1):
            if not line:
                continue
            location = Location(path, str(number))
            relative = self._relative(line)
            place = "." if relative != line else folder
            named = image_file(self.root, place, relative, location)
            image = spellings.find(named) or named
            if image != named:
                relative = Path(image).relative_to(place).as_posix()
            image_id = Path(relative).with_suffix("").as_posix().removeprefix("images/")
            yield _Image(image_id, image, location, named)


def _refuse_common_labels(images: Sequence[_Image]) -> None:
    """Refuses two images whose labels would be one file."""
    image_by_label: dict[str, str] = {}
    for image in images:
        labels = label_file_of(image.file)
        if labels in image_by_label:
            problem = f"{image.file!r} and {image_by_label[labels]!r} have their labels in one file, {labels}"
            raise image.location.error(problem)
        image_by_label[labels] = image.file


def _warn_respelled(collector: Collector, images: Sequence[_Image]) -> None:
    """Adds one warning where a list has other spellings than the files."""
    respelled = [image for image in images if image.written not in ("", image.file)]
    if respelled:
        first = respelled[0]
        more = f" and {len(respelled) - 1} more" if len(respelled) > 1 else ""
        example = f"{shorten(first.written)} is {shorten(first.file)}{more}"
        collector.warn(first.location, RESPELLED, example, "read by the names of the files")


def _holds_files(path: Path) -> bool:
    """Whether a list exists, or a folder has a file at any depth."""
    if is_folder(path):
        return any(True for _ in files_below(path))
    return is_present(path)


def _below(entry: str) -> str:
    """An entry of `data.yaml` without the `../` that some tools write before it."""
    while entry.startswith("../"):
        entry = entry[3:]
    return entry


def _categories(content: dict[str, Any], path: Path) -> list[str]:
    """Names of the classes, by their numbers."""
    names = content.get("names")
    location = Location(path, None, "names")
    if isinstance(names, dict):
        numbers = {
            key: int(key)
            for key in names
            if isinstance(key, str) and key.isdecimal() and len(key) < 10
        }
        names = {numbers.get(key, key): name for key, name in names.items()}
        if sorted(names, key=str) != sorted(range(len(names)), key=str):
            raise location.error(
                f"expected the numbers 0 to {len(names) - 1}, found {shorten(list(names))}"
            )
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise location.error(
            f"expected a list of classes, or a mapping from 0, found {shorten(names)}"
        )
    names = [str(name) for name in names]
    twice, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise location.error(f"two classes are called {twice!r}")
    if content.get("nc", len(names)) != len(names):
        raise Location(path, None, "nc").error(f"{content['nc']!r} classes, but {len(names)} names")
    return names


def _rows(path: Path, classes: int, *, confidence: bool) -> Iterator[tuple[int, int, Edges]]:
    """Line, class and edges (in fractions) of each row of a label file; empty if the file is absent."""
    if not is_present(path):
        return
    for number, line in enumerate(read_lines(path, ABSENT), start=1):
        if line:
            category, *values = _numbers(line, Location(path, str(number)))
            if not category.is_integer() or not 0 <= category < classes:
                location = Location(path, str(number), "class")
                raise location.error(
                    f"expected a class from 0 to {classes - 1}, found {category:g}"
                )
            values = values[:4] if confidence and len(values) == 5 else values
            yield number, int(category), _edges(values, Location(path, str(number), "box"))


def _numbers(line: str, location: Location) -> list[float]:
    try:
        values = [float(word) for word in line.split()]
    except ValueError:
        values = [math.nan]
    if not all(map(math.isfinite, values)):
        raise location.error(f"expected finite numbers, found {shorten(line)}")
    return values


def _edges(values: list[float], location: Location) -> Edges:
    """Edges of a box given by centre and size, or of the smallest box around an outline."""
    if len(values) == 4:
        x, y, width, height = values
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    if len(values) < 6 or len(values) % 2:
        raise location.error(
            f"expected 4 numbers, or three corners (6 numbers) or more, found {len(values)} numbers"
        )
    return min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])

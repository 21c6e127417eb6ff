"""YOLO folders: `data.yaml`, images, and a text file of boxes or outlines for each image."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass as plain
from functools import lru_cache
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
    warn_of_unread_images,
)
from farther.datasets.file_names import RESPELLED, Spellings
from farther.datasets.recognition import Evidence, Recognised
from farther.datasets.records import Location, are_texts, mapping_of, read_lines
from farther.datasets.subset_names import is_neutral, read_names
from farther.datasets.yolo_labels import find_labels, label_file_of, labels_of
from farther.datasets.yolo_recognition import recognise_yolo
from farther.errors import DataError, shorten
from farther.naming.registry import STRICT
from farther.tables.documents import parse_yaml
from farther.tables.endings import CLASS_NAMES, TEXT, has_ending, is_image
from farther.tables.files import inside, is_folder, is_present, read_text
from farther.tables.folders import entries, files_below, in_unicode, listed, resolved

ABSENT = "the file does not exist, but the YAML file names it"
#: Kind of the warning about folders whose names do not say which subset they are.
UNCLEAR_FOLDERS = "folders that may be subsets"


@plain(frozen=True)
class _Image:
    """An image of a subset.

    Args:
        image_id: Its id.
        file: Its file within the root.
        location: Where it is named.
        listed_file: The file as a list of images spells it; "" where no list names it.
    """

    image_id: str
    file: str
    location: Location
    listed_file: str = ""


@plain(frozen=True)
class _Row:
    """A row of a label file: its line, the class, and the edges of the box in fractions."""

    line: int
    category: int
    box: Edges


@register("yolo")
@dataclass(config=STRICT, kw_only=True)
class YOLO(Reader):
    """A dataset in the form that ultralytics' trainers read.

    `data.yaml` names the classes (`names`, a list, or a mapping from 0) and, for each of `train`,
    `val` and `test`, a folder of images, a text file that lists images, or several of these.
    Without these three, the names of folders say which subsets there are, as in
    `farther.datasets.subset_names`: `images/train`, `Validation/images`, `obj_train_data` of
    Darknet. Otherwise all images are the subset `all`.
    The labels of `images/…/a.jpg` are in `labels/…/a.txt`: the last folder called `images`, in any
    case, is exchanged. A row is a class, and centre and size of a box, or the corners of an
    outline, in fractions of the image; an outline's box is the smallest around it. The image id is
    the path of the image below the folder, or as listed, without `images/` and suffix.

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

    EVIDENCE: ClassVar[Evidence] = "description"
    COUNTS_UNLISTED: ClassVar[bool] = True
    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "val", "test")

    file: str = "data.yaml"
    confidence: bool = False

    @classmethod
    def recognises(cls, folder: Path) -> Recognised | None:
        """A folder with a file that names the classes; see `Reader`."""
        return recognise_yolo(folder)

    def class_numbers(self, categories: Sequence[str]) -> dict[int, str]:
        """The places of the classes, from 0; see `Reader`."""
        return dict(enumerate(categories))

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        if self.subset_names:
            return list(self.subset_names)
        self._check_root()
        absent = self.absent_subsets()
        return [subset for subset in self._named_subsets() if subset not in absent]

    def absent_subsets(self) -> dict[str, str]:
        """Subsets that `data.yaml` names and that have no files; see `Reader`.

        Exports name an empty test set.
        """
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
        """The subsets that `data.yaml` names, or that have a folder of their name."""
        content = self._content()
        return [subset for subset in (*self.ORIGINALS, "all") if content.get(subset)]

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        expected = [Expected("description", (self.file,), "the YAML file of the dataset")]
        if not is_present(inside(self.root, self.file)):
            return expected
        for entry in self._entries(subset):
            expected.append(Expected("images", (entry,), f"images of {subset}"))
            if not _is_image_list(entry):
                label_folder = self._spelled(labels_of(entry))
                expected.append(Expected("labels", (label_folder,), f"labels of {subset}"))
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        categories = _categories(self._content(), inside(self.root, self.file))
        images = list(self._images(subset))
        collector = Collector(self.root)
        for image in images:
            collector.add_image(image.image_id, image.file, image.location)
        _refuse_common_labels(images)

        folders = [entry for entry in self._entries(subset) if not _is_image_list(entry)]
        labels = find_labels(self.root, [image.file for image in images], folders)
        if images and not labels.by_image:
            raise self._no_labels(subset, images, labels.unmatched + labels.beside)

        for image_row, image in enumerate(images):
            label_file = labels.by_image.get(image.file, label_file_of(image.file))
            path = inside(self.root, label_file)
            collector.annotated_by(path)
            for row in _rows(path, len(categories), with_confidence=self.confidence):
                collector.add_object(image_row, row.box, row.category, row.line)
        labels.warn(collector)
        for folder in folders:
            files = files_below(below(self.root, folder))
            warn_of_unread_images(collector, below(self.root, folder), files)
        _warn_respelled(collector, images)
        if subset == self._named_subsets()[0]:
            self._warn_unclear_folders(collector)
        return collector.annotations(
            unit="image", categories=categories, row="{row}", box_field="box"
        )

    def _no_labels(
        self, subset: str, images: Sequence[_Image], unmatched: Sequence[str]
    ) -> DataError:
        """The error about a subset without any label file.

        Args:
            subset: Name of the subset.
            images: Its images.
            unmatched: Label files that belong to no image.
        """
        first = images[0].file
        expected = label_file_of(first)
        problem = (
            f"none of the {len(images)} images of {subset!r} has a label file; "
            f"that of {first} would be {expected}"
        )
        if unmatched:
            problem += (
                f". {len(unmatched)} label files belong to no image, such as {unmatched[0]}: "
                "rename or move them"
            )
        return DataError(problem, file=inside(self.root, expected))

    def _content(self) -> dict[str, Any]:
        """The content of `data.yaml`, with the folders of images where it names none."""
        content = self._description()
        if self._names_folders(content):
            return content
        return {**content, **self._folders(), "path": None}

    def _names_folders(self, content: dict[str, Any]) -> bool:
        """Whether the content of `data.yaml` says where the images of a subset are."""
        return any(content.get(subset) for subset in self.ORIGINALS)

    def _description(self) -> dict[str, Any]:
        """The content of `data.yaml`, or of the list of classes."""
        path = inside(self.root, self.file)
        absent = "the file does not exist; parameter 'file' says where it is"
        content: dict[str, Any]
        if has_ending(path, CLASS_NAMES):
            content = {"names": [line for line in read_lines(path, absent) if line]}
        else:
            content = _description(read_text(path, absent), path)
        if "kpt_shape" in content:
            raise DataError(
                "rows of keypoints are not read; use a detection dataset",
                file=path,
                field="kpt_shape",
            )
        return content

    def _folders(self) -> dict[str, str]:
        """The folder of images of each subset that has a folder of its name.

        Where no folder has one, all images are the subset `all`.
        """
        folder_by_name = self._folder_by_name()
        reading = read_names(folder_by_name)
        if reading.are_subsets:
            return {subset: folder_by_name[name] for subset, name in reading.chosen.items()}
        if reading.assumed:
            chosen = {**reading.chosen, **reading.assumed}
            return {subset: folder_by_name[name] for subset, name in chosen.items()}
        images = self._spelled("images")
        if is_folder(self.root / images):
            return {"all": images}
        return {"all": "."}

    def _folder_by_name(self) -> dict[str, str]:
        """Name of a folder that may be that of a subset → the folder with its images.

        `images/train`, `train/images`, or `train` with images in it, as `obj_train_data`.
        """
        folders: dict[str, str] = {}
        images = self._spelled("images")
        for name in _folder_names(self.root / images):
            folders.setdefault(name, f"{images}/{name}")
        for name in _folder_names(self.root):
            inner_images = self._spelled(f"{name}/images")
            if is_folder(self.root / inner_images):
                folders.setdefault(name, inner_images)
            elif not is_neutral(name) and _has_images(self.root / name):
                folders.setdefault(name, name)
        return folders

    def _warn_unclear_folders(self, collector: Collector) -> None:
        """Adds a warning where the names of folders do not say which subset each is."""
        if self._names_folders(self._description()):
            return
        reading = read_names(self._folder_by_name())
        location = Location(inside(self.root, self.file))
        if reading.are_subsets and reading.unused:
            action = f"only {', '.join(reading.chosen.values())} are read"
            collector.warn(location, UNCLEAR_FOLDERS, ", ".join(reading.unused), action)
        for assumed, name in reading.assumed.items():
            (named,) = reading.chosen.values()
            found = f"{name} is the only name beside {named}"
            action = f"read as {assumed}; write the keys train, val and test if it is not"
            collector.warn(location, UNCLEAR_FOLDERS, found, action)
        if not reading.are_subsets and reading.chosen and not reading.assumed:
            action = "all images are read as one subset"
            found = ", ".join([*reading.chosen.values(), *reading.others])
            collector.warn(location, UNCLEAR_FOLDERS, found, action)

    def _entries(self, subset: str) -> list[str]:
        """Folders and lists of a subset, within the root."""
        location = Location(inside(self.root, self.file), None, subset)
        content = self._content()
        value = content.get(subset)
        entries: list[Any] = value if isinstance(value, list) else [value]
        if not entries or not are_texts(entries) or not all(entries):
            raise location.error(
                f"expected a folder, a list of images, or several of them, found {shorten(value)}"
            )
        if not self._names_folders(self._description()):
            return [str(value)]
        folder = Path(self.file).parent.as_posix()
        paths: list[str] = []
        for entry in entries:
            name = _without_parents(self._relative(entry.replace("\\", "/")))
            path = image_file(self.root, folder, name, location)
            paths.append(self._spelled(self._below_base(path, content.get("path"))))
        return paths

    def _spelled(self, path: str) -> str:
        """A path within the root in the spelling of the files and folders that exist."""
        return Spellings(self.root).find(path) or path

    def _below_base(self, entry: str, base: Any) -> str:
        """The path within the root of an entry that may be relative to `path` of `data.yaml`.

        Args:
            entry: Path within the root; returned where it exists.
            base: Value of `path`.
        """
        if not isinstance(base, str) or is_present(inside(self.root, entry)):
            return entry
        folder = os.path.normpath(_without_parents(self._relative(base)))
        path = Path(folder, entry)
        if path.is_absolute() or path.as_posix().startswith(".."):
            return entry
        if is_present(inside(self.root, path.as_posix())):
            return path.as_posix()
        return entry

    def _relative(self, name: str) -> str:
        """An absolute path below the root, as path within the root; other paths as they are."""
        path = Path(name)
        for root in (self.root.absolute(), resolved(self.root)):
            if path.is_absolute() and path.is_relative_to(root):
                return path.relative_to(root).as_posix()
        return name

    def _images(self, subset: str) -> Iterator[_Image]:
        """The images of a subset, sorted within each folder."""
        for entry in self._entries(subset):
            if _is_image_list(entry):
                yield from self._listed_images(entry)
            else:
                yield from self._images_in(entry)

    def _images_in(self, folder: str) -> Iterator[_Image]:
        """The images of a folder, at any depth."""
        path = below(self.root, folder)
        if not path.is_dir():
            raise DataError(f"the folder of images does not exist; {self.file} names it", file=path)
        for file in sorted(files_below(path)):
            if is_image(file) and not file.name.startswith("."):
                image_id = in_unicode(file).relative_to(path).with_suffix("").as_posix()
                yield _Image(image_id, file.relative_to(self.root).as_posix(), Location(file))

    def _listed_images(self, file: str) -> Iterator[_Image]:
        """The images that a text file lists, one per line."""
        path = inside(self.root, file)
        folder = Path(file).parent.as_posix()
        spellings = Spellings(self.root)
        for number, line in enumerate(read_lines(path, ABSENT), start=1):
            if not line:
                continue
            location = Location(path, str(number))
            relative = self._relative(line)
            is_absolute = relative != line
            base = "." if is_absolute else folder
            listed_file = image_file(self.root, base, relative, location)
            image = spellings.find(listed_file) or listed_file
            if image != listed_file:
                relative = Path(image).relative_to(base).as_posix()
            image_id = Path(relative).with_suffix("").as_posix().removeprefix("images/")
            yield _Image(image_id, image, location, listed_file)


@lru_cache(maxsize=1)
def _description(text: str, path: Path) -> dict[str, Any]:
    """The content of a `data.yaml`: parsed once, although each subset looks into it several times.

    No caller may change it.

    Raises:
        DataError: it is not YAML, or no mapping.
    """
    return mapping_of(parse_yaml(text, path), path, "names, train and val")


def _is_image_list(entry: str) -> bool:
    """True for an entry of `data.yaml` that is a text file of images, and not a folder."""
    return has_ending(entry, TEXT)


def _refuse_common_labels(images: Sequence[_Image]) -> None:
    """Refuses two images whose labels would be one file."""
    image_by_label_file: dict[str, str] = {}
    for image in images:
        label_file = label_file_of(image.file)
        if label_file in image_by_label_file:
            raise image.location.error(
                f"{image.file!r} and {image_by_label_file[label_file]!r} have their labels "
                f"in one file, {label_file}"
            )
        image_by_label_file[label_file] = image.file


def _warn_respelled(collector: Collector, images: Sequence[_Image]) -> None:
    """Adds one warning where a list has other spellings than the files."""
    respelled = [image for image in images if image.listed_file not in ("", image.file)]
    if not respelled:
        return
    first = respelled[0]
    example = f"{shorten(first.listed_file)} is {shorten(first.file)}"
    if len(respelled) > 1:
        example += f" and {len(respelled) - 1} more"
    collector.warn(first.location, RESPELLED, example, "read by the names of the files")


def _folder_names(folder: Path) -> list[str]:
    """Names of the folders in a folder, without hidden ones."""
    return [path.name for path in listed(folder, "*") if is_folder(path)]


def _has_images(folder: Path) -> bool:
    """Whether a folder itself has image files."""
    return any(is_image(entry.name) for entry in entries(folder))


def _holds_files(path: Path) -> bool:
    """Whether a list exists, or a folder has a file at any depth."""
    if is_folder(path):
        return any(True for _ in files_below(path))
    return is_present(path)


def _without_parents(entry: str) -> str:
    """An entry of `data.yaml` without the `../` that some tools write before it."""
    while entry.startswith("../"):
        entry = entry[3:]
    return entry


def _categories(content: dict[str, Any], path: Path) -> list[str]:
    """Names of the classes, by their numbers.

    Raises:
        DataError: `names` has another form, a class occurs twice, or `nc` is another number.
    """
    names = content.get("names")
    location = Location(path, None, "names")
    if isinstance(names, dict):
        names = _names_in_order(names, location)
    if not isinstance(names, list) or not names:
        raise location.error(
            f"expected a list of classes, or a mapping from 0, found {shorten(names)}"
        )
    names = [str(name) for name in names]

    most_common, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise location.error(f"two classes are called {most_common!r}")
    if content.get("nc", len(names)) != len(names):
        raise Location(path, None, "nc").error(f"{content['nc']!r} classes, but {len(names)} names")
    return names


def _names_in_order(names: dict[Any, Any], location: Location) -> list[Any]:
    """The names of a mapping from the numbers 0, 1, …; the numbers may be text."""
    name_by_number = {}
    for key, name in names.items():
        is_number_text = isinstance(key, str) and key.isdecimal() and len(key) < 10
        number = int(key) if is_number_text else key
        name_by_number[number] = name

    count = len(name_by_number)
    if sorted(name_by_number, key=str) != sorted(range(count), key=str):
        raise location.error(
            f"expected the numbers 0 to {count - 1}, found {shorten(list(name_by_number))}"
        )
    return [name_by_number[number] for number in range(count)]


def _rows(path: Path, class_count: int, *, with_confidence: bool) -> Iterator[_Row]:
    """The rows of a label file; none where there is no such file.

    Args:
        path: The label file.
        class_count: Number of classes.
        with_confidence: Rows may end with a confidence, which is ignored.

    Raises:
        DataError: a row is not a class and a box, or not a class and an outline.
    """
    if not is_present(path):
        return
    for line_number, line in enumerate(read_lines(path, ABSENT), start=1):
        if not line:
            continue
        row = str(line_number)
        category, *values = _numbers(line, Location(path, row))
        if not category.is_integer() or not 0 <= category < class_count:
            raise Location(path, row, "class").error(
                f"expected a class from 0 to {class_count - 1}, found {category:g}"
            )
        if with_confidence and len(values) == 5:
            values = values[:4]
        yield _Row(line_number, int(category), _edges(values, Location(path, row, "box")))


def _numbers(line: str, location: Location) -> list[float]:
    """The numbers of a row."""
    try:
        values = [float(word) for word in line.split()]
    except ValueError:
        values = [math.nan]
    if not all(math.isfinite(value) for value in values):
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
    x_values = values[::2]
    y_values = values[1::2]
    return min(x_values), min(y_values), max(x_values), max(y_values)

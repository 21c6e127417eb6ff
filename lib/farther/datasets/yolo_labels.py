"""Label files of a YOLO folder, matched with its images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farther.datasets.base import Collector
from farther.datasets.file_names import Spellings, canonical_name
from farther.datasets.records import Location
from farther.errors import shorten
from farther.tables.endings import (
    TEXT,
    has_ending,
    is_image,
    is_unread_image,
    refuse_twins,
    why_unread,
    with_lower_ending,
)
from farther.tables.files import is_file, is_folder, open_binary
from farther.tables.folders import entries, files_below

#: Largest number of bytes of a first row that is read: an outline may have thousands of corners.
ROW_BYTES = 100_000
#: Smallest count of numbers in a row: a class and a box.
LEAST_NUMBERS = 5

UNMATCHED = "label file without image"
UNREAD = "label file of an image that is not read"
BESIDE = "label file beside its image"
OTHER_NAME = "label files called otherwise than their images"
WITHOUT_LABELS = "images without a label file"


@dataclass
class LabelFiles:
    """The label files of the images of a subset.

    Attributes:
        by_image: Label file by image, for the images that have one; paths within the root.
        other_names: The images among them whose label file has another name than expected: that of
            the image in another spelling (`a%20b.txt`), or with its ending (`a.jpg.txt`).
        without: The images without a label file.
        unmatched: Label files that belong to no image.
        beside: Label files beside images whose labels are expected in another folder.
        unread: Image in a format that is not read, by its label file.
    """

    by_image: dict[str, str] = field(default_factory=dict)
    other_names: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)

    def warn(self, collector: Collector) -> None:
        """Adds the warnings about images and label files that do not match by name."""
        root = collector.root
        if self.other_names:
            image = self.other_names[0]
            label_file = self.by_image[image]
            example = f"{len(self.other_names)} files, such as {label_file} of {image}"
            collector.warn(Location(root / label_file), OTHER_NAME, example, "read")

        if self.without and self.by_image:
            image = self.without[0]
            total = len(self.without) + len(self.by_image)
            example = f"{len(self.without)} of {total}, such as {image}"
            action = "read as images without objects"
            collector.warn(Location(root / image), WITHOUT_LABELS, example, action)

        for label_file in self.unmatched:
            problem = (
                f"no image belongs to {shorten(label_file)}, whose objects are lost: "
                "rename it as its image, or delete it"
            )
            location = Location(root / label_file)
            collector.warn(location, UNMATCHED, problem, "not read", about="image")

        for label_file, image in self.unread.items():
            problem = f"{shorten(label_file)} is of {shorten(image)}: {why_unread(image)}"
            collector.warn(Location(root / label_file), UNREAD, problem, "not read", about="image")

        for label_file in self.beside:
            problem = (
                f"{shorten(label_file)} is beside its image, and is expected at "
                f"{labels_of(label_file)}: move it"
            )
            location = Location(root / label_file)
            collector.warn(location, BESIDE, problem, "not read", about="image")


def labels_of(path: str) -> str:
    """The path with its last folder `images`, in any case, renamed to `labels` in the same case."""
    return _with_renamed_folder(path, "images", "labels")


def label_file_of(image: str) -> str:
    """The label file that the trainers read for an image."""
    return Path(labels_of(image)).with_suffix(".txt").as_posix()


def find_labels(root: Path, images: Sequence[str], folders: Iterable[str]) -> LabelFiles:
    """The label files of images, and those in the folders around them that belong to no image.

    Args:
        root: The dataset's folder.
        images: Paths of the images within the root.
        folders: Folders within the root of which all images are read.

    Raises:
        DataError: the names of two label files differ in the case of their ending alone.
    """
    text_files = _text_files(root, images, folders)
    refuse_twins(root / file for file in sorted(text_files))
    file_by_usual_name = {with_lower_ending(file): file for file in text_files}
    by_image: dict[str, str] = {}
    for image in images:
        label_file = file_by_usual_name.get(label_file_of(image))
        if label_file is not None:
            by_image[image] = label_file

    images_without = [image for image in images if image not in by_image]
    unused = text_files - set(by_image.values())
    with_other_names = _match_other_names(images_without, unused)
    by_image.update(with_other_names)

    images_without = [image for image in images if image not in by_image]
    unused -= set(by_image.values())
    label_files = sorted(file for file in unused if is_label_file(root / file))
    image_by_label_file = _match_with_images(root, label_files)
    unread: dict[str, str] = {}
    unmatched: list[str] = []
    for label_file in label_files:
        image = image_by_label_file.get(label_file, "")
        if not image:
            unmatched.append(label_file)
        elif is_unread_image(image):
            unread[label_file] = image
    beside = _paths_beside(images_without)
    return LabelFiles(
        by_image=by_image,
        other_names=list(with_other_names),
        without=images_without,
        unmatched=unmatched,
        beside=[file for file in beside if is_label_file(root / file)],
        unread=unread,
    )


def is_label_file(path: Path) -> bool:
    """True for a text file whose first row is a class and at least four numbers.

    No list of names has such a row.
    """
    if not is_file(path):
        return False
    with open_binary(path) as file:
        content = file.read(ROW_BYTES)
    first_row = content.strip().partition(b"\n")[0]
    words = first_row.split()
    if len(words) < LEAST_NUMBERS:
        return False
    for word in words:
        try:
            float(word)
        except ValueError:
            return False
    return True


def _text_files(root: Path, images: Sequence[str], folders: Iterable[str]) -> set[str]:
    """The text files in the folders where labels are expected, within the root."""
    files: set[Path] = set()
    label_folders = {Path(label_file_of(image)).parent for image in images}
    spellings = Spellings(root)
    for folder in label_folders:
        spelled = spellings.find(folder.as_posix()) or folder
        files.update(Path(entry.path) for entry in entries(root / spelled))
    for image_folder in folders:
        expected = labels_of(image_folder)
        label_folder = root / (spellings.find(expected) or expected)
        if image_folder != "." and is_folder(label_folder):
            files.update(files_below(label_folder))
    return {file.relative_to(root).as_posix() for file in files if has_ending(file, TEXT)}


def _match_other_names(images: Sequence[str], label_files: set[str]) -> dict[str, str]:
    """Label file by image, for label files with another name than expected.

    A label file is matched where it is the only one that has the image's name in another spelling,
    or with the image's ending, and no other image has this name.

    Args:
        images: Images without the label file expected.
        label_files: Label files without an image.
    """
    images_by_form = defaultdict[str, list[str]](list)
    for image in images:
        images_by_form[canonical_name(label_file_of(image))].append(image)
        images_by_form[canonical_name(f"{labels_of(image)}.txt")].append(image)

    candidates_by_image = defaultdict[str, list[str]](list)
    for label_file in sorted(label_files):
        same_form = images_by_form.get(canonical_name(label_file), [])
        if len(same_form) == 1:
            candidates_by_image[same_form[0]].append(label_file)

    label_file_by_image = {}
    for image, candidates in candidates_by_image.items():
        if len(candidates) == 1:
            label_file_by_image[image] = candidates[0]
    return label_file_by_image


def _match_with_images(root: Path, label_files: Iterable[str]) -> dict[str, str]:
    """The image of each label file that has one, within the root.

    It may be of another subset in the same folder, or in a format that is not read.
    """
    spellings = Spellings(root)
    names_by_folder: dict[str, dict[str, str]] = {}
    image_by_label_file: dict[str, str] = {}
    for label_file in label_files:
        image = Path(_with_renamed_folder(label_file, "labels", "images"))
        expected = image.parent.as_posix()
        folder = spellings.find(expected) or expected
        if folder not in names_by_folder:
            names_by_folder[folder] = _names_by_stem(root / folder)
        name = names_by_folder[folder].get(canonical_name(image.stem))
        if name is not None:
            image_by_label_file[label_file] = Path(folder, name).as_posix()
    return image_by_label_file


def _names_by_stem(folder: Path) -> dict[str, str]:
    """Name of an image by the `canonical_name` of the stems that its label file may have.

    An image that is read comes before one that is not.
    """
    names = [entry.name for entry in entries(folder)]
    unread = [name for name in names if is_unread_image(name)]
    read = [name for name in names if is_image(name)]
    name_by_stem: dict[str, str] = {}
    for name in (*unread, *read):
        name_by_stem[canonical_name(Path(name).stem)] = name
        name_by_stem[canonical_name(name)] = name
    return name_by_stem


def _paths_beside(images: Sequence[str]) -> list[str]:
    """Paths of label files beside images whose labels are expected in another folder."""
    paths: list[str] = []
    for image in images:
        path = Path(image).with_suffix(".txt").as_posix()
        if path != label_file_of(image):
            paths.append(path)
    return paths


def _with_renamed_folder(path: str, name: str, new_name: str) -> str:
    """The path with a new name, in the same case, for its last folder called `name` in any case."""
    parts = path.split("/")
    for index in reversed(range(len(parts))):
        part = parts[index]
        if part.casefold() != name:
            continue
        if part.isupper():
            new_name = new_name.upper()
        elif part.istitle():
            new_name = new_name.title()
        return "/".join([*parts[:index], new_name, *parts[index + 1 :]])
    return path

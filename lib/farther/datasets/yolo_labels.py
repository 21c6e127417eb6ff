"""Label files of a YOLO folder: the one of each image, and those that belong to no image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farther.datasets.base import Collector
from farther.datasets.file_names import comparable
from farther.datasets.records import Location
from farther.errors import shorten
from farther.tables.files import is_file, is_folder, open_binary
from farther.tables.folders import entries, files_below

#: Endings of image files.
SUFFIXES = frozenset({".avif", ".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
#: Most bytes of a first row that is looked at: an outline may have thousands of corners.
ROW_BYTES = 100_000
#: Numbers of a row: a class and a box.
LEAST_NUMBERS = 5

UNMATCHED = "label file without image"
BESIDE = "label file beside its image"
OTHER_NAME = "label files called otherwise than their images"
WITHOUT_LABELS = "images without a label file"


@dataclass
class LabelFiles:
    """The label files of the images of a subset.

    Attributes:
        by_image: The label file of each image that has one; paths within the root.
        other_names: The images among these whose label file is not the one expected, but is called
            like the image in another spelling (`a%20b.txt`), or like the image with its ending
            (`a.jpg.txt`).
        without: The images without a label file.
        unmatched: Label files of no image, and why, as far as their names tell.
        beside: Label files beside images whose labels are expected in another folder.
    """

    by_image: dict[str, str] = field(default_factory=dict)
    other_names: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)

    def warn(self, collector: Collector) -> None:
        """Adds the warnings about what has no partner."""
        root = collector.root
        if self.other_names:
            first = self.other_names[0]
            count = f"{len(self.other_names)} files, such as {self.by_image[first]} of {first}"
            collector.warn(Location(root / self.by_image[first]), OTHER_NAME, count, "read")
        if self.without and self.by_image:
            total = len(self.without) + len(self.by_image)
            count = f"{len(self.without)} of {total}, such as {self.without[0]}"
            collector.warn(
                Location(root / self.without[0]),
                WITHOUT_LABELS,
                count,
                "read as images without objects",
            )
        for name in self.unmatched:
            problem = f"no image belongs to {shorten(name)}, whose objects are lost: rename it as its image, or delete it"
            collector.warn(Location(root / name), UNMATCHED, problem, "not read", about="image")
        for name in self.beside:
            problem = f"{shorten(name)} is beside its image, and is expected at {labels_of(name)}: move it"
            collector.warn(Location(root / name), BESIDE, problem, "not read", about="image")


def labels_of(path: str) -> str:
    """The path with its last folder `images` called `labels`."""
    return _exchanged(path, "images", "labels")


def label_file_of(image: str) -> str:
    """The label file that the trainers read for an image."""
    return Path(labels_of(image)).with_suffix(".txt").as_posix()


def find_labels(root: Path, images: Sequence[str], folders: Iterable[str]) -> LabelFiles:
    """The label files of images, and those in the folders around them that belong to no image.

    Args:
        root: The dataset's folder.
        images: Paths of the images within the root.
        folders: Folders of images that are read as a whole, within the root.
    """
    present = _text_files(root, images, folders)
    label_files = LabelFiles()
    lacking: list[str] = []
    for image in images:
        expected = label_file_of(image)
        if expected in present:
            label_files.by_image[image] = expected
        else:
            lacking.append(image)
    unused = present - set(label_files.by_image.values())
    label_files.other_names = _add_other_names(label_files.by_image, lacking, unused)
    label_files.without = [image for image in lacking if image not in label_files.by_image]
    unused -= set(label_files.by_image.values())
    unused -= _have_images(root, unused)
    label_files.unmatched = [name for name in sorted(unused) if is_label_file(root / name)]
    label_files.beside = [
        name for name in _beside(label_files.without) if is_label_file(root / name)
    ]
    return label_files


def is_label_file(path: Path) -> bool:
    """Whether the first row of a text file is a class and at least four numbers, which no list of names is."""
    if not is_file(path):
        return False
    with open_binary(path) as file:
        words = file.read(ROW_BYTES).strip().partition(b"\n")[0].split()
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
    for place in {Path(label_file_of(image)).parent for image in images}:
        files.update(Path(entry.path) for entry in entries(root / place))
    for folder in folders:
        labels = labels_of(folder)
        if folder != "." and is_folder(root / labels):
            files.update(files_below(root / labels))
    return {file.relative_to(root).as_posix() for file in files if file.suffix == ".txt"}


def _add_other_names(
    by_image: dict[str, str], lacking: Sequence[str], unused: set[str]
) -> list[str]:
    """Adds the label files whose names differ from those expected in a way that leaves no doubt; their images."""
    images_by_form = defaultdict[str, list[str]](list)
    for image in lacking:
        images_by_form[comparable(label_file_of(image))].append(image)
        images_by_form[comparable(f"{labels_of(image)}.txt")].append(image)
    labels_by_image: Mapping[str, list[str]] = defaultdict(list)
    for name in sorted(unused):
        images = images_by_form.get(comparable(name), [])
        if len(images) == 1:
            labels_by_image[images[0]].append(name)
    other_names: list[str] = []
    for image, labels in labels_by_image.items():
        if len(labels) == 1:
            by_image[image] = labels[0]
            other_names.append(image)
    return other_names


def _have_images(root: Path, labels: Iterable[str]) -> set[str]:
    """Those of some label files that have an image at all, as those of another subset in the same folder have."""
    forms_by_folder: dict[str, set[str]] = {}
    with_image: set[str] = set()
    for label in labels:
        image = Path(_exchanged(label, "labels", "images"))
        folder = image.parent.as_posix()
        if folder not in forms_by_folder:
            forms_by_folder[folder] = _forms(root / folder)
        if comparable(image.stem) in forms_by_folder[folder]:
            with_image.add(label)
    return with_image


def _forms(folder: Path) -> set[str]:
    """What label files of the images in a folder may be called, in `comparable` form, without their ending."""
    forms: set[str] = set()
    for entry in entries(folder):
        name = Path(entry.name)
        if name.suffix.lower() in SUFFIXES:
            forms |= {comparable(name.stem), comparable(name.name)}
    return forms


def _beside(images: Sequence[str]) -> list[str]:
    """Where a label file beside each image would be, for images whose labels are expected elsewhere."""
    names: list[str] = []
    for image in images:
        name = Path(image).with_suffix(".txt").as_posix()
        if name != label_file_of(image):
            names.append(name)
    return names


def _exchanged(path: str, folder: str, other: str) -> str:
    """The path with its last folder of a name called otherwise."""
    before, middle, after = f"/{path}/".rpartition(f"/{folder}/")
    return f"{before}/{other}/{after}".strip("/") if middle else path

"""The format of a dataset, recognised from its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import ijson

from farther import datasets
from farther.datasets.image_folder import ENDINGS
from farther.datasets.unlabelled import VIDEOS
from farther.errors import DataError
from farther.projects.recognise_exports import recognise_export
from farther.tables.documents import read_yaml
from farther.tables.files import is_file, is_folder, open_binary
from farther.tables.folders import files_below, listed
from farther.tables.json_stream import Bounded, list_elements

#: Names of folders of subsets, which are no classes.
SUBSET_WORDS = frozenset({"train", "val", "valid", "test"})
#: Text files that name the classes of YOLO's labels, as LabelImg, Label Studio, Darknet and CVAT write them.
CLASS_LISTS = ("classes.txt", "obj.names", "labels/classes.txt")
#: Names of folders that say nothing about the subset.
PLAIN = frozenset({"annotations", "annots", "images", "labels", "xml", "instances", "."})


@dataclass(frozen=True)
class Dataset:
    """A dataset as it was recognised.

    Args:
        entry: Its entry in section `datasets`.
        subsets: The subsets that it has, without those in `repeats`.
        categories: Names of the classes of these, in its order.
        numbers: Numbers of the classes in its files, where they have some.
        repeats: Subsets with exactly the images of another one, as where a folder has annotations in several formats,
            and that other one.
        images, unlabelled: Number of images, and of those that nobody annotated.
        unlisted: Number of image files that its annotations do not name.
    """

    entry: dict[str, Any]
    subsets: list[str]
    categories: list[str]
    numbers: dict[int, str] = field(default_factory=dict)
    repeats: dict[str, str] = field(default_factory=dict)
    images: int = 0
    unlabelled: int = 0
    unlisted: int = 0


def recognise(root: Path) -> Dataset:
    """The format of a folder: YOLO, COCO JSON, VOC-style XML, one folder of images per class, or images without boxes.

    Raises:
        DataError: it is none of these, its annotations cannot be read, or they are to be converted first; see
            `farther.projects.recognise_exports`.
    """
    if not root.is_dir():
        raise DataError("the folder does not exist", file=root)
    for candidate in (_yolo, _coco, recognise_export, _voc, _image_folder, _images):
        if (entry := candidate(root)) is not None:
            found = describe({**entry, "root": str(root)})
            if not found.images:
                raise DataError(
                    f"no image: format {entry['format']} was recognised, but its images are not here", file=root
                )
            return found
    looked = (
        "data.yaml (YOLO), JSON with images, annotations and categories (COCO), XML (VOC), one folder per class, images"
    )
    raise DataError(f"unknown format; looked for {looked}. `farther list datasets` lists more formats", file=root)


def describe(entry: dict[str, Any]) -> Dataset:
    """The dataset of an entry in section `datasets`, whose annotations are read."""
    reader = datasets.create(**entry)
    categories: list[str] = []
    shown: dict[frozenset[str], str] = {}
    repeats: dict[str, str] = {}
    images = unlabelled = 0
    for subset in reader.subsets():
        read = reader.read(subset)
        images, unlabelled = images + len(read.images), unlabelled + len(read.unlabelled)
        first = shown.setdefault(frozenset(read.images.file), subset)
        if first == subset:
            categories += [name for name in read.categories if name not in categories]
        else:
            repeats[subset] = first
    numbers = dict(enumerate(categories)) if entry["format"] == "yolo" else {}
    if entry["format"] == "coco" and entry.get("layout"):
        file = Path(entry["root"], next(iter(entry["layout"].values()))[0])
        listed_there = (one for one in list_elements(file, "categories") if isinstance(one, dict))
        numbers = {one["id"]: one["name"] for one in listed_there}
    of_classes = {k: name for k, name in numbers.items() if isinstance(k, int)}
    unlisted = _unlisted(Path(entry["root"]), frozenset().union(*shown)) if entry["format"] == "coco" else 0
    return Dataset(entry, list(shown.values()), categories, of_classes, repeats, images, unlabelled, unlisted)


def _unlisted(root: Path, named: frozenset[str]) -> int:
    """Number of image files in the folders of annotated images that are not annotated themselves."""
    folders = {Path(file).parent for file in named}
    beside = (file for folder in folders for file in listed(root / folder, "*") if file.name.lower().endswith(ENDINGS))
    return sum(file.relative_to(root).as_posix() not in named for file in beside)


def _yolo(root: Path) -> dict[str, Any] | None:
    for file in sorted([*listed(root, "*.yaml"), *listed(root, "*.yml")]):
        content = read_yaml(file)
        if isinstance(content, dict) and "names" in content:
            named = {} if file.name == "data.yaml" else {"file": file.name}
            return {"format": "yolo", **named}
    for name in CLASS_LISTS:
        if is_file(root / name):
            return {"format": "yolo", "file": name}
    return None


def _coco(root: Path) -> dict[str, Any] | None:
    layout: dict[str, list[str]] = {}
    found = sorted(file for file in files_below(root) if file.suffix == ".json" and _is_coco(file))
    for file in [file for file in found if not _is_detections(file)] or found:
        subset = _subset(file.with_suffix("").relative_to(root).parts, layout)
        layout[subset] = [file.relative_to(root).as_posix(), _images_of(root, file, subset)]
    return {"format": "coco", "layout": layout} if layout else None


def _is_coco(file: Path) -> bool:
    """True for an object with the lists of a COCO file."""
    try:
        with open_binary(file) as text:
            keys = {value for prefix, event, value in ijson.parse(Bounded(text)) if prefix == "" and event == "map_key"}
    except (ijson.JSONError, UnicodeDecodeError):
        return False
    return {"images", "annotations", "categories"} <= keys


def _is_detections(file: Path) -> bool:
    """Whether the boxes of a COCO file have scores, as those of a detector do."""
    first = next(iter(list_elements(file, "annotations")), None)
    return isinstance(first, dict) and "score" in first


def _images_of(root: Path, file: Path, subset: str) -> str:
    """The folder that the file names of a COCO file are relative to; "." where none has the first image."""
    first = next(iter(list_elements(file, "images")), None)
    name = str(first["file_name"]) if isinstance(first, dict) and "file_name" in first else ""
    near = [file.parent / "images", file.parent, root / subset, root / "images" / subset, root / "images", root]
    below = (path for path in listed(root, "**/*") if is_folder(path))
    for folder in (*near, *islice(below, 1000)):
        if is_file(folder / name):
            return folder.relative_to(root).as_posix()
    return "."


def _subset(parts: tuple[str, ...], taken: dict[str, Any]) -> str:
    """A subset's name: of train, val and test the one that a path names, else the path itself."""
    parts = tuple(part.removesuffix(".coco").lstrip("_") for part in parts)  # Roboflow's `_annotations.coco.json`
    for part in reversed(parts):
        for name, words in {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}.items():
            if any(word in part.casefold().replace("-", "_").split("_") or part.startswith(word) for word in words):
                return name if name not in taken else "_".join(parts)
    return "_".join(part for part in parts if part.casefold() not in PLAIN) or "all"


def _voc(root: Path) -> dict[str, Any] | None:
    lists = listed(root, "**/ImageSets/Main/*.txt")
    if lists:
        folders = {path.parents[2].relative_to(root).as_posix(): None for path in lists}
        folder = next(iter(folders))
        prefix = "" if folder == "." else f"{folder}/"
        sets = {p.stem: [f"{prefix}{p.stem}"] for p in lists if p.stem in ("train", "val", "test", "trainval")}
        return {"format": "voc", "image_sets": sets or {p.stem: [f"{prefix}{p.stem}"] for p in lists}}
    layout: dict[str, list[str]] = {}
    files = sorted(file for file in files_below(root) if file.suffix == ".xml")
    for place in dict.fromkeys(file.parent for file in files):
        below = place.relative_to(root)
        first = next(file for file in files if file.parent == place)
        near = [place, place.parent / "images", place.parent / "JPEGImages", place.parent, root]
        found = next((one for one in near if _has_image(one, first.stem)), place)
        layout[_subset(below.parts, layout)] = [below.as_posix(), found.relative_to(root).as_posix()]
    return {"format": "voc", "layout": layout} if layout else None


def _has_image(folder: Path, stem: str) -> bool:
    if not is_folder(folder):
        return False
    return any(file.suffix.lower() in ENDINGS for file in folder.glob(f"{stem}.*"))


def _images(root: Path) -> dict[str, Any] | None:
    known = (*ENDINGS, *VIDEOS)
    return {"format": "images"} if any(file.name.lower().endswith(known) for file in files_below(root)) else None


def _image_folder(root: Path) -> dict[str, Any] | None:
    images = [path.relative_to(root).parts for path in files_below(root) if path.name.lower().endswith(ENDINGS)]
    if not images or min(map(len, images)) < 3 or {parts[1].casefold() for parts in images} <= PLAIN | SUBSET_WORDS:
        return None
    return {"format": "image_folder", "folders": {name: name for name in sorted({parts[0] for parts in images})}}

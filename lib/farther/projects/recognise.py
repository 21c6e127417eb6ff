"""The format of a dataset, recognised from its files."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from farther import datasets
from farther.datasets.annotation_files import (
    COCO_KEYS,
    JsonKeys,
    is_annotation_by_name,
    json_keys,
    refuse_damaged,
)
from farther.datasets.base import WHOLE_IMAGE, DataWarning
from farther.datasets.file_names import Spellings, comparable
from farther.datasets.huggingface_files import METADATA
from farther.datasets.image_folder import ENDINGS
from farther.datasets.orientation import TurnedImages
from farther.datasets.presence import turned_images
from farther.datasets.tidying import absence_warnings, tidied
from farther.datasets.unlabelled import VIDEOS
from farther.datasets.yolo_labels import is_label_file
from farther.errors import DataError
from farther.projects.recognise_exports import first_keys, recognise_export
from farther.tables.documents import read_yaml
from farther.tables.files import is_file, is_folder
from farther.tables.folders import entries, files_below, listed
from farther.tables.json_stream import list_elements

#: Names of folders of subsets, which are no classes.
SUBSET_WORDS = frozenset({"train", "val", "valid", "test"})
#: Text files that name the classes of YOLO's labels, as LabelImg, Label Studio, Darknet and CVAT
#: write them.
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
        repeats: Subsets with exactly the images of another one, as where a folder has annotations
            in several formats, and that other one.
        images, unlabelled: Number of images, and of those that nobody annotated.
        unlisted: Number of image files that its annotations do not name.
        whole_images: Its objects are labels of whole images.
        notes: What was found in its annotations that a user should know, such as files without
            partner; a sentence each.
    """

    entry: dict[str, Any]
    subsets: list[str]
    categories: list[str]
    numbers: dict[int, str] = field(default_factory=dict)
    repeats: dict[str, str] = field(default_factory=dict)
    images: int = 0
    unlabelled: int = 0
    unlisted: int = 0
    whole_images: bool = False
    notes: tuple[str, ...] = ()


def recognise(root: Path) -> Dataset:
    """The format of a folder: YOLO, COCO JSON, VOC-style XML, one folder of images per class, or images without boxes.

    Raises:
        DataError: it is none of these, its annotations cannot be read, or they are to be converted
            first; see `farther.projects.recognise_exports`.
    """
    if not root.is_dir():
        raise DataError("the folder does not exist", file=root)
    for candidate in (_yolo, _coco, recognise_export, _voc, _image_folder, _images):
        if (entry := candidate(root)) is not None:
            found = describe({**entry, "root": str(root)})
            if not found.images:
                raise DataError(
                    f"no image: format {entry['format']} was recognised, but its images are not here",
                    file=root,
                )
            unread = _unread_names(root, entry)
            if unread:
                note = f"{len(unread)} files that are annotations by their names are not read, such as {unread[0]}"
                found = replace(found, notes=(*found.notes, note))
            return found
    looked = "data.yaml (YOLO), JSON with images, annotations and categories (COCO), XML (VOC), one folder per class, images"
    raise DataError(
        f"unknown format; looked for {looked}. `farther list datasets` lists more formats",
        file=root,
    )


def _unread_names(root: Path, entry: dict[str, Any]) -> list[str]:
    """The JSON files that are annotations by their names and that an entry of COCO files does not read."""
    if entry["format"] != "coco":
        return []
    read = {file for file, _ in entry["layout"].values()}
    unread: list[str] = []
    for file in sorted(files_below(root)):
        name = file.relative_to(root).as_posix()
        if file.suffix.lower() != ".json" or name in read or not is_annotation_by_name(root, file):
            continue
        if not _is_results(file):
            unread.append(name)
    return unread


def describe(entry: dict[str, Any]) -> Dataset:
    """The dataset of an entry in section `datasets`, whose annotations are read.

    Where images are turned and nothing tells which picture their boxes were drawn on, the entry
    gets an `orientation`.
    """
    reader = datasets.create(**entry)
    categories: list[str] = []
    shown: dict[frozenset[str], str] = {}
    repeats: dict[str, str] = {}
    images = unlabelled = 0
    are_whole: list[bool] = []
    warnings = absence_warnings(reader)
    turned: list[TurnedImages] = []
    questions: list[str] = []
    for subset in reader.subsets():
        read = tidied(reader.read(subset))
        images += len(read.images)
        unlabelled += len(read.unlabelled)
        warnings += read.warnings
        are_whole.append(
            read.objects.unit == "image" and bool((read.objects.box == WHOLE_IMAGE).all())
        )
        if reader.orientation == "auto" and not are_whole[-1]:
            turned.append(turned_images(read))
            questions += [
                turned[-1].question(read.images.file.tolist(), index)
                for index in turned[-1].undecided()[:1]
            ]
        first = shown.setdefault(frozenset(read.images.file), subset)
        if first == subset:
            categories += [name for name in read.categories if name not in categories]
        else:
            repeats[subset] = first
    notes = _notes(warnings)
    numbers = dict(enumerate(categories)) if entry["format"] == "yolo" else {}
    if entry["format"] == "coco" and entry.get("layout"):
        file = Path(entry["root"], next(iter(entry["layout"].values()))[0])
        listed_there = (one for one in list_elements(file, "categories") if isinstance(one, dict))
        numbers = {one["id"]: one["name"] for one in listed_there}
    of_classes = {k: name for k, name in numbers.items() if isinstance(k, int)}
    unlisted = 0
    if entry["format"] in ("coco", "yolo", "huggingface"):
        unlisted = _unlisted(Path(entry["root"]), frozenset().union(*shown))
    answer, note = _orientation(turned, questions)
    if answer:
        entry = {**entry, "orientation": answer}
        notes.insert(0, note)
    return Dataset(
        entry,
        list(shown.values()),
        categories,
        of_classes,
        repeats,
        images,
        unlabelled,
        unlisted,
        whole_images=bool(images) and all(are_whole),
        notes=tuple(notes),
    )


def _notes(warnings: Sequence[DataWarning]) -> list[str]:
    """One sentence for each kind of warning about annotations, with its first example."""
    by_kind: dict[str, list[DataWarning]] = {}
    for warning in warnings:
        by_kind.setdefault(warning.kind, []).append(warning)
    notes: list[str] = []
    for kind, alike in by_kind.items():
        count = f" ({len(alike)})" if len(alike) > 1 else ""
        notes.append(f"{kind}{count}: {alike[0].found}; {alike[0].action}")
    return notes


def _orientation(subsets: Sequence[TurnedImages], questions: Sequence[str]) -> tuple[str, str]:
    """What to write as `orientation`, and why; "" where `ingest` decides it for each subset.

    Args:
        subsets: The turned images of each subset.
        questions: What is not known about the first undecided image of a subset.
    """
    undecided = sum(len(turned.undecided()) for turned in subsets)
    if not undecided:
        return "", ""
    together = TurnedImages.joined(subsets)
    count = f"{undecided} images are turned by a quarter by their EXIF orientation"
    answers = set(together.decided()) - {"auto"}
    if not together.undecided() and len(answers) == 1:
        answer = next(iter(answers))
        return (
            answer,
            f"{count}; boxes of other images fit the {answer} picture only: orientation: {answer}",
        )
    return "displayed", (
        f"{count}, and nothing tells which picture their boxes were drawn on ({questions[0]}): orientation: displayed "
        "is assumed, as browsers and trainers show them; look at some, and write stored if their boxes are wrong"
    )


def _unlisted(root: Path, named: frozenset[str]) -> int:
    """Number of image files in the folders of annotated images that are not annotated themselves."""
    folders = {Path(file).parent for file in named}
    beside = (
        file
        for folder in folders
        for file in listed(root / folder, "*")
        if file.name.lower().endswith(ENDINGS)
    )
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
    json_files = sorted(file for file in files_below(root) if file.suffix.lower() == ".json")
    contents = {file: json_keys(file) for file in json_files}
    found = [file for file, content in contents.items() if _is_coco(file, content)]
    if not found:
        return None
    for file, content in contents.items():
        if is_annotation_by_name(root, file):
            refuse_damaged(file, content)
    layout: dict[str, list[str]] = {}
    for file in [file for file in found if not _is_detections(file)] or found:
        subset = _subset(file.with_suffix("").relative_to(root).parts, layout)
        layout[subset] = [file.relative_to(root).as_posix(), _images_of(root, file, subset)]
    return {"format": "coco", "layout": layout}


def _is_coco(file: Path, content: JsonKeys) -> bool:
    """True for an object with the lists of a COCO file.

    Raises:
        DataError: it is damaged and begins as one, or has boxes and lacks one of the lists.
    """
    if content.keys & COCO_KEYS:
        refuse_damaged(file, content)
    lacking = COCO_KEYS - content.keys
    if "annotations" in content.keys and lacking and _has_boxes(file):
        problem = f"a COCO file without {' and '.join(sorted(lacking))}, which its boxes need"
        raise DataError(f"{problem}: is the file complete? Export it again", file=file)
    return not lacking


def _has_boxes(file: Path) -> bool:
    """Whether the first element of the list `annotations` has COCO's box; captions have none, and no categories."""
    try:
        first = next(iter(list_elements(file, "annotations")), None)
    except DataError:
        return False
    return isinstance(first, dict) and "bbox" in first


def _is_detections(file: Path) -> bool:
    """Whether the boxes of a COCO file have scores, as those of a detector do."""
    first = next(iter(list_elements(file, "annotations")), None)
    return isinstance(first, dict) and "score" in first


def _is_results(file: Path) -> bool:
    """Whether a file has the boxes of a detector: a list of COCO results, or a COCO file with scores."""
    try:
        first = next(iter(list_elements(file)), None)
    except DataError:
        return _is_detections(file)
    return isinstance(first, dict) and "score" in first


def _images_of(root: Path, file: Path, subset: str) -> str:
    """The folder that the file names of a COCO file are relative to; "." where none has the first image."""
    first = next(iter(list_elements(file, "images")), None)
    name = str(first["file_name"]) if isinstance(first, dict) and "file_name" in first else ""
    near = [
        file.parent / "images",
        file.parent,
        root / subset,
        root / "images" / subset,
        root / "images",
        root,
    ]
    below = (path for path in listed(root, "**/*") if is_folder(path))
    for folder in (*near, *islice(below, 1000)):
        if is_folder(folder) and name and Spellings(folder).find(name) is not None:
            return folder.relative_to(root).as_posix()
    return "."


def _subset(parts: tuple[str, ...], taken: dict[str, Any]) -> str:
    """A subset's name: of train, val and test the one that a path names, else the path itself."""
    parts = tuple(
        part.removesuffix(".coco").lstrip("_") for part in parts
    )  # Roboflow's `_annotations.coco.json`
    for part in reversed(parts):
        for name, words in {
            "train": ("train",),
            "val": ("val", "valid"),
            "test": ("test",),
        }.items():
            if any(
                word in part.casefold().replace("-", "_").split("_") or part.startswith(word)
                for word in words
            ):
                return name if name not in taken else "_".join(parts)
    return "_".join(part for part in parts if part.casefold() not in PLAIN) or "all"


def _voc(root: Path) -> dict[str, Any] | None:
    lists = listed(root, "**/ImageSets/Main/*.txt")
    if lists:
        folders = {path.parents[2].relative_to(root).as_posix(): None for path in lists}
        folder = next(iter(folders))
        prefix = "" if folder == "." else f"{folder}/"
        sets = {
            p.stem: [f"{prefix}{p.stem}"]
            for p in lists
            if p.stem in ("train", "val", "test", "trainval")
        }
        return {
            "format": "voc",
            "image_sets": sets or {p.stem: [f"{prefix}{p.stem}"] for p in lists},
        }
    layout: dict[str, list[str]] = {}
    files = sorted(file for file in files_below(root) if file.suffix == ".xml")
    for place in dict.fromkeys(file.parent for file in files):
        below = place.relative_to(root)
        stems = {comparable(file.stem) for file in files if file.parent == place}
        images = _folder_of_images(root, place, stems)
        layout[_subset(below.parts, layout)] = [
            below.as_posix(),
            images.relative_to(root).as_posix(),
        ]
    return {"format": "voc", "layout": layout} if layout else None


def _folder_of_images(root: Path, place: Path, stems: Set[str]) -> Path:
    """The folder around one of XML files that has most of their images; the first with images where none has any.

    Args:
        root: The dataset's folder.
        place: The folder of the XML files.
        stems: Their names without ending, in `comparable` form.
    """
    best, most = place, -1
    around = [place, place / "images", place / "JPEGImages"]
    around += [place.parent / "images", place.parent / "JPEGImages", place.parent, root]
    for folder in around:
        if not is_folder(folder):
            continue
        names = [
            Path(entry.name) for entry in entries(folder) if entry.name.lower().endswith(ENDINGS)
        ]
        forms = {comparable(form) for name in names for form in (name.stem, name.name)}
        count = len(forms & stems)
        if names and count > most:
            best, most = folder, count
    return best


def _images(root: Path) -> dict[str, Any] | None:
    known = (*ENDINGS, *VIDEOS)
    files = sorted(files_below(root))
    if not any(file.name.lower().endswith(known) for file in files):
        return None
    for file in files:
        _refuse_unread(root, file)
    return {"format": "images"}


def _refuse_unread(root: Path, file: Path) -> None:
    """Refuses a file beside images that is one of annotations and was not read: its boxes would be lost.

    Raises:
        DataError: it is one.
    """
    if file.suffix.lower() == ".txt" and is_label_file(file):
        problem = "rows of a class and a box, as in YOLO's label files, but no data.yaml or classes.txt names classes"
        raise DataError(
            f"{problem}: write one, or move these files away if their boxes are not wanted",
            file=file,
        )
    if file.name == METADATA and "file_name" not in first_keys(file):
        refuse_damaged(file, JsonKeys(frozenset(), "no key 'file_name' at its start"))
    if not is_annotation_by_name(root, file):
        return
    if file.suffix.lower() == ".json":
        content = json_keys(file)
        refuse_damaged(file, content)
        if "images" in content.keys:  # a list of images or captions: read, and without boxes
            return
    problem = "a file of annotations by its name, in a form that is not read: convert it to COCO, YOLO or VOC"
    raise DataError(f"{problem}, or move it away if its boxes are not wanted", file=file)


def class_folders(root: Path) -> Dataset | None:
    """The dataset of a folder with one folder of images per class, as torchvision's ImageFolder reads it.

    None where an image lies beside the folders, or where the folders have the names of subsets:
    nothing in the files tells classes from folders that photographs were sorted into, so a caller
    has to.
    """
    images = [
        path.relative_to(root).parts
        for path in files_below(root)
        if path.name.lower().endswith(ENDINGS)
    ]
    names = {parts[0].casefold() for parts in images}
    if not images or min(map(len, images)) < 2 or names & (PLAIN | SUBSET_WORDS):
        return None
    return describe({"format": "image_folder", "folders": {"all": "."}, "root": str(root)})


def _image_folder(root: Path) -> dict[str, Any] | None:
    images = [
        path.relative_to(root).parts
        for path in files_below(root)
        if path.name.lower().endswith(ENDINGS)
    ]
    if (
        not images
        or min(map(len, images)) < 3
        or {parts[1].casefold() for parts in images} <= PLAIN | SUBSET_WORDS
    ):
        return None
    return {
        "format": "image_folder",
        "folders": {name: name for name in sorted({parts[0] for parts in images})},
    }

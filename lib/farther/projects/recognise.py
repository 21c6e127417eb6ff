"""The format of a dataset, recognised from its files."""

from __future__ import annotations

from collections.abc import Container, Sequence, Set
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
from farther.datasets.base import WHOLE_IMAGE, Annotations, DataWarning
from farther.datasets.file_names import Spellings, canonical_name
from farther.datasets.huggingface_files import is_metadata
from farther.datasets.orientation import TurnedImages
from farther.datasets.presence import turned_images
from farther.datasets.tidying import absence_warnings, corrected
from farther.datasets.yolo_labels import is_label_file
from farther.errors import DataError
from farther.projects.recognise_exports import first_keys, recognise_export
from farther.tables.documents import read_yaml
from farther.tables.endings import (
    JSON,
    TEXT,
    XML,
    has_ending,
    is_image,
    is_unread_image,
    is_video,
    refuse_twins,
    why_unread,
)
from farther.tables.files import is_file, is_folder
from farther.tables.folders import entries, files_below, find_file, listed
from farther.tables.json_stream import list_elements

#: Name of a subset → words for it in the names of files and folders.
SUBSET_WORDS = {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}
#: Text files that name the classes of YOLO's labels, as LabelImg, Label Studio, Darknet and CVAT
#: write them.
CLASS_LISTS = ("classes.txt", "obj.names", "labels/classes.txt")
#: Names of folders that say nothing about the subset.
PLAIN = frozenset({"annotations", "annots", "images", "labels", "xml", "instances", "."})
#: Names of folders that are no classes.
NOT_CLASSES = PLAIN.union(*SUBSET_WORDS.values())


@dataclass(frozen=True)
class Dataset:
    """A dataset as it was recognised.

    Args:
        entry: Its entry in section `datasets`.
        subsets: The subsets that it has, without those in `repeats`.
        categories: Names of the classes of these subsets, in its order.
        numbers: Number of a class in its files → its name, where classes have numbers.
        repeats: A subset with exactly the images of another one → that one, such as where a folder
            has annotations in several formats.
        images, unlabelled: Number of images, and of those that nobody annotated.
        unlisted: Number of image files that its annotations do not name.
        whole_images: Its objects are labels of whole images.
        notes: Sentences about its annotations that a user should know, such as files without a
            partner.
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
    """The dataset in a folder.

    YOLO, COCO JSON, VOC-style XML, one folder of images per class, or images without boxes.

    Raises:
        DataError: it is none of these, its annotations cannot be read, or they are to be converted
            first; see `farther.projects.recognise_exports`.
    """
    if not root.is_dir():
        raise DataError("the folder does not exist", file=root)
    entry = _entry(root)
    dataset = describe({**entry, "root": str(root)})
    if not dataset.images:
        problem = f"no image: format {entry['format']} was recognised, but its images are not here"
        raise DataError(problem, file=root)
    unread = _unread_names(root, entry)
    if unread:
        note = (
            f"{len(unread)} files that are annotations by their names are not read, "
            f"such as {unread[0]}"
        )
        dataset = replace(dataset, notes=(*dataset.notes, note))
    return dataset


def _entry(root: Path) -> dict[str, Any]:
    """Format and layout of a folder: the first format that it fits."""
    for candidate in (_yolo, _coco, recognise_export, _voc, _image_folder, _images):
        entry = candidate(root)
        if entry is not None:
            return entry
    formats = (
        "data.yaml (YOLO), JSON with images, annotations and categories (COCO), XML (VOC), "
        "one folder per class, images"
    )
    for file in files_below(root):
        if is_unread_image(file):
            raise DataError(why_unread(file), file=file)
    problem = f"unknown format; looked for {formats}. `farther list datasets` lists more formats"
    raise DataError(problem, file=root)


def _unread_names(root: Path, entry: dict[str, Any]) -> list[str]:
    """JSON files that are annotations by their names and that an entry of COCO files lacks."""
    if entry["format"] != "coco":
        return []
    read_files = {file for file, _ in entry["layout"].values()}
    unread: list[str] = []
    for file in sorted(files_below(root)):
        name = file.relative_to(root).as_posix()
        if not has_ending(file, JSON) or name in read_files:
            continue
        if is_annotation_by_name(root, file) and not _is_results(file):
            unread.append(name)
    return unread


def describe(entry: dict[str, Any]) -> Dataset:
    """The dataset of an entry in section `datasets`, whose annotations are read.

    Where images are turned and it is not known which picture their boxes were drawn on, the entry
    gets an `orientation`.
    """
    reader = datasets.create(**entry)
    warnings = absence_warnings(reader)
    images = 0
    unlabelled = 0
    categories: dict[str, None] = {}
    subset_by_files: dict[frozenset[str], str] = {}
    repeats: dict[str, str] = {}
    are_whole_images: list[bool] = []
    turned_by_subset: list[TurnedImages] = []
    questions: list[str] = []
    for subset in reader.subsets():
        annotations = corrected(reader.read(subset))
        images += len(annotations.images)
        unlabelled += len(annotations.unlabelled)
        warnings += annotations.warnings
        files = annotations.images.file.tolist()
        labels_images = _labels_whole_images(annotations)
        are_whole_images.append(labels_images)
        if reader.orientation == "auto" and not labels_images:
            turned = turned_images(annotations)
            turned_by_subset.append(turned)
            questions += [turned.question(files, index) for index in turned.undecided()[:1]]
        first_subset = subset_by_files.setdefault(frozenset(files), subset)
        if first_subset == subset:
            categories |= dict.fromkeys(annotations.categories)
        else:
            repeats[subset] = first_subset

    notes = _notes(warnings)
    orientation = _orientation(turned_by_subset, questions)
    if orientation is not None:
        notes.insert(0, orientation.note)
    unlisted = 0
    if entry["format"] in ("coco", "yolo", "huggingface"):
        unlisted = _unlisted(Path(entry["root"]), frozenset().union(*subset_by_files))
    numbers = _class_numbers(entry, list(categories))
    if orientation is not None:
        entry = {**entry, "orientation": orientation.value}
    return Dataset(
        entry,
        list(subset_by_files.values()),
        list(categories),
        numbers,
        repeats,
        images,
        unlabelled,
        unlisted,
        whole_images=bool(images) and all(are_whole_images),
        notes=tuple(notes),
    )


def _labels_whole_images(annotations: Annotations) -> bool:
    """Whether all objects of a subset are labels of whole images."""
    objects = annotations.objects
    return objects.unit == "image" and bool((objects.box == WHOLE_IMAGE).all())


def _class_numbers(entry: dict[str, Any], categories: Sequence[str]) -> dict[int, str]:
    """Number of a class in a dataset's files → its name; {} where classes have no numbers."""
    if entry["format"] == "yolo":
        return dict(enumerate(categories))
    if entry["format"] != "coco" or not entry.get("layout"):
        return {}
    first_file, _ = next(iter(entry["layout"].values()))
    numbers = {}
    for category in list_elements(Path(entry["root"], first_file), "categories"):
        if isinstance(category, dict) and isinstance(category["id"], int):
            numbers[category["id"]] = category["name"]
    return numbers


def _notes(warnings: Sequence[DataWarning]) -> list[str]:
    """One sentence for each kind of warning about annotations, with its first example."""
    warnings_by_kind: dict[str, list[DataWarning]] = {}
    for warning in warnings:
        warnings_by_kind.setdefault(warning.kind, []).append(warning)
    notes: list[str] = []
    for kind, of_kind in warnings_by_kind.items():
        count = f" ({len(of_kind)})" if len(of_kind) > 1 else ""
        notes.append(f"{kind}{count}: {of_kind[0].found}; {of_kind[0].action}")
    return notes


@dataclass(frozen=True)
class _Orientation:
    """The value of the parameter `orientation`, and its reason."""

    value: str
    note: str


def _orientation(subsets: Sequence[TurnedImages], questions: Sequence[str]) -> _Orientation | None:
    """The parameter `orientation`; None where `ingest` decides it for each subset.

    Args:
        subsets: The turned images of each subset.
        questions: What is not known about the first undecided image of a subset.
    """
    undecided = sum(len(turned.undecided()) for turned in subsets)
    if not undecided:
        return None
    count = f"{undecided} images are turned by a quarter by their EXIF orientation"
    joined = TurnedImages.joined(subsets)
    values = set(joined.decided()) - {"auto"}
    if not joined.undecided() and len(values) == 1:
        (value,) = values
        note = f"{count}; boxes of other images fit the {value} picture only: orientation: {value}"
        return _Orientation(value, note)
    note = (
        f"{count}, and nothing tells which picture their boxes were drawn on ({questions[0]}): "
        "orientation: displayed is assumed, as browsers and trainers show them; "
        "look at some, and write stored if their boxes are wrong"
    )
    return _Orientation("displayed", note)


def _unlisted(root: Path, annotated: frozenset[str]) -> int:
    """Number of image files in the folders of annotated images that are not annotated."""
    count = 0
    for folder in {Path(file).parent for file in annotated}:
        for file in listed(root / folder, "*"):
            if is_image(file) and file.relative_to(root).as_posix() not in annotated:
                count += 1
    return count


def _yolo(root: Path) -> dict[str, Any] | None:
    """The entry of a folder with names of classes for YOLO's labels, in YAML or a text file."""
    yaml_files = sorted([*listed(root, "*.yaml"), *listed(root, "*.yml")])
    refuse_twins(yaml_files)
    for file in yaml_files:
        content = read_yaml(file)
        if isinstance(content, dict) and "names" in content:
            if file.name == "data.yaml":
                return {"format": "yolo"}
            return {"format": "yolo", "file": file.name}
    for name in CLASS_LISTS:
        file = find_file(root / name)
        if is_file(file):
            return {"format": "yolo", "file": file.relative_to(root).as_posix()}
    return None


def _coco(root: Path) -> dict[str, Any] | None:
    """The entry of a folder with COCO files: one subset per file.

    Files with scores are detections, and are left out unless there are no others.

    Raises:
        DataError: a file of annotations by its name is damaged; or see `_is_coco`.
    """
    json_files = sorted(file for file in files_below(root) if has_ending(file, JSON))
    keys_by_file = {file: json_keys(file) for file in json_files}
    coco_files = [file for file, keys in keys_by_file.items() if _is_coco(file, keys)]
    if not coco_files:
        return None
    for file, keys in keys_by_file.items():
        if is_annotation_by_name(root, file):
            refuse_damaged(file, keys)
    annotation_files = [file for file in coco_files if not _is_detections(file)]
    layout: dict[str, list[str]] = {}
    for file in annotation_files or coco_files:
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
    """Whether the first element of the list `annotations` has COCO's box; captions have none."""
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
    """Whether a file has detections: a list of COCO results, or a COCO file with scores."""
    try:
        first = next(iter(list_elements(file)), None)
    except DataError:
        return _is_detections(file)
    return isinstance(first, dict) and "score" in first


def _images_of(root: Path, file: Path, subset: str) -> str:
    """The folder that the file names of a COCO file are relative to.

    "." where no folder has the first image.
    """
    first_image = next(iter(list_elements(file, "images")), None)
    if not isinstance(first_image, dict) or not first_image.get("file_name"):
        return "."
    name = str(first_image["file_name"])
    usual_folders = [
        file.parent / "images",
        file.parent,
        root / subset,
        root / "images" / subset,
        root / "images",
        root,
    ]
    folders_below = (path for path in listed(root, "**/*") if is_folder(path))
    for folder in (*usual_folders, *islice(folders_below, 1000)):
        if is_folder(folder) and Spellings(folder).find(name) is not None:
            return folder.relative_to(root).as_posix()
    return "."


def _subset(parts: tuple[str, ...], existing: Container[str]) -> str:
    """A name for a subset: train, val or test if its path names one, else the path itself.

    Args:
        parts: Names of the path.
        existing: Names of other subsets.
    """
    # Roboflow's file is `_annotations.coco.json`.
    parts = tuple(part.removesuffix(".coco").lstrip("_") for part in parts)
    for part in reversed(parts):
        subset = _named_subset(part)
        if subset is not None and subset in existing:
            return "_".join(parts)
        if subset is not None:
            return subset
    return "_".join(part for part in parts if part.casefold() not in PLAIN) or "all"


def _named_subset(name: str) -> str | None:
    """The subset that the name of a file or folder names."""
    words_of_name = name.casefold().replace("-", "_").split("_")
    for subset, words in SUBSET_WORDS.items():
        if any(word in words_of_name or name.startswith(word) for word in words):
            return subset
    return None


def _voc(root: Path) -> dict[str, Any] | None:
    """The entry of a folder with VOC's image sets, or else one subset per folder of XML files."""
    lists = listed(root, "**/ImageSets/Main/*.txt")
    if lists:
        return {"format": "voc", "image_sets": _image_sets(root, lists)}
    files_by_folder: dict[Path, list[Path]] = {}
    for file in sorted(files_below(root)):
        if has_ending(file, XML):
            files_by_folder.setdefault(file.parent, []).append(file)
    layout: dict[str, list[str]] = {}
    for folder, files in files_by_folder.items():
        path = folder.relative_to(root)
        stems = {canonical_name(file.stem) for file in files}
        images = _folder_of_images(root, folder, stems).relative_to(root)
        layout[_subset(path.parts, layout)] = [path.as_posix(), images.as_posix()]
    if not layout:
        return None
    return {"format": "voc", "layout": layout}


def _image_sets(root: Path, lists: Sequence[Path]) -> dict[str, list[str]]:
    """Name of each image set of VOC → its list; of train, val, test and trainval, if there are any.

    Names begin with the first folder that has image sets, as they do in the other folders.
    """
    folder = lists[0].parents[2].relative_to(root).as_posix()
    prefix = "" if folder == "." else f"{folder}/"
    names = [file.stem for file in lists]
    usual_names = [name for name in names if name in ("train", "val", "test", "trainval")]
    return {name: [f"{prefix}{name}"] for name in usual_names or names}


def _folder_of_images(root: Path, folder: Path, stems: Set[str]) -> Path:
    """The folder around one of XML files that has most of their images.

    The first with images where none has any of theirs.

    Args:
        root: The dataset's folder.
        folder: The folder of the XML files.
        stems: Their names without ending, as `canonical_name` gives them.
    """
    best_folder = folder
    best_count = -1
    candidates = [folder, folder / "images", folder / "JPEGImages"]
    parent = folder.parent
    candidates += [parent / "images", parent / "JPEGImages", parent, root]
    for candidate in candidates:
        if not is_folder(candidate):
            continue
        names: set[str] = set()
        for entry in entries(candidate):
            image = Path(entry.name)
            if is_image(image):
                names |= {canonical_name(image.stem), canonical_name(image.name)}
        count = len(names & stems)
        if names and count > best_count:
            best_folder = candidate
            best_count = count
    return best_folder


def _images(root: Path) -> dict[str, Any] | None:
    """The entry of a folder of images or videos without annotations.

    Raises:
        DataError: see `_refuse_unread`.
    """
    files = sorted(files_below(root))
    if not any(is_image(file) or is_video(file) for file in files):
        return None
    for file in files:
        _refuse_unread(root, file)
    return {"format": "images"}


def _refuse_unread(root: Path, file: Path) -> None:
    """Refuses a file of annotations beside images that was not read: its boxes would be lost.

    Raises:
        DataError: it is one.
    """
    if has_ending(file, TEXT) and is_label_file(file):
        problem = (
            "rows of a class and a box, as in YOLO's label files, but no data.yaml or classes.txt "
            "names classes: write one, or move these files away if their boxes are not wanted"
        )
        raise DataError(problem, file=file)
    if is_metadata(file) and "file_name" not in first_keys(file):
        refuse_damaged(file, JsonKeys(frozenset(), "no key 'file_name' at its start"))
    if not is_annotation_by_name(root, file):
        return
    if has_ending(file, JSON):
        content = json_keys(file)
        refuse_damaged(file, content)
        if "images" in content.keys:  # a list of images or captions: read, and without boxes
            return
    problem = (
        "a file of annotations by its name, in a form that is not read: convert it to COCO, YOLO "
        "or VOC, or move it away if its boxes are not wanted"
    )
    raise DataError(problem, file=file)


def class_folders(root: Path) -> Dataset | None:
    """The dataset of a folder with one folder of images per class, as in torchvision's ImageFolder.

    None where an image lies beside the folders, or where the folders have the names of subsets. The
    files do not tell classes from folders that photographs were sorted into, so the caller has to.
    """
    paths = _image_paths(root)
    folders = {parts[0].casefold() for parts in paths}
    if not paths or min(map(len, paths)) < 2 or folders & NOT_CLASSES:
        return None
    return describe({"format": "image_folder", "folders": {"all": "."}, "root": str(root)})


def _image_folder(root: Path) -> dict[str, Any] | None:
    """The entry of a folder whose images are all in `<subset>/<class>/`."""
    paths = _image_paths(root)
    if not paths or min(map(len, paths)) < 3:
        return None
    classes = {parts[1].casefold() for parts in paths}
    if classes <= NOT_CLASSES:
        return None
    subsets = sorted({parts[0] for parts in paths})
    return {"format": "image_folder", "folders": {name: name for name in subsets}}


def _image_paths(root: Path) -> list[tuple[str, ...]]:
    """The path of each image in a folder: the names of the folders, and of the file."""
    files = files_below(root)
    return [file.relative_to(root).parts for file in files if is_image(file)]

"""Folders with COCO files, and the folders of their images."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path, PurePath

from farther.datasets.annotation_files import (
    COCO_KEYS,
    JsonKeys,
    is_annotation_by_name,
    json_keys,
    refuse_damaged,
)
from farther.datasets.file_names import canonical_name
from farther.datasets.image_search import FileTree, NamedImages, choose_folders, located
from farther.datasets.recognition import Recognised
from farther.datasets.subset_keys import subset_keys
from farther.errors import DataError
from farther.tables.endings import JSON
from farther.tables.folders import files_below
from farther.tables.json_stream import list_elements


def recognise_coco(root: Path) -> Recognised | None:
    """A folder with COCO files: one subset per file.

    Files with scores are detections, and are left out unless there are no others.

    Raises:
        DataError: a file of annotations by its name is damaged; or see `_is_coco`.
    """
    content_by_file = {file: json_keys(file) for file in sorted(files_below(root, JSON))}
    coco_files = [file for file, content in content_by_file.items() if _is_coco(file, content)]
    if not coco_files:
        return None
    for file, content in content_by_file.items():
        if is_annotation_by_name(root, file):
            refuse_damaged(file, content)
    annotation_files = [file for file in coco_files if not _is_detections(file)] or coco_files
    names = [file.relative_to(root).as_posix() for file in annotation_files]
    keys = subset_keys([PurePath(name).with_suffix("").parts for name in names])

    annotated: list[NamedImages] = []
    for file, key in zip(annotation_files, keys.keys, strict=True):
        annotated.append(_images_of_coco(root, file, key))
    tree = FileTree(root)
    counts = [tree.count(named.names) for named in annotated]
    folders = choose_folders(annotated, counts)
    layout: dict[str, list[str]] = {}
    for key, name, folder in zip(keys.keys, names, folders, strict=True):
        layout[key] = [name, folder.path]
    recognised = located({"layout": layout}, keys, names, annotated, folders)
    unread = _unread_names(root, content_by_file, annotation_files)
    if not unread:
        return recognised
    note = (
        f"{len(unread)} files that are annotations by their names are not read, such as {unread[0]}"
    )
    return replace(recognised, notes=(note, *recognised.notes))


def _unread_names(
    root: Path, json_files: Iterable[Path], read_files: Collection[Path]
) -> list[str]:
    """JSON files that are annotations by their names, and are not read.

    Args:
        root: The dataset's folder.
        json_files: The JSON files in it.
        read_files: Those that are read.
    """
    unread: list[str] = []
    for file in json_files:
        if file in read_files:
            continue
        if is_annotation_by_name(root, file) and not _is_results(file):
            unread.append(file.relative_to(root).as_posix())
    return unread


def _images_of_coco(root: Path, file: Path, subset: str) -> NamedImages:
    """The images that a COCO file names."""
    names: set[str] = set()
    for image in list_elements(file, "images"):
        if isinstance(image, dict) and image.get("file_name"):
            name = canonical_name(str(image["file_name"]))
            parts = [part for part in name.split("/") if part not in ("", ".")]
            names.add("/".join(parts))
    place = file.relative_to(root).with_suffix("")
    folder = place.parent
    usual_folders = (
        (folder / "images").as_posix(),
        folder.as_posix(),
        subset,
        f"images/{subset}",
        "images",
        ".",
    )
    return NamedImages(place, frozenset(names), usual_folders)


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


def class_numbers(file: Path) -> dict[int, str]:
    """Number of each category of a COCO file → its name."""
    numbers: dict[int, str] = {}
    for category in list_elements(file, "categories"):
        if isinstance(category, dict) and isinstance(category["id"], int):
            numbers[category["id"]] = category["name"]
    return numbers

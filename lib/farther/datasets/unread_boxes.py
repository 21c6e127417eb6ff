"""Refusal of files of boxes that no reader takes, where their images would be read without them."""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path

from farther.datasets.annotation_files import (
    JsonKeys,
    first_keys,
    has_annotation_words,
    is_annotation_by_name,
    json_keys,
    refuse_damaged,
)
from farther.datasets.box_files import describes_boxes
from farther.datasets.file_names import canonical_name
from farther.datasets.huggingface_files import is_metadata
from farther.datasets.yolo_labels import is_label_file
from farther.errors import DataError
from farther.tables.endings import JSON, TABLES, TEXT, XML, has_ending, is_image
from farther.tables.folders import files_below

#: Endings of files that annotate the image of their name, besides those that are read or may
#: describe it otherwise.
LABEL_ENDINGS = (*XML, *TABLES, ".mat")


def refuse_unread(root: Path, file: Path, image_stems: Set[str]) -> None:
    """Refuses a file of annotations beside images that was not read: its boxes would be lost.

    Args:
        root: The dataset's folder.
        file: A file in it.
        image_stems: Names of its images without ending, as `canonical_name` gives them.

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
    _refuse_boxes(root, file, image_stems)
    is_label = has_ending(file, LABEL_ENDINGS) and canonical_name(file.stem) in image_stems
    if not is_label and not is_annotation_by_name(root, file):
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


def _refuse_boxes(root: Path, file: Path, image_stems: Set[str]) -> None:
    """Refuses a file of boxes that no reader takes; see `refuse_unread`."""
    is_label = canonical_name(file.stem) in image_stems or has_annotation_words(root, file)
    if describes_boxes(file, is_label=is_label):
        problem = (
            "boxes in a form that is not read: convert the file to COCO, YOLO or VOC, or move it "
            "away if its boxes are not wanted"
        )
        raise DataError(problem, file=file)


def refuse_all_boxes(root: Path) -> None:
    """Refuses a folder of labelled images with a file of boxes, which would be lost.

    Raises:
        DataError: it has one.
    """
    files = sorted(files_below(root))
    stems = image_stems(files)
    for file in files:
        if not is_image(file):
            _refuse_boxes(root, file, stems)


def image_stems(files: Iterable[Path]) -> set[str]:
    """Names of the images among files without their ending, as `canonical_name` gives them."""
    return {canonical_name(file.stem) for file in files if is_image(file)}

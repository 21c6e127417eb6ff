"""Corrections to the annotations of every format.

Names of files are respelled as the files are, a file with several ids becomes one image, and
repeated objects are removed.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import polars as pl

from farther.datasets.base import Annotations, DataWarning, Reader, SecondFile
from farther.datasets.file_names import with_found_files
from farther.tables.annotations import why_ignored
from farther.text.terminal import counted

REPEATED = "objects that are annotated twice"
ABSENT_SUBSET = "subset that is not there"
SIMILAR_CATEGORIES = "categories with nearly the same name"
#: Beginning of the kind of the warning about a subset without objects that count.
ALL_IGNORED = "all objects are"
SEVERAL_IDS = "image file with several ids"


def corrected(annotations: Annotations) -> Annotations:
    """Annotations with the names of the image files, one id per file, and no repeated objects.

    Each correction is a warning. Images that the annotations contain (`embedded`) keep the names
    that `ingest` writes them under.
    """
    warnings = [
        *annotations.warnings,
        *_similar_category_warnings(annotations),
        *_several_id_warnings(annotations),
        *_ignored_warnings(annotations),
    ]
    annotations = replace(annotations, warnings=warnings)
    annotations = with_found_files(annotations)
    annotations = _with_one_id_per_file(annotations)
    return without_repeats(annotations)


def without_repeats(annotations: Annotations) -> Annotations:
    """Annotations without objects that equal an earlier one in image, box, class and flags.

    Some programs write a label twice when a file is saved twice. A trainer that removes such rows
    learns one object; metrics would count the second as missed.
    """
    objects = annotations.objects
    frame = pl.DataFrame(
        {
            "image": objects.image,
            "xmin": objects.box[:, 0],
            "ymin": objects.box[:, 1],
            "xmax": objects.box[:, 2],
            "ymax": objects.box[:, 3],
            "category": objects.category,
            "is_crowd": objects.is_crowd,
            "is_difficult": objects.is_difficult,
        }
    )
    is_first = frame.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
    if is_first.all():
        return annotations

    rows = np.flatnonzero(is_first)
    file, row = annotations.location(int(np.argmin(is_first)))
    repeated_count = len(is_first) - len(rows)
    warning = DataWarning(
        kind=REPEATED,
        about="dataset",
        file=file,
        row=row,
        field=annotations.box_field,
        found=(
            f"{repeated_count} of {len(is_first)} equal an earlier one of their image in box and "
            "class"
        ),
        action="each read as one object",
    )

    columns = {}
    for field in fields(objects):
        if field.name != "unit":
            columns[field.name] = getattr(objects, field.name)[rows]
    second_file = annotations.second
    if second_file is not None:
        first_object = int(np.searchsorted(rows, second_file.first_object))
        second_file = SecondFile(first_object, second_file.file)
    return replace(
        annotations,
        objects=replace(objects, **columns),
        warnings=[*annotations.warnings, warning],
        second=second_file,
    )


def absence_warnings(reader: Reader) -> list[DataWarning]:
    """A warning for each subset that a dataset's description names and whose files are absent."""
    warnings = []
    for subset, path in reader.absent_subsets().items():
        warnings.append(
            DataWarning(
                kind=ABSENT_SUBSET,
                about="dataset",
                file=path,
                row=None,
                field=None,
                found=f"{subset}: {path} does not exist, or is empty",
                action="left out",
            )
        )
    return warnings


def _with_one_id_per_file(annotations: Annotations) -> Annotations:
    """Annotations in which an image file has its first id only, with the objects of all its ids."""
    files = annotations.images.file.tolist()
    first_row_by_file: dict[str, int] = {}
    for row, file in enumerate(files):
        first_row_by_file.setdefault(file, row)
    if len(first_row_by_file) == len(files):
        return annotations

    rows = np.array(list(first_row_by_file.values()))
    first_row = np.array([first_row_by_file[file] for file in files])
    new_row = np.searchsorted(rows, first_row)

    images = annotations.images
    columns = {field.name: getattr(images, field.name)[rows] for field in fields(images)}
    annotation_files = annotations.files
    if len(annotation_files) > 1:
        annotation_files = [annotation_files[row] for row in rows.tolist()]
    unlabelled_rows = np.intersect1d(rows, annotations.unlabelled)
    return replace(
        annotations,
        images=replace(images, **columns),
        objects=replace(annotations.objects, image=new_row[annotations.objects.image]),
        files=annotation_files,
        unlabelled=np.searchsorted(rows, unlabelled_rows),
    )


def _similar_category_warnings(annotations: Annotations) -> list[DataWarning]:
    """A warning for each group of categories whose names look the same."""
    names_by_form: dict[str, list[str]] = {}
    for name in annotations.categories:
        names_by_form.setdefault(_visible_form(name), []).append(name)

    warnings = []
    for names in names_by_form.values():
        if len(names) > 1:
            listed_names = ", ".join(repr(name) for name in names)
            warnings.append(
                _dataset_warning(annotations, SIMILAR_CATEGORIES, listed_names, "read as they are")
            )
    return warnings


def _visible_form(name: str) -> str:
    """A name without invisible characters, with composed accents, in lower case, single-spaced."""
    composed = unicodedata.normalize("NFC", name)
    visible = "".join(c for c in composed if unicodedata.category(c) != "Cf")
    return " ".join(visible.casefold().split())


def _several_id_warnings(annotations: Annotations) -> list[DataWarning]:
    """A warning where image files have several ids; empty where none has."""
    id_counts = Counter(annotations.images.file.tolist())
    files = [file for file, count in id_counts.items() if count > 1]
    if not files:
        return []
    example = files[0]
    if len(files) > 1:
        example += f" and {len(files) - 1} more"
    return [_dataset_warning(annotations, SEVERAL_IDS, example, "read as one image")]


def _ignored_warnings(annotations: Annotations) -> list[DataWarning]:
    """A warning where all objects are crowds or difficult, so that none counts; else empty."""
    objects = annotations.objects
    reason = why_ignored(objects.is_crowd, objects.is_difficult)
    if not reason:
        return []
    where = ""
    if len(annotations.files) == 1:
        where = f" of {annotations.files[0]}"
    found = (
        f"{counted(len(objects), 'object')}{where}: metrics ignore them. Some programs mark single "
        "objects so when they export masks"
    )
    return [
        _dataset_warning(annotations, f"{ALL_IGNORED} {reason}", found, "read as they are marked")
    ]


def _dataset_warning(annotations: Annotations, kind: str, found: str, action: str) -> DataWarning:
    """A warning about a subset, in its annotation file or, where it has several, in its root."""
    file = annotations.files[0] if len(annotations.files) == 1 else "."
    return DataWarning(kind, "dataset", file, None, None, found, action)

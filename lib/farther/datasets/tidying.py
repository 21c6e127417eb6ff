"""What is put right in the annotations of every format: names of files, files with several ids, repeated objects."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import polars as pl

from farther.datasets.base import Annotations, DataWarning, Reader
from farther.datasets.file_names import with_found_files

REPEATED = "objects that are annotated twice"
ABSENT_SUBSET = "subset that is not there"


def tidied(annotations: Annotations) -> Annotations:
    """Annotations whose images have the names of their files and one id, without repeated objects; with warnings.

    Images that the annotations contain (`embedded`) keep the names that are written for them.
    """
    warnings = [*annotations.warnings, *_name_warnings(annotations)]
    annotations = with_found_files(replace(annotations, warnings=warnings))
    return without_repeats(_each_file_once(annotations))


def without_repeats(annotations: Annotations) -> Annotations:
    """Annotations in which an object is listed once: rows that are equal in image, box, class and flags are one.

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
    kept = np.flatnonzero(is_first)
    first = int(np.argmin(is_first))
    file, row = annotations.location(first)
    problem = f"{len(is_first) - len(kept)} of {len(is_first)} equal an earlier one of their image in box and class"
    warning = DataWarning(
        REPEATED, "dataset", file, row, annotations.box_field, problem, "each read as one object"
    )
    columns = {f.name: getattr(objects, f.name)[kept] for f in fields(objects) if f.name != "unit"}
    second = annotations.second
    if second is not None:
        second = (int(np.searchsorted(kept, second[0])), second[1])
    return replace(
        annotations,
        objects=type(objects)(**columns, unit=objects.unit),
        warnings=[*annotations.warnings, warning],
        second=second,
    )


def absence_warnings(reader: Reader) -> list[DataWarning]:
    """A warning for each subset that a dataset's description names and that is not there."""
    warnings: list[DataWarning] = []
    for subset, path in reader.absent_subsets().items():
        problem = f"{subset}: {path} does not exist, or is empty"
        warnings.append(
            DataWarning(ABSENT_SUBSET, "dataset", path, None, None, problem, "left out")
        )
    return warnings


def _each_file_once(annotations: Annotations) -> Annotations:
    """Annotations in which an image file has one id, the first; its objects are those of all its ids."""
    files = annotations.images.file.tolist()
    rows = {file: row for row, file in reversed([*enumerate(files)])}
    if len(rows) == len(files):
        return annotations
    first = np.array([rows[file] for file in files])
    kept = np.flatnonzero(first == np.arange(len(files)))
    place = np.searchsorted(kept, first)
    images, objects = annotations.images, annotations.objects
    columns = {f.name: getattr(images, f.name)[kept] for f in fields(images)}
    unlabelled = np.intersect1d(kept, annotations.unlabelled)
    return replace(
        annotations,
        images=type(images)(**columns),
        objects=replace(objects, image=place[objects.image]),
        files=[annotations.files[row] for row in kept.tolist()]
        if len(annotations.files) > 1
        else annotations.files,
        unlabelled=np.searchsorted(kept, unlabelled),
    )


def _name_warnings(annotations: Annotations) -> Iterator[DataWarning]:
    """Categories that differ by case, blanks, invisible characters or the composition of accents only, and image files
    with several ids."""
    alike: dict[str, list[str]] = {}
    for name in annotations.categories:
        visible = "".join(
            c for c in unicodedata.normalize("NFC", name) if unicodedata.category(c) != "Cf"
        )
        alike.setdefault(" ".join(visible.casefold().split()), []).append(name)
    place = annotations.files[0] if len(annotations.files) == 1 else "."
    for names in alike.values():
        if len(names) > 1:
            found = ", ".join(map(repr, names))
            yield DataWarning(
                "categories with nearly the same name",
                "dataset",
                place,
                None,
                None,
                found,
                "read as they are",
            )
    files = Counter(annotations.images.file.tolist())
    if twice := [file for file, count in files.items() if count > 1]:
        more = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
        yield DataWarning(
            "image file with several ids",
            "dataset",
            place,
            None,
            None,
            f"{twice[0]}{more}",
            "read as one image",
        )

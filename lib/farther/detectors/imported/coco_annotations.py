"""Detections in COCO annotation files, whose boxes then have scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from farther.detectors.imported.numbers import whole_number
from farther.detectors.imported.records import list_objects
from farther.errors import DataError, shorten


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the boxes as records of COCO results, with the names of their images and classes.

    Raises:
        DataError: an image or a category is unknown, or described twice.
    """
    image_files = read_names(path, "images", "file_name")
    category_names = read_names(path, "categories", "name")
    for row, annotation in enumerate(list_objects(path, "annotations")):
        for field, names in (("image_id", image_files), ("category_id", category_names)):
            number = _id_text(annotation.get(field))
            if number not in names:
                raise DataError(
                    f"{shorten(annotation.get(field))} is not in the file",
                    file=path,
                    row=row,
                    field=field,
                )
            annotation[field] = names[number]
        yield annotation


def read_names(path: Path, key: str, field: str) -> dict[str, str]:
    """The name of each image or category of a COCO file, by its id.

    Args:
        path: The file.
        key: Key of the list: "images" or "categories".
        field: Field of the name.

    Raises:
        DataError: an id or a name occurs twice.
    """
    name_by_id: dict[str, str] = {}
    names: set[str] = set()
    for row, record in enumerate(list_objects(path, key)):
        number = _id_text(record.get("id"))
        name = str(record.get(field))
        repeated = None
        if number in name_by_id:
            repeated = "id"
        elif name in names:
            repeated = field
        if repeated is not None:
            raise DataError(
                f"{shorten(record.get(repeated))} occurs twice",
                file=path,
                row=f"{key}[{row}]",
                field=repeated,
            )
        name_by_id[number] = name
        names.add(name)
    return name_by_id


def _id_text(value: Any) -> str:
    """The id of an image or category as text: 7, 7.0 and "7" are the same."""
    number = whole_number(value)
    return str(value if number is None else number)

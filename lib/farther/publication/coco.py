"""A split as COCO JSON (https://cocodataset.org/#format-data) with its image files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from farther.publication.contents import PublishedSplit
from farther.tables.files import inside

#: Digits of a COCO image id, as its file names have them.
DIGITS = 12


def write_coco(split: PublishedSplit, folder: Path) -> None:
    """Writes `annotations/instances_<split>.json` and the images, `<split>/<file>`.

    Image ids become numbers where all of them have 12 digits; others stay text. Category ids count from 1. `area` is
    that of the box, as the tables contain no outlines. Two fields are not part of COCO: `is_difficult` on difficult
    objects, and `object_id` where a split has an object 0: pycocotools treats annotation 0 as never found, so all ids
    are then one higher, and this field has the original one. Items are written one at a time to save memory.
    """
    _copy_images(split, inside(folder, split.name))
    path = folder / "annotations" / f"instances_{split.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    licences = _licences(split)
    info = {"description": f"{split.name}: images of {split.dataset} ({split.subset}), {split.distance}"}
    info |= {"dataset_origin": split.dataset, "distance_category": split.distance}
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{\n"info": {_text(info)}')
        _write_list(file, "licenses", ({"id": n, "name": name, "url": url} for (name, url), n in licences.items()))
        _write_list(file, "categories", _categories(split))
        _write_list(file, "images", _images(split, licences))
        _write_list(file, "annotations", _annotations(split))
        file.write("\n}\n")


def _copy_images(split: PublishedSplit, folder: Path) -> None:
    for row, name in enumerate(split.images.file):
        content, path = split.image_bytes(row), inside(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _write_list(file: TextIO, name: str, items: Iterable[dict[str, Any]]) -> None:
    file.write(f',\n"{name}": [')
    for number, item in enumerate(items):
        file.write(("\n" if number == 0 else ",\n") + _text(item))
    file.write("]")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _licences(split: PublishedSplit) -> dict[tuple[str, str], int]:
    """Number, from 1, of each licence of the images, by its name and URL."""
    found = sorted({(c.license, c.license_url) for row in range(len(split.images)) if (c := split.credit(row)).license})
    return {licence: number for number, licence in enumerate(found, start=1)}


def _categories(split: PublishedSplit) -> Iterator[dict[str, Any]]:
    for number, name in enumerate(split.categories.names, start=1):
        yield {"id": number, "name": name, "supercategory": split.supercategory(name)}


def _images(split: PublishedSplit, licences: dict[tuple[str, str], int]) -> Iterator[dict[str, Any]]:
    images, ids = split.images, _image_ids(split)
    for row, file in enumerate(images.file):
        size = {"width": int(images.width[row]), "height": int(images.height[row])}
        yield {"id": ids[row], "file_name": file, **size, **_credit(split, row, licences)}


def _credit(split: PublishedSplit, row: int, licences: dict[tuple[str, str], int]) -> dict[str, Any]:
    """Licence and author of an image, where known."""
    credit = split.credit(row)
    number = licences.get((credit.license, credit.license_url))
    known = {"license": number, "author": credit.author, "source_url": credit.source_url}
    return {key: value for key, value in known.items() if value}


def _annotations(split: PublishedSplit) -> Iterator[dict[str, Any]]:
    objects, ids, image_row = split.objects, _image_ids(split), split.source.image_row
    is_shifted = bool(np.any(objects.object_id == 0))
    for row, box in enumerate(split.boxes.tolist()):
        object_id = int(objects.object_id[row])
        annotation = {
            "id": object_id + is_shifted,
            "image_id": ids[int(image_row[row])],
            "category_id": int(split.category_number[row]) + 1,
            "bbox": box,
            "area": area(box),
            "iscrowd": int(objects.is_crowd[row]),
        }
        annotation |= {"is_difficult": 1} if objects.is_difficult[row] else {}
        yield {**annotation, "object_id": object_id} if is_shifted else annotation


def _image_ids(split: PublishedSplit) -> list[int] | list[str]:
    ids = split.images.image_id.tolist()
    if all(len(name) == DIGITS and name.isascii() and name.isdecimal() for name in ids):
        return [int(name) for name in ids]
    return ids


def area(box: list[float]) -> float:
    """Area of a box x, y, width, height in square pixels, to four decimals."""
    return round(box[2] * box[3], 4)

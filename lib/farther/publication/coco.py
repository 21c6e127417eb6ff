"""A split as COCO JSON (https://cocodataset.org/#format-data) with its image files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from farther.datasets.coco_writer import write_coco
from farther.publication.contents import PublishedSplit
from farther.tables.files import inside

#: Digits of a COCO image id, as its file names have them.
DIGITS = 12

#: Name and address of a licence.
Licence = tuple[str, str]


def write_split(split: PublishedSplit, folder: Path) -> None:
    """Writes `annotations/instances_<split>.json` and the images, `<split>/<file>`.

    Image ids become numbers where all of them have 12 digits; others stay text. Category ids count
    from 1. `area` is that of the box, as the tables contain no outlines. Two fields are not part of
    COCO: `is_difficult` on difficult objects, and `object_id` where a split has an object 0:
    pycocotools treats annotation 0 as never found, so all ids are then one higher, and this field
    has the original one. Items are written one at a time to save memory.
    """
    _write_images(split, folder)
    image_ids = _image_ids(split)
    number_of_licence = _number_licences(split)
    write_coco(
        folder / "annotations" / f"instances_{split.name}.json",
        {
            "description": (
                f"{split.name}: images of {split.dataset} ({split.subset}), {split.distance}"
            ),
            "dataset_origin": split.dataset,
            "distance_category": split.distance,
        },
        licenses=_licences(number_of_licence),
        categories=_categories(split),
        images=_images(split, image_ids, number_of_licence),
        annotations=_annotations(split, image_ids),
    )


def _write_images(split: PublishedSplit, folder: Path) -> None:
    for row, name in enumerate(split.images.file):
        content = split.image_bytes(row)
        path = inside(inside(folder, split.name), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _image_ids(split: PublishedSplit) -> list[int] | list[str]:
    """The images' ids: numbers where all of them have 12 digits."""
    names: list[str] = split.images.image_id.tolist()
    if all(len(name) == DIGITS and name.isascii() and name.isdecimal() for name in names):
        return [int(name) for name in names]
    return names


def _number_licences(split: PublishedSplit) -> dict[Licence, int]:
    """Each licence → its number, from 1."""
    licences: set[Licence] = set()
    for row in range(len(split.images)):
        credit = split.credit(row)
        if credit.license:
            licences.add((credit.license, credit.license_url))
    return {licence: number for number, licence in enumerate(sorted(licences), start=1)}


def _licences(number_of_licence: dict[Licence, int]) -> Iterator[dict[str, Any]]:
    for (name, url), number in number_of_licence.items():
        yield {"id": number, "name": name, "url": url}


def _categories(split: PublishedSplit) -> Iterator[dict[str, Any]]:
    for number, name in enumerate(split.categories.names, start=1):
        yield {"id": number, "name": name, "supercategory": split.supercategory(name)}


def _images(
    split: PublishedSplit,
    image_ids: list[int] | list[str],
    number_of_licence: dict[Licence, int],
) -> Iterator[dict[str, Any]]:
    images = split.images
    for row, image_id in enumerate(image_ids):
        item = {
            "id": image_id,
            "file_name": images.file[row],
            "width": int(images.width[row]),
            "height": int(images.height[row]),
        }
        credit = split.credit(row)
        licence = number_of_licence.get((credit.license, credit.license_url))
        if licence is not None:
            item["license"] = licence
        if credit.author:
            item["author"] = credit.author
        if credit.source_url:
            item["source_url"] = credit.source_url
        yield item


def _annotations(
    split: PublishedSplit, image_ids: list[int] | list[str]
) -> Iterator[dict[str, Any]]:
    objects = split.objects
    boxes = split.boxes.tolist()
    is_shifted = bool(np.any(objects.object_id == 0))
    for row, object_id in enumerate(objects.object_id.tolist()):
        item = {
            "id": object_id + 1 if is_shifted else object_id,
            "image_id": image_ids[int(split.source.image_row[row])],
            "category_id": int(split.category_number[row]) + 1,
            "bbox": boxes[row],
            "area": split.areas[row],
            "iscrowd": int(objects.is_crowd[row]),
        }
        if objects.is_difficult[row]:
            item["is_difficult"] = 1
        if is_shifted:
            item["object_id"] = object_id
        yield item

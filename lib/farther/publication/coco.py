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


def write_split(split: PublishedSplit, folder: Path) -> None:
    """Writes `annotations/instances_<split>.json` and the images, `<split>/<file>`.

    Image ids become numbers where all of them have 12 digits; others stay text. Category ids count
    from 1. `area` is that of the box, as the tables contain no outlines. Two fields are not part of
    COCO: `is_difficult` on difficult objects, and `object_id` where a split has an object 0:
    pycocotools treats annotation 0 as never found, so all ids are then one higher, and this field
    has the original one. Items are written one at a time to save memory.
    """
    for row, name in enumerate(split.images.file):
        content, path = split.image_bytes(row), inside(inside(folder, split.name), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    image_ids: list[Any] = split.images.image_id.tolist()
    if all(len(name) == DIGITS and name.isascii() and name.isdecimal() for name in image_ids):
        image_ids = [int(name) for name in image_ids]
    credits = [split.credit(row) for row in range(len(image_ids))]
    found = sorted({(credit.license, credit.license_url) for credit in credits if credit.license})
    licences = {licence: number for number, licence in enumerate(found, start=1)}
    write_coco(
        folder / "annotations" / f"instances_{split.name}.json",
        {
            "description": f"{split.name}: images of {split.dataset} ({split.subset}), {split.distance}",
            "dataset_origin": split.dataset,
            "distance_category": split.distance,
        },
        licenses=(
            {"id": number, "name": name, "url": url} for (name, url), number in licences.items()
        ),
        categories=(
            {"id": number, "name": name, "supercategory": split.supercategory(name)}
            for number, name in enumerate(split.categories.names, start=1)
        ),
        images=_images(split, image_ids, licences),
        annotations=_annotations(split, image_ids),
    )


def _images(
    split: PublishedSplit, image_ids: list[Any], licences: dict[tuple[str, str], int]
) -> Iterator[dict[str, Any]]:
    for row, (image_id, file) in enumerate(zip(image_ids, split.images.file, strict=True)):
        credit = split.credit(row)
        number = licences.get((credit.license, credit.license_url))
        known = {"license": number, "author": credit.author, "source_url": credit.source_url}
        size = {"width": int(split.images.width[row]), "height": int(split.images.height[row])}
        yield {
            "id": image_id,
            "file_name": file,
            **size,
            **{key: value for key, value in known.items() if value},
        }


def _annotations(split: PublishedSplit, image_ids: list[Any]) -> Iterator[dict[str, Any]]:
    objects, image_row = split.objects, split.source.image_row
    is_shifted = bool(np.any(objects.object_id == 0))
    for row, (box, area) in enumerate(zip(split.boxes.tolist(), split.areas, strict=True)):
        object_id = int(objects.object_id[row])
        annotation = {
            "id": object_id + is_shifted,
            "image_id": image_ids[int(image_row[row])],
            "category_id": int(split.category_number[row]) + 1,
            "bbox": box,
            "area": area,
            "iscrowd": int(objects.is_crowd[row]),
        }
        annotation |= {"is_difficult": 1} if objects.is_difficult[row] else {}
        yield {**annotation, "object_id": object_id} if is_shifted else annotation

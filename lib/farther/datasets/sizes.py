"""Approximate sizes of the published datasets: bytes of files, images of subsets.

Only files at the readers' standard paths are listed. Sizes are those of the unpacked files, rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GB, MB = 10**9, 10**6

#: Bytes by format and path below the root.
BYTES: dict[tuple[str, str], int] = {
    ("voc", "VOC2007/JPEGImages"): 870 * MB,
    ("voc", "VOC2007/Annotations"): 40 * MB,
    ("voc", "VOC2012/JPEGImages"): 1900 * MB,
    ("voc", "VOC2012/Annotations"): 70 * MB,
    ("bdd", "images/100k/train"): 4000 * MB,
    ("bdd", "images/100k/val"): 600 * MB,
    ("bdd", "images/100k/test"): 1100 * MB,
    ("bdd", "labels/det_20/det_train.json"): 500 * MB,
    ("bdd", "labels/det_20/det_val.json"): 70 * MB,
    ("coco", "annotations/instances_train2017.json"): 450 * MB,
    ("coco", "annotations/instances_val2017.json"): 20 * MB,
    ("coco", "train2017"): 19 * GB,
    ("coco", "val2017"): 810 * MB,
    ("coco", "train2014"): 13 * GB,
    ("coco", "val2014"): 6600 * MB,
    ("openimages", "train"): 560 * GB,
    ("openimages", "validation"): 12 * GB,
    ("openimages", "test"): 36 * GB,
    ("openimages", "train-annotations-bbox.csv"): 2200 * MB,
    ("openimages", "validation-annotations-bbox.csv"): 25 * MB,
    ("openimages", "test-annotations-bbox.csv"): 75 * MB,
}

#: Images by format and subset; of Pascal VOC, by image set.
IMAGES: dict[tuple[str, str], int] = {
    ("voc", "VOC2007/train"): 2501,
    ("voc", "VOC2007/val"): 2510,
    ("voc", "VOC2007/trainval"): 5011,
    ("voc", "VOC2007/test"): 4952,
    ("voc", "VOC2012/train"): 5717,
    ("voc", "VOC2012/val"): 5823,
    ("voc", "VOC2012/trainval"): 11540,
    ("bdd", "train"): 69863,
    ("bdd", "val"): 10000,
    ("coco", "train2017"): 118287,
    ("coco", "val2017"): 5000,
    ("coco", "train2014"): 82783,
    ("coco", "val2014"): 40504,
    ("openimages", "train"): 1743042,
    ("openimages", "validation"): 41620,
    ("openimages", "test"): 125436,
    ("fmiyc", "coco_near_voc"): 1174,
    ("fmiyc", "coco_far_voc"): 938,
    ("fmiyc", "openimages_near_voc"): 908,
    ("fmiyc", "openimages_far_voc"): 1179,
    ("fmiyc", "coco_farther_bdd"): 1873,
    ("fmiyc", "openimages_farther_bdd"): 1695,
}


#: Bytes per image in a file of several images, by format.
EACH = {"fmiyc": 250_000}


def bytes_of(format: str, paths: Sequence[str], subsets: Sequence[str] = ()) -> int:
    """Approximate number of bytes of a published file or folder; 0 if unknown.

    Args:
        format: The dataset's format.
        paths: Alternative paths below the dataset's root; the first known one counts.
        subsets: Subsets that are read from it.
    """
    if format in EACH:
        return EACH[format] * sum(IMAGES.get((format, subset), 0) for subset in subsets)
    return next((BYTES[format, path] for path in paths if (format, path) in BYTES), 0)


def images_of(params: Mapping[str, Any], subset: str) -> int | None:
    """Approximate number of images of a subset of a published dataset; None if unknown.

    Args:
        params: An entry of section `datasets`.
        subset: The subset.
    """
    format = str(params.get("format"))
    if format == "voc":
        sets = (params.get("image_sets") or {}).get(subset) or [f"VOC2012/{subset}"]
        counts = [IMAGES.get((format, name)) for name in sets]
        return sum(count or 0 for count in counts) if None not in counts else None
    return IMAGES.get((format, subset))

"""Approximate sizes of the published datasets (`sizes.yaml`): bytes of files, images of subsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from farther.tables.documents import parse_yaml

MB = 10**6


@cache
def _sizes() -> dict[str, Any]:
    return parse_yaml(files(__package__).joinpath("sizes.yaml").read_text(encoding="utf-8"))


def bytes_of(format: str, paths: Sequence[str], subsets: Sequence[str] = ()) -> int:
    """Approximate number of bytes of a published file or folder; 0 if unknown."""
    megabytes_per_image = _sizes()["megabytes_per_image"].get(format)
    if megabytes_per_image is not None:
        image_counts = _sizes()["images"][format]
        image_count = sum(image_counts.get(subset, 0) for subset in subsets)
        return int(megabytes_per_image * MB) * image_count

    megabytes_by_path = _sizes()["megabytes"].get(format, {})
    for path in paths:
        if path in megabytes_by_path:
            return int(megabytes_by_path[path] * MB)
    return 0


def images_of(params: Mapping[str, Any], subset: str) -> int | None:
    """Approximate number of images of a subset of a published dataset; None if unknown."""
    format = str(params.get("format"))
    names = [subset]
    if format == "voc":
        image_sets = params.get("image_sets") or {}
        names = image_sets.get(subset) or [f"VOC2012/{subset}"]

    image_counts = _sizes()["images"].get(format, {})
    total = 0
    for name in names:
        if image_counts.get(name) is None:
            return None
        total += image_counts[name]
    return total

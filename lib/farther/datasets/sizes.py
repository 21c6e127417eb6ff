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
    each = _sizes()["megabytes_per_image"].get(format)
    if each is not None:
        return int(each * MB) * sum(_sizes()["images"][format].get(subset, 0) for subset in subsets)
    known = _sizes()["megabytes"].get(format, {})
    return next((known[path] * MB for path in paths if path in known), 0)


def images_of(params: Mapping[str, Any], subset: str) -> int | None:
    """Approximate number of images of a subset of a published dataset; None if unknown."""
    format = str(params.get("format"))
    sets = [subset]
    if format == "voc":
        sets = (params.get("image_sets") or {}).get(subset) or [f"VOC2012/{subset}"]
    counts = [_sizes()["images"].get(format, {}).get(name) for name in sets]
    return sum(counts) if None not in counts else None

"""The parameters of the gallery: `gallery` in section `report` of params.yaml."""

from __future__ import annotations

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.registry import STRICT


@dataclass(config=STRICT, kw_only=True)
class GallerySettings:
    """What the gallery shows.

    Args:
        images: Of each run and split, so many at most, evenly spread over the split; 0 for no gallery.
    """

    images: int = Field(default=5000, ge=0)

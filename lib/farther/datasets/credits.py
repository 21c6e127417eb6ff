"""Under which licence an image may be passed on, and whom to name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Credit:
    """What a dataset's own files say about where an image is from; "" where they do not say it.

    Args:
        license: Name of the licence.
        license_url: Its text.
        author: Who made the image.
        source_url: Where the image was taken from.
    """

    license: str = ""
    license_url: str = ""
    author: str = ""
    source_url: str = ""

    def __bool__(self) -> bool:
        return self != Credit()

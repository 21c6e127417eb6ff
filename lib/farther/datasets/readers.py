"""The readers of datasets by the name of their format."""

from __future__ import annotations

from typing import Any

from farther.datasets.base import FORMATS, Reader
from farther.datasets.combined import CombinedSubsets


def names() -> list[str]:
    """Names of the formats that can be read."""
    return FORMATS.names()


def create(format: str = "", **params: Any) -> Reader:
    """A reader of a dataset.

    Args:
        format: One of `names()`. Leaving it out is an error that lists them.
        params: `root` and the format's own parameters.

    Raises:
        ParameterError: the name or a parameter is unknown, or a value does not fit.
    """
    reader = FORMATS.create(format, **params)
    if reader.combined:
        return CombinedSubsets(reader)
    return reader

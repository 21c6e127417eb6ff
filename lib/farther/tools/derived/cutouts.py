"""Where cut-outs come from: pictures of single objects with an alpha channel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from farther.curation.sources import Categories
from farther.registry import STRICT, Registry

Share = Annotated[float, Field(ge=0, le=1)]


class CutOut(NamedTuple):
    """Names one cut-out.

    Args:
        category: What it shows, as its source calls it.
        name: Where it comes from, in words: file and object.
        row: Its place in the source.
    """

    category: str
    name: str
    row: int


@dataclass(frozen=True)
class CutOuts:
    """What a source has.

    Args:
        categories: The source's categories, with its class hierarchy.
        found: The cut-outs.
        picture: Gives the RGBA picture of one of them; a DataError when a file cannot be read.
    """

    categories: Categories
    found: Sequence[CutOut]
    picture: Callable[[CutOut], Image.Image]


@checked(config=STRICT, kw_only=True)
class Source(ABC):
    """A source of cut-outs.

    Args:
        root: Folder of its files.
        smallest: Cut-outs whose shorter side has fewer pixels are left out.
    """

    root: Path
    smallest: Annotated[int, Field(ge=1)] = 24

    @abstractmethod
    def read(self) -> CutOuts:
        """What there is; no picture is decoded yet.

        Raises:
            DataError: a file is absent or damaged.
        """


@checked(config=STRICT, kw_only=True)
class AnnotatedSource(Source):
    """Cuts objects out of annotated images. Crowds, and what the edge of its image cuts off, are left out.

    Args:
        covered: Objects of whose box the box of another object covers more than this share are left out: they may
            be hidden in part, or show the other object too.
    """

    covered: Share = 0.1

    def usable(self, box: np.ndarray, image: np.ndarray, size: np.ndarray, is_single: np.ndarray) -> np.ndarray:
        """Which objects can be cut out.

        Args:
            box: ndarray of shape (N, 4): edges in pixels of the objects' images.
            image: ndarray of shape (N,): number of each object's image.
            size: ndarray of shape (N, 2): width and height of it.
            is_single: ndarray of shape (N,), bool: False for crowds and what else is not to be cut out. They still
                cover others.

        Returns:
            ndarray of shape (N,), bool.
        """
        sides = box[:, 2:] - box[:, :2]
        whole = (box[:, :2] >= 1).all(axis=1) & (box[:, 2:] <= size - 1).all(axis=1)
        wanted = is_single & whole & (sides.min(axis=1, initial=np.inf) >= self.smallest)
        order = np.argsort(image, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(image[order])) + 1):
            wanted[rows] &= _largest_cover(box[rows]) <= self.covered
        return wanted


SOURCES: Registry[Source] = Registry("source of cut-outs", "farther.tools.derived")
register = SOURCES.register


def names() -> list[str]:
    """Names of the sources."""
    return SOURCES.names()


def create(source: str = "", **params: Any) -> Source:
    """A source of cut-outs.

    Args:
        source: One of `names()`. Leaving it out is an error that lists them.
        params: The source's own parameters.

    Raises:
        ParameterError: the name or a parameter is unknown, or a value does not fit.
    """
    return SOURCES.create(source, **params)


def _largest_cover(box: np.ndarray) -> np.ndarray:
    """The largest share of each box that one of the others covers; shape (N, 4) to (N,)."""
    low = np.maximum(box[:, None, :2], box[None, :, :2])
    high = np.minimum(box[:, None, 2:], box[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(axis=2)
    np.fill_diagonal(common, 0)
    area = (box[:, 2:] - box[:, :2]).prod(axis=1)
    return common.max(axis=1, initial=0) / np.maximum(area, 1e-9)

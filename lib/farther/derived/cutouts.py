"""Sources of cut-outs: images of single objects with an alpha channel."""

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
from farther.derived.base import Share
from farther.images.read import MAX_PIXELS
from farther.naming.registry import STRICT, Parameters, Registry


class CutOut(NamedTuple):
    """A cut-out of a source.

    Attributes:
        category: Its class.
        name: File and object that it is cut from, for messages.
        row: Its index in the source.
    """

    category: str
    name: str
    row: int


@dataclass(frozen=True)
class CutOuts:
    """The cut-outs of a source.

    Args:
        categories: The source's categories, with its class hierarchy.
        entries: The cut-outs.
        picture: Returns the RGBA image of a cut-out; raises DataError when its file cannot be read.
    """

    categories: Categories
    entries: Sequence[CutOut]
    picture: Callable[[CutOut], Image.Image]


@checked(config=STRICT, kw_only=True)
class CutOutSource(Parameters, ABC):
    """A source of cut-outs.

    Args:
        root: Folder of the files.
        smallest: Shortest side of a cut-out that is used, in pixels.
        max_pixels: Images with more are not decoded, and count as unreadable.
    """

    root: Path
    smallest: Annotated[int, Field(ge=1)] = 24
    max_pixels: Annotated[int, Field(ge=1)] = MAX_PIXELS

    @abstractmethod
    def read(self) -> CutOuts:
        """The cut-outs; no image is decoded yet.

        Raises:
            DataError: a file is absent or damaged.
        """


@checked(config=STRICT, kw_only=True)
class AnnotatedSource(CutOutSource):
    """Cuts objects out of annotated images.

    Crowds and objects that touch the edge of their image are left out.

    Args:
        covered: Largest share of an object's box that another object's box may cover: objects with
            a larger one may be partly hidden, or show the other object too.
    """

    covered: Share = 0.1

    def usable(
        self, box: np.ndarray, image: np.ndarray, size: np.ndarray, is_single: np.ndarray
    ) -> np.ndarray:
        """Mask of the objects that can be cut out.

        Args:
            box: ndarray of shape (N, 4): edges in pixels of the objects' images.
            image: ndarray of shape (N,): number of each object's image.
            size: ndarray of shape (N, 2): width and height of that image.
            is_single: ndarray of shape (N,), bool: False for crowds and other objects to leave out;
                they still cover others.

        Returns:
            ndarray of shape (N,), bool.
        """
        sides = box[:, 2:] - box[:, :2]
        is_large = sides.min(axis=1, initial=np.inf) >= self.smallest
        is_inside = (box[:, :2] >= 1).all(axis=1) & (box[:, 2:] <= size - 1).all(axis=1)
        is_usable = is_single & is_inside & is_large

        order = np.argsort(image, kind="stable")
        starts = np.flatnonzero(np.diff(image[order])) + 1
        for rows in np.split(order, starts):
            is_usable[rows] &= _largest_cover(box[rows]) <= self.covered
        return is_usable


SOURCES: Registry[CutOutSource] = Registry("source of cut-outs", "farther.derived")
register = SOURCES.register
names = SOURCES.names


def create(source: str = "", **params: Any) -> CutOutSource:
    """A source of cut-outs by its name, one of `names()`, and its parameters.

    Raises:
        ParameterError: the name or a parameter is unknown, or a value is invalid.
    """
    return SOURCES.create(source, **params)


def _largest_cover(box: np.ndarray) -> np.ndarray:
    """Largest share of each box that another one covers.

    Args:
        box: Edges in pixels, shape (N, 4).

    Returns:
        ndarray of shape (N,).
    """
    low = np.maximum(box[:, None, :2], box[None, :, :2])
    high = np.minimum(box[:, None, 2:], box[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(axis=2)
    np.fill_diagonal(common, 0)
    area = (box[:, 2:] - box[:, :2]).prod(axis=1)
    return common.max(axis=1, initial=0) / np.maximum(area, 1e-9)

"""Counts, ratios and means under weights over images: one formula gives a value and its bootstrap replicates.

Formulas of this package take `weights` as scikit-learn's take `sample_weight`: None counts each
image once and gives plain values; an array of shape (B, I) gives B replicates, in which image i
counts `weights[b, i]` times. Matching is done once: it never crosses images.

Of very many images, groups are drawn (`GroupWeights`). The cost of a replicate then does not depend
on the number of regions: metrics of ranked regions take counts of each group at `LEVELS` levels of
the score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Weights held at once: bounds memory, and what fits a core's cache is several times as fast.
BLOCK = 1 << 17

#: From this number of groups on, products are taken in float32 where that is exact.
MANY = 64

#: Levels of ranked rows at which weights of groups are counted.
LEVELS = 1024


@dataclass(frozen=True)
class RowWeights:
    """Weights of the rows of a table: those of their images.

    Args:
        of_images: ndarray of shape (B, I).
        image: The place of each row's image, ndarray of shape (N,).
        grouped: Whether those are groups of images; metrics of ranked rows then count the rows at
            some levels only.
    """

    of_images: np.ndarray
    image: np.ndarray
    grouped: bool = False

    def __getitem__(self, rows: Any) -> RowWeights:
        """The weights of some rows."""
        return RowWeights(self.of_images, self.image[rows], self.grouped)

    def __len__(self) -> int:
        return len(self.image)

    def in_block(self, block: slice) -> np.ndarray:
        """Weights of all rows in some replicates, ndarray of shape (b, N)."""
        # Not [:, image], whose rows are not contiguous: sums along them take seven times as long.
        return np.take(self.of_images[block], self.image, axis=1)

    def total(self) -> np.ndarray:
        """Total weight in each replicate, ndarray of shape (B,)."""
        found: np.ndarray = self.total_by_group(np.zeros(len(self), dtype=np.int64), 1)[0]
        return found

    def total_by_group(self, group: np.ndarray, groups: int) -> np.ndarray:
        """Total weight of each group's rows, ndarray of shape (G, B).

        Args:
            group: The number of each row's group, ndarray of shape (N,).
        """
        images = self.of_images.shape[1]
        count = np.bincount(
            self.image.astype(np.int64) * groups + group, minlength=images * groups
        ).reshape(images, groups)
        # Products of floats are many times as fast as those of integers, and exact for counts below
        # 2⁵³, or 2²⁴.
        are_counts = groups >= MANY and self.of_images.dtype.kind in "iu"
        is_small = are_counts and np.max(self.of_images @ count.sum(axis=1), initial=0) < 1 << 24
        real = count.astype(np.float32 if is_small else np.float64)
        each = (
            self.of_images[block].astype(real.dtype) @ real
            for block in blocks(len(self.of_images), images)
        )
        found = np.concatenate(list(each)).T
        return found.astype(np.result_type(self.of_images.dtype, np.int64))

    def up_to_level(self, level: np.ndarray, levels: int) -> np.ndarray:
        """Total weight of the rows at levels 0 to l for each l, ndarray of shape (B, levels).

        Args:
            level: The level of each row, ndarray of shape (N,).
        """
        if self.grouped:
            found: np.ndarray = np.cumsum(self.total_by_group(level, levels).T, axis=1)
            return found
        order = np.argsort(level, kind="stable")
        ends, rows = np.cumsum(np.bincount(level, minlength=levels)), self[order]
        parts = [
            accumulated(rows.in_block(block))[:, ends]
            for block in blocks(len(self.of_images), len(self))
        ]
        return np.concatenate(parts)


@dataclass(frozen=True)
class GroupWeights:
    """Weights of images that are drawn in groups: in place of an array of shape (B, I), which may not fit into memory.

    Args:
        of_groups: Weight of each group, ndarray of shape (B, G).
        group: The group of each image, ndarray of shape (I,).
    """

    of_groups: np.ndarray
    group: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """B and I."""
        return len(self.of_groups), len(self.group)

    def __getitem__(self, places: tuple[slice, np.ndarray]) -> GroupWeights:
        """The weights of some images in some replicates."""
        replicates, images = places
        return GroupWeights(self.of_groups[replicates], self.group[images])

    def __matmul__(self, values: np.ndarray) -> np.ndarray:
        """Weighted sums of one value per image, ndarray of shape (B,)."""
        counts = values.dtype.kind in "bui"
        sums = np.bincount(self.group, values, minlength=self.of_groups.shape[1])
        found: np.ndarray = self.of_groups @ (np.rint(sums).astype(np.int64) if counts else sums)
        return found


#: Weights of I images in B replicates, shape (B, I).
ImageWeights = np.ndarray | GroupWeights


def joined(first: ImageWeights, second: ImageWeights) -> ImageWeights:
    """The weights of two sets of images, one after the other."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.concatenate([first, second], axis=1)
    (left, of_left), (right, of_right) = (
        columns(first, first.shape[1]),
        columns(second, second.shape[1]),
    )
    return GroupWeights(
        np.concatenate([left, right], axis=1), np.concatenate([of_left, left.shape[1] + of_right])
    )


def once(images: int) -> np.ndarray:
    """Weights of a single replicate in which each image counts once, ndarray of shape (1, I)."""
    return np.ones((1, images), dtype=np.int32)


def columns(weights: ImageWeights | None, images: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights as an array of shape (B, C), and the column of each image; each image counts once with `weights` None."""
    if isinstance(weights, GroupWeights):
        return weights.of_groups, weights.group
    return (once(images) if weights is None else weights), np.arange(images)


def row_weights(weights: ImageWeights | None, image: np.ndarray, images: int) -> RowWeights:
    """Weights of rows; with `weights` None a single replicate in which each of the images counts once."""
    if isinstance(weights, GroupWeights):
        return RowWeights(weights.of_groups, weights.group[image], grouped=True)
    return RowWeights(once(images) if weights is None else weights, image)


def accumulated(weights: np.ndarray) -> np.ndarray:
    """Weight of the first 0, 1, 2, … rows, ndarray of shape (b, n + 1), from weights of shape (b, n)."""
    total = np.zeros((len(weights), weights.shape[1] + 1), dtype=weights.dtype)
    np.cumsum(weights, axis=1, out=total[:, 1:])
    return total


def each_once(rows: int) -> RowWeights:
    """A single replicate in which each of some rows counts once."""
    return RowWeights(once(1), np.zeros(rows, dtype=np.int64))


def blocks(replicates: int, rows: int) -> Iterator[slice]:
    """Slices of replicates, so that one weight for each of `rows` rows fits in memory."""
    step = max(1, BLOCK // max(rows, 1))
    return (slice(start, start + step) for start in range(0, replicates, step))


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole of any shape; NaN where `whole` is 0."""
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) > 0)


def mean_of_defined(values: np.ndarray, axis: int | tuple[int, ...] = 0) -> np.ndarray:
    """Mean over the entries that are not NaN; NaN where all are."""
    values = np.asarray(values, dtype=np.float64)
    return ratio(
        np.nansum(values, axis=axis), np.sum(~np.isnan(values), axis=axis).astype(np.float64)
    )


def mean_if_all_defined(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Mean over all entries; NaN where one is NaN or there is none."""
    values = np.asarray(values, dtype=np.float64)
    return (
        np.mean(values, axis=axis)
        if values.shape[axis]
        else np.full(np.delete(values.shape, axis), np.nan)
    )


def plain(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Metrics of a single replicate as JSON holds them: counts as int, others as float, None for NaN."""
    return {name: value(of_one[0]) for name, of_one in values.items()}


def value(number: Any) -> Any:
    """One number as JSON holds it: int or float, None for NaN."""
    number = np.asarray(number).item()
    return None if number != number else number


def defined(values: Any) -> np.ndarray:
    """Numbers as an array of float64, NaN for None."""
    return np.array([np.nan if one is None else one for one in values], dtype=np.float64)

"""Weighted counts, ratios and means: one formula gives a value and its bootstrap replicates.

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

from farther.tables.arguments import floats, instance

#: Weights held at once: bounds memory, and what fits a core's cache is several times as fast.
BLOCK = 1 << 17

#: From this number of groups on, products are taken in float32 where that is exact.
MIN_FLOAT32_GROUPS = 64

#: Levels of ranked rows at which weights of groups are counted.
LEVELS = 1024


@dataclass(frozen=True)
class RowWeights:
    """Weights of the rows of a table: those of their images.

    Args:
        of_images: ndarray of shape (B, I).
        image: Index of each row's image, ndarray of shape (N,).
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
        one_group = np.zeros(len(self), dtype=np.int64)
        total: np.ndarray = self.total_by_group(one_group, 1)[0]
        return total

    def total_by_group(self, group: np.ndarray, groups: int) -> np.ndarray:
        """Total weight of each group's rows, ndarray of shape (G, B).

        Args:
            group: The number of each row's group, ndarray of shape (N,).
            groups: Number of groups, G.
        """
        total_type = np.result_type(self.of_images.dtype, np.int64)
        replicates, images = self.of_images.shape
        if replicates == 1:
            weight = self.of_images[0, self.image]
            return np.bincount(group, weight, minlength=groups)[:, None].astype(total_type)

        cell = self.image.astype(np.int64) * groups + group
        rows_per_cell = np.bincount(cell, minlength=images * groups).reshape(images, groups)

        # Products of floats are many times as fast as those of integers, and exact for counts below
        # 2⁵³, or 2²⁴.
        dtype: type[np.floating] = np.float64
        if groups >= MIN_FLOAT32_GROUPS and self.of_images.dtype.kind in "iu":
            largest_total = np.max(self.of_images @ rows_per_cell.sum(axis=1), initial=0)
            if largest_total < 1 << 24:
                dtype = np.float32
        factor = rows_per_cell.astype(dtype)

        totals = []
        for block in blocks(replicates, images):
            weights = self.of_images[block].astype(dtype)
            totals.append(weights @ factor)
        total_by_group = np.concatenate(totals).T
        return total_by_group.astype(total_type)

    def up_to_level(self, level: np.ndarray, levels: int) -> np.ndarray:
        """Total weight of the rows at levels 0 to l for each l, ndarray of shape (B, levels).

        Args:
            level: The level of each row, ndarray of shape (N,).
            levels: Number of levels.
        """
        if self.grouped:
            total: np.ndarray = np.cumsum(self.total_by_group(level, levels).T, axis=1)
            return total
        ranked = self[np.argsort(level, kind="stable")]
        rows_up_to = np.cumsum(np.bincount(level, minlength=levels))
        totals = []
        for block in blocks(len(self.of_images), len(self)):
            weight_of_first_rows = accumulated(ranked.in_block(block))
            totals.append(weight_of_first_rows[:, rows_up_to])
        return np.concatenate(totals)


@dataclass(frozen=True)
class GroupWeights:
    """Weights of images that are drawn in groups.

    They take the place of an array of shape (B, I), which may not fit into memory.

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
        sum_per_group = np.bincount(self.group, values, minlength=self.of_groups.shape[1])
        if values.dtype.kind in "bui":
            sum_per_group = np.rint(sum_per_group).astype(np.int64)
        weighted_sum: np.ndarray = self.of_groups @ sum_per_group
        return weighted_sum


#: Weights of I images in B replicates, shape (B, I).
ImageWeights = np.ndarray | GroupWeights


def joined(first: ImageWeights, second: ImageWeights) -> ImageWeights:
    """The weights of two sets of images, one after the other."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.concatenate([first, second], axis=1)
    first_weights, first_column = columns(first, first.shape[1])
    second_weights, second_column = columns(second, second.shape[1])
    return GroupWeights(
        np.concatenate([first_weights, second_weights], axis=1),
        np.concatenate([first_column, first_weights.shape[1] + second_column]),
    )


def once(images: int) -> np.ndarray:
    """Weights of a single replicate in which each image counts once, ndarray of shape (1, I)."""
    return np.ones((1, images), dtype=np.int32)


def columns(weights: ImageWeights | None, images: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights as an array of shape (B, C), and the column of each image.

    Args:
        weights: Each image counts once when None.
        images: Number of images, I.
    """
    if isinstance(weights, GroupWeights):
        return weights.of_groups, weights.group
    if weights is None:
        weights = once(images)
    return _checked(weights, images), np.arange(images)


def _checked(weights: Any, images: int) -> np.ndarray:
    """Weights of I images as an array of shape (B, I).

    Raises:
        DataError: they are no array of finite numbers, or of another number of images.
    """
    instance(weights, np.ndarray, "weights")
    is_of_integers = weights.dtype.kind in "iu" and not isinstance(weights, np.ma.MaskedArray)
    if is_of_integers and weights.shape[1:] == (images,):
        return np.asarray(weights)
    return floats(weights, "weights", shape=(None, images))


def row_weights(weights: ImageWeights | None, image: np.ndarray, images: int) -> RowWeights:
    """Weights of rows, from those of their images.

    Args:
        weights: None is a single replicate in which each of the images counts once.
        image: Index of each row's image, ndarray of shape (N,).
        images: Number of images, I.
    """
    if isinstance(weights, GroupWeights):
        return RowWeights(weights.of_groups, weights.group[image], grouped=True)
    if weights is None:
        weights = once(images)
    return RowWeights(_checked(weights, images), image)


def accumulated(weights: np.ndarray) -> np.ndarray:
    """Weight of the first 0, 1, 2, … rows, ndarray of shape (b, n + 1).

    Args:
        weights: ndarray of shape (b, n).
    """
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


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """numerator / denominator of any shape; NaN where the denominator is 0."""
    undefined = np.full(np.shape(denominator), np.nan)
    is_defined = np.asarray(denominator) > 0
    return np.divide(numerator, denominator, out=undefined, where=is_defined)


def mean_of_defined(values: np.ndarray, axis: int | tuple[int, ...] = 0) -> np.ndarray:
    """Mean over the entries that are not NaN; NaN where all are."""
    values = np.asarray(values, dtype=np.float64)
    count = np.sum(~np.isnan(values), axis=axis).astype(np.float64)
    return ratio(np.nansum(values, axis=axis), count)


def mean_if_all_defined(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Mean over all entries; NaN where one is NaN or there is none."""
    values = np.asarray(values, dtype=np.float64)
    if not values.shape[axis]:
        return np.full(np.delete(values.shape, axis), np.nan)
    return np.mean(values, axis=axis)


def plain(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Metrics of a single replicate as JSON holds them.

    Args:
        values: Metric → ndarray of shape (1,).

    Returns:
        Counts as int, other metrics as float, None for NaN.
    """
    return {name: value(replicates[0]) for name, replicates in values.items()}


def value(number: Any) -> Any:
    """One number as JSON holds it: int or float, None for NaN."""
    number = np.asarray(number).item()
    is_nan = number != number
    return None if is_nan else number


def defined(values: Any) -> np.ndarray:
    """Numbers as an array of float64, NaN for None."""
    numbers = [np.nan if number is None else number for number in values]
    return np.array(numbers, dtype=np.float64)

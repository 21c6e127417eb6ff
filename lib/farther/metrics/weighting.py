"""Counts, ratios and means under weights over images: one formula gives a value and its bootstrap replicates.

Formulas of this package take `weights` as scikit-learn's take `sample_weight`: None counts each image once and gives
plain values; an array of shape (B, I) gives B replicates, in which image i counts `weights[b, i]` times. Matching is
done once: it never crosses images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Weights held at once: bounds memory, and what fits a core's cache is several times as fast.
BLOCK = 1 << 17


@dataclass(frozen=True)
class RowWeights:
    """Weights of the rows of a table: those of their images.

    Args:
        of_images: ndarray of shape (B, I).
        image: The place of each row's image, ndarray of shape (N,).
    """

    of_images: np.ndarray
    image: np.ndarray

    def __getitem__(self, rows: Any) -> RowWeights:
        """The weights of some rows."""
        return RowWeights(self.of_images, self.image[rows])

    def __len__(self) -> int:
        return len(self.image)

    def in_block(self, block: slice) -> np.ndarray:
        """Weights of all rows in some replicates, ndarray of shape (b, N)."""
        return self.of_images[block][:, self.image]

    def total(self) -> np.ndarray:
        """Total weight in each replicate, ndarray of shape (B,)."""
        return self.of_images @ np.bincount(self.image, minlength=self.of_images.shape[1])

    def total_by_group(self, group: np.ndarray, groups: int) -> np.ndarray:
        """Total weight of each group's rows, ndarray of shape (G, B).

        Args:
            group: The number of each row's group, ndarray of shape (N,).
        """
        images = self.of_images.shape[1]
        count = np.bincount(self.image * groups + group, minlength=images * groups).reshape(images, groups)
        # Products of floats are many times as fast as those of integers, and exact for counts.
        real = count.astype(np.float64)
        found = np.concatenate([self.of_images[block] @ real for block in blocks(len(self.of_images), images)]).T
        return found.astype(np.result_type(self.of_images.dtype, np.int64))


def row_weights(weights: np.ndarray | None, image: np.ndarray, images: int) -> RowWeights:
    """Weights of rows; with `weights` None a single replicate in which each of the images counts once."""
    return RowWeights(np.ones((1, images), dtype=np.int32) if weights is None else weights, image)


def each_once(rows: int) -> RowWeights:
    """A single replicate in which each of some rows counts once."""
    return RowWeights(np.ones((1, 1), dtype=np.int32), np.zeros(rows, dtype=np.int64))


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
    return ratio(np.nansum(values, axis=axis), np.sum(~np.isnan(values), axis=axis).astype(np.float64))


def mean_if_all_defined(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Mean over all entries; NaN where one is NaN or there is none."""
    values = np.asarray(values, dtype=np.float64)
    return np.mean(values, axis=axis) if values.shape[axis] else np.full(np.delete(values.shape, axis), np.nan)


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

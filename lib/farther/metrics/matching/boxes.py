"""Boxes and their overlaps.

Boxes are edges in pixels, ndarray of shape (N, 4): xmin, ymin, xmax, ymax. All arithmetic is in
float64.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

#: Box areas in square pixels, both ends included, as COCO has them.
AREA_RANGES = {"small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}

#: Pairs of boxes that are compared at once: bounds memory, and what fits a core's cache is faster.
BLOCK = 1 << 16
#: Rows that are looked at at once where arrays of all would take much memory.
ROWS = 1 << 20

#: Fewer names than this are numbered one by one.
FEW = 1024


@dataclass(frozen=True)
class OverlapPairs:
    """Pairs of a region and an object that overlap.

    Args:
        region, target: Rows of the two tables, ndarray of shape (P,), int32.
        overlap: ndarray of shape (P,): IoU, or for a crowd box the share of the region that lies in
            it.
    """

    region: np.ndarray
    target: np.ndarray
    overlap: np.ndarray

    @classmethod
    def none(cls) -> OverlapPairs:
        """No pair at all."""
        nothing = np.zeros(0, dtype=np.int32)
        return cls(nothing, nothing, np.zeros(0))

    def __len__(self) -> int:
        return len(self.region)

    def __getitem__(self, rows: np.ndarray) -> OverlapPairs:
        """The pairs that a mask or an index array selects."""
        return OverlapPairs(self.region[rows], self.target[rows], self.overlap[rows])

    def joined(self, other: OverlapPairs, first_region: int, first_target: int) -> OverlapPairs:
        """These, and pairs of other tables whose rows follow from `first_region` and `first_target` on."""
        return OverlapPairs(
            np.concatenate([self.region, other.region + np.int32(first_region)]),
            np.concatenate([self.target, other.target + np.int32(first_target)]),
            np.concatenate([self.overlap, other.overlap]),
        )

    def keeping(self, kept: np.ndarray) -> OverlapPairs:
        """The pairs of the regions that a mask selects, whose rows close up."""
        left = self[kept[self.region]]
        return OverlapPairs(
            (np.cumsum(kept, dtype=np.int32) - 1)[left.region], left.target, left.overlap
        )

    def moved(self, rows: np.ndarray, regions: int | None = None) -> OverlapPairs:
        """The pairs of some regions in their new order, sorted by it.

        Args:
            rows: The rows of the regions in their new order.
            regions: Number of regions that there were; as many as there are now when None.
        """
        place = np.full(len(rows) if regions is None else regions, -1, dtype=np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        region = place[self.region]
        order = np.argsort(region, kind="stable")
        order = order[np.searchsorted(region[order], 0) :]  # −1 is a region that is left out
        return OverlapPairs(region[order], self.target[order], self.overlap[order])

    def preferred_first(self, last_choice: np.ndarray, number: np.ndarray) -> OverlapPairs:
        """Sorted by preference within each region, the largest overlap first; pairs must be sorted by region.

        Args:
            last_choice: ndarray of shape (M,), bool: objects that are taken only when there is no
                other.
            number: ndarray of shape (M,), int64: each object's number. Among equal overlaps the
                object with the larger one comes first, as in pycocotools the later.
        """
        same = self.region[1:] == self.region[:-1]
        rows = np.flatnonzero(np.append(same, False) | np.append(False, same)[: len(self)])
        if not len(rows):
            return self
        region, target, overlap = self.region[rows], self.target[rows], self.overlap[rows]
        # The complement falls as the number rises, and cannot overflow.
        preferred = np.lexsort((~number[target], -overlap, last_choice[target], region))
        order = np.arange(len(self))
        order[rows] = rows[preferred]
        return self[order]

    def first_of_each_region(self) -> OverlapPairs:
        """Only the first pair of each region; the pairs must be sorted by region."""
        return self[np.diff(self.region, prepend=-1) != 0]


def areas(boxes: np.ndarray) -> np.ndarray:
    """Areas in square pixels, ndarray of shape (N,), float64."""
    left, top, right, bottom = (side.astype(np.float64) for side in np.asarray(boxes).T)
    area: np.ndarray = (right - left) * (bottom - top)
    return area


def overlaps(
    first: np.ndarray, second: np.ndarray, is_crowd: np.ndarray | None = None
) -> np.ndarray:
    """IoU of each row of `first` with the same row of `second`, ndarray of shape (N,); 0 where both are empty.

    Args:
        is_crowd: ndarray of shape (N,), bool: rows whose second box holds several objects. There
            the intersection is divided by the area of the first box alone (COCO's rule).
    """
    first = np.asarray(first, dtype=np.float64)
    second = np.asarray(second, dtype=np.float64)
    width = np.minimum(first[:, 2], second[:, 2]) - np.maximum(first[:, 0], second[:, 0])
    height = np.minimum(first[:, 3], second[:, 3]) - np.maximum(first[:, 1], second[:, 1])
    intersection = np.maximum(width, 0) * np.maximum(height, 0)
    whole = areas(first) + areas(second) - intersection
    if is_crowd is not None:
        whole = np.where(is_crowd, areas(first), whole)
    return np.divide(intersection, whole, out=np.zeros_like(intersection), where=whole > 0)


def pairs(
    region_box: np.ndarray,
    region_key: np.ndarray,
    target_box: np.ndarray,
    target_key: np.ndarray,
    is_crowd: np.ndarray,
    at_least: float,
    region_row: np.ndarray | None = None,
) -> OverlapPairs:
    """All pairs of a region and an object with the same key whose overlap is `at_least` or more.

    Args:
        region_key, target_key: int64 arrays, one number per row, 0 or more: rows with equal keys
            are compared (the image, or the image and the class).
        is_crowd: bool array, one per object: see `overlaps`.
        region_row: The row of `region_box` that each region has; its own when None.

    Returns:
        Pairs in the order of the regions. Memory is bounded by `BLOCK` comparisons and the pairs
        that are kept.
    """
    found = []
    for region, target in _blocks(region_key, target_key):
        of_region = region_box[region if region_row is None else region_row[region]]
        overlap = overlaps(of_region, target_box[target], is_crowd[target])
        kept = (overlap >= at_least) & (overlap > 0)
        found.append(
            OverlapPairs(
                region[kept].astype(np.int32), target[kept].astype(np.int32), overlap[kept]
            )
        )
    if not found:
        return OverlapPairs.none()
    joined = [
        np.concatenate([getattr(p, name) for p in found])
        for name in ("region", "target", "overlap")
    ]
    return OverlapPairs(*joined)


def _blocks(left_key: np.ndarray, right_key: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows (left, right) of all pairs with equal keys, about `BLOCK` pairs at a time."""
    if not len(left_key) or not len(right_key):
        return
    order = np.argsort(right_key, kind="stable")
    in_order = right_key[order]
    for first in range(0, len(left_key), ROWS):
        keys = left_key[first : first + ROWS]
        start = np.searchsorted(in_order, keys, side="left")
        count = np.searchsorted(in_order, keys, side="right") - start
        total = np.cumsum(count)
        cuts = np.searchsorted(total, np.arange(BLOCK, total[-1], BLOCK))
        for rows in np.split(np.arange(len(keys)), np.unique(cuts)):
            length = count[rows]
            left = np.repeat(rows, length)
            within = np.arange(len(left)) - np.repeat(np.cumsum(length) - length, length)
            yield first + left, order[start[left] + within]


def image_numbers(*columns: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Numbers for image names that several tables share.

    Args:
        columns: Object arrays of `str`.

    Returns:
        The distinct names, sorted, and for each column its rows' places among them (int32).
    """
    if sum(map(len, columns)) < FEW:  # Polars starts its threads even for one name
        sorted_names = sorted({name for column in columns for name in column.tolist()})
        place = {name: number for number, name in enumerate(sorted_names)}
        found = [
            np.fromiter((place[name] for name in c.tolist()), np.int32, len(c)) for c in columns
        ]
        return np.array(sorted_names, dtype=object), found
    runs = [_runs(column) for column in columns]  # rows of an image are mostly neighbours
    firsts = [column[is_first] for column, is_first in zip(columns, runs, strict=True)]
    names = pl.concat(
        [pl.Series(c.tolist(), dtype=pl.String) for c in firsts]
    )  # Arrow's arrays would import pandas
    words = names.unique().sort()
    numbers = words.search_sorted(names).to_numpy().astype(np.int32)
    each = np.split(numbers, np.cumsum([len(first) for first in firsts])[:-1])
    found = [number[_run(is_first)] for number, is_first in zip(each, runs, strict=True)]
    distinct = np.empty(len(words), dtype=object)
    for first, number in zip(firsts, each, strict=True):
        distinct[number] = (
            first  # the columns' own texts: copies of a million names take much memory
        )
    return distinct, found


def sorted_together(*names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different names of several arrays, sorted, and the place among them of each name of one array after the other
    (int32).
    """
    each = np.concatenate(names)
    order, places = np.argsort(each), np.empty(len(each), dtype=np.int32)
    places[order] = np.arange(len(each), dtype=np.int32)
    return each[order], places


def places(names: np.ndarray, image_id: np.ndarray) -> np.ndarray:
    """Place of each row's image among sorted names that hold it, as `numpy.searchsorted`, shape (N,), int64."""
    is_first = _runs(image_id)
    found: np.ndarray = np.searchsorted(names, image_id[is_first])[_run(is_first)]
    return found


def is_among(values: np.ndarray, names: Collection[str]) -> np.ndarray:
    """The rows whose text is one of some names, ndarray of shape (N,), bool.

    Args:
        values: Object array of `str`, shape (N,).
    """
    is_first, chosen = _runs(values), frozenset(names)
    found = np.fromiter((value in chosen for value in values[is_first]), bool, int(is_first.sum()))
    return found[_run(is_first)]


def places_among(values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """The place of each row's text in a list of different names, −1 for others, ndarray of shape (N,), int32.

    Args:
        values: Object array of `str`, shape (N,).
    """
    is_first, number = _runs(values), {name: k for k, name in enumerate(names)}
    found = np.fromiter(
        (number.get(value, -1) for value in values[is_first]), np.int32, int(is_first.sum())
    )
    return found[_run(is_first)]


def _runs(column: np.ndarray) -> np.ndarray:
    """The first row of each run of equal values, bool."""
    is_first = np.ones(len(column), dtype=bool)
    is_first[1:] = column[1:] != column[:-1]
    return is_first


def _run(is_first: np.ndarray) -> np.ndarray:
    """The number of each row's run, int32."""
    number: np.ndarray = np.cumsum(is_first, dtype=np.int32)
    number -= 1
    return number

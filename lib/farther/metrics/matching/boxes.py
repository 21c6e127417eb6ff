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
FEW_NAMES = 1024


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
        no_rows = np.zeros(0, dtype=np.int32)
        return cls(no_rows, no_rows, np.zeros(0))

    def __len__(self) -> int:
        return len(self.region)

    def __getitem__(self, rows: np.ndarray) -> OverlapPairs:
        """The pairs that a mask or an index array selects."""
        return OverlapPairs(self.region[rows], self.target[rows], self.overlap[rows])

    def joined(self, other: OverlapPairs, first_region: int, first_target: int) -> OverlapPairs:
        """These pairs, and pairs of other tables whose rows follow.

        Args:
            other: Pairs of the other tables.
            first_region, first_target: Number of the first row of the other tables.
        """
        return OverlapPairs(
            np.concatenate([self.region, other.region + np.int32(first_region)]),
            np.concatenate([self.target, other.target + np.int32(first_target)]),
            np.concatenate([self.overlap, other.overlap]),
        )

    def keeping(self, kept: np.ndarray) -> OverlapPairs:
        """The pairs of the regions that a mask selects, whose rows close up."""
        remaining = self[kept[self.region]]
        new_row = np.cumsum(kept, dtype=np.int32) - 1
        return OverlapPairs(new_row[remaining.region], remaining.target, remaining.overlap)

    def moved(self, rows: np.ndarray, regions: int | None = None) -> OverlapPairs:
        """The pairs of some regions in their new order, sorted by it.

        Args:
            rows: The rows of the regions in their new order.
            regions: Number of regions before; as many as now when None.
        """
        new_row = np.full(len(rows) if regions is None else regions, -1, dtype=np.int32)
        new_row[rows] = np.arange(len(rows), dtype=np.int32)
        region = new_row[self.region]
        order = np.argsort(region, kind="stable")
        # −1 is a region that is left out.
        order = order[np.searchsorted(region[order], 0) :]
        return OverlapPairs(region[order], self.target[order], self.overlap[order])

    def preferred_first(self, last_choice: np.ndarray, number: np.ndarray) -> OverlapPairs:
        """Sorted by preference within each region, the largest overlap first.

        The pairs must be sorted by region.

        Args:
            last_choice: ndarray of shape (M,), bool: objects that are taken only when there is no
                other.
            number: ndarray of shape (M,), int64: each object's number. Among equal overlaps the
                object with the larger one comes first, as in pycocotools the later.
        """
        same_as_next = self.region[1:] == self.region[:-1]
        has_choice = np.append(same_as_next, False) | np.append(False, same_as_next)[: len(self)]
        rows = np.flatnonzero(has_choice)
        if not len(rows):
            return self
        region = self.region[rows]
        target = self.target[rows]
        # The complement falls as the number rises, and cannot overflow.
        preferred = np.lexsort((~number[target], -self.overlap[rows], last_choice[target], region))
        order = np.arange(len(self))
        order[rows] = rows[preferred]
        return self[order]

    def first_of_each_region(self) -> OverlapPairs:
        """Only the first pair of each region; the pairs must be sorted by region."""
        return self[np.diff(self.region, prepend=-1) != 0]


def areas(boxes: np.ndarray) -> np.ndarray:
    """Areas in square pixels, ndarray of shape (N,), float64."""
    boxes = np.asarray(boxes)
    width = boxes[:, 2].astype(np.float64) - boxes[:, 0].astype(np.float64)
    height = boxes[:, 3].astype(np.float64) - boxes[:, 1].astype(np.float64)
    area: np.ndarray = width * height
    return area


def overlaps(
    first: np.ndarray, second: np.ndarray, is_crowd: np.ndarray | None = None
) -> np.ndarray:
    """IoU of each row of `first` with the same row of `second`; 0 where both are empty.

    Args:
        first, second: Boxes, ndarrays of shape (N, 4).
        is_crowd: ndarray of shape (N,), bool: rows whose second box holds several objects. There
            the intersection is divided by the area of the first box alone (COCO's rule).

    Returns:
        ndarray of shape (N,).
    """
    first = np.asarray(first, dtype=np.float64)
    second = np.asarray(second, dtype=np.float64)
    width = np.minimum(first[:, 2], second[:, 2]) - np.maximum(first[:, 0], second[:, 0])
    height = np.minimum(first[:, 3], second[:, 3]) - np.maximum(first[:, 1], second[:, 1])
    intersection = np.maximum(width, 0) * np.maximum(height, 0)
    union = areas(first) + areas(second) - intersection
    if is_crowd is not None:
        union = np.where(is_crowd, areas(first), union)
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)


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
        region_box, target_box: Boxes of the regions and the objects, ndarrays of shape (N, 4) and
            (M, 4).
        region_key, target_key: int64 arrays, one number per row, 0 or more: rows with equal keys
            are compared (the image, or the image and the class).
        is_crowd: bool array, one per object: see `overlaps`.
        at_least: Smallest overlap.
        region_row: The row of `region_box` that each region has; its own when None.

    Returns:
        Pairs in the order of the regions. Memory is bounded by `BLOCK` comparisons and the pairs
        that are kept.
    """
    regions = []
    targets = []
    pair_overlaps = []
    for region, target in _blocks(region_key, target_key):
        box_row = region if region_row is None else region_row[region]
        overlap = overlaps(region_box[box_row], target_box[target], is_crowd[target])
        is_pair = (overlap >= at_least) & (overlap > 0)
        regions.append(region[is_pair].astype(np.int32))
        targets.append(target[is_pair].astype(np.int32))
        pair_overlaps.append(overlap[is_pair])
    if not regions:
        return OverlapPairs.none()
    return OverlapPairs(
        np.concatenate(regions), np.concatenate(targets), np.concatenate(pair_overlaps)
    )


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
        The distinct names, sorted, and for each column the index of each row's name among them
        (int32).
    """
    # Polars starts its threads even for one name.
    if sum(map(len, columns)) < FEW_NAMES:
        return _numbers_of_few(columns)
    return _numbers_of_runs(columns)


def _numbers_of_few(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """`image_numbers`, one name after the other."""
    distinct: set[str] = set()
    for column in columns:
        distinct.update(column.tolist())
    names = sorted(distinct)
    number_by_name = {name: number for number, name in enumerate(names)}

    numbers = []
    for column in columns:
        column_numbers = [number_by_name[name] for name in column.tolist()]
        numbers.append(np.array(column_numbers, dtype=np.int32))
    return np.array(names, dtype=object), numbers


def _numbers_of_runs(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """`image_numbers` of the first row of each run: rows of an image are mostly neighbours."""
    run_starts = [_run_starts(column) for column in columns]
    run_names = [column[is_first] for column, is_first in zip(columns, run_starts, strict=True)]

    # From lists, as Arrow's arrays would import pandas.
    all_names = pl.concat([pl.Series(names.tolist(), dtype=pl.String) for names in run_names])
    sorted_names = all_names.unique().sort()
    all_numbers = sorted_names.search_sorted(all_names).to_numpy().astype(np.int32)
    ends = np.cumsum([len(names) for names in run_names])
    run_numbers = np.split(all_numbers, ends[:-1])

    numbers = []
    # The columns' own texts: copies of a million names take much memory.
    distinct = np.empty(len(sorted_names), dtype=object)
    for is_first, names, number in zip(run_starts, run_names, run_numbers, strict=True):
        distinct[number] = names
        numbers.append(number[_run_of_row(is_first)])
    return distinct, numbers


def sorted_together(*names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different names of several arrays, sorted, and their places.

    Returns:
        The sorted names; and the index among them of each name of the first array, then of the
        second, … (int32).
    """
    all_names = np.concatenate(names)
    order = np.argsort(all_names)
    place = np.empty(len(all_names), dtype=np.int32)
    place[order] = np.arange(len(all_names), dtype=np.int32)
    return all_names[order], place


def places(names: np.ndarray, image_id: np.ndarray) -> np.ndarray:
    """Index of each row's image among sorted names that contain it, as `numpy.searchsorted`.

    Args:
        names: Sorted names, object array of `str`.
        image_id: Object array of `str`, shape (N,).

    Returns:
        ndarray of shape (N,), int64.
    """
    is_first = _run_starts(image_id)
    run_place = np.searchsorted(names, image_id[is_first])
    place: np.ndarray = run_place[_run_of_row(is_first)]
    return place


def is_among(values: np.ndarray, names: Collection[str]) -> np.ndarray:
    """The rows whose text is one of some names, ndarray of shape (N,), bool.

    Args:
        values: Object array of `str`, shape (N,).
        names: The names.
    """
    chosen = frozenset(names)
    is_first = _run_starts(values)
    run_is_chosen = np.array([name in chosen for name in values[is_first]], dtype=bool)
    return run_is_chosen[_run_of_row(is_first)]


def places_among(values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """The index of each row's text in a list of different names, −1 for others.

    Args:
        values: Object array of `str`, shape (N,).
        names: The names.

    Returns:
        ndarray of shape (N,), int32.
    """
    index_by_name = {name: index for index, name in enumerate(names)}
    is_first = _run_starts(values)
    run_index = np.array([index_by_name.get(name, -1) for name in values[is_first]], dtype=np.int32)
    return run_index[_run_of_row(is_first)]


def _run_starts(column: np.ndarray) -> np.ndarray:
    """The first row of each run of equal values, bool."""
    is_first = np.ones(len(column), dtype=bool)
    is_first[1:] = column[1:] != column[:-1]
    return is_first


def _run_of_row(is_first: np.ndarray) -> np.ndarray:
    """The number of each row's run, int32."""
    number: np.ndarray = np.cumsum(is_first, dtype=np.int32)
    number -= 1
    return number

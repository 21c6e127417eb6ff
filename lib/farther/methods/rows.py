"""Scores that depend on their own row alone, to the last bit.

BLAS rounds the rows of a product differently by the number of rows, by the place of a row among those that are computed
together, and by the number of threads. A score must be the same in the table of a whole split and beside the detections
of one image, so all rows are scored in parts of one size, each on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

import numpy as np

from farther.cores import count_cores
from farther.tables import Regions

T = TypeVar("T")

#: Rows that are scored at once: a multiple of 6, 8, 16 and 24, which BLAS computes together.
ROWS = 48


def in_equal_parts(score: Callable[[Regions], np.ndarray], block: Regions) -> np.ndarray:
    """The scores of a block, `ROWS` rows at a time; the last part is filled up with its last row."""
    with one_blas_thread():
        starts = range(0, len(block) - ROWS + 1, ROWS)
        scores = [score(block[first : first + ROWS]) for first in starts]
        if left := len(block) % ROWS:
            rows = np.minimum(np.arange(len(block) - left, len(block) - left + ROWS), len(block) - 1)
            scores.append(score(block[rows])[:left])
    return np.concatenate(scores)


def whole_parts(rows: np.ndarray) -> np.ndarray:
    """Row numbers, the last one repeated up to a multiple of `ROWS`."""
    return np.append(rows, np.repeat(rows[-1:], -len(rows) % ROWS))


def in_threads(function: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """The result for each item, on one thread per core, each with one thread of BLAS."""
    with one_blas_thread(), ThreadPoolExecutor(count_cores()) as pool:
        return list(pool.map(function, items))


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which matrix products run on one thread: several round differently where their shares meet."""
    found: AbstractContextManager[Any] = _blas().limit(limits=1)
    return found


@cache
def _blas() -> Any:
    """The linear algebra libraries of NumPy and SciPy."""
    import scipy.linalg.blas  # noqa: F401, only libraries that are loaded are found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")

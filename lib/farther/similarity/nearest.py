"""Exact nearest neighbours by cosine; memory does not grow with the number of pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from farther.errors import DataError, FartherError
from farther.methods.neighbours import has_faiss

#: Rows of a block; a block of cosines has 2048² values, 16 MB.
BLOCK = 2048

Engine = Literal["auto", "numpy", "faiss"]


@dataclass(frozen=True)
class Nearest:
    """The nearest reference of each query.

    Args:
        row: ndarray of shape (number of queries,), int64: its row in the reference; the first of
            equals.
        cosine: ndarray of shape (number of queries,), float32.
    """

    row: np.ndarray
    cosine: np.ndarray


def nearest(queries: np.ndarray, reference: np.ndarray, engine: Engine = "auto") -> Nearest:
    """The largest cosine of each query to any reference vector (Mayilvahanan et al. 2023; FMIYC, Figure 3).

    Args:
        queries: ndarray of shape (N, D), rows of length 1.
        reference: ndarray of shape (M, D), rows of length 1.
        engine: "faiss": its flat index; "numpy": blocked matrix products; "auto": FAISS if
            installed. Both are exact and differ by rounding only.

    Raises:
        DataError: there is no reference, or the widths differ: the embeddings are of two models.
        FartherError: engine "faiss" is not installed.
    """
    check_widths(queries, reference)
    if not len(reference):
        raise DataError("no reference image has an embedding, so similarity to ID is undefined")
    if engine == "faiss" and not has_faiss():
        raise FartherError(
            "engine 'faiss' is not installed: pip install 'farther[fast]' on Linux, or use 'numpy'"
        )
    if engine == "numpy" or not has_faiss():
        return _by_blocks(queries, reference)
    return _by_faiss(queries, reference)


def pairs_above(
    one: np.ndarray, other: np.ndarray, threshold: float, *, first_row: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """All pairs of rows whose cosine is at least `threshold`, a block at a time.

    Args:
        one, other: ndarrays of shape (N, D) and (M, D), rows of length 1.
        threshold: The lowest cosine.
        first_row: Where `one` starts in `other`, if it is a part of it: then each pair comes once
            and without pairs of a row with itself.

    Yields:
        Rows of `one`, rows of `other`, cosines: three arrays of equal length.

    Raises:
        DataError: the widths differ.
    """
    check_widths(one, other)
    for a in range(0, len(one), BLOCK):
        left = _single(one[a : a + BLOCK])
        start = 0 if first_row is None else first_row + a
        for b in range(start - start % BLOCK, len(other), BLOCK):
            cosines = left @ _single(other[b : b + BLOCK]).T
            i, j = np.nonzero(cosines >= threshold)
            if first_row is not None:
                later = j + b > i + a + first_row
                i, j = i[later], j[later]
            if len(i):
                yield i + a, j + b, np.minimum(cosines[i, j], 1)


def _by_blocks(queries: np.ndarray, reference: np.ndarray) -> Nearest:
    row = np.zeros(len(queries), np.int64)
    cosine = np.full(len(queries), -np.inf, np.float32)
    for b in range(0, len(reference), BLOCK):
        columns = _single(reference[b : b + BLOCK]).T
        for a in range(0, len(queries), BLOCK):
            cosines = _single(queries[a : a + BLOCK]) @ columns
            best = cosines.argmax(axis=1)
            value = cosines[np.arange(len(best)), best]
            better = value > cosine[a : a + BLOCK]
            row[a : a + BLOCK][better] = best[better] + b
            cosine[a : a + BLOCK][better] = value[better]
    return Nearest(row, np.clip(cosine, -1, 1))


def _by_faiss(queries: np.ndarray, reference: np.ndarray) -> Nearest:
    import faiss

    index = faiss.IndexFlatIP(reference.shape[1])
    for b in range(0, len(reference), BLOCK):
        index.add(_single(reference[b : b + BLOCK]))
    parts = [
        index.search(_single(queries[a : a + BLOCK]), 1) for a in range(0, len(queries), BLOCK)
    ]
    if not parts:
        return Nearest(np.zeros(0, np.int64), np.zeros(0, np.float32))
    cosine, row = (np.concatenate([part[k][:, 0] for part in parts]) for k in (0, 1))
    return Nearest(row.astype(np.int64), np.clip(cosine, -1, 1))


def _single(vectors: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vectors, dtype=np.float32)


def check_widths(one: np.ndarray, other: np.ndarray) -> None:
    """Refuses embeddings of two models.

    Args:
        one, other: Rows.

    Raises:
        DataError: their rows have different lengths.
    """
    if len(one) and len(other) and one.shape[1] != other.shape[1]:
        raise DataError(
            f"embeddings of {one.shape[1]} and of {other.shape[1]} dimensions are from two models: run `embed` again"
        )

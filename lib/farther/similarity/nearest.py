"""Exact nearest neighbours by cosine; memory does not grow with the number of pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from farther.errors import DataError, FartherError
from farther.methods.neighbours import has_faiss
from farther.tables.arguments import array_of, floats, number, one_of, whole_number

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
    """The nearest reference vector of each query, by cosine.

    Similarity to ID is the largest cosine to any reference image (Mayilvahanan et al. 2023; FMIYC,
    Figure 3).

    Args:
        queries: ndarray of shape (N, D), rows of length 1.
        reference: ndarray of shape (M, D), rows of length 1.
        engine: "faiss": its flat index; "numpy": blocked matrix products; "auto": FAISS if
            installed. Both are exact and differ by rounding only.

    Raises:
        DataError: there is no reference, or the widths differ: the embeddings are of two models.
        FartherError: engine "faiss" is not installed.
    """
    one_of(engine, get_args(Engine), "engine")
    queries = vectors(queries, "queries")
    reference = vectors(reference, "reference")
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
    first: np.ndarray, second: np.ndarray, threshold: float, *, first_row: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """All pairs of rows whose cosine is at least `threshold`, a block at a time.

    Args:
        first, second: ndarrays of shape (N, D) and (M, D), rows of length 1.
        threshold: The lowest cosine.
        first_row: Where `first` starts in `second`, if it is a part of it: then each pair comes
            once and without pairs of a row with itself.

    Yields:
        Rows of `first`, rows of `second`, cosines: three arrays of equal length.

    Raises:
        DataError: the widths differ.
    """
    first = vectors(first, "first")
    second = vectors(second, "second")
    threshold = number(threshold, "threshold", at_least=-1, at_most=1)
    if first_row is not None:
        first_row = whole_number(first_row, "first_row", at_least=0)
    check_widths(first, second)
    for first_start in range(0, len(first), BLOCK):
        first_block = _as_float32(first[first_start : first_start + BLOCK])
        # Blocks of `second` before the block of `first` have only pairs that came before.
        earliest = 0 if first_row is None else first_row + first_start
        for second_start in range(earliest - earliest % BLOCK, len(second), BLOCK):
            second_block = _as_float32(second[second_start : second_start + BLOCK])
            cosines = first_block @ second_block.T
            i, j = np.nonzero(cosines >= threshold)
            cosine = np.minimum(cosines[i, j], 1)
            rows = i + first_start
            other_rows = j + second_start
            if first_row is not None:
                is_later = other_rows > rows + first_row
                rows = rows[is_later]
                other_rows = other_rows[is_later]
                cosine = cosine[is_later]
            if len(rows):
                yield rows, other_rows, cosine


def vectors(values: Any, name: str, count: int | None = None) -> np.ndarray:
    """Rows of finite numbers, shape (N, D); float16 stays, as it takes half the memory.

    Args:
        values: See `farther.tables.arguments`.
        name: Of the argument, in messages.
        count: Number of rows; any when None.

    Raises:
        DataError: they are no such rows.
    """
    array = array_of(values, name)
    dtype = np.float16 if array.dtype == np.float16 else np.float32
    return floats(array, name, shape=(count, None), dtype=dtype)


def _by_blocks(queries: np.ndarray, reference: np.ndarray) -> Nearest:
    """`nearest` by matrix products of blocks."""
    row = np.zeros(len(queries), np.int64)
    cosine = np.full(len(queries), -np.inf, np.float32)
    for reference_start in range(0, len(reference), BLOCK):
        columns = _as_float32(reference[reference_start : reference_start + BLOCK]).T
        for start in range(0, len(queries), BLOCK):
            block = slice(start, start + BLOCK)
            cosines = _as_float32(queries[block]) @ columns
            best = cosines.argmax(axis=1)
            best_cosine = cosines[np.arange(len(best)), best]
            is_better = best_cosine > cosine[block]
            row[block][is_better] = best[is_better] + reference_start
            cosine[block][is_better] = best_cosine[is_better]
    return Nearest(row, np.clip(cosine, -1, 1))


def _by_faiss(queries: np.ndarray, reference: np.ndarray) -> Nearest:
    """`nearest` by a flat index of FAISS."""
    # Optional.
    import faiss

    index = faiss.IndexFlatIP(reference.shape[1])
    for start in range(0, len(reference), BLOCK):
        index.add(_as_float32(reference[start : start + BLOCK]))
    row = np.zeros(len(queries), np.int64)
    cosine = np.zeros(len(queries), np.float32)
    for start in range(0, len(queries), BLOCK):
        block = slice(start, start + BLOCK)
        block_cosine, block_row = index.search(_as_float32(queries[block]), 1)
        cosine[block] = block_cosine[:, 0]
        row[block] = block_row[:, 0]
    return Nearest(row, np.clip(cosine, -1, 1))


def _as_float32(vectors: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vectors, dtype=np.float32)


def check_widths(first: np.ndarray, second: np.ndarray) -> None:
    """Refuses embeddings of two models.

    Args:
        first, second: Rows.

    Raises:
        DataError: their rows have different lengths.
    """
    if len(first) and len(second) and first.shape[1] != second.shape[1]:
        raise DataError(
            f"embeddings of {first.shape[1]} and of {second.shape[1]} dimensions are from two "
            "models: run `embed` again"
        )

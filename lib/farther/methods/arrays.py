"""Functions of arrays that NumPy and PyTorch compute in steps of their own.

All else in scores is written in functions of the [array API
standard](https://data-apis.org/array-api), which both have. A tensor is asked by its methods only,
so that nothing here imports PyTorch.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

# Imported in functions: SciPy's linear algebra, a third of a second, and PyTorch.

#: An ndarray or a tensor.
Array = Any

#: Below this, exponentials and sums of many of them neither overflow nor lose digits.
LARGEST_EXPONENT = 500.0


def namespace(array: Array) -> ModuleType:
    """The functions of the standard for an array.

    NumPy itself, or PyTorch's by `array_api_compat`.
    """
    if isinstance(array, np.ndarray):
        return np
    import array_api_compat.torch

    functions: ModuleType = array_api_compat.torch
    return functions


def cast(array: Array, dtype: Any) -> Array:
    """The array in another type of numbers; itself where it has that type."""
    if isinstance(array, np.ndarray):
        return array.astype(dtype, copy=False)
    return array.to(dtype)


def as_float32(array: Array) -> Array:
    """The array in float32."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float32)
    return array.float()


def exp_of_own(values: Array) -> Array:
    """exp; NumPy overwrites the values, which the caller does not need again."""
    if isinstance(values, np.ndarray):
        return np.exp(values, out=values)
    return values.exp()


def limited(values: Array, limit: Array) -> Array:
    """min(x, limit) of each value.

    NumPy overwrites the values, which the caller does not need again.
    """
    if isinstance(values, np.ndarray):
        return np.minimum(values, limit, out=values)
    return values.minimum(limit)


def at_least(values: Array, lowest: float) -> Array:
    """max(x, lowest) of each value."""
    if isinstance(values, np.ndarray):
        return np.maximum(values, lowest)
    return values.clamp(min=lowest)


def replaced(values: Array, mask: Array, others: Array) -> Array:
    """The values, but `others`, which are broadcast, where a mask is true.

    NumPy overwrites the values, which the caller does not need again.
    """
    if isinstance(values, np.ndarray):
        np.copyto(values, others, where=mask)  # a tenth of the time of `where`
        return values
    return others.where(mask, values)


def log_sum_exp(values: Array) -> Array:
    """log Σ exp over the last axis, without overflow. The same as SciPy's, without the import."""
    if not isinstance(values, np.ndarray):
        return values.logsumexp(dim=values.ndim - 1)
    if values.size and values.min() > -LARGEST_EXPONENT and values.max() < LARGEST_EXPONENT:
        return np.log(row_sums(np.exp(values)))  # half the cost: needs no maximum per row
    largest = values.max(axis=-1)
    powers = values - largest[..., None]
    np.exp(powers, out=powers)
    return np.log(row_sums(powers)) + largest


def row_sums(values: Array) -> Array:
    """Sums over the last axis.

    By NumPy as a matrix product: for short rows several times as fast as `sum`.
    """
    if isinstance(values, np.ndarray):
        return values @ np.ones(values.shape[-1])
    return values.sum(dim=values.ndim - 1)  # onnxruntime reduces no rows by −1 to a wrong shape


def softmax(logits: Array) -> Array:
    """Softmax over the last axis (FMIYC, Eq. 11)."""
    if not isinstance(logits, np.ndarray):
        return logits.softmax(dim=logits.ndim - 1)
    powers = logits - logits.max(axis=-1, keepdims=True)
    np.exp(powers, out=powers)
    powers *= (1 / row_sums(powers))[..., None]
    return powers


def largest_probability(logits: Array) -> Array:
    """The largest softmax of each row, shape (n,).

    NumPy overwrites the logits, which the caller does not need again.
    """
    if not isinstance(logits, np.ndarray):
        return softmax(logits).amax(dim=logits.ndim - 1)
    logits -= logits.max(axis=-1, keepdims=True)
    np.exp(logits, out=logits)
    return 1 / row_sums(logits)  # that of the largest one, whose power is 1


def sigmoid(logits: Array) -> Array:
    """1 / (1 + exp(−x)), without overflow, and accurate near 0."""
    if isinstance(logits, np.ndarray):
        return np.exp(-np.logaddexp(0.0, -logits))
    return logits.sigmoid()


def softplus(logits: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    if isinstance(logits, np.ndarray):
        return np.logaddexp(0.0, logits)
    # PyTorch's own is x from 20 on, and onnxruntime has none for float64.
    return logits.clamp(min=0) + (1 + (-logits.abs()).exp()).log()


def expm1(values: Array) -> Array:
    """exp(x) − 1, without loss of digits near 0."""
    if isinstance(values, np.ndarray):
        return np.expm1(values)
    return (values / 2).tanh() * (values.exp() + 1)  # ONNX has no expm1


def row_products(left: Array, right: Array) -> Array:
    """Inner product of each pair of rows, shape (n,)."""
    if isinstance(left, np.ndarray):
        return np.vecdot(left, right)
    return row_sums(left * right)


def squared_norms(rows: Array) -> Array:
    """Squared Euclidean norm of each row, shape (n,)."""
    return row_products(rows, rows)


def norms(rows: Array) -> Array:
    """Euclidean norm of each row, shape (n,)."""
    if isinstance(rows, np.ndarray):
        return np.linalg.norm(rows, axis=1)
    return squared_norms(rows).sqrt()


def normalised(rows: Array) -> Array:
    """Rows scaled to Euclidean norm 1; rows of zeros stay zero. NumPy overwrites the rows."""
    if not isinstance(rows, np.ndarray):
        length = squared_norms(rows).sqrt()[:, None]
        return rows / (length + (length == 0))
    length = np.sqrt(squared_norms(rows))
    rows /= np.where(length > 0, length, 1.0)[:, None]
    return rows


def whitened(rows: Array, matrix: Array) -> Array:
    """Rows times a matrix of `whitening`, shape (n, r); NumPy overwrites the rows.

    A triangular matrix takes half the multiplications.
    """
    if not isinstance(rows, np.ndarray) or matrix.shape[0] != matrix.shape[1]:
        return rows @ matrix
    from scipy.linalg.blas import dtrmm

    return dtrmm(1.0, matrix.T, rows.T, lower=True, overwrite_b=True).T


def lower_solved(factor: Array, columns: Array) -> Array:
    """L⁻¹ B of a lower triangular L and B of shape (D, n); NumPy overwrites B."""
    if not isinstance(columns, np.ndarray):
        return namespace(columns).linalg.solve_triangular(
            factor.to(columns.dtype), columns, upper=False
        )
    from scipy.linalg import solve_triangular

    return solve_triangular(factor, columns, lower=True, overwrite_b=True, check_finite=False)


def ascending_ranks(values: Array) -> Array:
    """Rank of each value in its row, 1 for the smallest; of equal values the first one is first.

    Shape (n, C).
    """
    if not isinstance(values, np.ndarray):
        return values.argsort(dim=1, stable=True).argsort(dim=1).to(values.dtype) + 1
    ranks = np.empty(values.shape)
    order = np.argsort(values, axis=1, kind="stable")
    np.put_along_axis(ranks, order, np.arange(1.0, values.shape[1] + 1)[None], axis=1)
    return ranks


def at_largest(values: Array, keys: Array, count: int) -> Array:
    """The values in the columns of each row's `count` largest keys, unordered: shape (n, count)."""
    if not isinstance(values, np.ndarray):
        return values.gather(1, keys.topk(count, dim=1).indices)
    columns = np.argpartition(keys, -count, axis=1)[:, -count:]
    return np.take_along_axis(values, columns, axis=1)


def ascending(values: Array) -> Array:
    """The values of each row, sorted."""
    if not isinstance(values, np.ndarray):
        # ONNX has no sort.
        return values.topk(values.shape[1], dim=1).values.flip(1)
    return np.sort(values, axis=1)


def largest_values(vectors: Array, count: int) -> Array:
    """The `count` largest values of each row, shape (n, count); of arrays ascending, and float32.

    Stored features have at most 32 bits, so nothing is lost. NumPy sorts float32 with vector
    instructions, which is faster than its partition.
    """
    if not isinstance(vectors, np.ndarray):
        return vectors.topk(count, dim=1).values
    ordered = vectors.astype(np.float32)
    ordered.sort(axis=1)
    return ordered[:, vectors.shape[1] - count :]


def are_largest(vectors: Array, count: int) -> Array:
    """Mask of the `count` largest values of each row, shape (n, D).

    Of equal values the first count.
    """
    if not isinstance(vectors, np.ndarray):
        return ascending_ranks(-vectors) <= count
    if count == 0:
        return np.zeros(vectors.shape, bool)
    mask = vectors >= largest_values(vectors, count)[:, :1]
    tied = np.flatnonzero(mask.sum(axis=1) > count)  # rare and slow
    mask[tied] = False
    mask[tied[:, None], np.argsort(-vectors[tied], axis=1, kind="stable")[:, :count]] = True
    return mask

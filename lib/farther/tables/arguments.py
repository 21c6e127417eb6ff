"""What users give to farther's public functions: converted to arrays, or refused by its name.

Numbers, booleans and texts may come as arrays, lists, tuples, iterators, as columns of pandas,
polars or Arrow, or as tensors on any device, in any precision, with gradients or without. Nothing
is cast with loss, and nothing is dropped: masked, missing and infinite values, NaN, booleans among
numbers, and shapes and lengths that do not fit are refused.

No library is imported here: tensors and columns are recognised by their methods.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from farther.errors import DataError, ParameterError, shorten

T = TypeVar("T")

#: Floating-point types of PyTorch and JAX that NumPy does not have.
SHORT_FLOATS = ("bfloat16", "float8", "float4")

#: Largest integer up to which float64 holds all of them; larger ones are refused as numbers.
LARGEST_EXACT = 2**53

#: Expected length of each axis; None where any length fits.
Shape = tuple[int | None, ...]

_BOOLEANS = (bool, np.bool_)
_NUMBERS = (int, float, np.integer, np.floating)


def array_of(values: Any, name: str) -> np.ndarray:
    """An array of an array, a tensor, a column, a list or an iterator: nothing is changed.

    Args:
        values: Numbers in bfloat16 or in 8 bits become float32, which holds them; float16 stays.
        name: Of the argument, in messages.

    Raises:
        DataError: it is no array, or has masked values.
    """
    try:
        array = _array_of(values, name)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # whatever a foreign class raises: TypeError, RuntimeError, …
        found = type(values).__name__
        problem = f"expected an array or a list, found {found}: {shorten(str(error))}"
        raise DataError(problem, field=name) from None
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array


def _array_of(values: Any, name: str) -> np.ndarray:
    """See `array_of`; raises whatever the class of the values raises."""
    if isinstance(values, np.ma.MaskedArray):
        return _unmasked(values, name)
    if isinstance(values, np.ndarray):
        return _array_of_foreign(values)
    if hasattr(values, "detach"):
        return _array_of_tensor(values, name)
    if hasattr(values, "to_numpy"):
        return np.asarray(_array_of(values.to_numpy(), name))
    if hasattr(values, "__array__") or hasattr(values, "__array_interface__"):
        return _array_of_foreign(values)
    if values is None or isinstance(values, (str, bytes, Mapping, set, frozenset)):
        raise DataError(f"expected an array or a list, found {shorten(values)}", field=name)
    if isinstance(values, (list, tuple, Iterator, range, memoryview)) or _is_sequence(values):
        return _array_of_list(list(values), name)
    return np.asarray(values)


def _is_sequence(values: Any) -> bool:
    return hasattr(values, "__len__") and hasattr(values, "__iter__")


def _unmasked(values: np.ma.MaskedArray, name: str) -> np.ndarray:
    masked = int(np.ma.getmaskarray(values).sum())
    if masked:
        problem = f"{masked} of {values.size} values are masked: leave them out of all arrays"
        raise DataError(problem, field=name)
    return np.asarray(values.data)


def _array_of_tensor(tensor: Any, name: str) -> np.ndarray:
    """The values of a tensor of PyTorch."""
    if getattr(tensor, "is_quantized", False):
        raise DataError("a quantised tensor: write .dequantize()", field=name)
    if getattr(tensor, "is_nested", False):
        raise DataError("a nested tensor: concatenate its parts", field=name)
    if "strided" not in str(getattr(tensor, "layout", "strided")):
        raise DataError("a sparse tensor: write .to_dense()", field=name)
    if getattr(tensor, "is_meta", False):
        raise DataError("a tensor on the device 'meta' has no values", field=name)
    tensor = tensor.detach().cpu()
    if hasattr(tensor, "resolve_neg"):
        tensor = tensor.resolve_conj().resolve_neg()
    if str(tensor.dtype).removeprefix("torch.").startswith(SHORT_FLOATS):
        tensor = tensor.float()
    return np.asarray(tensor)


def _array_of_foreign(values: Any) -> np.ndarray:
    """The values of an array, of another library than NumPy too, such as JAX."""
    array = np.asarray(values)
    if array.dtype.name.startswith(SHORT_FLOATS):
        return array.astype(np.float32)
    return array


def _array_of_list(values: list, name: str) -> np.ndarray:
    """An array of a list of numbers, of texts, of lists, or of arrays of one shape."""
    kinds = {_kind_of_scalar(kind) for kind in set(map(type, values))}
    if None in kinds:
        for row, value in enumerate(values):
            if value is None:
                raise DataError("the value is missing", row=row, field=name)
    elif len(kinds) > 1:
        found = " and ".join(sorted(map(str, kinds)))
        raise DataError(f"expected values of one kind, found {found}", field=name)
    else:
        return np.asarray(values)

    arrays: list[np.ndarray] = []
    for row, value in enumerate(values):
        try:
            array = np.asarray(_array_of(value, name))
        except DataError as error:
            raise DataError(error.problem, row=row, field=name) from None
        if arrays and array.shape != arrays[0].shape:
            problem = f"shape {array.shape}, but {arrays[0].shape} in row 0"
            problem = f"{problem}; concatenate batches into one array"
            raise DataError(problem, row=row, field=name)
        arrays.append(array)
    kinds_of_rows = {array.dtype.kind for array in arrays if array.size}
    if "b" in kinds_of_rows and len(kinds_of_rows) > 1:
        raise DataError("expected values of one kind, found booleans and others", field=name)
    return np.stack(arrays)


def _kind_of_scalar(kind: type) -> str | None:
    """What NumPy makes an array of a list of: values of one type are not converted to another."""
    if issubclass(kind, _BOOLEANS):
        return "booleans"
    if issubclass(kind, _NUMBERS):
        return "numbers"
    if issubclass(kind, str):
        return "texts"
    return None


def floats(
    values: Any,
    name: str,
    *,
    shape: Shape = (None,),
    dtype: Any = np.float64,
    nan: bool = False,
    infinite: bool = False,
) -> np.ndarray:
    """Finite numbers, as an array; one that fits is not copied.

    Args:
        values: See the module; integers too.
        name: Of the argument, in messages.
        shape: See `Shape`.
        dtype: In which they are returned; digits beyond its precision are rounded.
        nan: NaN is allowed, for undefined values.
        infinite: Infinite numbers are allowed, for thresholds.

    Raises:
        DataError: values are not numbers, not finite, beyond the range of `dtype`, or of another
            shape; names the first such row.
    """
    array = _shaped(array_of(values, name), name, shape)
    if array.dtype.kind not in "iuf" and array.size:
        raise DataError(f"expected numbers, found {_kind(array)}", field=name)
    refuse_non_finite(array, name, nan=nan, infinite=infinite)
    return _cast(array, np.dtype(dtype), name)


def refuse_non_finite(
    array: np.ndarray, name: str, *, nan: bool = False, infinite: bool = False
) -> None:
    """Refuses infinite numbers and NaN.

    Args:
        array: Numbers.
        name: Of the argument, in messages.
        nan: NaN is allowed.
        infinite: Infinite numbers are allowed.

    Raises:
        DataError: names the first row that has one.
    """
    if array.dtype.kind != "f":
        return
    is_wrong = ~np.isfinite(array)
    if nan:
        is_wrong &= ~np.isnan(array)
    if infinite:
        is_wrong &= ~np.isinf(array)
    row = _first_row(is_wrong)
    if row is not None:
        found = array[row][is_wrong[row]].flat[0]
        raise DataError(f"not a finite number: {found}", row=row, field=name)


def integers(
    values: Any, name: str, *, shape: Shape = (None,), dtype: Any = np.int64
) -> np.ndarray:
    """Whole numbers, as an array; 2.0 is one.

    Args:
        values, name, shape: See `floats`.
        dtype: In which they are returned.

    Raises:
        DataError: a value is not a whole number, or beyond the range of `dtype`; names the row.
    """
    array = _shaped(array_of(values, name), name, shape)
    if array.dtype.kind not in "iuf" and array.size:
        raise DataError(f"expected whole numbers, found {_kind(array)}", field=name)
    target = np.dtype(dtype)
    if array.dtype == target or not array.size:
        return array.astype(target, copy=False)
    limits = np.iinfo(target)
    is_held = (array >= limits.min) & (array <= limits.max)
    if array.dtype.kind == "f":
        is_held &= array == np.floor(array)
        is_held &= array < 2.0 ** (limits.bits - 1)  # the largest int64 has no float64
    row = _first_row(~is_held)
    if row is not None:
        found = array[row].reshape(-1)[~is_held[row].reshape(-1)][0].item()
        expected = str(target)
        if isinstance(found, float) and not found.is_integer():
            expected = "a whole number"
        raise DataError(f"expected {expected}, found {shorten(found)}", row=row, field=name)
    return array.astype(target)


def booleans(values: Any, name: str, *, shape: tuple[int | None] = (None,)) -> np.ndarray:
    """Booleans, as an array of shape (N,).

    Args:
        values, name, shape: See `floats`; numbers are refused, as 1 may also be the number of a
            row.

    Raises:
        DataError: values are not booleans, or of another shape.
    """
    array = array_of(values, name)
    is_wrong_kind = array.dtype != bool and array.size > 0
    if is_wrong_kind or array.ndim != 1 or shape[0] not in (None, len(array)):
        count = "" if shape[0] is None else f"{shape[0]} "
        problem = f"expected {count}bool values, found {_kind(array)} of shape {array.shape}"
        raise DataError(problem, field=name)
    return array.astype(bool, copy=False)


def texts(
    values: Any,
    name: str,
    *,
    length: int | None = None,
    strict: bool = False,
    any_order: bool = False,
) -> np.ndarray:
    """Texts, as an object array of `str`, shape (N,).

    Args:
        values: See the module; one text alone is refused. Integers and paths become texts.
        name: Of the argument, in messages.
        length: Number of texts; any when None.
        strict: Integers and paths are refused.
        any_order: A set is accepted.

    Raises:
        DataError: a value is no text; names the row.
    """
    if isinstance(values, (set, frozenset)) and not any_order:
        raise DataError("a set has no order: write a list", field=name)
    items = _listed(values, name)
    are_texts = not set(map(type, items)) - {str}
    if not are_texts:
        converted = []
        for row, item in enumerate(items):
            converted.append(_text(item, row, name, strict=strict))
        items = converted
    if length is not None and len(items) != length:
        raise DataError(f"expected {length} texts, found {len(items)}", field=name)
    _refuse_surrogates(items, name)
    if are_texts and isinstance(values, np.ndarray) and values.dtype == object:
        return np.asarray(values)
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _refuse_surrogates(items: list[str], name: str) -> None:
    """Refuses texts that no file can hold."""
    if all(map(str.isascii, items)):
        return
    for row, item in enumerate(items):
        try:
            item.encode()
        except UnicodeEncodeError:
            raise DataError(f"not a valid text: {item!a}", row=row, field=name) from None


def _listed(values: Any, name: str) -> list:
    """The values as a list."""
    if isinstance(values, (str, bytes, os.PathLike)):
        raise DataError(
            f"expected a list of texts, found {shorten(values)}: write [{shorten(values)}]",
            field=name,
        )
    if isinstance(values, Mapping):
        raise DataError(f"expected a list of texts, found {shorten(values)}", field=name)
    if isinstance(values, Iterator):
        return list(values)
    if isinstance(values, Collection) and not hasattr(values, "__array__"):
        return list(values)
    array = array_of(values, name)
    if array.ndim != 1:
        raise DataError(f"expected one value per row, found shape {array.shape}", field=name)
    items: list = array.tolist()
    return items


def _text(item: Any, row: int, name: str, *, strict: bool) -> str:
    """One text; see `texts`."""
    if isinstance(item, str):
        return str(item)
    if hasattr(item, "item") and not strict:  # of an array or a tensor without a shape
        item = array_of(item, name).tolist()
    if isinstance(item, int) and not isinstance(item, bool) and not strict:
        return str(item)
    if isinstance(item, os.PathLike) and not strict:
        return os.fspath(item)
    raise DataError(f"expected text, found {shorten(item)}", row=row, field=name)


def class_names(names: Any, name: str = "classes") -> list[str]:
    """The name of each class, by its number.

    Args:
        names: A list of names, or {number: name} as Ultralytics' `model.names` and transformers'
            `id2label`; a number below the largest without a name is called by itself.
        name: Of the argument, in messages.

    Raises:
        DataError: a name is no text, or a number is below 0 or not whole.
    """
    if not isinstance(names, Mapping):
        return list(texts(names, name))
    numbers = []
    for key in names:
        number = int(key) if isinstance(key, str) and key.isdecimal() else key
        numbers.append(whole_number(number, name, at_least=0))
    if len(set(numbers)) < len(numbers):
        raise DataError("a number has two names", field=name)
    listed = texts(list(names.values()), name)
    name_by_number = dict(zip(numbers, listed, strict=True))
    count = max(numbers, default=-1) + 1
    if count > 2 * len(numbers) + 1000:
        raise DataError(f"{len(numbers)} names, but a class has the number {count - 1}", field=name)
    return [name_by_number.get(number, str(number)) for number in range(count)]


def number(
    value: Any,
    name: str,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    infinite: bool = False,
) -> float:
    """One number: of Python, of NumPy, or an array or tensor without a shape.

    Args:
        value: The number.
        name: Of the argument, in messages.
        above, at_least, below, at_most: Its limits; None for none.
        infinite: ∞ and −∞ are allowed, as thresholds that nothing or everything reaches.

    Raises:
        ParameterError: it is no finite number, or beyond a limit.
    """
    result = _number(value, name)
    is_finite = isinstance(result, int) or math.isfinite(result)
    if not is_finite and (math.isnan(result) or not infinite):
        raise ParameterError(f"{name}: expected a finite number, found {result}")
    limits = []
    is_within = True
    if above is not None:
        limits.append(f"above {above:g}")
        is_within &= result > above
    if at_least is not None:
        limits.append(f"at least {at_least:g}")
        is_within &= result >= at_least
    if below is not None:
        limits.append(f"below {below:g}")
        is_within &= result < below
    if at_most is not None:
        limits.append(f"at most {at_most:g}")
        is_within &= result <= at_most
    if not is_within:
        wanted = " and ".join(limits)
        raise ParameterError(f"{name}: expected a number {wanted}, found {shorten(result)}")
    return result


def _number(value: Any, name: str) -> Any:
    """One number, int or float."""
    if type(value) in (int, float):
        return value
    try:
        array = array_of(value, name)
    except DataError:
        array = np.asarray(None)
    if array.ndim or array.dtype.kind not in "iuf":
        raise ParameterError(f"{name}: expected a number, found {shorten(value)}")
    return array.item()


def whole_number(
    value: Any, name: str, *, at_least: int | None = None, at_most: int | None = None
) -> int:
    """One whole number; 2.0 is one.

    Args:
        value, name, at_least, at_most: See `number`.

    Raises:
        ParameterError: it is no whole number, or beyond a limit.
    """
    result = _number(value, name)
    if isinstance(result, float) and not result.is_integer():
        raise ParameterError(f"{name}: expected a whole number, found {shorten(result)}")
    result = int(result)
    if at_least is not None and result < at_least:
        raise ParameterError(f"{name}: expected at least {at_least}, found {shorten(result)}")
    if at_most is not None and result > at_most:
        raise ParameterError(f"{name}: expected at most {at_most}, found {shorten(result)}")
    return result


def boolean(value: Any, name: str) -> bool:
    """One boolean: of Python, of NumPy, or an array or tensor without a shape.

    Raises:
        ParameterError: it is something else, such as 0 or 1.
    """
    if isinstance(value, bool):
        return value
    try:
        array = array_of(value, name)
    except DataError:
        array = np.asarray(None)
    if array.ndim or array.dtype != bool:
        raise ParameterError(f"{name}: expected True or False, found {shorten(value)}")
    return bool(array)


def one_of(value: Any, known: Sequence[str], kind: str) -> None:
    """Refuses what is not one of some words.

    Args:
        value: What the user gave.
        known: The words.
        kind: What they name, in the singular.

    Raises:
        ParameterError: it is none of them.
    """
    if not isinstance(value, str) or value not in known:
        raise ParameterError(f"unknown {kind} {shorten(value)}. Known: {', '.join(known)}")


def instance(value: Any, kind: type[T] | tuple[type[T], ...], name: str) -> T:
    """The value, if it is of a class.

    Args:
        value: What the user gave.
        kind: The class, or several.
        name: Of the argument, in messages.

    Raises:
        DataError: it is of another class.
    """
    if isinstance(value, kind):
        return value
    raise DataError(f"expected {_names_of(kind)}, found {type(value).__name__}", field=name)


def instances(values: Any, kind: type[Any] | tuple[type[Any], ...], name: str) -> list[Any]:
    """A list of which each value is of a class; errors as of `instance`.

    Args:
        values: A list or an iterator.
        kind, name: See `instance`.
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        found = type(values).__name__
        raise DataError(f"expected a list of {_names_of(kind)}, found {found}", field=name)
    return [instance(value, kind, name) for value in values]


def _names_of(kind: type | tuple[type, ...]) -> str:
    """The names of classes, for messages."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(cls.__name__ for cls in kinds)


def _shaped(array: np.ndarray, name: str, shape: Shape) -> np.ndarray:
    """The array, if it has a shape; an empty list has any number of axes."""
    if array.shape == (0,) and len(shape) > 1 and shape[0] in (0, None):
        return array.reshape(0, *(length or 0 for length in shape[1:]))
    fits = array.ndim == len(shape)
    for length, expected in zip(array.shape, shape, strict=False):
        fits &= expected is None or length == expected
    if fits:
        return array
    letters = iter("NDC")
    expected_axes = ", ".join(next(letters) if n is None else str(n) for n in shape)
    comma = "," if len(shape) == 1 else ""
    problem = f"expected shape ({expected_axes}{comma}), found {array.shape}"
    if array.ndim == len(shape) + 1 and len(array) > 1:
        problem += ": give one array, not one per batch, image or column"
    raise DataError(problem, field=name)


def _cast(array: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """Numbers in a floating-point type that holds them."""
    if array.dtype == dtype:
        return array
    if not array.size:
        return array.astype(dtype)
    largest = np.fmax.reduce(array, axis=None).item()  # NaN is left out
    smallest = np.fmin.reduce(array, axis=None).item()
    highest = max(abs(largest), abs(smallest))
    limit: float = float(np.finfo(dtype).max)
    problem = f"beyond the range of {dtype}"
    if array.dtype.kind in "iu" and limit > LARGEST_EXACT:
        limit = LARGEST_EXACT
        problem = "an integer that floating-point numbers do not hold"
    if highest > limit:
        is_beyond = np.isfinite(array) & ((array > limit) | (array < -limit))
        row = _first_row(is_beyond)
        if row is None:
            return array.astype(dtype)
        shown = shorten(array[is_beyond][0].item())
        raise DataError(f"{shown} is {problem}", row=row, field=name)
    return array.astype(dtype)


def _first_row(mask: np.ndarray) -> int | None:
    """The first row in which a mask is true."""
    if not mask.any():
        return None
    if mask.ndim == 0:
        return 0
    per_row = mask.reshape(len(mask), -1).any(axis=1)
    return int(per_row.argmax())


def _kind(array: np.ndarray) -> str:
    """What an array holds, in words."""
    if array.dtype.kind in "UST":
        return f"text, such as {shorten(array.reshape(-1)[:1].tolist()[0])}"
    if array.dtype == object:
        others = [item for item in array.flat if not isinstance(item, (int, float))]
        return f"objects, such as {shorten((others or [array.flat[0]])[0])}"
    return str(array.dtype)

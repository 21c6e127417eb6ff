"""The bootstrap over images: intervals of metrics, and comparisons of methods.

Regions of one image are not independent, so images are drawn, with replacement, as many as there
are. A replicate is one weight per image: how often it was drawn. Nothing is matched again: metrics
take the weights (see `farther.metrics.weighting`), which equals computing them on the drawn images.

Of a split with very many images, groups of images are drawn: the images are dealt at random into
`GROUPS` groups of equal size. The variance between such groups is that between images, estimated
with `GROUPS` − 1 degrees of freedom (the random groups of Wolter, Introduction to Variance
Estimation, 2007, Chapter 2), so that the width of an interval has a standard error of 2%, as has
that of 1,000 replicates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.matching.boxes import places
from farther.metrics.weighting import (
    GroupWeights,
    ImageWeights,
    RowWeights,
    blocks,
    defined,
    row_weights,
)
from farther.tables import Objects, Regions
from farther.tables.arguments import floats, instance, number, one_of, texts, whole_number

T = TypeVar("T", Objects, Regions)

#: Methods whose values differ by no more than this in all replicates agree: the rest is rounding.
TOLERANCE = 1e-12

#: Fewest replicates that give an interval: of fewer, less than three are beyond either end.
MIN_REPLICATES = 100

#: How a comparison with the best method allows for the number of methods; see `compare_with`.
Comparisons = Literal["all_pairs", "single"]

#: Most images of a split that are drawn one by one, and groups that those of a larger one are dealt
#: into.
MAX_IMAGES, GROUPS = 20_000, 1024


class ImageDraws:
    """Replicates of a split's images.

    Args:
        images: Names of all images, also those without regions.
        replicates: Number of replicates, B.
        seed: The same images and seed give the same replicates, so that methods can be compared on
            them.
        max_images: Largest number of images that are drawn one by one; of more, groups are drawn.

    Attributes:
        names: The images, sorted, I of them.
        weights: ndarray of shape (B, I), or `GroupWeights`: how often each image was drawn.

    Raises:
        ParameterError: `replicates` is below 1.
    """

    def __init__(
        self,
        images: Collection[str],
        replicates: int = 1000,
        seed: int = 0,
        max_images: int = MAX_IMAGES,
    ):
        replicates = whole_number(replicates, "replicates")
        seed = whole_number(seed, "seed", at_least=0)
        max_images = whole_number(max_images, "max_images", at_least=1)
        if replicates < 1:
            raise ParameterError(f"at least one replicate is needed, found {replicates}")
        names = texts(images, "images", any_order=True)
        self.names = np.array(sorted(set(names)), dtype=object)
        self.weights = _draw_weights(len(self.names), replicates, seed, max_images)

    def facts(self) -> dict[str, Any]:
        """The draws as JSON.

        Returns:
            `drawn` ("images" or "groups of images"), the number of these `units`, and the number of
            `replicates`.
        """
        if isinstance(self.weights, GroupWeights):
            unit = "groups of images"
            unit_weights = self.weights.of_groups
        else:
            unit = "images"
            unit_weights = self.weights
        return {
            "drawn": unit,
            "units": unit_weights.shape[1],
            "replicates": len(unit_weights),
        }

    def of(self, images: np.ndarray) -> ImageWeights:
        """The weights of some of the images, shape (B, len(images)); errors as in `places`."""
        return self.weights[:, self.places(images)]

    def rows(self, image_id: np.ndarray) -> RowWeights:
        """The weights of rows with these images; errors as in `places`."""
        return row_weights(self.weights, self.places(image_id), len(self.names))

    def places(self, image_id: np.ndarray) -> np.ndarray:
        """Index of each row's image in `names`, ndarray of shape (N,).

        Raises:
            DataError: a row's image is not one of them.
        """
        place = places(self.names, image_id)
        is_drawn_from = place < len(self.names)
        is_drawn_from[is_drawn_from] = self.names[place[is_drawn_from]] == image_id[is_drawn_from]
        if not is_drawn_from.all():
            row = int(np.flatnonzero(~is_drawn_from)[0])
            raise DataError(
                f"{image_id[row]!r} is not one of the images drawn from", row=row, field="image_id"
            )
        return place

    def written_out(self, replicate: int, table: T) -> tuple[T, np.ndarray]:
        """The table of one replicate: the rows of each image as often as it was drawn.

        Each copy of an image has a name of its own.

        Returns:
            The table, and the row of `table` that each of its rows copies, so that other columns
            can be drawn too.

        Raises:
            DataError: see `places`.
        """
        place = self.places(table.image_id)
        copies = self.times(replicate)[place]
        rows = np.repeat(np.arange(len(copies)), copies)
        first_copy = np.repeat(np.cumsum(copies) - copies, copies)
        copy = np.arange(len(rows)) - first_copy
        # Copies of an image stay together and keep the order of its rows.
        order = np.lexsort((rows, copy, place[rows]))
        rows = rows[order]
        replicate_table = table[rows]

        names = zip(replicate_table.image_id, copy[order].tolist(), strict=True)
        changed: dict[str, Any] = {"image_id": [_copy_name(image, n) for image, n in names]}
        if isinstance(replicate_table, Objects):
            changed["object_id"] = np.arange(len(replicate_table))
        return replicate_table.with_columns(**changed), rows

    def times(self, replicate: int) -> np.ndarray:
        """Number of draws of each image in one replicate, ndarray of shape (I,)."""
        if isinstance(self.weights, GroupWeights):
            return self.weights.of_groups[replicate][self.weights.group]
        return self.weights[replicate]

    def drawn_names(self, replicate: int) -> list[str]:
        """The images of one replicate by the names that `written_out` gives them."""
        names: list[str] = []
        for image, count in zip(self.names, self.times(replicate).tolist(), strict=True):
            names.extend(_copy_name(image, number) for number in range(count))
        return names


def _draw_weights(images: int, replicates: int, seed: int, max_images: int) -> ImageWeights:
    """Number of draws of each of I images in each replicate; see `ImageDraws`."""
    if not images:
        return np.zeros((replicates, 0), dtype=np.int32)
    random = np.random.default_rng(seed)
    if images <= max(max_images, GROUPS):
        return _multinomial(random, images, replicates)
    group = random.permutation(np.arange(images) % GROUPS)
    return GroupWeights(_multinomial(random, GROUPS, replicates), group)


def _multinomial(random: np.random.Generator, units: int, replicates: int) -> np.ndarray:
    """As many draws as units, with replacement, ndarray of shape (replicates, units)."""
    shares = np.full(units, 1 / units)
    return random.multinomial(units, shares, size=replicates).astype(np.int32)


def _copy_name(image: str, number: int) -> str:
    """Name of the n-th copy of an image in a replicate."""
    return f"{image}#{number}"


def recomputed(
    replicates: int, compute: Callable[[int], Mapping[str, Any]]
) -> dict[str, np.ndarray]:
    """Replicates of metrics that take no weights, each computed on tables that are written out.

    This is slow; use few replicates.

    Args:
        replicates: Number of replicates.
        compute: The metrics of one replicate; entries that are not numbers are left out, None
            counts as NaN.

    Returns:
        {metric: ndarray of shape (B,)}.
    """
    metrics_by_replicate = [compute(replicate) for replicate in range(replicates)]
    if not metrics_by_replicate:
        return {}
    values_by_metric = {}
    for name, first_value in metrics_by_replicate[0].items():
        if _is_number_or_none(first_value):
            values_by_metric[name] = _number_per_replicate(name, metrics_by_replicate)
    return values_by_metric


def _number_per_replicate(name: str, metrics: list[Mapping[str, Any]]) -> np.ndarray:
    """One metric in each replicate, NaN where it has no number, ndarray of shape (B,)."""
    numbers = []
    for values in metrics:
        number = values.get(name)
        numbers.append(number if _is_number_or_none(number) else None)
    return defined(numbers)


def _is_number_or_none(value: Any) -> bool:
    return value is None or isinstance(value, (int, float))


def interval(
    values: np.ndarray,
    level: float = 0.95,
    *,
    value: float | None = None,
    images: int | None = None,
) -> tuple[float, float] | None:
    """The percentile interval: the middle `level` of the replicates.

    Replicates that are all equal say nothing of how far a metric may vary. A share of 0 or 1, which
    all replicates have as well, then gets the exact interval of a binomial proportion (Clopper and
    Pearson, 1934). Its trials are the images, not the objects in them, which are not independent.
    Where replicates of such a share differ, as they do at a threshold that is resampled too, the
    wider of the two intervals counts.

    Args:
        values: A metric in each replicate, ndarray of shape (B,); NaN where it is not defined.
        level: Share of the replicates inside, above 0 and below 1.
        value: The metric of the images as they are, which its interval must contain; None where it
            is not known.
        images: Number of the images with the units that a share counts; None for other metrics.

    Returns:
        Lower and upper end; None where there is no interval, see `why_no_interval`.

    Raises:
        ParameterError: `level` is not between 0 and 1.

    >>> interval(np.arange(101.0), level=0.5)
    (25.0, 75.0)
    >>> low, high = interval(np.zeros(200), value=0.0, images=100)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    level = _checked_level(level)
    values = floats(values, "values", nan=True)
    if len(values) < MIN_REPLICATES:
        return None
    if images and value in (0, 1):
        return _exact_interval(values, level, value, images)
    if why_no_interval(values, value, level):
        return None
    return _ends(values, level)


def _exact_interval(
    values: np.ndarray, level: float, value: float, images: int
) -> tuple[float, float]:
    """The interval of a share of 0 or 1; that of the replicates where it is wider."""
    rarest = ((1 - level) / 2) ** (1 / images)
    low, high = value, value
    if not np.isnan(values).all():
        low, high = _ends(values, level)
    if value == 0:
        return 0.0, max(1 - rarest, high)
    return min(rarest, low), 1.0


def why_no_interval(values: np.ndarray, value: float | None = None, level: float = 0.95) -> str:
    """Why a metric that is not a share of 0 or 1 has no interval, in words; "" where it has one.

    Args:
        values, value, level: See `interval`.
    """
    if len(values) < MIN_REPLICATES:
        return f"fewer than {MIN_REPLICATES} resamples"
    if np.isnan(values).mean() > 0.5:
        return "it is not defined in most resamples of the images"
    low, high = _ends(values, level)
    if high - low <= TOLERANCE:
        return "it is the same in nearly all resamples of the images"
    if value is not None and not low - TOLERANCE <= value <= high + TOLERANCE:
        return "resampling shifts it: the middle of the resamples does not contain it"
    return ""


def _ends(values: np.ndarray, level: float) -> tuple[float, float]:
    """The ends of the middle `level` of the replicates that are not NaN, of which there is one."""
    ascending = np.sort(values[~np.isnan(values)])
    return _quantile(ascending, (1 - level) / 2), _quantile(ascending, (1 + level) / 2)


def _quantile(ascending: np.ndarray, share: float) -> float:
    """The quantile of sorted values, as `np.quantile` interpolates it, to the last bit.

    NumPy takes ten times as long for the thousand values of a metric.

    Args:
        ascending: Sorted values, ndarray of shape (N,), N ≥ 1.
        share: Share of the values below the quantile.
    """
    position = (len(ascending) - 1) * share
    below = int(position)
    above = min(below + 1, len(ascending) - 1)
    part = position - below
    low = float(ascending[below])
    high = float(ascending[above])
    if part < 0.5:
        return low + (high - low) * part
    return high - (high - low) * (1 - part)


def compare(first: np.ndarray, second: np.ndarray, level: float = 0.95) -> dict[str, Any]:
    """The difference of two methods in one metric, from replicates of the same draws.

    Args:
        first, second: Values of either method, ndarrays of shape (B,); replicate b of both has the
            same images.
        level: Of the interval.

    Returns:
        p, twice the smaller share of replicates on one side of 0 (Efron and Tibshirani, 1993; one
        is added to both counts, so that p is never 0); and the interval of first − second, the
        differences that such a test does not reject, so that it excludes 0 exactly where p is below
        1 − level. Both are None without replicates. The interval is None also where the difference
        is the same in all of them (p is 1 if it is 0), and where there are too few replicates for
        the level, such as 39 for 95%.

    Raises:
        ParameterError: the two have different numbers of replicates, or `level` is not between 0
            and 1.
    """
    level = _checked_level(level)
    first = floats(first, "first", nan=True)
    second = floats(second, "second", nan=True)
    if first.shape != second.shape:
        raise ParameterError(
            f"compare replicates of the same draws, found {len(first)} and {len(second)}"
        )
    difference = first - second
    sorted_difference = np.sort(difference[~np.isnan(difference)])
    sorted_difference[np.abs(sorted_difference) <= TOLERANCE] = 0
    count = len(sorted_difference)
    if not count:
        return {"interval": None, "p": None}
    if sorted_difference[-1] - sorted_difference[0] <= TOLERANCE:
        return _without_spread(float(sorted_difference[0]), count, sides=2)

    rarer = min(np.sum(sorted_difference <= 0), np.sum(sorted_difference >= 0))
    p = float(_p_value(rarer, count, sides=2))
    rejected = _rejected(count, level, sides=2)
    if not rejected:
        return {"interval": None, "p": p}
    low = float(sorted_difference[rejected - 1])
    high = float(sorted_difference[count - rejected])
    return {"interval": (low, high), "p": p}


def _without_spread(difference: float, count: int, sides: int) -> dict[str, Any]:
    """The comparison of two methods whose difference is the same in all of `count` replicates."""
    if abs(difference) <= TOLERANCE:
        return {"interval": None, "p": 1.0}
    return {"interval": None, "p": float(_p_value(0, count, sides))}


def _p_value(rarer: Any, count: int, sides: int) -> Any:
    """p where `rarer` of `count` replicates are as extreme, on one side or on the rarer of two."""
    return np.minimum(1.0, sides * (rarer + 1) / (count + 1))


def _checked_level(level: float) -> float:
    return number(level, "level", above=0, below=1)


def _rejected(count: int, level: float, sides: int) -> int:
    """Numbers of extreme replicates, from 0 on, whose p is below 1 − level."""
    p = _p_value(np.arange(count), count, sides)
    return int(np.sum(p < round(1 - level, 12)))


def compare_with(
    reference: str,
    values: Mapping[str, float],
    replicates: Mapping[str, np.ndarray],
    comparisons: Comparisons = "all_pairs",
    level: float = 0.95,
) -> dict[str, dict[str, Any]]:
    """Differences between several methods and one of them, the reference, in one metric.

    With "all_pairs" the interval and p allow for all pairs of methods, and so for the reference
    having been chosen as the best: in 95% of samples no pair of equal methods is told apart. The
    largest difference of any pair, centred and in standard deviations, is what chance alone gives;
    its 95% quantile is the width of every interval (the single-step max-T of Westfall and Young,
    1993, which is Tukey's range test for normal values). With "single" each method is compared as
    if there were no other, by `compare`.

    Args:
        reference: Name of the method that the others are compared with.
        values: The value of each method.
        replicates: {method: ndarray of shape (B,)}, in replicates of the same draws; those in which
            any method has no value are left out.
        comparisons: see above.
        level: Of the intervals.

    Returns:
        {method: {"interval" of its value minus the reference's, "p"}}, None where no replicate has
        a value. The interval is None also where the difference is the same in all replicates (p is
        1 if it is 0, as of the reference itself), and where there are too few replicates for the
        level, such as 19 for 95%.

    Raises:
        ParameterError: methods have different numbers of replicates, or the level or `comparisons`
            is not one of those.
    """
    one_of(comparisons, get_args(Comparisons), "comparisons")
    level = _checked_level(level)
    values, replicates = _checked_values(values, replicates)
    if not isinstance(reference, str) or reference not in values:
        raise ParameterError(f"unknown reference {reference!r}. Known: {', '.join(values)}")
    if comparisons == "single":
        return {name: compare(replicates[name], replicates[reference], level) for name in values}
    return _compare_all_pairs(reference, values, _Spread.of(values, replicates), level)


def compare_with_each(
    values: Mapping[str, float],
    replicates: Mapping[str, np.ndarray],
    comparisons: Comparisons = "all_pairs",
    level: float = 0.95,
) -> dict[str, dict[str, dict[str, Any]]]:
    """`compare_with` of each method as the reference.

    Args:
        values: Method → its value on the images as they are.
        replicates: Method → its values on the resampled images, (B,), the same resamples for all.
        comparisons: The pairs that are tested together; see `compare_with`.
        level: Of the intervals.

    Returns:
        {reference: {method: its difference from the reference}}.

    Raises:
        ParameterError: see `compare_with`.
    """
    instance(values, Mapping, "values")
    if comparisons != "all_pairs" or not values:
        return {name: compare_with(name, values, replicates, comparisons, level) for name in values}
    level = _checked_level(level)
    values, replicates = _checked_values(values, replicates)
    spread = _Spread.of(values, replicates)
    return {name: _compare_all_pairs(name, values, spread, level) for name in values}


def _checked_values(
    values: Mapping[str, float], replicates: Mapping[str, np.ndarray]
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The value and the replicates of each method, the latter of the same draws."""
    instance(values, Mapping, "values")
    instance(replicates, Mapping, "replicates")
    number_by_name = {}
    array_by_name = {}
    for name, value in values.items():
        if name not in replicates:
            raise DataError(f"no replicates of {name!r}", field="replicates")
        number_by_name[name] = number(value, f"values[{name!r}]")
        array_by_name[name] = floats(replicates[name], f"replicates[{name!r}]", nan=True)
    if len({len(array) for array in array_by_name.values()}) > 1:
        raise ParameterError("compare replicates of the same draws")
    return number_by_name, array_by_name


@dataclass(frozen=True)
class _Spread:
    """How far the differences between K methods vary over B replicates.

    Args:
        deviation: Standard deviation of each difference, ndarray of shape (K, K).
        largest: The largest difference of any pair in each replicate, centred and in standard
            deviations, by rising value, ndarray of shape (B,).
    """

    deviation: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, names: Iterable[str], replicates: Mapping[str, np.ndarray]) -> _Spread:
        """Of the replicates in which all methods have a value."""
        table = np.array([replicates[name] for name in names])
        table = table[:, ~np.isnan(table).any(axis=0)]
        if not table.shape[1]:
            return cls(np.zeros((len(table), len(table))), np.zeros(0))
        deviation, largest = _largest_differences(table)
        return cls(deviation, np.sort(largest))


def _compare_all_pairs(
    reference: str, values: Mapping[str, float], spread: _Spread, level: float
) -> dict[str, dict[str, Any]]:
    """`compare_with` by the single-step max-T."""
    names = list(values)
    count = len(spread.largest)
    if not count:
        return {name: {"interval": None, "p": None} for name in names}

    rejected = _rejected(count, level, sides=1)
    value_of_methods = np.array([values[name] for name in names], dtype=np.float64)
    differences = value_of_methods - values[reference]
    scales = spread.deviation[:, names.index(reference)]
    widths = np.multiply.outer(scales, spread.largest)
    as_extreme = np.count_nonzero(widths >= np.abs(differences)[:, None], axis=1)
    p_values = _p_value(as_extreme, count, sides=1)
    comparison_by_name: dict[str, dict[str, Any]] = {}
    for row, name in enumerate(names):
        if scales[row] <= TOLERANCE:
            comparison_by_name[name] = _without_spread(float(differences[row]), count, sides=1)
            continue
        bounds = None
        if rejected:
            difference = differences[row]
            width = widths[row, count - rejected]
            bounds = (float(difference - width), float(difference + width))
        comparison_by_name[name] = {"interval": bounds, "p": float(p_values[row])}
    return comparison_by_name


def _largest_differences(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations of the differences between methods, and the largest of each replicate.

    Args:
        table: Replicates of K methods, ndarray of shape (K, B).

    Returns:
        ndarray of shape (K, K); and the largest difference of any pair, centred and in standard
        deviations, ndarray of shape (B,).
    """
    centred = table - table.mean(axis=1, keepdims=True)
    centred_by_replicate = np.ascontiguousarray(centred.T)
    deviation = np.zeros((len(table), len(table)))
    largest = np.zeros(table.shape[1])
    first, second = np.triu_indices(len(table))
    for pairs in blocks(len(first), table.shape[1]):
        minuend = np.take(centred_by_replicate, first[pairs], axis=1)
        differences = np.abs(minuend - np.take(centred_by_replicate, second[pairs], axis=1))
        deviations = np.sqrt(np.mean(differences**2, axis=0))
        deviation[first[pairs], second[pairs]] = deviations
        deviation[second[pairs], first[pairs]] = deviations
        varies = deviations > TOLERANCE
        standardised = differences[:, varies] / deviations[varies]
        largest = np.maximum(largest, standardised.max(axis=1, initial=0))
    return deviation, largest

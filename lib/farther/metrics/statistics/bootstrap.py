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

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.matching.boxes import places
from farther.metrics.weighting import GroupWeights, ImageWeights, RowWeights, defined, row_weights
from farther.tables import Objects, Regions

T = TypeVar("T", Objects, Regions)

#: Methods whose values differ by no more than this in all replicates agree: the rest is rounding.
SAME = 1e-12

#: How a comparison with the best method allows for the number of methods; see `compare_with`.
Comparisons = Literal["all_pairs", "single"]


#: Most images of a split that are drawn one by one, and groups that those of a larger one are dealt
#: into.
MOST_IMAGES, GROUPS = 20_000, 1024


class ImageDraws:
    """Replicates of a split's images.

    Args:
        images: Names of all images, also those without regions.
        replicates: Number of replicates, B.
        seed: The same images and seed give the same replicates, so that methods can be compared on
            them.
        most: Most images that are drawn one by one; of more, groups are drawn.

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
        most: int = MOST_IMAGES,
    ):
        if replicates < 1:
            raise ParameterError(f"at least one replicate is needed, found {replicates}")
        self.names = np.array(sorted(set(images)), dtype=object)
        count = len(self.names)
        random = np.random.default_rng(seed)
        units = count if count <= most else min(GROUPS, count)
        group = None if units == count else random.permutation(np.arange(count) % units)
        shares = np.full(units, 1 / units) if units else np.zeros(0)
        drawn = (
            random.multinomial(units, shares, size=replicates)
            if units
            else np.zeros((replicates, 0))
        )
        weights = drawn.astype(np.int32)
        self.weights: ImageWeights = weights if group is None else GroupWeights(weights, group)

    def facts(self) -> dict[str, Any]:
        """As JSON: `drawn` ("images" or "groups of images"), the number of these `units`, and of `replicates`."""
        if isinstance(self.weights, GroupWeights):
            return {"drawn": "groups of images", **_sizes(self.weights.of_groups)}
        return {"drawn": "images", **_sizes(self.weights)}

    def of(self, images: np.ndarray) -> ImageWeights:
        """The weights of some of the images, shape (B, len(images)); errors as in `places`."""
        return self.weights[:, self.places(images)]

    def rows(self, image_id: np.ndarray) -> RowWeights:
        """The weights of rows with these images; errors as in `places`."""
        return row_weights(self.weights, self.places(image_id), len(self.names))

    def places(self, image_id: np.ndarray) -> np.ndarray:
        """Place of each row's image in `names`, ndarray of shape (N,).

        Raises:
            DataError: a row's image is not one of them.
        """
        place = places(self.names, image_id)
        known = place < len(self.names)
        known[known] = self.names[place[known]] == image_id[known]
        if not known.all():
            row = int(np.flatnonzero(~known)[0])
            raise DataError(
                f"{image_id[row]!r} is not one of the images drawn from", row=row, field="image_id"
            )
        return place

    def written_out(self, replicate: int, table: T) -> tuple[T, np.ndarray]:
        """The table of one replicate: each image's rows as often as it was drawn, each time under another image name.

        Returns:
            The table, and the row of `table` that each of its rows copies, so that other columns
            can be drawn too.

        Raises:
            DataError: see `places`.
        """
        times = self.times(replicate)[self.places(table.image_id)]
        rows = np.repeat(np.arange(len(times)), times)
        copy = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
        # Copies of an image stay together and keep the order of its rows.
        order = np.lexsort((rows, copy, self.places(table.image_id)[rows]))
        rows, copy = rows[order], copy[order]
        drawn = table[rows]
        names = zip(drawn.image_id, copy.tolist(), strict=True)
        changed: dict[str, Any] = {"image_id": [f"{image}#{number}" for image, number in names]}
        if isinstance(drawn, Objects):
            changed["object_id"] = np.arange(len(drawn))
        return drawn.with_columns(**changed), rows

    def times(self, replicate: int) -> np.ndarray:
        """How often each of the images is drawn in one replicate, ndarray of shape (I,)."""
        weights = self.weights
        return (
            weights.of_groups[replicate][weights.group]
            if isinstance(weights, GroupWeights)
            else weights[replicate]
        )

    def drawn_names(self, replicate: int) -> list[str]:
        """The images of one replicate by the names that `written_out` gives them."""
        times = zip(self.names, self.times(replicate).tolist(), strict=True)
        return [f"{image}#{number}" for image, count in times for number in range(count)]


def _sizes(drawn: np.ndarray) -> dict[str, int]:
    return {"units": drawn.shape[1], "replicates": len(drawn)}


def recomputed(
    replicates: int, compute: Callable[[int], Mapping[str, Any]]
) -> dict[str, np.ndarray]:
    """Replicates of metrics that take no weights: each is computed anew on tables that are written out; take few.

    Args:
        replicates: Number of replicates.
        compute: The metrics of one replicate; entries that are not numbers are left out, None
            counts as NaN.

    Returns:
        {metric: ndarray of shape (B,)}.
    """
    each = [compute(replicate) for replicate in range(replicates)]
    numbers = [
        {k: v for k, v in found.items() if v is None or isinstance(v, (int, float))}
        for found in each
    ]
    return {
        name: defined([found.get(name) for found in numbers])
        for name in (numbers[0] if numbers else ())
    }


def interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """The percentile interval: the middle `level` of the replicates; None where no replicate has a value.

    Args:
        values: A metric in each replicate, ndarray of shape (B,); NaN where it is not defined.
        level: Share of the replicates inside, above 0 and below 1.

    Raises:
        ParameterError: `level` is not between 0 and 1.

    >>> interval(np.arange(101.0), level=0.5)
    (25.0, 75.0)
    """
    _check(level)
    given = values[~np.isnan(values)]
    if not len(given):
        return None
    low, high = np.quantile(given, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


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
        1 − level. Both are None without replicates, the interval also where there are too few for
        the level, such as 39 for 95%.

    Raises:
        ParameterError: the two have different numbers of replicates, or `level` is not between 0
            and 1.
    """
    _check(level)
    if first.shape != second.shape:
        raise ParameterError(
            f"compare replicates of the same draws, found {len(first)} and {len(second)}"
        )
    difference = first - second
    given = np.sort(difference[~np.isnan(difference)])
    given[np.abs(given) <= SAME] = 0
    count = len(given)
    if not count:
        return {"interval": None, "p": None}
    rarer = min(np.sum(given <= 0), np.sum(given >= 0))
    rejected = _rejected(count, level, sides=2)
    bounds = (float(given[rejected - 1]), float(given[count - rejected])) if rejected else None
    return {"interval": bounds, "p": float(_p(rarer, count, sides=2))}


def _p(rarer: Any, count: int, sides: int) -> Any:
    """p where `rarer` of `count` replicates are as extreme, on one side or on the rarer of two."""
    return np.minimum(1.0, sides * (rarer + 1) / (count + 1))


def _check(level: float) -> None:
    if not 0 < level < 1:
        raise ParameterError(f"expected a level between 0 and 1, found {level}")


def _rejected(count: int, level: float, sides: int) -> int:
    """Numbers of extreme replicates, from 0 on, whose p is below 1 − level."""
    return int(np.sum(_p(np.arange(count), count, sides) < round(1 - level, 12)))


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
        a value, the interval also where there are too few for the level, such as 19 for 95%; of the
        reference (0, 0) and 1.

    Raises:
        ParameterError: methods have different numbers of replicates, or the level or `comparisons`
            is not one of those.
    """
    if comparisons not in get_args(Comparisons):
        raise ParameterError(
            f"unknown comparisons {comparisons!r}. Known: {', '.join(get_args(Comparisons))}"
        )
    _check(level)
    if len({len(replicates[name]) for name in values}) > 1:
        raise ParameterError("compare replicates of the same draws")
    if comparisons == "single":
        return {name: compare(replicates[name], replicates[reference], level) for name in values}
    names = list(values)
    table = np.array([replicates[name] for name in names])
    table = table[:, ~np.isnan(table).any(axis=0)]
    count = table.shape[1]
    if not count:
        return {name: {"interval": None, "p": None} for name in names}
    deviation, largest = _largest_differences(table)
    rejected = _rejected(count, level, sides=1)
    at = names.index(reference)
    found: dict[str, dict[str, Any]] = {}
    for k, name in enumerate(names):
        difference = values[name] - values[reference]
        if deviation[k, at] <= SAME and abs(difference) <= SAME:
            found[name] = {"interval": (0.0, 0.0), "p": 1.0}
            continue
        widths = np.sort(largest * deviation[k, at])
        bounds = None
        if rejected:
            width = widths[count - rejected]
            bounds = (float(difference - width), float(difference + width))
        found[name] = {
            "interval": bounds,
            "p": float(_p(np.sum(widths >= abs(difference)), count, sides=1)),
        }
    return found


def _largest_differences(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations (K, K) of the differences between methods (K, B), and the largest of each replicate (B,)."""
    centred = table - table.mean(axis=1, keepdims=True)
    deviation, largest = np.zeros((len(table), len(table))), np.zeros(table.shape[1])
    for k, one in enumerate(centred):
        differences = np.abs(centred - one)
        deviation[k] = np.sqrt(np.mean(differences**2, axis=1))
        varies = deviation[k] > SAME
        if varies.any():
            largest = np.maximum(
                largest, (differences[varies] / deviation[k][varies, None]).max(axis=0)
            )
    return deviation, largest

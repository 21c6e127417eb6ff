"""How far a figure may be off by chance: the bootstrap over images.

Regions of one image are not independent, so images are drawn, with replacement, as many as there are. A replicate is
one number an image: how often it was drawn. Nothing is matched again: what each region and each object turned out to be
stays, and each figure is computed with those numbers as weights. That equals computing it on the drawn images.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics import ood, open_set, wilderness
from farther.metrics.closed_set import FALSE, IGNORED, TRUE
from farther.tables import Objects, Regions

T = TypeVar("T", Objects, Regions)

#: Weights that are held at once: bounds memory, and what fits a core's cache is several times as fast.
BLOCK = 1 << 17


class ImageDraws:
    """Replicates of a split's images.

    Args:
        images: Names of all images, those without regions too.
        replicates: How many replicates, B.
        seed: Of the draws: the same images and seed give the same replicates, so that methods can be compared on them.

    Attributes:
        names: The images, sorted, I of them.
        weights: ndarray of shape (B, I): how often each image was drawn.

    Raises:
        ParameterError: `replicates` is below 1.
    """

    def __init__(self, images: Collection[str], replicates: int = 1000, seed: int = 0):
        if replicates < 1:
            raise ParameterError(f"at least one replicate is needed, found {replicates}")
        self.names = np.array(sorted(set(images)), dtype=object)
        count = len(self.names)
        random = np.random.default_rng(seed)
        shares = np.full(count, 1 / count) if count else np.zeros(0)
        drawn = random.multinomial(count, shares, size=replicates) if count else np.zeros((replicates, 0))
        self.weights = drawn.astype(np.int32)

    def places(self, image_id: np.ndarray) -> np.ndarray:
        """Where each row's image stands in `names`, ndarray of shape (N,).

        Raises:
            DataError: a row's image is none of them.
        """
        place = np.searchsorted(self.names, image_id)
        known = place < len(self.names)
        known[known] = self.names[place[known]] == image_id[known]
        if not known.all():
            row = int(np.flatnonzero(~known)[0])
            raise DataError(f"{image_id[row]!r} is none of the images drawn from", row=row, field="image_id")
        return place

    def written_out(self, replicate: int, table: T) -> tuple[T, np.ndarray]:
        """The table of one replicate: each image's rows as often as it was drawn, each time under another image name.

        Returns:
            The table, and which row of `table` each of its rows is, so that columns kept elsewhere can be drawn too.

        Raises:
            DataError: a row's image is none of those drawn from.
        """
        times = self.weights[replicate][self.places(table.image_id)]
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

    def drawn_names(self, replicate: int) -> list[str]:
        """The images of one replicate under the names that `written_out` gives them."""
        times = zip(self.names, self.weights[replicate].tolist(), strict=True)
        return [f"{image}#{number}" for image, count in times for number in range(count)]

    def blocks(self, rows: int) -> Iterator[slice]:
        """Slices of replicates, so that a weight for each of so many rows fits in memory."""
        step = max(1, BLOCK // max(rows, 1))
        return (slice(start, start + step) for start in range(0, len(self.weights), step))


def ood_figures(
    id_draws: ImageDraws,
    id_image: np.ndarray,
    id_scores: np.ndarray,
    ood_draws: ImageDraws,
    ood_image: np.ndarray,
    ood_scores: np.ndarray,
    figures: Collection[str] = tuple(ood.FIGURES),
) -> dict[str, np.ndarray]:
    """The figures of `farther.metrics.ood.evaluate`, for each replicate; ID and OOD images are drawn independently.

    Args:
        figures: Which of them to compute.
        id_image, ood_image: Each region's image, object arrays of shape (N,) and (M,).
        id_scores, ood_scores: Each region's score.

    Returns:
        {figure: ndarray of shape (B,)}; NaN where a replicate has no region on one side.

    Raises:
        DataError: a region's image is none of those drawn from.
        ParameterError: the two have different numbers of replicates.
    """
    if len(id_draws.weights) != len(ood_draws.weights):
        raise ParameterError("ID and OOD images need the same number of replicates")
    levels = np.unique(np.concatenate([id_scores, ood_scores]))[::-1]
    sides = []
    for draws, image, scores in ((id_draws, id_image, id_scores), (ood_draws, ood_image, ood_scores)):
        falling = np.argsort(-scores, kind="stable")
        reached = len(scores) - np.searchsorted(scores[falling][::-1], levels, side="left")
        sides.append((draws.weights, draws.places(image)[falling], reached))
    result = {name: np.full(len(id_draws.weights), np.nan) for name in figures}
    if len(levels):
        for block in id_draws.blocks(max(len(id_scores), len(ood_scores), len(levels))):
            true, false = (_accumulated(weights[block][:, place])[:, reached] for weights, place, reached in sides)
            usable = (true[:, -1] > 0) & (false[:, -1] > 0)
            for name, values in result.items():
                values[block][usable] = ood.FIGURES[name](true[usable], false[usable])
    return result


def _accumulated(weights: np.ndarray) -> np.ndarray:
    """Weight of the first 0, 1, 2, … rows, ndarray of shape (b, n + 1), from weights of shape (b, n)."""
    total = np.zeros((len(weights), weights.shape[1] + 1), dtype=np.int32)
    np.cumsum(weights, axis=1, out=total[:, 1:])
    return total


def open_set_figures(
    draws: ImageDraws, outcome: open_set.Outcome, unknown_score: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """The figures and counts of `farther.metrics.open_set`, for each replicate.

    Args:
        outcome: What became of the split's objects and regions.
        unknown_score: see `farther.metrics.open_set.evaluate`.

    Returns:
        {figure: ndarray of shape (B,)}; NaN where its denominator is 0.

    Raises:
        DataError: an image of the split is none of those drawn from.
    """
    return _of_outcomes(draws, [outcome], unknown_score)[0]


def _of_outcomes(
    draws: ImageDraws, outcomes: Sequence[open_set.Outcome], unknown_score: np.ndarray | None
) -> list[dict[str, np.ndarray]]:
    """The same for outcomes of one split and one choice of flagged regions at several IoU thresholds."""
    place = draws.places(outcomes[0].split.images)[outcomes[0].split.region_image]
    kinds = np.full((len(outcomes), len(place)), IGNORED, dtype=np.int8)
    for kind, outcome in zip(kinds, outcomes, strict=True):
        kind[outcome.kind == open_set.TRUE_UNKNOWN] = TRUE
        kind[outcome.kind == open_set.FALSE_UNKNOWN] = FALSE
    ranked = outcomes[0].in_order(np.flatnonzero((kinds != IGNORED).any(axis=0)), unknown_score)
    counts = [_open_set_counts(draws, outcome) for outcome in outcomes]
    unknown = counts[0]["unknown_objects"]
    every, sampled = average_precision(draws, place[ranked], kinds[:, ranked], unknown, (None, 11))
    return [
        {
            **count,
            "nose": ratio(count["aose"], unknown),
            "p_u": ratio(count["tp_u"], count["tp_u"] + count["fp_u"]),
            "r_u": ratio(count["tp_u"], unknown),
            "ap_u": ap,
            "ap_u_11": ap_11,
        }
        for count, ap, ap_11 in zip(counts, every, sampled, strict=True)
    ]


def _open_set_counts(draws: ImageDraws, outcome: open_set.Outcome) -> dict[str, np.ndarray]:
    split = outcome.split
    place = draws.places(split.images)
    region_place, object_place = place[split.region_image], place[split.object_image]
    rows = {
        "unknown_objects": object_place[outcome.fate != open_set.NOT_COUNTED],
        "tp_u": object_place[outcome.fate == open_set.FOUND],
        "fp_u": region_place[outcome.kind == open_set.FALSE_UNKNOWN],
        "fn_missed": object_place[outcome.fate == open_set.MISSED],
        "fn_misclassified": object_place[outcome.fate == open_set.MISCLASSIFIED],
    }
    # The published code counts regions, the paper objects.
    rows["aose"] = rows["fn_misclassified"] if split.protocol == "paper" else region_place[outcome.misclassifies]
    return {name: times_drawn(draws, of_one) for name, of_one in rows.items()}


def open_set_figures_over(
    draws: ImageDraws,
    split: open_set.Split,
    ious: Sequence[float] | np.ndarray,
    is_unknown: np.ndarray,
    unknown_score: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """The means over IoU thresholds of `farther.metrics.open_set.Split.figures_over`, for each replicate.

    Returns:
        {figure: ndarray of shape (B,)}; NaN where a threshold has no value.

    Raises:
        DataError, ParameterError: see `open_set_figures` and `Split.at`.
    """
    each = _of_outcomes(draws, [split.at(float(iou)).judge(is_unknown) for iou in ious], unknown_score)
    return {name: np.mean([figures[name] for figures in each], axis=0) for name in open_set.OVER_IOU}


def group_figures(draws: ImageDraws, outcome: open_set.Outcome, group: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """The counts and rates of `farther.metrics.open_set.Outcome.by_group`, for each replicate.

    Args:
        group: Object array of shape (M,): the name of each object's group.

    Returns:
        {group: {figure: ndarray of shape (B,)}}, groups without an unknown object left out; NaN where a replicate has
        none.

    Raises:
        DataError: an image of the split is none of those drawn from.
    """
    counted = outcome.fate != open_set.NOT_COUNTED
    if not counted.any():
        return {}
    names, number = np.unique(group[counted].astype(str), return_inverse=True)
    place, fate = draws.places(outcome.split.images)[outcome.split.object_image[counted]], outcome.fate[counted]
    total = {
        "unknown_objects": times_drawn_by_group(draws, place, number, len(names)),
        **{
            name: times_drawn_by_group(draws, place[fate == kind], number[fate == kind], len(names))
            for name, kind in (
                ("tp_u", open_set.FOUND),
                ("fn_missed", open_set.MISSED),
                ("fn_misclassified", open_set.MISCLASSIFIED),
            )
        },
    }
    total["r_u"] = ratio(total["tp_u"], total["unknown_objects"])
    total["nose"] = ratio(total["fn_misclassified"], total["unknown_objects"])
    return {str(name): {figure: values[k] for figure, values in total.items()} for k, name in enumerate(names)}


def figures_of(
    draws: ImageDraws,
    objects: Objects,
    regions: Regions,
    compute: Callable[[Objects, Regions], Mapping[str, Any]],
) -> dict[str, np.ndarray]:
    """Any other figures, for each replicate: those of the drawn images, written out as tables of their own.

    That computes everything anew for each replicate, matching too; take few replicates.

    Args:
        compute: Gives the figures of two tables; entries that are no number are left out, None counts as NaN.

    Returns:
        {figure: ndarray of shape (B,)}.

    Raises:
        DataError: an image of the tables is none of those drawn from.
    """
    result: dict[str, np.ndarray] = {}
    for replicate in range(len(draws.weights)):
        figures = compute(draws.written_out(replicate, objects)[0], draws.written_out(replicate, regions)[0])
        for name, value in figures.items():
            if value is None or isinstance(value, (int, float)):
                column = result.setdefault(name, np.full(len(draws.weights), np.nan))
                column[replicate] = np.nan if value is None else value
    return result


def wilderness_figures(
    closed_draws: ImageDraws,
    objects: Objects,
    regions: Regions,
    wild_draws: ImageDraws,
    wild_regions: Regions,
    *,
    recalls: Sequence[float] = wilderness.RECALLS,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Figures of `farther.metrics.wilderness`, for each replicate; closed and wild images are drawn independently.

    That computes everything anew for each replicate; take few replicates.

    Args:
        objects, regions, wild_regions, recalls, seed: see `farther.metrics.wilderness.evaluate`.

    Returns:
        map_closed, map_open, and for each recall average_impact@recall, average_impact_by_precision@recall, ndarrays
        of shape (B,); NaN where a replicate has none.

    Raises:
        DataError: an image of the tables is none of those drawn from, or there is no closed image.
        ParameterError: the two have different numbers of replicates.
    """
    if len(closed_draws.weights) != len(wild_draws.weights):
        raise ParameterError("closed and wild images need the same number of replicates")
    averages = ("average_impact", "average_impact_by_precision")
    names = ["map_closed", "map_open", *(f"{name}@{recall:g}" for recall in recalls for name in averages)]
    result = {name: np.full(len(closed_draws.weights), np.nan) for name in names}
    for replicate in range(len(closed_draws.weights)):
        made = wilderness.evaluate(
            closed_draws.written_out(replicate, objects)[0],
            closed_draws.written_out(replicate, regions)[0],
            closed_draws.drawn_names(replicate),
            wild_draws.written_out(replicate, wild_regions)[0],
            wild_draws.drawn_names(replicate),
            recalls=recalls,
            seed=seed,
        )
        flat = {f"{name}@{recall}": at[name] for recall, at in made["at_recall"].items() for name in averages}
        for name, value in {**{n: made[n] for n in names[:2]}, **flat}.items():
            result[name][replicate] = np.nan if value is None else value
    return result


def interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """The middle `level` of a figure's replicates: the percentile interval; None where no replicate has the figure.

    Raises:
        ParameterError: `level` is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ParameterError(f"a level is between 0 and 1, found {level}")
    given = values[~np.isnan(values)]
    if not len(given):
        return None
    low, high = np.quantile(given, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def compare(first: np.ndarray, second: np.ndarray, level: float = 0.95) -> dict[str, Any]:
    """Whether two methods differ in a figure, from replicates of the same draws.

    Args:
        first, second: A figure of either method, ndarrays of shape (B,); replicate b of both has the same images.
        level: Of the interval.

    Returns:
        interval of first − second, or None; p: how often chance alone gives so clear a difference: twice the smaller
        share of replicates on one side of 0 (Efron and Tibshirani, 1993; one is added to both counts, so that p is
        never 0), or None.

    Raises:
        ParameterError: the two have different numbers of replicates.
    """
    if first.shape != second.shape:
        raise ParameterError(f"compare replicates of the same draws, found {len(first)} and {len(second)}")
    difference = first - second
    given = difference[~np.isnan(difference)]
    if not len(given):
        return {"interval": None, "p": None}
    rarer = min(np.sum(given <= 0), np.sum(given >= 0))
    return {"interval": interval(given, level), "p": float(min(1.0, 2 * (rarer + 1) / (len(given) + 1)))}


def times_drawn(draws: ImageDraws, place: np.ndarray) -> np.ndarray:
    """How many rows each replicate has, ndarray of shape (B,)."""
    return (draws.weights @ np.bincount(place, minlength=len(draws.names))).astype(np.float64)


def times_drawn_by_group(draws: ImageDraws, place: np.ndarray, number: np.ndarray, groups: int) -> np.ndarray:
    """How many rows of each group each replicate has, ndarray of shape (G, B)."""
    images = len(draws.names)
    count = np.bincount(place * groups + number, minlength=images * groups).reshape(images, groups).astype(np.float64)
    # Products of floats are many times as fast as those of integers, and exact for counts.
    return np.concatenate([draws.weights[block] @ count for block in draws.blocks(images)]).T


def average_precision(
    draws: ImageDraws, place: np.ndarray, kind: np.ndarray, positives: np.ndarray, points: Sequence[int | None]
) -> np.ndarray:
    """Average precision of ranked rows in each replicate.

    Args:
        place: The image of each row, shape (n,).
        kind: TRUE, FALSE or IGNORED at each IoU threshold, shape (T, n).
        positives: Objects in each replicate, shape (B,).
        points: P kinds of it: sampled at so many recalls, or of all points (None).

    Returns:
        ndarray of shape (P, T, B); NaN where there is no object.
    """
    result = np.full((len(points), len(kind), len(positives)), np.nan)
    true_rows = [np.flatnonzero(of_one == TRUE) for of_one in kind]
    ignored_rows = [np.flatnonzero(of_one == IGNORED) for of_one in kind]
    for block in draws.blocks(len(place)):
        weights = draws.weights[block][:, place]
        so_far = np.cumsum(weights, axis=1, dtype=np.int32)
        for threshold, (true, ignored) in enumerate(zip(true_rows, ignored_rows, strict=True)):
            made = so_far[:, true]
            if len(ignored):
                made = made - _accumulated(weights[:, ignored])[:, np.searchsorted(ignored, true)]
            result[:, threshold, block] = _areas(weights[:, true], made, positives[block], points)
    return result


def _areas(
    weights: np.ndarray, made: np.ndarray, positives: np.ndarray, points: Sequence[int | None]
) -> list[np.ndarray]:
    """Areas under each replicate's curve, from its true rows: their weights, and all rows up to each; shapes (b, n)."""
    found = np.cumsum(weights, axis=1, dtype=np.float64)
    precision = np.divide(found, made, out=np.zeros(made.shape), where=made > 0)
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recall = np.divide(found, positives[:, None], out=found, where=positives[:, None] > 0)
    # How much of the recall axis each true row covers: its step, or the share of sampled recalls in its step.
    covered = [
        recall if one is None else np.searchsorted(np.linspace(0.0, 1.0, one), recall, side="right") / one
        for one in points
    ]
    areas = (np.vecdot(np.diff(axis, axis=1, prepend=0.0), best) for axis in covered)
    return [np.where(positives > 0, area, np.nan) for area in areas]


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Their quotient, of any shape; NaN where `whole` is 0."""
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)

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
from farther.metrics.closed_set import COCO_IOUS, FALSE, IGNORED, RECALL_POINTS, TRUE, Labelled
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
        drawn.image_id = np.array([f"{image}#{number}" for image, number in names], dtype=object)
        if isinstance(drawn, Objects):
            drawn.object_id = np.arange(len(drawn))
        return drawn, rows

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
    split = outcome.split
    place = draws.places(split.images)
    region_place, object_place = place[split.region_image], place[split.object_image]
    wrong = (
        object_place[outcome.fate == open_set.MISCLASSIFIED]
        if split.protocol == "paper"
        else region_place[outcome.misclassifies]
    )
    columns = {
        "unknown": object_place[outcome.fate != open_set.NOT_COUNTED],
        "found": object_place[outcome.fate == open_set.FOUND],
        "wrong": wrong,
        "false": region_place[outcome.kind == open_set.FALSE_UNKNOWN],
        "dismissed": object_place[outcome.fate == open_set.DISMISSED],
    }
    total = {name: _drawn(draws, rows) for name, rows in columns.items()}
    ranked = outcome.ranked(unknown_score)
    kind = np.where(outcome.kind[ranked] == open_set.TRUE_UNKNOWN, TRUE, FALSE)[None]
    images = region_place[ranked]
    aps = {n: _average_precision(draws, images, kind, total["unknown"], points=n)[0] for n in (None, 11)}
    return {
        "unknown_objects": total["unknown"],
        "tp_u": total["found"],
        "fp_u": total["false"],
        "fn_dismissed": total["dismissed"],
        "fn_misclassified": total["unknown"] - total["found"] - total["dismissed"],
        "aose": total["wrong"],
        "nose": _ratio(total["wrong"], total["unknown"]),
        "p_u": _ratio(total["found"], total["found"] + total["false"]),
        "r_u": _ratio(total["found"], total["unknown"]),
        "ap_u": aps[None],
        "ap_u_11": aps[11],
    }


def closed_set_figures(draws: ImageDraws, known: Labelled, ious: np.ndarray = COCO_IOUS) -> dict[str, np.ndarray]:
    """map (mean over `ious`) and map50 of `farther.metrics.closed_set`, for each replicate.

    Args:
        known: Objects and detections of the known classes.
        ious: IoU thresholds, the first of which is that of map50.

    Returns:
        {figure: ndarray of shape (B,)}; a replicate's mean is over the classes that have an object in it.

    Raises:
        DataError: an image of the tables is none of those drawn from.
    """
    place = draws.places(known.images)
    verdicts = known.verdicts(ious)
    aps = np.full((len(ious), len(known.classes), len(draws.weights)), np.nan)
    for k in range(len(known.classes)):
        sought = known.object_image[(known.object_class == k) & ~known.not_sought]
        rows = slice(verdicts.bounds[k], verdicts.bounds[k + 1])
        images = place[known.region_image[rows]]
        aps[:, k] = _average_precision(
            draws, images, verdicts.kind[:, rows], _drawn(draws, place[sought]), RECALL_POINTS
        )
    counted = ~np.isnan(aps[0])
    classes = np.where(counted.any(axis=0), counted.sum(axis=0), np.nan)
    means = np.nansum(aps, axis=1) / classes
    return {"map": means.mean(axis=0), "map50": means[0]}


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


def _drawn(draws: ImageDraws, place: np.ndarray) -> np.ndarray:
    """How many rows each replicate has, ndarray of shape (B,)."""
    return (draws.weights @ np.bincount(place, minlength=len(draws.names))).astype(np.float64)


def _average_precision(
    draws: ImageDraws, place: np.ndarray, kind: np.ndarray, positives: np.ndarray, points: int | None
) -> np.ndarray:
    """Average precision of ranked rows in each replicate: of all points, or sampled at so many recalls.

    Args:
        place: The image of each row, shape (n,).
        kind: TRUE, FALSE or IGNORED at each IoU threshold, shape (T, n).
        positives: Objects in each replicate, shape (B,).

    Returns:
        ndarray of shape (T, B); NaN where there is no object.
    """
    result = np.full((len(kind), len(positives)), np.nan)
    true_rows = [np.flatnonzero(of_one == TRUE) for of_one in kind]
    ignored_rows = [np.flatnonzero(of_one == IGNORED) for of_one in kind]
    for block in draws.blocks(len(place)):
        weights = draws.weights[block][:, place]
        so_far = np.cumsum(weights, axis=1, dtype=np.int32)
        for values, true, ignored in zip(result, true_rows, ignored_rows, strict=True):
            made = so_far[:, true] - _accumulated(weights[:, ignored])[:, np.searchsorted(ignored, true)]
            values[block] = _area(weights[:, true], made, positives[block], points)
    return result


def _area(weights: np.ndarray, made: np.ndarray, positives: np.ndarray, points: int | None) -> np.ndarray:
    """Area under each replicate's curve, from its true rows: their weights, and all rows up to each; shapes (b, n)."""
    found = np.cumsum(weights, axis=1, dtype=np.float64)
    precision = np.divide(found, made, out=np.zeros(made.shape), where=made > 0)
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recall = np.divide(found, positives[:, None], out=found, where=positives[:, None] > 0)
    # How much of the recall axis each true row covers: its step, or the share of sampled recalls in its step.
    covered = recall
    if points is not None:
        covered = np.searchsorted(np.linspace(0.0, 1.0, points), recall, side="right") / points
    return np.where(positives > 0, np.sum(np.diff(covered, axis=1, prepend=0.0) * best, axis=1), np.nan)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)

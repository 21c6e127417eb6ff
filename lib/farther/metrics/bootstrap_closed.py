"""The bootstrap of COCO's figures of a detector's own classes."""

from __future__ import annotations

import numpy as np

from farther.metrics.bootstrap import ImageDraws, average_precision, ratio, times_drawn_by_group
from farther.metrics.boxes import AREA_RANGES
from farther.metrics.closed_set import ALL_AREAS, COCO_IOUS, RECALL_POINTS, TRUE, Labelled, Verdicts


def closed_set_figures(draws: ImageDraws, known: Labelled) -> dict[str, np.ndarray]:
    """The twelve figures of `farther.metrics.closed_set.evaluate`, for each replicate.

    Args:
        known: Objects and detections of the known classes.

    Returns:
        {figure: ndarray of shape (B,)}; a replicate's mean is over the classes that have an object in it, NaN where
        none has.

    Raises:
        DataError: an image of the tables is none of those drawn from.
    """
    result = {}
    for size, limits in {"": ALL_AREAS, **{f"_{name}": limits for name, limits in AREA_RANGES.items()}}.items():
        verdicts, objects = known.verdicts(COCO_IOUS, limits), _objects(draws, known, limits)
        precision = _precision(draws, known, verdicts, objects)
        result[f"ap{size}"] = _mean(precision)
        result[f"ar{size}"] = _mean(_recall(draws, known, verdicts, objects))
        if not size:
            result |= {"ap50": _mean(precision[:1]), "ap75": _mean(precision[5:6])}
            result |= {f"ar_{most}": _mean(_recall(draws, known, verdicts, objects, most)) for most in (1, 10)}
    return result


def _objects(draws: ImageDraws, known: Labelled, limits: tuple[float, float]) -> np.ndarray:
    """Objects of each class to be found, ndarray of shape (K, B)."""
    sought = known.sought(limits)
    place = draws.places(known.images)[known.object_image[sought]]
    return times_drawn_by_group(draws, place, known.object_class[sought], len(known.classes))


def _precision(draws: ImageDraws, known: Labelled, verdicts: Verdicts, objects: np.ndarray) -> np.ndarray:
    """Average precision, ndarray of shape (T, K, B); NaN where there is no object."""
    place = draws.places(known.images)[known.region_image]
    result = np.empty((len(verdicts.kind), *objects.shape))
    for k, positives in enumerate(objects):
        rows = slice(verdicts.bounds[k], verdicts.bounds[k + 1])
        result[:, k] = average_precision(draws, place[rows], verdicts.kind[:, rows], positives, (RECALL_POINTS,))[0]
    return result


def _recall(
    draws: ImageDraws, known: Labelled, verdicts: Verdicts, objects: np.ndarray, most: int | None = None
) -> np.ndarray:
    """Share of the objects found by the `most` best-scored detections of an image and class, shape (T, K, B)."""
    place = draws.places(known.images)[known.region_image]
    of_class = np.repeat(np.arange(len(objects)), np.diff(verdicts.bounds))
    found = (verdicts.kind == TRUE) & (True if most is None else verdicts.place < most)
    each = [times_drawn_by_group(draws, place[true], of_class[true], len(objects)) for true in found]
    return ratio(np.stack(each), np.broadcast_to(objects, (len(each), *objects.shape)))


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over IoU thresholds and the classes that have a value, ndarray of shape (B,); NaN where none has."""
    return ratio(np.nansum(values, axis=(0, 1)), np.sum(~np.isnan(values), axis=(0, 1)).astype(np.float64))

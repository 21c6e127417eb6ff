"""The bootstrap of the figures of known classes where they share the images with unknown objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farther.metrics import open_set, wilderness
from farther.metrics.bootstrap import ImageDraws, average_precision, open_set_figures, ratio, times_drawn
from farther.metrics.closed_set import IGNORED, TRUE, Labelled, Verdicts
from farther.tables import Objects, Regions


def known_figures(
    draws: ImageDraws,
    objects: Objects,
    regions: Regions,
    is_unknown: np.ndarray,
    known_classes: Sequence[str],
    iou: float = 0.5,
    *,
    recall: float = 0.8,
    unknown_score: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """The figures of `farther.metrics.open_set.evaluate_known`, for each replicate; arguments as there.

    Nothing is matched again: what becomes of a detection depends on more confident ones of its image only, so it stays
    the same whatever the operating points are, which move from replicate to replicate.

    Returns:
        {"ap_k", "p_k", "r_k", "map", "wi": ndarray of shape (B,)}; NaN where nothing counts.

    Raises:
        DataError: see `evaluate_known`, or an image of the tables is none of those drawn from.
    """
    outcome = open_set.Split(objects, regions, iou, known_classes=known_classes).judge(is_unknown)
    kept = regions[~np.asarray(is_unknown)]
    known = Labelled(objects, kept, known_classes, max_detections=len(kept) + 1)
    verdicts, place = known.verdicts([iou]), draws.places(known.images)
    anywhere = dict.fromkeys(known.classes, -np.inf)
    cause = wilderness.diagnose(objects, kept, anywhere, iou=iou, touch=iou)[known.region_row]
    ap, precision, found = [], [], []
    wrong, others = np.zeros(len(draws.weights)), np.zeros(len(draws.weights))
    for k in np.flatnonzero(verdicts.positives).tolist():
        rows = slice(verdicts.bounds[k], verdicts.bounds[k + 1])
        image, kind = place[known.region_image[rows]], verdicts.kind[0, rows]
        sought = times_drawn(draws, place[known.object_image[(known.object_class == k) & ~known.not_sought]])
        true, made = times_drawn(draws, image[kind == TRUE]), times_drawn(draws, image[kind != IGNORED])
        ap.append(average_precision(draws, image, kind[None], sought, points=(None,))[0, 0])
        precision.append(np.where(sought > 0, ratio(true, made), np.nan))
        found.append(ratio(true, sought))
        of_class = _at_operating_point(draws, image, verdicts, rows, cause[rows], sought * recall)
        wrong, others = wrong + of_class[0], others + of_class[1]
    ap_unknown = open_set_figures(draws, outcome, unknown_score)["ap_u"]
    return {
        "ap_k": _mean_of_given(ap, draws),
        "p_k": _mean_of_given(precision, draws),
        "r_k": _mean_of_given(found, draws),
        "map": _mean_of_given([*ap, ap_unknown], draws),
        "wi": ratio(wrong, others),
    }


def _at_operating_point(
    draws: ImageDraws, image: np.ndarray, verdicts: Verdicts, rows: slice, cause: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Detections of one class from its operating point on, in each replicate.

    Args:
        image: Place of each detection's image, shape (n,).
        rows: The class's, by falling confidence.
        cause: What each detection is, shape (n,), of `wilderness.CAUSES`.
        wanted: Objects that must be found, shape (B,).

    Returns:
        How many lie on an unknown object, and how many others there are, ndarrays of shape (B,); 0 where the class
        does not find so many.
    """
    found, score = verdicts.kind[0, rows] == TRUE, verdicts.score[rows]
    wrong = cause == "unknown_unknown"
    other = ~wrong & (cause != "ignored")
    # All detections of equal confidence are made.
    last = np.searchsorted(-score, -score, side="right") - 1
    result = np.zeros((2, len(wanted)))
    if not len(image):
        return result[0], result[1]
    for block in draws.blocks(len(image)):
        weights = draws.weights[block][:, image]
        reached = np.cumsum(weights * found, axis=1) >= wanted[block][:, None] - 1e-9
        point = last[np.argmax(reached, axis=1)]
        made = (np.arange(len(image)) <= point[:, None]) & (reached.any(axis=1) & (wanted[block] > 0))[:, None]
        for total, counts in zip(result, (wrong, other), strict=True):
            total[block] = np.sum(weights * (made & counts), axis=1)
    return result[0], result[1]


def _mean_of_given(values: Sequence[np.ndarray], draws: ImageDraws) -> np.ndarray:
    """Mean over classes of those that have a value in a replicate; NaN where none has."""
    table = np.array(values).reshape(-1, len(draws.weights))
    return ratio(np.nansum(table, axis=0), np.sum(~np.isnan(table), axis=0).astype(np.float64))

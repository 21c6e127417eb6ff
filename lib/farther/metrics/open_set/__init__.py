"""Open-set metrics: unknown objects are found, misclassified or missed.

An unknown object is found if a region flagged as unknown matches it, misclassified if it is
detected as known, else missed. A method flags each region as unknown (its score is below τ) or
keeps it as the known class it was detected as. Ground truth boxes tell which regions lie on an
unknown object. Formulas: FMIYC (arXiv:2506.14008), Section 4.2 and Appendix D.

`farther.metrics.open_set.outcomes` says how regions are matched to objects, and what the protocol
"published-code" changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.metrics.matching.boxes import image_numbers
from farther.metrics.open_set.outcomes import (
    FALSE_UNKNOWN,
    FOUND,
    MISCLASSIFIED,
    MISSED,
    NOT_COUNTED,
    TRUE_UNKNOWN,
    MatchingRules,
    OpenSetSplit,
    Outcome,
)
from farther.metrics.precision_recall import (
    FALSE,
    IGNORED,
    TRUE,
    PrecisionRecallCurve,
    ranked_areas,
)
from farther.metrics.weighting import ImageWeights, mean_if_all_defined, plain, ratio, row_weights
from farther.tables import Objects, Regions
from farther.tables.arguments import booleans, floats, instance, texts
from farther.terms import Protocol

#: Metrics whose mean over IoU thresholds is taken.
OVER_IOU = ("nose", "p_u", "r_u", "ap_u", "ap_u_11")


def evaluate(
    objects: Objects,
    regions: Regions,
    is_unknown: Sequence[bool] | np.ndarray,
    iou: float = 0.5,
    protocol: Protocol = "paper",
    *,
    unknown_score: Sequence[float] | np.ndarray | None = None,
    known_classes: Sequence[str] = (),
) -> dict[str, Any]:
    """Open-set metrics of one split.

    Args:
        objects: Ground truth of the split's images.
        regions: N detections in them, those at or above the operating threshold.
        is_unknown: ndarray of shape (N,), bool: the region's OOD score is below τ.
        iou, protocol, known_classes: see `farther.metrics.open_set.outcomes.MatchingRules`.
        unknown_score: ndarray of shape (N,), higher means more likely unknown (minus the OOD
            score), for AP_U.

    Returns:
        Counts unknown_objects, tp_u, fp_u, fn_missed, fn_misclassified, aose; fractions nose, p_u
        (Eq. 4), r_u (Eq. 5), ap_u (all points, Eqs. 6–8), ap_u_11 (at 11 recalls). None where a
        fraction's denominator is 0.

    Raises:
        DataError: an array has another length than `regions`, or `is_unknown` is not bool.
        ParameterError: the protocol is unknown, or the IoU is not above 0 and at most 1.

    >>> from farther.tables import Objects, Regions
    >>> fox, bear = [0, 0, 10, 10], [20, 0, 30, 10]
    >>> objects = Objects.from_dicts([{"boxes": [fox, bear], "labels": ["fox", "bear"]}])
    >>> regions = Regions.from_dicts(
    ...     [{"boxes": [fox, bear], "scores": [0.9, 0.8], "labels": ["cat", "cat"]}]
    ... )
    >>> metrics = evaluate(objects, regions, is_unknown=[True, False])
    >>> metrics["r_u"], metrics["nose"], metrics["fn_missed"]
    (0.5, 0.5, 0)
    """
    rules = MatchingRules(iou, protocol, known_classes)
    split = OpenSetSplit.of(objects, regions, rules)
    outcome = split.match(booleans(is_unknown, "is_unknown", shape=(len(regions),)))
    if unknown_score is None:
        return metrics(outcome)
    return metrics(outcome, floats(unknown_score, "unknown_score"))


def metrics(
    outcome: Outcome, unknown_score: np.ndarray | None = None, weights: ImageWeights | None = None
) -> dict[str, Any]:
    """All metrics and counts of matched regions; see `evaluate`.

    Args:
        outcome: N regions matched to the objects of their images.
        unknown_score: see `evaluate`.
        weights: How often each of `outcome.split.images` counts in each of B replicates, ndarray of
            shape (B, I); once when None.

    Returns:
        With weights ndarrays of shape (B,), NaN for None.

    Raises:
        DataError: `unknown_score` is not one number per region.
    """
    instance(outcome, Outcome, "outcome")
    values = _at_each_iou([outcome], unknown_score, weights)[0]
    return plain(values) if weights is None else values


def metrics_over(
    split: OpenSetSplit,
    ious: Sequence[float] | np.ndarray,
    is_unknown: np.ndarray,
    unknown_score: np.ndarray | None = None,
    weights: ImageWeights | None = None,
) -> dict[str, Any]:
    """Means of nose, p_u, r_u, ap_u and ap_u_11 over IoU thresholds.

    Args:
        split: Regions and objects whose overlaps are known from the smallest threshold on.
        ious: IoU thresholds.
        is_unknown, unknown_score, weights: see `metrics`.

    Returns:
        {metric: mean}, None (NaN with weights) where one threshold has no value.

    Raises:
        DataError: see `evaluate`.
        ParameterError: see `OpenSetSplit.at`.
    """
    instance(split, OpenSetSplit, "split")
    ious = floats(ious, "ious")
    if not len(ious):
        raise DataError("expected IoU thresholds, found none", field="ious")
    outcomes = (split.at(float(iou)).match(is_unknown) for iou in ious)
    values_at_ious = _at_each_iou(outcomes, unknown_score, weights)
    means = {}
    for name in OVER_IOU:
        at_ious = np.array([values[name] for values in values_at_ious])
        means[name] = mean_if_all_defined(at_ious)
    return plain(means) if weights is None else means


def curve(outcome: Outcome, unknown_score: np.ndarray | None = None) -> PrecisionRecallCurve | None:
    """Precision and recall of the class "unknown" along the ranking.

    Args:
        outcome: Outcomes of objects and regions.
        unknown_score: Order of the flagged regions, ndarray of shape (N,), higher first; their
            confidence when None.

    Returns:
        The curve; None where there is no unknown object.

    Raises:
        DataError: `unknown_score` is not one number per region.
    """
    instance(outcome, Outcome, "outcome")
    is_flagged = (outcome.kind == TRUE_UNKNOWN) | (outcome.kind == FALSE_UNKNOWN)
    ranked = outcome.ranked(is_flagged, unknown_score)
    unknown_objects = int(np.sum(outcome.of_object != NOT_COUNTED))
    if not unknown_objects:
        return None
    return PrecisionRecallCurve.of(outcome.kind[ranked] == TRUE_UNKNOWN, unknown_objects)


def by_group(
    outcome: Outcome, group: np.ndarray, weights: ImageWeights | None = None
) -> dict[str, dict[str, Any]]:
    """Counts and rates of the unknown objects of each group.

    Args:
        outcome: Regions matched to M objects.
        group: Object array of shape (M,): the name of each object's group: its category, size
            (`OpenSetSplit.sizes`) or supercategory.
        weights: see `metrics`.

    Returns:
        {group: {"unknown_objects", "tp_u", "fn_missed", "fn_misclassified", "r_u", "nose",
        "missed"}}, groups without an unknown object left out. There is no precision: a false
        positive belongs to no group. `nose` counts objects.
    """
    instance(outcome, Outcome, "outcome")
    group = texts(group, "group", length=len(outcome.of_object))
    is_counted = outcome.of_object != NOT_COUNTED
    if not is_counted.any():
        return {}
    split = outcome.split
    group_names, (group_number,) = image_numbers(group[is_counted])
    object_outcome = outcome.of_object[is_counted]
    objects = row_weights(weights, split.object_image[is_counted], len(split.images))

    def total(chosen: np.ndarray) -> np.ndarray:
        return objects[chosen].total_by_group(group_number[chosen], len(group_names))

    totals = {
        "unknown_objects": total(np.ones(len(object_outcome), dtype=bool)),
        "tp_u": total(object_outcome == FOUND),
        "fn_missed": total(object_outcome == MISSED),
        "fn_misclassified": total(object_outcome == MISCLASSIFIED),
    }
    totals["r_u"] = ratio(totals["tp_u"], totals["unknown_objects"])
    totals["nose"] = ratio(totals["fn_misclassified"], totals["unknown_objects"])
    totals["missed"] = ratio(totals["fn_missed"], totals["unknown_objects"])

    metrics_by_group: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(group_names):
        of_group = {metric: values[number] for metric, values in totals.items()}
        metrics_by_group[str(name)] = plain(of_group) if weights is None else of_group
    return metrics_by_group


def images_of_shares(outcome: Outcome) -> dict[str, int]:
    """Number of the images with the units of each share of `metrics`: nose, r_u, missed and p_u.

    Under "published-code" nose is no share of objects, and is left out.

    Args:
        outcome: Outcomes of objects and regions.
    """
    split = outcome.split
    with_objects = len(np.unique(split.object_image[outcome.of_object != NOT_COUNTED]))
    is_flagged = (outcome.kind == TRUE_UNKNOWN) | (outcome.kind == FALSE_UNKNOWN)
    images = {
        "r_u": with_objects,
        "missed": with_objects,
        "p_u": len(np.unique(split.detections.image[is_flagged])),
    }
    if split.settings.protocol == "paper":
        images["nose"] = with_objects
    return images


def images_of_groups(outcome: Outcome, group: np.ndarray) -> dict[str, dict[str, int]]:
    """Number of the images with objects of each group, for the shares of `by_group`.

    Args:
        outcome, group: See `by_group`.
    """
    is_counted = outcome.of_object != NOT_COUNTED
    image = outcome.split.object_image[is_counted]
    images = {}
    for name in np.unique(group[is_counted].astype(str)):
        with_objects = len(np.unique(image[group[is_counted] == name]))
        images[str(name)] = dict.fromkeys(("r_u", "nose", "missed"), with_objects)
    return images


def _at_each_iou(
    outcomes: Iterable[Outcome], unknown_score: np.ndarray | None, weights: ImageWeights | None
) -> list[dict[str, np.ndarray]]:
    """The metrics of one choice of flagged regions at several IoU thresholds, of shape (B,).

    Args:
        outcomes: The outcome at each threshold, of one split and the same flagged regions.
        unknown_score, weights: see `metrics`.
    """
    kind_at_ious = []
    counts_at_ious = []
    for outcome in outcomes:  # one at a time in memory
        kind = np.full(len(outcome.kind), IGNORED, dtype=np.int8)
        kind[outcome.kind == TRUE_UNKNOWN] = TRUE
        kind[outcome.kind == FALSE_UNKNOWN] = FALSE
        kind_at_ious.append(kind)
        counts_at_ious.append(_counts(outcome, weights))
    kinds = np.array(kind_at_ious)

    # Neither the objects nor the ranking depends on the threshold.
    split = outcome.split
    unknown_objects = counts_at_ious[0]["unknown_objects"]
    ranked = outcome.ranked((kinds != IGNORED).any(axis=0), unknown_score)
    rows = row_weights(weights, split.detections.image[ranked], len(split.images))
    ap_at_ious, ap_11_at_ious = ranked_areas(kinds[:, ranked], unknown_objects, (None, 11), rows)

    metrics_at_ious = []
    for counts, ap, ap_11 in zip(counts_at_ious, ap_at_ious, ap_11_at_ious, strict=True):
        values = {
            **counts,
            "nose": ratio(counts["aose"], unknown_objects),
            "p_u": ratio(counts["tp_u"], counts["tp_u"] + counts["fp_u"]),
            "r_u": ratio(counts["tp_u"], unknown_objects),
            "missed": ratio(counts["fn_missed"], unknown_objects),
            "ap_u": ap,
            "ap_u_11": ap_11,
        }
        metrics_at_ious.append(values)
    return metrics_at_ious


def _counts(outcome: Outcome, weights: ImageWeights | None) -> dict[str, np.ndarray]:
    """Numbers of objects and regions by their outcomes, each an ndarray of shape (B,)."""
    split = outcome.split
    objects = row_weights(weights, split.object_image, len(split.images))
    regions = row_weights(weights, split.detections.image, len(split.images))
    counts = {
        "unknown_objects": objects[outcome.of_object != NOT_COUNTED].total(),
        "tp_u": objects[outcome.of_object == FOUND].total(),
        "fn_missed": objects[outcome.of_object == MISSED].total(),
        "fn_misclassified": objects[outcome.of_object == MISCLASSIFIED].total(),
        "fp_u": regions[outcome.kind == FALSE_UNKNOWN].total(),
    }
    # The published code counts regions, the paper objects.
    if split.settings.protocol == "paper":
        counts["aose"] = counts["fn_misclassified"]
    else:
        counts["aose"] = regions[outcome.misclassifies].total()
    return counts

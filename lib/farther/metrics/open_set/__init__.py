"""Open-set metrics: unknown objects are found (flagged as unknown), misclassified (detected as known) or missed.

A method flags each region as unknown (its score is below τ) or keeps it as the known class it was
detected as. Ground truth boxes tell which regions lie on an unknown object. Formulas: FMIYC
(arXiv:2506.14008), Section 4.2 and Appendix D.

`farther.metrics.open_set.outcomes` says how regions are matched to objects, and what the protocol
"published-code" changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

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
    Protocol,
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
    >>> found = evaluate(objects, regions, is_unknown=[True, False])
    >>> found["r_u"], found["nose"], found["fn_missed"]
    (0.5, 0.5, 0)
    """
    settings = MatchingRules(iou, protocol, known_classes)
    ranked_by = None if unknown_score is None else np.asarray(unknown_score)
    return metrics(
        OpenSetSplit.of(objects, regions, settings).match(np.asarray(is_unknown)), ranked_by
    )


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
    found = _at_each_iou([outcome], unknown_score, weights)[0]
    return plain(found) if weights is None else found


def metrics_over(
    split: OpenSetSplit,
    ious: Sequence[float] | np.ndarray,
    is_unknown: np.ndarray,
    unknown_score: np.ndarray | None = None,
    weights: ImageWeights | None = None,
) -> dict[str, Any]:
    """Means of nose, p_u, r_u, ap_u and ap_u_11 over IoU thresholds; None (NaN) where one threshold has no value.

    Args:
        split: Regions and objects whose overlaps are known from the smallest threshold on.
        ious: IoU thresholds.
        is_unknown, unknown_score, weights: see `metrics`.

    Raises:
        DataError: see `evaluate`.
        ParameterError: see `OpenSetSplit.at`.
    """
    outcomes = (split.at(float(iou)).match(is_unknown) for iou in ious)
    each = _at_each_iou(outcomes, unknown_score, weights)
    means = {
        name: mean_if_all_defined(np.array([found[name] for found in each])) for name in OVER_IOU
    }
    return plain(means) if weights is None else means


def curve(outcome: Outcome, unknown_score: np.ndarray | None = None) -> PrecisionRecallCurve | None:
    """Precision and recall of the class "unknown" along the ranking; None where there is no unknown object.

    Args:
        outcome: Outcomes of objects and regions.
        unknown_score: Order of the flagged regions, ndarray of shape (N,), higher first; their
            confidence when None.

    Raises:
        DataError: `unknown_score` is not one number per region.
    """
    ranked = outcome.ranked(
        (outcome.kind == TRUE_UNKNOWN) | (outcome.kind == FALSE_UNKNOWN), unknown_score
    )
    unknown = int(np.sum(outcome.of_object != NOT_COUNTED))
    return (
        PrecisionRecallCurve.of(outcome.kind[ranked] == TRUE_UNKNOWN, unknown) if unknown else None
    )


def by_group(
    outcome: Outcome, group: np.ndarray, weights: ImageWeights | None = None
) -> dict[str, dict[str, Any]]:
    """Counts and rates of the unknown objects of each group: category, size (`OpenSetSplit.sizes`) or supercategory.

    Args:
        outcome: Regions matched to M objects.
        group: Object array of shape (M,): the name of each object's group.
        weights: see `metrics`.

    Returns:
        {group: {"unknown_objects", "tp_u", "fn_missed", "fn_misclassified", "r_u", "nose"}}, groups
        without an unknown object left out. There is no precision: a false positive belongs to no
        group. `nose` counts objects.
    """
    counted = outcome.of_object != NOT_COUNTED
    if not counted.any():
        return {}
    names, (number,) = image_numbers(group[counted])
    of_object = outcome.of_object[counted]
    rows = row_weights(weights, outcome.split.object_image[counted], len(outcome.split.images))
    chosen = {
        "unknown_objects": np.ones(len(of_object), dtype=bool),
        "tp_u": of_object == FOUND,
        "fn_missed": of_object == MISSED,
        "fn_misclassified": of_object == MISCLASSIFIED,
    }
    total = {
        name: rows[mask].total_by_group(number[mask], len(names)) for name, mask in chosen.items()
    }
    total["r_u"] = ratio(total["tp_u"], total["unknown_objects"])
    total["nose"] = ratio(total["fn_misclassified"], total["unknown_objects"])
    each = {
        str(name): {key: values[k] for key, values in total.items()} for k, name in enumerate(names)
    }
    return {name: plain(values) for name, values in each.items()} if weights is None else each


def _at_each_iou(
    outcomes: Iterable[Outcome], unknown_score: np.ndarray | None, weights: ImageWeights | None
) -> list[dict[str, np.ndarray]]:
    """The metrics of outcomes of one split and one choice of flagged regions at several IoU thresholds, shape (B,)."""
    each, counts = [], []
    for outcome in outcomes:  # one at a time in memory
        kind = np.full(len(outcome.kind), IGNORED, dtype=np.int8)
        kind[outcome.kind == TRUE_UNKNOWN] = TRUE
        kind[outcome.kind == FALSE_UNKNOWN] = FALSE
        each.append(kind)
        counts.append(_counts(outcome, weights))
    kinds, unknown = np.array(each), counts[0]["unknown_objects"]
    ranked = outcome.ranked((kinds != IGNORED).any(axis=0), unknown_score)
    rows = row_weights(weights, outcome.split.detections.image[ranked], len(outcome.split.images))
    every, sampled = ranked_areas(kinds[:, ranked], unknown, (None, 11), rows)
    return [
        {
            **count,
            "nose": ratio(count["aose"], unknown),
            "p_u": ratio(count["tp_u"], count["tp_u"] + count["fp_u"]),
            "r_u": ratio(count["tp_u"], unknown),
            "missed": ratio(count["fn_missed"], unknown),
            "ap_u": ap,
            "ap_u_11": ap_11,
        }
        for count, ap, ap_11 in zip(counts, every, sampled, strict=True)
    ]


def _counts(outcome: Outcome, weights: ImageWeights | None) -> dict[str, np.ndarray]:
    split = outcome.split
    objects = row_weights(weights, split.object_image, len(split.images))
    regions = row_weights(weights, split.detections.image, len(split.images))
    count = {
        "unknown_objects": objects[outcome.of_object != NOT_COUNTED].total(),
        "tp_u": objects[outcome.of_object == FOUND].total(),
        "fn_missed": objects[outcome.of_object == MISSED].total(),
        "fn_misclassified": objects[outcome.of_object == MISCLASSIFIED].total(),
        "fp_u": regions[outcome.kind == FALSE_UNKNOWN].total(),
    }
    # The published code counts regions, the paper objects.
    is_paper = split.settings.protocol == "paper"
    return {
        **count,
        "aose": count["fn_misclassified"] if is_paper else regions[outcome.misclassifies].total(),
    }

"""Outcomes of unknown objects, of all and of parts of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from farther.evaluation import error_budget, intervals
from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.results import MetricValues
from farther.evaluation.scored_split import ScoredSplit
from farther.evaluation.weights import ONCE, Weights
from farther.metrics import open_set
from farther.metrics.open_set.outcomes import MISCLASSIFIED

#: Name of the objects in images without a value of an attribute.
NO_VALUE = "(none)"


class OpenSet(MetricGroup):
    """Unknown objects that are found, misclassified or missed; see `farther.metrics.open_set`."""

    name = "open_set"
    table = GroupTable(
        "counts", "numbers of unknown objects and of false unknowns, and AP_U at 11 recalls (%)"
    )
    columns = ("tp_u", "aose", "fn_missed", "fp_u", "ap_u_11")
    unit = "objects"
    sizes = ("unknown_objects",)
    needs_id_images = False

    def images(self, scored: ScoredSplit) -> dict[str, int]:
        """See `farther.metrics.open_set.images_of_shares`."""
        return open_set.images_of_shares(scored.outcome)

    def values(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.open_set.metrics`."""
        flagged = scored.flagged(weights)
        image_weights = flagged.weights(weights.of(flagged.images))
        return open_set.metrics(flagged.outcome, flagged.unknown_score, image_weights)

    def details(self, scored: ScoredSplit) -> dict[str, Any]:
        """AP_U ranked by confidence, parts of the objects, means over IoU, and the error budget."""
        split = scored.outcome.split
        details: dict[str, Any] = {
            "ap_u_by_confidence": open_set.metrics(scored.outcome)["ap_u"],
            "by_category": _by_group(scored, split.objects.category),
            "by_size": _by_group(scored, split.sizes()),
            "taken_for": _taken_for(scored),
        }
        supercategories = scored.settings.supercategories
        if supercategories:
            group = split.supercategories(supercategories)
            details["by_supercategory"] = _by_group(scored, group)

        for attribute, value_by_image in scored.split.attributes.items():
            by_attribute = details.setdefault("by_attribute", {})
            by_attribute[attribute] = _by_value(scored, value_by_image)

        details["over_iou"] = _over_iou(scored)
        details["error_budget"] = error_budget.of_method(scored)
        return details


def _by_group(scored: ScoredSplit, group: np.ndarray) -> dict[str, MetricValues]:
    """Outcomes of each group of objects.

    Args:
        scored: A method's scores of a split with M objects.
        group: Name of each object's group, ndarray of shape (M,).
    """
    outcome = scored.outcome
    weights = scored.split.weights
    replicates: dict[str, dict[str, Any]] = {}
    if weights is not None:
        flagged = scored.flagged(weights)
        image_weights = flagged.weights(weights.of(flagged.images))
        replicates = open_set.by_group(flagged.outcome, group[flagged.objects.row], image_weights)

    images = open_set.images_of_groups(outcome, group)
    results = {}
    for name, values in open_set.by_group(outcome, group).items():
        of_group = intervals.of_metrics(values, replicates.get(name, {}), images[name])
        results[name] = MetricValues(values=values, **of_group)
    return results


def _by_value(scored: ScoredSplit, value_by_image: Mapping[str, str]) -> dict[str, MetricValues]:
    """Outcomes of the objects in the images with each value of an attribute."""
    image_ids = scored.outcome.split.objects.image_id
    values = np.array([value_by_image.get(name, NO_VALUE) for name in image_ids], dtype=object)
    return _by_group(scored, values)


def _taken_for(scored: ScoredSplit) -> dict[str, dict[str, int]]:
    """The known classes that misclassified objects are detected as; see `SplitResults`."""
    outcome = scored.outcome
    detections = scored.split.detections
    is_misclassified = outcome.of_object == MISCLASSIFIED
    categories = outcome.split.objects.category[is_misclassified]
    labels = detections.label[outcome.deciding_region()[is_misclassified]]
    counts = Counter(zip(categories, labels.tolist(), strict=True))

    taken_for: dict[str, dict[str, int]] = {}
    for (category, label), count in sorted(counts.items()):
        taken_for.setdefault(category, {})[detections.classes[label]] = count
    return taken_for


def _over_iou(scored: ScoredSplit) -> MetricValues | None:
    """Means over IoU thresholds; None where the setting `iou` is above all of them."""
    if not scored.settings.ious:
        return None

    values = _means_over_iou(scored, ONCE)
    replicates = {}
    if scored.split.weights is not None:
        replicates = _means_over_iou(scored, scored.split.weights)
    return MetricValues(values=values, **intervals.of_metrics(values, replicates))


def _means_over_iou(scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
    flagged = scored.flagged(weights)
    return open_set.metrics_over(
        flagged.outcome.split,
        scored.settings.ious,
        flagged.is_unknown,
        flagged.unknown_score,
        flagged.weights(weights.of(flagged.images)),
    )

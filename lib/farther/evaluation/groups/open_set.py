"""Outcomes of unknown objects, of all and of parts of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.evaluation import error_budget, intervals
from farther.evaluation.case import SplitCase
from farther.evaluation.groups.base import MetricGroup, Table
from farther.evaluation.weights import ONCE, Weights
from farther.metrics import open_set


class OpenSet(MetricGroup):
    """Unknown objects that are found, misclassified or missed; see `farther.metrics.open_set`."""

    name = "open_set"
    table = Table("counts", "numbers of unknown objects and of false unknowns, and AP_U at 11 recalls (%)")
    columns = ("tp_u", "aose", "fn_missed", "fp_u", "ap_u_11")
    unit = "objects"
    sizes = ("unknown_objects",)

    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.open_set.metrics`."""
        return open_set.metrics(case.outcome, case.unknown_score, weights.of(case.outcome.split.images))

    def details(self, case: SplitCase) -> dict[str, Any]:
        """AP_U ranked by confidence; parts of the objects; means over IoU thresholds; what errors cost."""
        outcome, weights = case.outcome, case.split.weights
        found: dict[str, Any] = {
            "ap_u_by_confidence": open_set.metrics(outcome)["ap_u"],
            **{part: open_set.by_group(outcome, group) for part, group in _parts(case).items()},
            "open_set_over_iou": _over_iou(case),
            "error_budget": error_budget.of_method(case.split, outcome, case.unknown_score),
        }
        if weights is None:
            return found
        of_images = weights.of(outcome.split.images)
        for part, group in _parts(case).items():
            drawn = open_set.by_group(outcome, group, of_images)
            found[f"intervals_{part}"] = {name: intervals.within(values) for name, values in drawn.items()}
        if over := _over_iou(case, weights):
            found["intervals_over_iou"] = intervals.within(over)
        return found


def _parts(case: SplitCase) -> dict[str, np.ndarray]:
    """The group of each object, by the kind of group."""
    split, names = case.outcome.split, case.settings.supercategories
    groups = {"by_category": split.objects.category, "by_size": split.sizes()}
    return {**groups, "by_supercategory": split.supercategories(names)} if names else groups


def _over_iou(case: SplitCase, weights: Weights = ONCE) -> dict[str, Any] | None:
    """Means over IoU thresholds; None where the setting `iou` is above all of them."""
    if not case.settings.ious:
        return None
    split = case.outcome.split
    return open_set.metrics_over(
        split, case.settings.ious, case.is_unknown, case.unknown_score, weights.of(split.images)
    )

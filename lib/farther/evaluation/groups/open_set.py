"""Outcomes of unknown objects, of all and of parts of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.evaluation import error_budget, intervals
from farther.evaluation.case import SplitCase
from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.results import MetricValues
from farther.evaluation.weights import ONCE, Weights
from farther.metrics import open_set


class OpenSet(MetricGroup):
    """Unknown objects that are found, misclassified or missed; see `farther.metrics.open_set`."""

    name = "open_set"
    table = GroupTable(
        "counts", "numbers of unknown objects and of false unknowns, and AP_U at 11 recalls (%)"
    )
    columns = ("tp_u", "aose", "fn_missed", "fp_u", "ap_u_11")
    unit = "objects"
    sizes = ("unknown_objects",)

    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.open_set.metrics`."""
        return open_set.metrics(
            case.outcome, case.unknown_score, weights.of(case.outcome.split.images)
        )

    def details(self, case: SplitCase) -> dict[str, Any]:
        """AP_U ranked by confidence; parts of the objects; means over IoU thresholds; what errors cost."""
        return {
            "ap_u_by_confidence": open_set.metrics(case.outcome)["ap_u"],
            **{part: _by_part(case, group) for part, group in _parts(case).items()},
            "over_iou": _over_iou(case),
            "error_budget": error_budget.of_method(case.split, case.outcome, case.unknown_score),
        }


def _parts(case: SplitCase) -> dict[str, np.ndarray]:
    """The group of each object, by the kind of group."""
    split, names = case.outcome.split, case.settings.supercategories
    groups = {"by_category": split.objects.category, "by_size": split.sizes()}
    return {**groups, "by_supercategory": split.supercategories(names)} if names else groups


def _by_part(case: SplitCase, group: np.ndarray) -> dict[str, MetricValues]:
    """Outcomes of each group of objects."""
    outcome, weights = case.outcome, case.split.weights
    drawn = (
        {}
        if weights is None
        else open_set.by_group(outcome, group, weights.of(outcome.split.images))
    )
    return {
        name: MetricValues(values=values, intervals=intervals.within(drawn.get(name, {})))
        for name, values in open_set.by_group(outcome, group).items()
    }


def _over_iou(case: SplitCase) -> MetricValues | None:
    """Means over IoU thresholds; None where the setting `iou` is above all of them."""
    if not case.settings.ious:
        return None
    split = case.outcome.split
    values, drawn = (
        {}
        if weights is None
        else open_set.metrics_over(
            split, case.settings.ious, case.is_unknown, case.unknown_score, weights.of(split.images)
        )
        for weights in (ONCE, case.split.weights)
    )
    return MetricValues(values=values, intervals=intervals.within(drawn))

"""95% intervals of a method's figures on a split, and how far each method is from the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from farther.metrics import bootstrap, ood, open_set
from farther.metrics.comparisons import Comparisons, compare_with

#: Figures that stand in a metrics file, and whether more is better.
COMPARED = {"auroc": True, "fpr95": False, "nose": False, "ap_u": True, "p_u": True, "r_u": True}

#: Figures of a method that have a best one in each split: of regions and objects,
RANKED = COMPARED | {"aupr_in": True, "aupr_out": True, "detection_error": False, "ap_u_11": True}
#: of images instead of regions,
RANKED_PER_IMAGE = {f"per_image_{name}": RANKED[name] for name in ood.FIGURES}
#: and of known classes, where they share the images.
RANKED_KNOWN = {"known_ap_k": True, "known_p_k": True, "known_r_k": True, "known_map": True, "known_wi": False}


def of_parts(
    draws: bootstrap.ImageDraws,
    outcome: open_set.Outcome,
    is_unknown: np.ndarray,
    unknown_score: np.ndarray,
    ious: Sequence[float],
    supercategories: Mapping[str, str],
) -> dict[str, Any]:
    """Intervals of the open-set figures of parts of the objects, and of their means over IoU thresholds.

    Args:
        draws: Of the split's images.
        outcome: What became of its objects and regions.
        is_unknown, unknown_score: see `farther.metrics.open_set.evaluate`.
        ious: IoU thresholds of the means; none when empty.
        supercategories: {category: supercategory}; none when empty.

    Returns:
        {"by_category", "by_size", "by_supercategory": {group: {figure: interval}}, "over_iou": {figure: interval}}.
    """
    split = outcome.split
    groups = {"by_category": split.objects.category, "by_size": split.sizes()}
    if supercategories:
        groups["by_supercategory"] = split.supercategories(supercategories)
    result: dict[str, Any] = {
        part: {name: within(figures) for name, figures in bootstrap.group_figures(draws, outcome, group).items()}
        for part, group in groups.items()
    }
    if ious:
        result["over_iou"] = within(bootstrap.open_set_figures_over(draws, split, ious, is_unknown, unknown_score))
    return result


def within(replicates: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float] | None]:
    """The interval of each figure; see `farther.metrics.bootstrap.interval`."""
    return {name: bootstrap.interval(values) for name, values in replicates.items()}


def against_best(
    figures: Mapping[str, Mapping[str, Any]],
    replicates: Mapping[str, Mapping[str, np.ndarray]],
    comparisons: Comparisons,
) -> dict[str, dict[str, Any]]:
    """How far each method's figures are from the best method's.

    Args:
        figures: Of each method, by section.
        replicates: Of each method, by figure; all of the same draws.
        comparisons: see `farther.metrics.comparisons.compare_with`.

    Returns:
        {method: {figure: {"best": method, "interval" of the difference to it, "p"}}}; figures that no method has are
        left out, and so are methods without the figure.
    """
    result: dict[str, dict[str, Any]] = {name: {} for name in replicates}
    for metric, more_is_better in (RANKED | RANKED_PER_IMAGE | RANKED_KNOWN).items():
        points = {name: _figure(figures[name], metric) for name in replicates}
        given = {name: value for name, value in points.items() if value is not None}
        if not given:
            continue
        best = (max if more_is_better else min)(given, key=lambda name: given[name])
        drawn = {name: replicates[name][metric] for name in given}
        for name, difference in compare_with(best, given, drawn, comparisons).items():
            result[name][metric] = {"best": best, **difference}
    return result


def _figure(figures: Mapping[str, Any], metric: str) -> float | None:
    """A method's figure by the name that its replicates have."""
    if metric in RANKED_PER_IMAGE:
        value: float | None = figures["ood_per_image"][metric.removeprefix("per_image_")]
    elif metric in RANKED_KNOWN:
        value = figures.get("known", {}).get(metric.removeprefix("known_"))
    else:
        value = (figures["ood"] | figures["open_set"])[metric]
    return value

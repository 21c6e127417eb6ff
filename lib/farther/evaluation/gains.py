"""What each method gains over the baseline, the detector's own confidence, as a mean over all OOD test splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from farther.evaluation.methods import Evaluated
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import bootstrap

#: Method that the others are compared with, and the metrics of the comparison.
BASELINE = "confidence"
COMPARED = ("auroc", "ap_u")


def gains(each: Mapping[str, Evaluated]) -> dict[str, Any]:
    """Means over all OOD test splits, and their differences from the baseline's.

    Args:
        each: The evaluated methods of a run, by their names in params.yaml.

    Returns:
        "baseline": the name of the entry whose method is `confidence`, None without one; "methods": {name: {metric:
        {"value", "interval", "gain", "gain_interval", "p"}}}. Both intervals are of 95%, that of the gain from paired
        replicates. A metric that is not defined in every split is left out; without a baseline there are no gains.
    """
    baseline = next((name for name, one in each.items() if one.results["fitted"].get("name") == BASELINE), None)
    means = {name: _means(one) for name, one in each.items()}
    found: dict[str, Any] = {}
    for name, of_method in means.items():
        found[name] = {}
        for metric, (value, drawn) in of_method.items():
            found[name][metric] = {"value": value, "interval": bootstrap.interval(drawn) if len(drawn) else None}
            if baseline is not None and metric in means[baseline]:
                of_baseline, drawn_baseline = means[baseline][metric]
                compared = bootstrap.compare(drawn, drawn_baseline)
                gain = {"gain": value - of_baseline, "gain_interval": compared["interval"], "p": compared["p"]}
                found[name][metric] |= gain
    return {"baseline": baseline, "methods": found}


def _means(evaluated: Evaluated) -> dict[str, tuple[float, np.ndarray]]:
    """{metric: its mean over splits, and the means of its replicates (none where there are no draws)}."""
    splits = evaluated.results["splits"]
    found = {}
    for name in COMPARED:
        values = [METRICS[name].of(of) for of in splits.values()]
        if values and None not in values:
            drawn = [evaluated.replicates[split][name] for split in splits if name in evaluated.replicates[split]]
            together = np.mean(drawn, axis=0) if len(drawn) == len(splits) else np.zeros(0)
            found[name] = float(np.mean(np.array(values, dtype=float))), together
    return found

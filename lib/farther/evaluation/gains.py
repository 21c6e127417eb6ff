"""What each method gains over the baseline, the detector's own confidence, as a mean over all OOD test splits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from farther.evaluation.methods import EvaluatedMethod
from farther.evaluation.results import Gain, Gains
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import bootstrap

#: Method that the others are compared with, and the metrics of the comparison.
BASELINE = "confidence"
COMPARED = ("auroc", "ap_u")


def gains(each: Mapping[str, EvaluatedMethod]) -> Gains:
    """Means over all OOD test splits, and their differences from the baseline's.

    Args:
        each: The evaluated methods of a run, by their names in params.yaml.

    Returns:
        The baseline is the entry whose method is `confidence`. The interval of a gain is from
        paired replicates. A metric that is not defined in every split is left out; without a
        baseline there are no gains.
    """
    baseline = next(
        (name for name, one in each.items() if one.results.fitted.name == BASELINE), None
    )
    means = {name: _means(one) for name, one in each.items()}
    found: dict[str, dict[str, Gain]] = {}
    for name, of_method in means.items():
        found[name] = {}
        for metric, (value, drawn) in of_method.items():
            gain = Gain(value=value, interval=bootstrap.interval(drawn) if len(drawn) else None)
            if baseline is not None and metric in means[baseline]:
                of_baseline, drawn_baseline = means[baseline][metric]
                compared = bootstrap.compare(drawn, drawn_baseline)
                gain.gain, gain.gain_interval, gain.p = (
                    value - of_baseline,
                    compared["interval"],
                    compared["p"],
                )
            found[name][metric] = gain
    return Gains(baseline=baseline, methods=found)


def _means(evaluated: EvaluatedMethod) -> dict[str, tuple[float, np.ndarray]]:
    """{metric: its mean over splits, and the means of its replicates (none where there are no draws)}."""
    splits = evaluated.results.splits
    found = {}
    for name in COMPARED:
        values = [of.value(METRICS[name]) for of in splits.values()]
        if values and None not in values:
            drawn = [
                evaluated.replicates[split][name]
                for split in splits
                if name in evaluated.replicates[split]
            ]
            together = np.mean(drawn, axis=0) if len(drawn) == len(splits) else np.zeros(0)
            found[name] = float(np.mean(np.array(values, dtype=float))), together
    return found

"""Means over the same runs: methods that apply to every run, and methods that apply to fewer.

A mean over fewer runs is not comparable: a method that applies to one run of an easy benchmark
has a high one. So means compare methods that apply to every run, and a method of fewer runs is
shown by its gain over the baseline, the detector's own confidence, on its own runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from farther.metrics.catalogue import Metric
from farther.report.listing import ABSENT, percent
from farther.report.results import Run, title_of

#: Where methods are measured, such as a run, or a run and a split → method → value. Values that
#: are not defined are left out.
ValuesByPlace = Mapping[Any, Mapping[str, float]]


@dataclass(frozen=True)
class MethodsByRuns:
    """The methods of some runs.

    Args:
        runs: The runs.
        common: Methods that apply to every run, in the order of params.yaml.
        runs_by_partial_method: Each other method → the runs that it applies to.
        baseline: The detector's own confidence, by its name in params.yaml; None without it.
    """

    runs: Sequence[Run]
    common: Sequence[str]
    runs_by_partial_method: Mapping[str, Sequence[Run]]
    baseline: str | None

    @classmethod
    def of(cls, runs: Sequence[Run], names: Iterable[str]) -> MethodsByRuns:
        """The methods of evaluated runs.

        Args:
            runs: The runs.
            names: Names of methods, in the order of params.yaml; those without a run are left out.
        """
        common = []
        runs_by_partial_method = {}
        baseline = None
        for name in names:
            runs_of_method = [run for run in runs if name in run.methods]
            if not runs_of_method:
                continue
            if len(runs_of_method) == len(runs):
                common.append(name)
            else:
                runs_by_partial_method[name] = runs_of_method
            if baseline is None and runs_of_method[0].fitted(name).name == "confidence":
                baseline = name
        return cls(runs, common, runs_by_partial_method, baseline)

    @property
    def baseline_title(self) -> str:
        """Title of the baseline; "Confidence" where there is none."""
        return title_of(self.baseline or "confidence")

    def compare(self, metric: Metric, values: ValuesByPlace) -> PairedMeans:
        """Means of a metric.

        Args:
            metric: The metric.
            values: Its values.
        """
        return PairedMeans(self, metric, values)


@dataclass(frozen=True)
class Gain:
    """A method on the places that it applies to.

    Args:
        places: Number of places with a value.
        mean: Mean of the method.
        baseline_mean: Mean of the baseline over the same places; None where it lacks a value.
    """

    places: int
    mean: float
    baseline_mean: float | None

    @property
    def gain(self) -> float | None:
        """Mean minus that of the baseline; None where the baseline lacks a value."""
        if self.baseline_mean is None:
            return None
        return self.mean - self.baseline_mean


@dataclass(frozen=True)
class PairedMeans:
    """Means of a metric over the same places.

    Args:
        methods: The methods.
        metric: The metric.
        values: Its values.
    """

    methods: MethodsByRuns
    metric: Metric
    values: ValuesByPlace

    @cached_property
    def places(self) -> list[Any]:
        """Places where methods of every run are compared: where any of them has a value."""
        common = set(self.methods.common)
        return [place for place, by_method in self.values.items() if common & by_method.keys()]

    @cached_property
    def means(self) -> dict[str, float]:
        """Method of every run → its mean over `places`; methods that lack a value are left out."""
        means = {}
        for method in self.methods.common:
            values = [self.values[place].get(method) for place in self.places]
            defined = [value for value in values if value is not None]
            if defined and len(defined) == len(values):
                means[method] = float(np.mean(defined))
        return means

    @cached_property
    def best(self) -> list[str]:
        """The methods of the best mean as it is printed; none where all means are equal."""
        printed = {method: percent(mean) for method, mean in self.means.items()}
        if len(set(printed.values())) < 2:
            return []
        best = percent(self.metric.best(list(self.means.values())))
        return [method for method, text in printed.items() if text == best]

    @property
    def ranked(self) -> list[str]:
        """Methods of every run, the best mean first; those without a mean last."""
        sign = 1 if self.metric.higher_is_better is False else -1
        with_mean = sorted(self.means, key=lambda method: (sign * self.means[method], method))
        return [*with_mean, *(name for name in self.methods.common if name not in self.means)]

    @cached_property
    def gains(self) -> dict[str, Gain]:
        """Method of fewer runs → its gain; methods without any value are left out."""
        gains = {}
        for method in self.methods.runs_by_partial_method:
            by_place = [by_method for by_method in self.values.values() if method in by_method]
            if not by_place:
                continue
            baseline_mean = None
            baseline = self.methods.baseline
            if baseline is not None and all(baseline in by_method for by_method in by_place):
                baseline_mean = float(np.mean([by_method[baseline] for by_method in by_place]))
            mean = float(np.mean([by_method[method] for by_method in by_place]))
            gains[method] = Gain(len(by_place), mean, baseline_mean)
        return gains


def count_runs(count: int) -> str:
    """A number of runs in words.

    >>> count_runs(1), count_runs(9)
    ('1 run', '9 runs')
    """
    if count == 1:
        return "1 run"
    return f"{count:,} runs"


def points(gain: float | None) -> str:
    """A difference of fractions in points, with its sign.

    >>> points(0.0123), points(-0.05), points(0.0001), points(None)
    ('+1.2', '-5.0', '0.0', '—')
    """
    if gain is None:
        return ABSENT
    text = f"{100 * gain:+.1f}"
    if float(text) == 0:
        return "0.0"
    return text

"""Differences between two evaluations on the same images, from their stored replicates.

Two methods of one run, one method of two detectors, or the same at two commits: replicates of the
same draws of images are paired, so that image difficulty cancels out of their difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.replicates import read_replicates
from farther.evaluation.results import (
    CLOSED_SET_KEYS,
    Evaluation,
    MetricValues,
    read_evaluation,
)
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import bootstrap
from farther.tables.files import inside


@dataclass(frozen=True)
class Replicates:
    """Replicates of the metrics of one run: of a method in an OOD split, or of the detector.

    Args:
        draws: Everything that the draws of images depend on, by name; replicates of equal draws
            are paired.
        metrics: {metric: ndarray of shape (B,)}.
    """

    draws: dict[str, Any]
    metrics: dict[str, np.ndarray]


class StoredEvaluation:
    """The evaluation of a run, as the stage `evaluate` stored it.

    Args:
        root: The artifacts folder.
        run: Name of the run.

    Attributes:
        report: The content of `evaluation/<run>.json`.

    Raises:
        DataError: the run was not evaluated, or the file is damaged.
    """

    def __init__(self, root: Path, run: str):
        self._file = inside(root / "evaluation", f"{run}.json")
        if not self._file.is_file():
            advice = "run `farther repro evaluate`"
            raise DataError(f"{run} was not evaluated yet: {advice}", file=self._file)
        self.report = read_evaluation(self._file)
        self._files = RunFiles(run, self.report.benchmark, root)

    def replicates(self, method: str, split: str) -> Replicates:
        """Replicates of a method's metrics in an OOD split.

        Raises:
            DataError: there are none, they are damaged, or another version wrote them.
        """
        file = self._files.replicates(method, split)
        draws = self._draws()
        advice = "run `farther repro evaluate`"
        if split not in self.report.splits or not file.exists():
            raise DataError(f"no replicates of {method}: {advice}", file=file)
        try:
            draws["OOD images"] = self.report.splits[split].inputs["readable"]
            draws["images that τ is taken from"] = self.report.tau_images
            replicates = read_replicates(file)
        except (KeyError, DataError):
            problem = (
                f"replicates of {method} are damaged, or another version of farther wrote them"
            )
            raise DataError(f"{problem}: {advice} with this version", file=file) from None
        return Replicates(draws, replicates)

    def detector_replicates(self) -> Replicates:
        """Replicates of the detector's metrics on the ID split, by their names in the catalogue.

        They are not stored: they are computed from the run's regions, which takes about as long as
        that part of the stage `evaluate`.

        Raises:
            DataError: the run was evaluated without replicates, or its regions are absent or not
                those that were evaluated.
        """
        # It imports SciPy: half a second.
        from farther.evaluation.detector import known_class_replicates

        draws = self._draws()
        settings = replace(self.report.settings, user_defined={})
        inputs = RunInputs(self._files, self._files.roles, settings)
        evaluated = self.report.splits[settings.id_split].inputs
        if inputs.id_split.digests() != evaluated:
            advice = "run `farther repro evaluate`"
            raise DataError(
                f"regions or objects changed since the evaluation: {advice}",
                file=inputs.id_split.source,
            )

        metrics = {}
        replicates = known_class_replicates(inputs)
        for name in detector_metrics(self.report):
            key = CLOSED_SET_KEYS.get(name, METRICS[name].key)
            if key in replicates:
                metrics[name] = replicates[key]
        return Replicates(draws, metrics)

    def _draws(self) -> dict[str, Any]:
        """Everything that the draws of ID images depend on, by name.

        Raises:
            DataError: the run was evaluated without replicates.
        """
        settings = self.report.settings
        if not settings.replicates:
            problem = "evaluated without replicates: set evaluate.replicates in params.yaml"
            raise DataError(problem, file=self._file)
        return {
            "ID images": self.report.splits[settings.id_split].inputs.get("readable"),
            "number of replicates": settings.replicates,
            "seed": settings.seed,
            "number of images that are drawn one by one": settings.drawn_images,
        }


def detector_metrics(report: Evaluation) -> dict[str, float | None]:
    """A detector's own metrics on the ID split, by their names in the catalogue.

    They are mAP and mAP50, or those of a classifier.
    """
    values: dict[str, float | None] = {}
    for name, metric in METRICS.items():
        results: MetricValues | None = None
        if metric.group == "classifier":
            results = report.classifier
        elif name in CLOSED_SET_KEYS and report.classifier is None:
            results = report.closed_set
        if results is not None:
            values[name] = results.values.get(CLOSED_SET_KEYS.get(name, metric.key))
    return values


def compare(first: Replicates, second: Replicates) -> dict[str, dict[str, Any]]:
    """The 95% interval and p of the difference second − first in each metric that both have.

    See `farther.metrics.statistics.bootstrap.compare`.

    Raises:
        DataError: the two are of different draws of images, so they are not paired.
    """
    different = []
    for name, value in first.draws.items():
        if second.draws.get(name) != value:
            different.append(name)
    if different:
        raise DataError(f"the two differ in {' and '.join(different)}, so they are not paired")

    differences = {}
    for name in first.metrics:
        if name in second.metrics:
            differences[name] = bootstrap.compare(second.metrics[name], first.metrics[name])
    return differences

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
from farther.evaluation.long_table import Result
from farther.evaluation.replicates import read_replicates
from farther.evaluation.results import CLOSED_SET_KEYS, read_description
from farther.evaluation.stored_results import StoredResults
from farther.metrics.catalogue import METRICS, Metric
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
        run: Name of the run.
        results: Its values.
        description: How it was evaluated.

    Raises:
        DataError: the run was not evaluated, or the file is damaged.
    """

    def __init__(self, root: Path, run: str):
        description = inside(root / "results", f"{run}.json")
        for file in (description, description.with_suffix(".parquet")):
            if not file.is_file():
                advice = "run `farther repro evaluate`"
                raise DataError(f"{run} was not evaluated yet: {advice}", file=file)
        self.run = run
        self.description = read_description(description)
        self._files = RunFiles(run, self.description.benchmark, root)
        self.results = StoredResults(self._files)

    @property
    def id_split(self) -> str:
        """The ID test split."""
        return self.description.settings.id_split

    @property
    def ood_splits(self) -> list[str]:
        """The OOD splits that were tested."""
        return [split for split in self.description.inputs if split != self.id_split]

    @property
    def is_classifier(self) -> bool:
        """Whether the detector is a classifier of whole images."""
        return "accuracy" in self.results.detector

    def result(self, split: str, method: str, metric: Metric) -> Result:
        """A metric of a method on a split, or of the detector where the method is "".

        Without a value where it was not measured.
        """
        values = self.results.table.values(metric.group, split=split, method=method)
        return values.get(metric.key, Result(None))

    def replicates(self, method: str, split: str) -> Replicates:
        """Replicates of a method's metrics in an OOD split.

        Raises:
            DataError: there are none, they are damaged, or another version wrote them.
        """
        file = self._files.replicates(method, split)
        draws = self._draws()
        advice = "run `farther repro evaluate`"
        if split not in self.description.inputs or not file.exists():
            raise DataError(f"no replicates of {method}: {advice}", file=file)
        try:
            draws["OOD images"] = self.description.inputs[split]["readable"]
            draws["images that τ is taken from"] = self.description.tau_images
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
        settings = replace(self.description.settings, user_defined={})
        inputs = RunInputs(self._files, self._files.roles, settings)
        evaluated = self.description.inputs[settings.id_split]
        if inputs.id_split.digests() != evaluated:
            advice = "run `farther repro evaluate`"
            raise DataError(
                f"regions or objects changed since the evaluation: {advice}",
                file=inputs.id_split.source,
            )

        metrics = {}
        replicates = known_class_replicates(inputs)
        for name in self.detector_metrics():
            key = CLOSED_SET_KEYS.get(name, METRICS[name].key)
            if key in replicates:
                metrics[name] = replicates[key]
        return Replicates(draws, metrics)

    def detector_metrics(self) -> dict[str, float | None]:
        """The detector's own metrics on the ID split, by their names in the catalogue.

        They are mAP and mAP50, or those of a classifier.
        """
        values: dict[str, float | None] = {}
        for name, metric in METRICS.items():
            if self.is_classifier:
                is_own = metric.group == "classifier"
            else:
                is_own = name in CLOSED_SET_KEYS
            if is_own:
                values[name] = self.result(self.id_split, "", metric).value
        return values

    def _draws(self) -> dict[str, Any]:
        """Everything that the draws of ID images depend on, by name.

        Raises:
            DataError: the run was evaluated without replicates.
        """
        settings = self.description.settings
        if not settings.replicates:
            problem = "evaluated without replicates: set evaluate.replicates in params.yaml"
            raise DataError(problem, file=self._files.description)
        return {
            "ID images": self.description.inputs[settings.id_split].get("readable"),
            "number of replicates": settings.replicates,
            "seed": settings.seed,
            "number of images that are drawn one by one": settings.drawn_images,
        }


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

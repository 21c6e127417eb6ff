"""Stored results of the detector, of each method, and of each user-defined metric.

They are kept from one run of the stage `evaluate` to the next, and computed again only where their
cache key changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from farther.evaluation.classes import RunClasses, joined_classes
from farther.evaluation.groups.user_defined import UserDefined, user_defined_case
from farther.evaluation.inputs import RunInputs
from farther.evaluation.methods import EvaluatedMethod, FittedRun, evaluate_method
from farther.evaluation.results import (
    ClassesResults,
    ClassGraph,
    DetectorResults,
    Number,
    UserDefinedValues,
    read_kept_results,
    write_results,
)
from farther.evaluation.scored_split import MethodScores, ScoredSplit
from farther.evaluation.tau import Calibration
from farther.evaluation.threshold import StoredTau
from farther.incremental.keyed import Keyed, key_of
from farther.processes import count_cores, release_memory
from farther.scoring.inputs import TauSettings

#: The stored results of the detector.
DETECTOR = "detector.json"

#: The stored classes that unknown objects are taken for.
CLASS_GRAPH = "class_graph.json"


def method_item(method: str) -> str:
    """The stored results of a method, and its τ."""
    return f"methods/{method}"


def user_defined_item(metric: str, method: str) -> str:
    """The stored values of a user-defined metric of a method."""
    return f"user_defined/{metric}/{method}.json"


class KeptResults:
    """The stored results of a run; those of other inputs, parameters or code are computed again.

    Args:
        inputs: The run's inputs.
        fitted: The methods that apply to the run.
        tau: How τ is chosen.
        code: Hash of the code of metrics.
        user_defined: Hash of the code of each user-defined metric.

    Attributes:
        computed: Names of what was computed: "the detector", and methods.
    """

    def __init__(
        self,
        inputs: RunInputs,
        fitted: FittedRun,
        tau: TauSettings,
        code: str,
        user_defined: Mapping[str, str] | None = None,
    ):
        self._inputs = inputs
        self._fitted = fitted
        self._calibration = Calibration(inputs, tau)
        self._results = Keyed(inputs.files.results)
        self._outcomes = Keyed(inputs.files.outcomes)
        self._classes = RunClasses(inputs)
        self._keys = _keys(inputs, fitted, tau, code, user_defined or {})
        if self._classes.exist and fitted.applicable:
            first_method = min(fitted.applicable)
            method_key = self._keys[method_item(first_method)]
            self._keys[CLASS_GRAPH] = key_of([], {"graph of": first_method, "key": method_key})
        self.computed: list[str] = []

    def update(self) -> tuple[DetectorResults, dict[str, EvaluatedMethod]]:
        """Computes outdated results, on one thread per core, and reads the others.

        The results of methods that no longer apply are deleted. The inputs that all methods share
        are computed with the first method. Methods of very large splits are computed one after the
        other, as each takes much memory.

        Returns:
            The results of the detector, and those of each method.
        """
        methods = self._fitted.applicable
        outdated = self._outdated_items()
        outdated_methods = [name for name in methods if method_item(name) in outdated]

        evaluated: dict[str, EvaluatedMethod] = {}
        if self._is_large:  # the detector first, before the inputs of methods are in memory
            detector = self._detector(is_outdated=DETECTOR in outdated)
            release_memory()
            for name in outdated_methods:
                evaluated[name] = self._evaluate_method(name)
        else:
            for name in outdated_methods[:1]:
                evaluated[name] = self._evaluate_method(name)
            with ThreadPoolExecutor(count_cores()) as pool:
                future_detector = pool.submit(self._detector, is_outdated=DETECTOR in outdated)
                further = pool.map(self._evaluate_method, outdated_methods[1:])
                evaluated.update(zip(outdated_methods[1:], further, strict=True))
                detector = future_detector.result()
        self.computed += outdated_methods

        for name in methods:
            if name not in evaluated:
                evaluated[name] = self._read_method(name)
            self._add_user_defined(name, evaluated[name], outdated)
        return detector, {name: evaluated[name] for name in methods}

    def classes(self, evaluated: Mapping[str, EvaluatedMethod]) -> ClassesResults | None:
        """Results by the OODness of classes; None where no split's images were chosen by rules.

        Args:
            evaluated: The results of each method, from `update`.
        """
        if CLASS_GRAPH not in self._keys:
            return None
        by_method = {}
        for name, method in evaluated.items():
            assert method.classes is not None
            by_method[name] = method.classes

        file = self._results.path(CLASS_GRAPH)
        if not self._results.is_current(CLASS_GRAPH, self._keys[CLASS_GRAPH]):
            graph = self._classes.graph(min(evaluated))
            with self._results.make(CLASS_GRAPH, self._keys[CLASS_GRAPH]) as path:
                write_results(path, graph)
            return joined_classes(by_method, graph)
        return joined_classes(by_method, read_kept_results(ClassGraph, file, f"delete {file}"))

    def tau_images(self, evaluated: Mapping[str, EvaluatedMethod]) -> str:
        """See `Evaluation.tau_images`.

        Args:
            evaluated: The results of each method, from `update`.
        """
        if not any(method.tau.replicates for method in evaluated.values()):
            return ""
        return self._calibration.images_digest

    def _outdated_items(self) -> set[str]:
        """Items to compute: the results of a method are outdated where its outcomes are."""
        outdated = set(self._results.outdated(self._keys))
        outcome_keys = {name: self._keys[method_item(name)] for name in self._fitted.applicable}
        for name in self._outcomes.outdated(outcome_keys):
            outdated.add(method_item(name))
        return outdated

    @property
    def _is_large(self) -> bool:
        """Whether a split has more images than are drawn one by one."""
        inputs = self._inputs
        splits = [inputs.id_split, *inputs.tested, *inputs.shifted, *inputs.base_splits.values()]
        return max(len(split.images) for split in splits) > inputs.settings.drawn_images

    def _evaluate_method(self, name: str) -> EvaluatedMethod:
        """Evaluates a method, and stores its results and outcomes."""
        key = self._keys[method_item(name)]
        fitted = self._fitted.applicable[name]
        tau = self._calibration.tau_of(name, fitted)
        evaluated = evaluate_method(name, fitted, tau, self._inputs)
        assert evaluated.known is not None

        outcomes_by_split = {}
        with self._outcomes.make(name, key) as folder:
            folder.mkdir()  # a benchmark may have no OOD split
            for split in self._inputs.tested:
                outcome = evaluated.outcomes[split.name]
                region_outcomes, object_outcomes = outcome.tables(split.detections)
                region_outcomes.write(folder / f"{split.name}.parquet")
                object_outcomes.write(folder / f"{split.name}.objects.parquet")
                if self._classes.exist:
                    outcomes_by_split[split.name] = object_outcomes
            id_split = self._inputs.id_split.name
            region_outcomes, object_outcomes = evaluated.known.tables(self._inputs.id_regions)
            region_outcomes.write(folder / f"{id_split}.parquet")
            object_outcomes.write(folder / f"{id_split}.objects.parquet")
        if self._classes.exist:
            classes = self._classes.of_method(name, outcomes_by_split)
            evaluated = replace(evaluated, classes=classes)
        with self._results.make(method_item(name), key) as folder:
            evaluated.write(folder)

        self._inputs.release_memory()
        return replace(evaluated, outcomes={}, known=None)

    def _read_method(self, name: str) -> EvaluatedMethod:
        folder = self._results.path(method_item(name))
        return EvaluatedMethod.read(folder, [split.name for split in self._inputs.tested])

    def _detector(self, *, is_outdated: bool) -> DetectorResults:
        """The results of the detector; see `farther.evaluation.detector`."""
        file = self._results.path(DETECTOR)
        if not is_outdated:
            return read_kept_results(DetectorResults, file, f"delete {file}")
        from farther.evaluation.detector import evaluate_detector  # imports scipy: half a second

        detector = evaluate_detector(self._inputs)
        with self._results.make(DETECTOR, self._keys[DETECTOR]) as path:
            write_results(path, detector)
        self.computed.append("the detector")
        return detector

    def _add_user_defined(
        self, name: str, evaluated: EvaluatedMethod, outdated: Collection[str]
    ) -> None:
        """Adds the values of user-defined metrics to the results of a method.

        Args:
            name: The method's name.
            evaluated: Its results.
            outdated: The items to compute.
        """
        metrics = self._inputs.user_defined
        missing = [metric for metric in metrics if user_defined_item(metric, name) in outdated]
        if missing:
            self._compute_user_defined(name, evaluated.tau, missing)
            if name not in self.computed:
                self.computed.append(name)

        for metric in metrics:
            file = self._results.path(user_defined_item(metric, name))
            stored = read_kept_results(UserDefinedValues, file, f"delete {file}")
            for split_name, value in stored.splits.items():
                groups = evaluated.results.splits[split_name].groups
                groups[UserDefined.name].values[metric] = value

    def _compute_user_defined(self, name: str, tau: StoredTau, metrics: Collection[str]) -> None:
        """Computes and stores user-defined metrics of a method.

        Args:
            name: The method's name.
            tau: Its threshold τ.
            metrics: Names of the metrics.
        """
        scores = MethodScores(self._inputs, name, tau)
        values_by_metric: dict[str, dict[str, Number]] = {metric: {} for metric in metrics}
        for split in self._inputs.tested:
            case = user_defined_case(ScoredSplit(scores, split))
            for metric in metrics:
                value = self._inputs.user_defined[metric].compute(case)
                values_by_metric[metric][split.name] = value

        for metric, values in values_by_metric.items():
            item = user_defined_item(metric, name)
            with self._results.make(item, self._keys[item]) as path:
                write_results(path, UserDefinedValues(splits=values))


def _keys(
    inputs: RunInputs,
    fitted: FittedRun,
    tau: TauSettings,
    code: str,
    user_defined: Mapping[str, str],
) -> dict[str, str]:
    """The cache key of each item.

    It covers whole folders, all settings that the item is computed with, and all of its code.
    User-defined metrics are computed apart: the settings of all other items are without them.
    """
    files = inputs.files
    settings: dict[str, Any] = asdict(replace(inputs.settings, user_defined={}))
    paths = [files.splits, files.all_regions, files.threshold]
    shared_key = key_of(paths, {"settings": settings, "code": code})

    keys = {DETECTOR: shared_key}
    for name in fitted.applicable:
        method_paths = [files.fitted(name), files.all_scores(name)]
        method_params = {"shared": shared_key, "method": name, "tau": asdict(tau)}
        method_key = key_of(method_paths, method_params)
        keys[method_item(name)] = method_key
        for metric in inputs.user_defined:
            metric_params = {
                "method": method_key,
                "metric": metric,
                "params": inputs.settings.user_defined[metric],
                "code": user_defined.get(metric, ""),
            }
            keys[user_defined_item(metric, name)] = key_of([], metric_params)
    return keys

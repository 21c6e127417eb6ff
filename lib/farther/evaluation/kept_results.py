"""Results that are kept from run to run: of the detector, of each method, and of each user-defined metric."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from farther.cores import count_cores, give_back_memory
from farther.evaluation.case import MethodScores, SplitCase
from farther.evaluation.groups.user_defined import UserDefined, case_of
from farther.evaluation.inputs import RunInputs
from farther.evaluation.methods import EvaluatedMethod, FittedRun, evaluate_method
from farther.evaluation.results import (
    DetectorResults,
    Number,
    UserDefinedValues,
    read_results,
    write_results,
)
from farther.evaluation.tau import Calibration
from farther.keyed import Keyed, key_of
from farther.scoring.inputs import TauSettings

#: The kept results of the detector.
DETECTOR = "detector.json"


def method_item(method: str) -> str:
    """The kept results of a method, and its τ."""
    return f"methods/{method}"


def user_defined_item(metric: str, method: str) -> str:
    """The kept values of a user-defined metric of a method."""
    return f"user_defined/{metric}/{method}.json"


class KeptResults:
    """The kept results of a run; what was made from other inputs, parameters or code is computed again.

    Args:
        inputs: The run's inputs.
        fitted: The methods that apply to the run.
        tau: How τ is taken.
        code: Digest of the code of metrics.
        user_defined: Digest of the code of each user-defined metric.

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
        self._keys = _keys(inputs, fitted, tau, code, user_defined or {})
        self.computed: list[str] = []

    def update(self) -> tuple[DetectorResults, dict[str, EvaluatedMethod]]:
        """Computes what is outdated, on one thread per core, and reads the rest; deletes what is of no method.

        What all methods share is computed with the first of them. Methods of very large splits are
        computed one after the other, as each takes much memory.

        Returns:
            The results of the detector, and those of each method.
        """
        methods = self._fitted.applicable
        outdated = set(self._results.outdated(self._keys))
        outcome_keys = {name: self._keys[method_item(name)] for name in methods}
        outdated_outcomes = self._outcomes.outdated(outcome_keys)
        outdated |= {method_item(name) for name in outdated_outcomes}

        outdated_methods = [name for name in methods if method_item(name) in outdated]
        if self._is_large:  # before what methods share is in memory
            detector = self._detector(is_outdated=DETECTOR in outdated)
            give_back_memory()
            evaluated = {name: self._evaluate_method(name) for name in outdated_methods}
        else:
            evaluated = {name: self._evaluate_method(name) for name in outdated_methods[:1]}
            with ThreadPoolExecutor(count_cores()) as pool:
                detecting = pool.submit(self._detector, is_outdated=DETECTOR in outdated)
                others = pool.map(self._evaluate_method, outdated_methods[1:])
                evaluated.update(zip(outdated_methods[1:], others, strict=True))
                detector = detecting.result()
        self.computed += outdated_methods

        for name in methods:
            if name not in evaluated:
                folder = self._results.path(method_item(name))
                evaluated[name] = EvaluatedMethod.read(
                    folder, [split.name for split in self._inputs.tested]
                )
        for name in methods:
            self._add_user_defined(name, evaluated[name], outdated)
        return detector, {name: evaluated[name] for name in methods}

    @property
    def _is_large(self) -> bool:
        """Whether a split has more images than are drawn one by one."""
        splits = (
            self._inputs.id_split,
            *self._inputs.tested,
            *self._inputs.shifted,
            *self._inputs.bases.values(),
        )
        return max(len(split.images) for split in splits) > self._inputs.settings.drawn_images

    def _evaluate_method(self, name: str) -> EvaluatedMethod:
        key = self._keys[method_item(name)]
        fitted = self._fitted.applicable[name]
        tau = self._calibration.tau_of(name, fitted)
        evaluated = evaluate_method(name, fitted, tau, self._inputs)
        with self._outcomes.make(name, key) as folder:
            folder.mkdir()  # a benchmark may have no OOD split
            for split in self._inputs.tested:
                of_regions, of_objects = evaluated.outcomes[split.name].tables(split.detections)
                of_regions.write(folder / f"{split.name}.parquet")
                of_objects.write(folder / f"{split.name}.objects.parquet")
        with self._results.make(method_item(name), key) as folder:
            evaluated.write(folder)
        give_back_memory()
        return replace(evaluated, outcomes={})

    def _detector(self, *, is_outdated: bool) -> DetectorResults:
        """The results of the detector; see `farther.evaluation.detector`."""
        file = self._results.path(DETECTOR)
        if not is_outdated:
            return read_results(DetectorResults, file, f"delete {file}")
        from farther.evaluation.detector import evaluate_detector  # imports scipy: half a second

        detector = evaluate_detector(self._inputs)
        with self._results.make(DETECTOR, self._keys[DETECTOR]) as path:
            write_results(path, detector)
        self.computed.append("the detector")
        return detector

    def _add_user_defined(self, name: str, evaluated: EvaluatedMethod, outdated: set[str]) -> None:
        """Adds the values of user-defined metrics to the results of a method; computes those that are outdated."""
        metrics = self._inputs.user_defined
        missing = [metric for metric in metrics if user_defined_item(metric, name) in outdated]
        if missing:
            scores = MethodScores(self._inputs, name, evaluated.results.tau)
            values: dict[str, dict[str, Number]] = {metric: {} for metric in missing}
            for split in self._inputs.tested:
                case = case_of(SplitCase(scores, split))
                for metric in missing:
                    values[metric][split.name] = metrics[metric].compute(case)
            for metric in missing:
                item = user_defined_item(metric, name)
                with self._results.make(item, self._keys[item]) as path:
                    write_results(path, UserDefinedValues(splits=values[metric]))
            if name not in self.computed:
                self.computed.append(name)
        for metric in metrics:
            file = self._results.path(user_defined_item(metric, name))
            stored = read_results(UserDefinedValues, file, f"delete {file}")
            for split_name, value in stored.splits.items():
                evaluated.results.splits[split_name].groups[UserDefined.name].values[metric] = value


def _keys(
    inputs: RunInputs,
    fitted: FittedRun,
    tau: TauSettings,
    code: str,
    user_defined: Mapping[str, str],
) -> dict[str, str]:
    """The key of each item: of whole folders, all settings that the item is computed with, and all of its code.

    User-defined metrics are computed apart: the settings that all other items are computed with
    have none.
    """
    files = inputs.files
    settings: dict[str, Any] = asdict(replace(inputs.settings, user_defined={}))
    paths = [files.splits, files.all_regions, files.threshold]
    shared = key_of(paths, {"settings": settings, "code": code})
    keys = {DETECTOR: shared}
    for name in fitted.applicable:
        params = {"shared": shared, "method": name, "tau": asdict(tau)}
        method_key = key_of([files.fitted(name), files.all_scores(name)], params)
        keys[method_item(name)] = method_key
        for metric in inputs.user_defined:
            params = {
                "method": method_key,
                "metric": metric,
                "params": inputs.settings.user_defined[metric],
                "code": user_defined.get(metric, ""),
            }
            keys[user_defined_item(metric, name)] = key_of([], params)
    return keys

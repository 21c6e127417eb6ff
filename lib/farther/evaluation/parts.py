"""Parts of an evaluation that are kept from run to run: of the detector, of each method, of user-defined metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Lock
from typing import Any

from farther.cores import count_cores, give_back_memory
from farther.evaluation.case import MethodScores, SplitCase
from farther.evaluation.files import RunSplit
from farther.evaluation.groups.user_defined import UserDefined, case_of
from farther.evaluation.inputs import RunInputs
from farther.evaluation.methods import AppliedMethod, Evaluated, evaluate_method
from farther.evaluation.results import DetectorResults, Number, UserDefinedValues, read_results, write_results
from farther.keyed import Keyed
from farther.tables.files import digest

#: The kept part of the detector, and the choice of what to deploy (`farther.evaluation.deploy.choose`).
DETECTOR, CHOICE = "detector.json", "choice.json"


class Parts:
    """The kept parts of a run; a part is computed again when its inputs, its parameters or its code changed.

    Args:
        inputs: The run's inputs.
        code: Digest of the code of metrics.
        user_defined: Digest of the code of each user-defined metric.

    Attributes:
        computed: Names of the parts that were computed.
    """

    def __init__(self, inputs: RunInputs, code: str, user_defined: Mapping[str, str] | None = None):
        self._inputs = inputs
        self._user_defined = user_defined or {}
        self._kept = Keyed(inputs.files.parts)
        self._outcomes = Keyed(inputs.files.outcomes)
        self._writing = Lock()
        self.computed: list[str] = []
        settings = asdict(inputs.settings)
        for name in ("proposals", "user_defined"):  # of later or other parts
            del settings[name]
        roles = asdict(inputs.roles)
        distance, pairs = roles.pop("distance"), roles.pop("pairs")
        self._of_detector = as_text({"self_awareness": settings.pop("self_awareness"), "roles": roles})
        self._shared = digest(
            code,
            as_text({**settings, "distance": distance, "pairs": pairs}),
            repr(inputs.threshold),
            *(text for split in _read(inputs) for text in key_of(split)),
        )

    def all(self, methods: Sequence[AppliedMethod]) -> tuple[DetectorResults, dict[str, Evaluated]]:
        """The part of the detector and those of methods, computed on one thread per core.

        Of very large splits they are computed one after the other, as each takes much memory.
        """
        most = max(len(split.images) for split in _read(self._inputs))
        is_large = most > self._inputs.settings.drawn_images
        if is_large:  # before what methods share is in memory
            self.detector()
            give_back_memory()
        for method in methods[:1]:  # what all methods share is computed once
            self.method(method)
        with ThreadPoolExecutor(1 if is_large else count_cores()) as pool:
            detector = pool.submit(self.detector)
            each = list(pool.map(self.method, methods))
            return detector.result(), {method.name: part for method, part in zip(methods, each, strict=True)}

    def detector(self) -> DetectorResults:
        """The part of the detector; see `farther.evaluation.detector`."""
        roles = self._inputs.roles
        names = [self._inputs.settings.calibration_split, *roles.shifted, *filter(None, [roles.pseudo_ood])]
        more = [RunSplit(self._inputs.files, name) for name in names]
        # Uncertainties are also of columns that `key_of` does not cover.
        rows = [split.folder.key for split in (*_read(self._inputs), *more)]
        key = digest(self._shared, self._of_detector, *rows, *(text for split in more for text in key_of(split)))
        if not self._kept.is_current(DETECTOR, key):
            from farther.evaluation.detector import evaluate_detector  # imports scipy: half a second

            evaluated = evaluate_detector(self._inputs)
            with self._writing, self._kept.make(DETECTOR, key) as path:
                write_results(path, evaluated)
            self.computed.append("the detector")
        file = self._kept.path(DETECTOR)
        return read_results(DetectorResults, file, f"delete {file}")

    def method(self, method: AppliedMethod) -> Evaluated:
        """The part of a method, its outcomes left out; see `evaluate_method`."""
        files, item = self._inputs.files, f"methods/{method.name}"
        inputs = self._inputs
        scores = [files.scores(method.name, split.name) for split in _read(inputs)]
        fitted = method.fitted.model_dump_json()
        key = digest(self._shared, method.name, repr(method.tau), fitted, *(p for p in scores if p.is_file()))
        if not (self._kept.is_current(item, key) and self._outcomes.is_current(method.name, key)):
            evaluated = evaluate_method(method, self._inputs)
            with self._writing, self._outcomes.make(method.name, key) as folder:
                folder.mkdir()  # a benchmark may have no OOD split
                for split in inputs.tested:
                    of_regions, of_objects = evaluated.outcomes[split.name].tables(split.detections)
                    of_regions.write(folder / f"{split.name}.parquet")
                    of_objects.write(folder / f"{split.name}.objects.parquet")
            with self._writing, self._kept.make(item, key) as folder:
                evaluated.write(folder)
            self.computed.append(method.name)
            give_back_memory()
        found = Evaluated.read(self._kept.path(item), [split.name for split in self._inputs.tested])
        for metric, values in self._of_user_defined(method, key).items():
            for tested, value in values.items():
                found.results.splits[tested].groups[UserDefined.name].values[metric] = value
        return found

    def _of_user_defined(self, method: AppliedMethod, key: str) -> dict[str, dict[str, Number]]:
        """Values of user-defined metrics by split, of those computed whose code, parameters or method changed."""
        asked, metrics = self._inputs.settings.user_defined, self._inputs.user_defined
        items = {name: user_defined_item(name, method.name) for name in metrics}
        keys = {n: digest(key, n, as_text(asked[n]), self._user_defined.get(n, "")) for n in metrics}
        if stale := [name for name in metrics if not self._kept.is_current(items[name], keys[name])]:
            scores = MethodScores(self._inputs, method.name, method.tau)
            values: dict[str, dict[str, Number]] = {name: {} for name in stale}
            for split in self._inputs.tested:
                case = case_of(SplitCase(scores, split))
                for name in stale:
                    values[name][split.name] = metrics[name].compute(case)
            for name in stale:
                with self._writing, self._kept.make(items[name], keys[name]) as path:
                    write_results(path, UserDefinedValues(splits=values[name]))
            if method.name not in self.computed:
                self.computed.append(method.name)
        files = {name: self._kept.path(item) for name, item in items.items()}
        return {n: read_results(UserDefinedValues, file, f"delete {file}").splits for n, file in files.items()}

    def keep_only(self, methods: Sequence[str]) -> None:
        """Deletes the parts of all other methods."""
        of_methods = [item for name in methods for item in (f"methods/{name}", measured_item(name))]
        of_metrics = [user_defined_item(metric, name) for metric in self._inputs.user_defined for name in methods]
        self._kept.keep_only([DETECTOR, CHOICE, *of_methods, *of_metrics])
        self._outcomes.keep_only(methods)


def user_defined_item(metric: str, method: str) -> str:
    """The kept part with the values of a user-defined metric."""
    return f"user_defined/{metric}/{method}.json"


def measured_item(method: str) -> str:
    """The kept part with what settings of a method cost (`farther.evaluation.deploy.choose`)."""
    return f"choices/{method}.json"


def _read(inputs: RunInputs) -> list[RunSplit]:
    """The splits that methods are evaluated on."""
    splits = (inputs.id_split, *inputs.tested, *inputs.shifted, *inputs.bases.values())
    return list({split.name: split for split in splits}.values())


def as_text(values: Any) -> str:
    """Parameters as a part of a key. JSON, not repr: a number that YAML reads as 1 or 1.0 is one parameter."""
    return json.dumps(values, sort_keys=True, default=str)


def key_of(split: RunSplit) -> list[str]:
    """Parts of a key: the detector, and what was read of a split."""
    return [split.name, json.dumps(split.folder.header.detector, sort_keys=True), *split.digests().values()]

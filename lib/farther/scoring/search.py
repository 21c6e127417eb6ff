"""Parameters chosen without looking at the test splits, or by an oracle that is called so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farther.methods.base import METHODS, FitError, Method
from farther.metrics.ood import auroc
from farther.scoring.inputs import RunRegions

#: Values to try of each parameter.
Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Trial:
    """One method with one choice of parameters.

    Args:
        name, params: The method.
        value: AUROC of ID validation regions against those of the OOD split; None where it could
            not be fitted.
        reason: Why not; empty where it could.
    """

    name: str
    params: dict[str, Any]
    value: float | None
    reason: str = ""


@dataclass(frozen=True)
class Search:
    """The best of several trials, and all of them.

    Args:
        best: The trial with the largest value, the first of equals.
        trials: All, in the order tried.
        id_split, ood_split: What they were measured on.
        oracle: Whether `ood_split` may be one that results are reported on: the value says nothing
            of other data.
    """

    best: Trial
    trials: tuple[Trial, ...]
    id_split: str
    ood_split: str
    oracle: bool

    def remarks(self) -> list[str]:
        """Parameters whose best value is the smallest or largest of three or more that were tried.

        Values beyond it may be better. Without a remark where another value is as good.
        """
        remarks = []
        for name, value in self.best.params.items():
            tried = self._numbers_tried(name)
            if len(tried) < 3 or value not in (min(tried), max(tried)):
                continue
            end = "smallest" if value == min(tried) else "largest"
            remarks.append(
                f"{name}: the best of the values tried, {value:g}, is the {end}: "
                "values beyond it may be better"
            )
        return remarks

    def _numbers_tried(self, parameter: str) -> set[float]:
        """The numbers tried of a parameter of the best method; {} where a value between is as good.

        Args:
            parameter: Name of the parameter.
        """
        numbers = set()
        as_good = set()
        for trial in self.trials:
            value = trial.params.get(parameter)
            if trial.name != self.best.name or not isinstance(value, (int, float)):
                continue
            if isinstance(value, bool):
                continue
            numbers.add(value)
            if trial.value == self.best.value:
                as_good.add(value)
        if as_good - {min(numbers, default=0), max(numbers, default=0)}:
            return set()
        return numbers


def search(
    grids: Mapping[str, Grid], run: RunRegions, ood_split: str, *, oracle: bool = False
) -> Search:
    """The method and parameters with the best AUROC of ID validation against an OOD split.

    Every combination of the grids is fitted on the training split. An `oracle` chooses on the test
    data, as the "best of" of published tables does: FMIYC's LaRD is the best by AUROC on the OOD
    data of three methods and 1 to 128 components. It is labelled so: without the OOD data the
    choice cannot be made.

    Args:
        grids: For each method, the values to try of each parameter; the others keep their defaults.
        run: What they are fitted on.
        ood_split: The OOD validation split; for an oracle, any split.
        oracle: Whether it may be one that results are reported on.

    Raises:
        ParameterError: `ood_split` is a test split, or one of the ID splits; or a parameter is
            unknown.
        FitError: no combination can be fitted.
    """
    if not oracle:
        run.refuse_test_split(ood_split)
    calibration_split = run.settings.calibration_split
    id_val = run.calibration
    ood_val = run.unknown(ood_split)
    trials = []
    for method in _combinations(grids):
        params = {key: getattr(method, key) for key in grids[method.name]}
        try:
            run.fit(method)
            value = auroc(method.score(id_val), method.score(ood_val))
            reason = (
                "" if value is not None else f"no region of {ood_split!r} or {calibration_split!r}"
            )
            trials.append(Trial(method.name, params, value, reason))
        except FitError as error:
            trials.append(Trial(method.name, params, None, str(error)))
    fitted = [trial for trial in trials if trial.value is not None]
    if not fitted:
        reasons = "; ".join(sorted({trial.reason for trial in trials})) or "the grid is empty"
        raise FitError(f"none of {len(trials)} combinations can be fitted: {reasons}")
    best = max(fitted, key=lambda trial: trial.value or 0.0)
    return Search(best, tuple(trials), calibration_split, ood_split, oracle)


def _combinations(grids: Mapping[str, Grid]) -> Iterator[Method]:
    """The methods to try, by name and parameter: of equally good ones the first is taken."""
    for name in sorted(grids):
        grid = dict(sorted(grids[name].items()))
        for values in itertools.product(*grid.values()):
            yield METHODS.create(name, **dict(zip(grid, values, strict=True)))

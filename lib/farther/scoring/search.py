"""Choosing a method's parameters without looking at what it will be tested on, and, labelled so, with looking."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from farther.errors import ParameterError
from farther.methods.base import METHODS, FitError, Method
from farther.scoring.entries import Entry
from farther.scoring.fit import FitSettings, fit_run, folder_digest, training_regions, write_not_applicable
from farther.tables import RegionsFolder
from farther.tables.files import write_aside

#: Values to try of each parameter.
Grid = Mapping[str, Sequence[Any]]
#: How well ID scores and OOD scores are told apart, higher is better: `farther.metrics.ood` has several.
#: None where it has no value, for want of scores.
Measure = Callable[[np.ndarray, np.ndarray], float | None]


@dataclass(frozen=True)
class Trial:
    """One method with one choice of parameters.

    Args:
        name, params: The method.
        value: What the measure says of it; None where it could not be fitted.
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
        oracle: Whether `ood_split` was allowed to be one that results are reported on: nothing to expect elsewhere.
    """

    best: Trial
    trials: tuple[Trial, ...]
    id_split: str
    ood_split: str
    oracle: bool

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return asdict(self)


def search(
    name: str,
    grid: Grid,
    run: str | Path,
    *,
    ood_split: str,
    test_splits: Collection[str],
    measure: Measure,
    operating: float = 0.0,
    settings: FitSettings | None = None,
) -> Search:
    """The parameters that best tell ID validation regions from those of an OOD validation split.

    Every combination of the grid is fitted on the training split.

    Args:
        name: The method.
        grid: Values to try of each parameter; the others keep their defaults.
        run: Folder that holds one regions folder a split.
        ood_split: The OOD validation split. It must not be one that results are reported on.
        test_splits: Names of the splits that results are reported on.
        measure: A function of ID scores and OOD scores, larger is better.
        operating: t*; rows with a lower detector score are left out.
        settings: Names of the training and the ID validation split, size of the sample; see `FitSettings`.

    Raises:
        ParameterError: `ood_split` is a test split, or one of the ID splits; or a parameter is unknown.
        FitError: no combination can be fitted.
        DataError: a split is absent or damaged.
    """
    return _best({name: grid}, Path(run), ood_split, measure, operating, settings or FitSettings(), test_splits)


def oracle(
    grids: Mapping[str, Grid],
    run: str | Path,
    *,
    ood_split: str,
    measure: Measure,
    operating: float = 0.0,
    settings: FitSettings | None = None,
) -> Search:
    """The best of several methods and parameters *on the test data*, as the "best of" of published tables.

    FMIYC's LaRD is one: three methods and 1 to 128 components, the best by AUROC on the OOD data. What comes out is
    labelled `oracle`: nobody who does not know the OOD data could have chosen it.

    Args:
        grids: For each method, the values to try of each parameter.
        run, ood_split, measure, operating, settings: As in `search`; `ood_split` may be any split.

    Raises:
        ParameterError, FitError, DataError: As in `search`.
    """
    return _best(grids, Path(run), ood_split, measure, operating, settings or FitSettings(), None)


def fit_entry(
    entry: Entry,
    run: str | Path,
    operating: float,
    settings: FitSettings,
    path: str | Path,
    *,
    measure: Measure,
    test_splits: Collection[str],
    truth: str | Path | None = None,
) -> str | None:
    """The stage `fit`: `fit_run` of an entry of params.yaml, its parameters chosen first where it asks for that.

    How they were chosen is `choice` in `method.json`: the splits, whether it is an oracle, every trial, and a digest of
    the OOD regions, by which `score_run` sees that they have changed.

    Args:
        entry: The line of params.yaml.
        run, operating, settings, path, truth: As in `fit_run`.
        measure, test_splits: As in `search`.

    Returns:
        Why the method does not apply, or None when it was fitted.

    Raises:
        ParameterError: see `search`.
        DataError: a split is absent or damaged.
    """
    asked = entry.search or entry.oracle
    if asked is None:
        return fit_run(entry.method, entry.params, run, operating, settings, path, truth=truth)
    forbidden = test_splits if entry.search else None
    try:
        found = _best(asked.grids, Path(run), asked.ood_split, measure, operating, settings, forbidden)
    except FitError as error:
        first = METHODS.create(next(iter(asked.grids), entry.method))
        with write_aside(path) as aside:
            write_not_applicable(first, str(error), aside)
        return str(error)
    choice = {**found.to_json(), "regions": folder_digest(Path(run) / asked.ood_split)}
    return fit_run(found.best.name, found.best.params, run, operating, settings, path, choice, truth)


def _best(
    grids: Mapping[str, Grid],
    run: Path,
    ood_split: str,
    measure: Measure,
    operating: float,
    settings: FitSettings,
    test_splits: Collection[str] | None,
) -> Search:
    """The best combination; `test_splits` are refused as OOD split, and None makes it an oracle, which refuses none."""
    if test_splits is not None:
        _refuse(ood_split, test_splits, settings)
    train = training_regions(run, operating, settings)
    id_val, ood_val = (RegionsFolder(run / s).above(operating) for s in (settings.calibration_split, ood_split))
    trials = []
    for method in _combinations(grids):
        params = {key: getattr(method, key) for key in grids[method.name]}
        try:
            method.fit(train)
            value = measure(method.score(id_val), method.score(ood_val))
            reason = "" if value is not None else f"no region of {ood_split!r} or {settings.calibration_split!r}"
            trials.append(Trial(method.name, params, value, reason))
        except FitError as error:
            trials.append(Trial(method.name, params, None, str(error)))
    fitted = [trial for trial in trials if trial.value is not None]
    if not fitted:
        reasons = "; ".join(sorted({trial.reason for trial in trials})) or "the grid is empty"
        raise FitError(f"none of {len(trials)} combinations can be fitted: {reasons}")
    best = max(fitted, key=lambda trial: trial.value or 0.0)
    return Search(best, tuple(trials), settings.calibration_split, ood_split, oracle=test_splits is None)


def _refuse(ood_split: str, test_splits: Collection[str], settings: FitSettings) -> None:
    if ood_split in {"test", *test_splits}:
        raise ParameterError(
            f"ood_split: results are reported on {ood_split!r}, so parameters must not be chosen on it. "
            "Make an OOD validation split, or call it what it is: `oracle`"
        )
    if ood_split in (settings.split, settings.calibration_split):
        raise ParameterError(f"ood_split: {ood_split!r} is a split of the in-distribution dataset")


def _combinations(grids: Mapping[str, Grid]) -> Iterator[Method]:
    for name, grid in grids.items():
        for values in itertools.product(*grid.values()):
            yield METHODS.create(name, **dict(zip(grid, values, strict=True)))

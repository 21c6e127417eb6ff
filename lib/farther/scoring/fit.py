"""The stage `fit`: a method fitted to one run's training regions, and its threshold τ, in one folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from farther.errors import DataError
from farther.methods.base import METHODS, FitError, Method, RegionsLike, count_rows, describe
from farther.methods.tau import Rule, threshold
from farther.registry import STRICT
from farther.tables import Header, Regions, RegionsFolder, TrueClasses
from farther.tables.files import digest, read_json, write_aside, write_json


@dataclass(config=STRICT, kw_only=True)
class FitSettings:
    """What a method is fitted on, and how its threshold is taken.

    Args:
        split: Name of the in-distribution split that methods learn from.
        calibration_split: Name of the in-distribution split that τ is taken from.
        keep: Fraction of its scores that τ keeps.
        threshold_rule: See `farther.methods.threshold`.
        max_regions: Learn from at most so many regions, drawn at random; None takes all.
        seed: Of that draw.
    """

    split: str = "train"
    calibration_split: str = "val"
    keep: Annotated[float, Field(gt=0, le=1)] = 0.95
    threshold_rule: Rule = "percentile"
    max_regions: PositiveInt | None = None
    seed: NonNegativeInt = 0


class RegionsSample:
    """Some rows of a regions table, drawn at random without replacement, in stored order.

    Args:
        regions: The rows to draw from.
        size: How many to draw; all rows when there are no more.
        seed: Of the draw.
    """

    def __init__(self, regions: RegionsLike, size: int, seed: int):
        self._regions = regions
        self._count = count_rows(regions)
        drawn = np.random.default_rng(seed).choice(self._count, min(size, self._count), replace=False)
        self._drawn = np.sort(drawn)

    @property
    def header(self) -> Header:
        """What all rows share."""
        return self._regions.header

    def __len__(self) -> int:
        return len(self._drawn)

    def has(self, column: str) -> bool:
        """Whether the rows have this column (or, for `last_layer`, the header)."""
        return self._regions.has(column)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The drawn rows of each batch."""
        first = 0
        for batch in self._regions.batches(columns):
            low, high = np.searchsorted(self._drawn, [first, first + len(batch)])
            if high > low:
                yield batch[self._drawn[low:high] - first]
            first += len(batch)


def operating_threshold(path: str | Path) -> float:
    """t* of a run: detections with a lower score are no detections. Read from `{"threshold": t*}`.

    Raises:
        DataError: the file is absent, or its threshold is not a number.
    """
    value = read_json(path)
    found = value.get("threshold") if isinstance(value, dict) else value
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise DataError(f"expected a number, found {found!r}", file=path, field="threshold")
    return float(found)


def training_regions(run: str | Path, operating: float, settings: FitSettings) -> RegionsLike:
    """The regions of a run that methods learn from: those of the training split at or above t*, or a sample of them.

    Raises:
        DataError: the split is absent or damaged.
    """
    regions = RegionsFolder(Path(run) / settings.split).above(operating)
    return regions if settings.max_regions is None else RegionsSample(regions, settings.max_regions, settings.seed)


def folder_digest(folder: str | Path) -> str:
    """A name for the files of a folder: what they are called and what is in them."""
    files = sorted(file for file in Path(folder).iterdir() if file.is_file())
    return digest(*(part for file in files for part in (file.name, file)))


def fit_run(
    name: str,
    params: dict[str, Any],
    run: str | Path,
    operating: float,
    settings: FitSettings,
    path: str | Path,
    choice: dict[str, Any] | None = None,
    truth: str | Path | None = None,
) -> str | None:
    """Fits a method to a run's regions, takes τ, and writes both to a folder.

    The folder holds what `Method.save` writes and `threshold.json`: τ, the rule and fraction, and how many regions it
    was taken from. A method that cannot be fitted leaves a `method.json` that says why, and no τ.

    Args:
        name, params: The method.
        run: Folder that holds one regions folder a split.
        operating: t*; rows with a lower detector score are left out.
        settings: Splits, fraction, rule, size of the sample.
        path: The folder to write.
        choice: How the parameters were chosen, where they were; kept in `method.json`.
        truth: Table of the calibration split's detections with their true classes, for methods that learn from it.

    Returns:
        Why the method does not apply, or None when it was fitted.

    Raises:
        ParameterError: the method or a parameter is unknown.
        DataError: a split is absent or damaged.
    """
    method = METHODS.create(name, **params)
    regions = training_regions(run, operating, settings)
    calibration = RegionsFolder(Path(run) / settings.calibration_split).above(operating)
    reason = None
    with write_aside(path) as aside:
        try:
            method.fit(regions)
            if method.wants_truth:
                method.learn_truth(calibration, true_columns(calibration, truth))
            scores = method.score(calibration)
            tau = threshold(scores, settings.keep, settings.threshold_rule)
            method.write_into(aside)
            if choice is not None:
                write_json(aside / "method.json", {**read_json(aside / "method.json"), "choice": choice})
            found = {"threshold": tau, "rule": settings.threshold_rule, "keep": settings.keep, "regions": len(scores)}
            write_json(aside / "threshold.json", found)
        except FitError as error:
            reason = str(error)
            write_not_applicable(method, reason, aside)
    return reason


def true_columns(regions: RegionsLike, truth: str | Path | None) -> np.ndarray:
    """The logits column of each detection's true class, shape (N,), for `Method.learn_truth`.

    Raises:
        FitError: there is no table of true classes.
        DataError: the table is damaged, or lacks a detection.
    """
    if truth is None:
        raise FitError("the true classes of the ID validation detections are needed, and were not given")
    table = TrueClasses.read(truth)
    header = regions.header
    column = {name: k for k, name in enumerate(header.classes)}
    nothing = -1 if header.background_index is None else header.background_index
    detections = zip(table.image_id, table.region_id.tolist(), strict=True)
    known = dict(zip(detections, (column.get(name, nothing) for name in table.category), strict=True))
    found: list[int] = []
    for batch in regions.batches([]):
        for key in zip(batch.image_id, batch.region_id.tolist(), strict=True):
            if key not in known:
                problem = f"no row for region {key[1]} of image {key[0]!r}; was it made of other regions?"
                raise DataError(problem, file=truth)
            found.append(known[key])
    return np.array(found, dtype=np.int64)


def write_not_applicable(method: Method, reason: str, folder: Path) -> None:
    """Writes a `method.json` that says why there is no state."""
    write_json(folder / "method.json", {**describe(method), "not_applicable": reason, "state": {}})

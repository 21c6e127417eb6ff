"""Time of fitting, scoring and evaluating a method, extrapolated from a sample of regions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.command.doctor.sampling import REGIONS, repeat_regions
from farther.command.output import size
from farther.evaluation.cost import timed
from farther.evaluation.settings import EvaluationSettings
from farther.methods.base import Method
from farther.metrics import ood, open_set
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.statistics import bootstrap
from farther.scoring.entries import MethodEntry
from farther.tables import Objects, Regions

#: The largest power of growth: each region with each other.
QUADRATIC = 2.0

#: Bytes of a region's score on disk.
SCORE_BYTES = 24.0


@dataclass(frozen=True)
class MethodCost:
    """Cost of fitting a method and scoring regions with it.

    Args:
        seconds: Time of both.
        bytes: Size of the scores and of the fitted method.
        how: A sentence on what was measured, and what it was extrapolated to.
    """

    seconds: float
    bytes: float
    how: str


@dataclass(frozen=True)
class _Timing:
    """A method fitted on some regions.

    Args:
        fit, score: Seconds of fitting, and of scoring `REGIONS` regions.
        state: Bytes of the fitted attributes.
    """

    fit: float
    score: float
    state: int


def method_cost(
    entry: MethodEntry, sampled: Regions, fit_count: float, score_count: float
) -> MethodCost:
    """Cost of a method, from timings on half of `REGIONS` regions and on all.

    Args:
        entry: The method.
        sampled: Regions of the sample, at least one.
        fit_count, score_count: Number of regions that it will be fitted on, and that it will score.
    """
    regions = repeat_regions(sampled)
    method = entry.create()
    half = _time_method(method, regions, REGIONS // 2)
    full = _time_method(method, regions, REGIONS)

    # A fixed part hides the growth of fitting in a sample; scoring may not depend on how many
    # regions were fitted.
    growth = fit_count / REGIONS
    fit_seconds = extrapolate(half.fit, full.fit, growth, slowest=1.0)
    score_seconds = extrapolate(half.score, full.score, growth, slowest=0.0)
    seconds = fit_seconds + score_seconds * score_count / REGIONS
    state_per_region = (full.state - half.state) / (REGIONS - REGIONS // 2)
    state = max(0.0, full.state + state_per_region * (fit_count - REGIONS))
    how = (
        f"{REGIONS:,} regions fitted in {full.fit:.3f} s and scored in {full.score:.3f} s; "
        f"there will be about {fit_count:,.0f} and {score_count:,.0f}; "
        f"{size(state)} are in memory, and on disk, once it is fitted"
    )
    return MethodCost(seconds, SCORE_BYTES * score_count + state, how)


def _time_method(method: Method, regions: Regions, count: int) -> _Timing:
    """Fits a method on the first regions, and scores all of them."""
    fit, _ = timed(lambda: method.fit(regions[:count]), tries=2)
    state = 0
    for name, value in vars(method).items():
        if name.endswith("_"):
            state += getattr(value, "nbytes", 0)
    score, _ = timed(lambda: method.score(regions), tries=2)
    return _Timing(fit, score, state)


def extrapolate(half: float, full: float, factor: float, *, slowest: float) -> float:
    """Seconds at a multiple of the sample, by the power of growth from half of it to all of it.

    Args:
        half, full: Seconds at half of the sample, and at the sample.
        factor: The multiple.
        slowest: The smallest power; the largest is `QUADRATIC`.

    >>> extrapolate(1.0, 2.0, 4, slowest=1.0), extrapolate(1.0, 4.0, 4, slowest=1.0)
    (8.0, 64.0)
    >>> extrapolate(1.0, 1.0, 4, slowest=1.0), extrapolate(1.0, 1.0, 4, slowest=0.0)
    (4.0, 1.0)
    """
    power = math.log2(full / half) if half > 0 else 1.0
    power = min(max(power, slowest), QUADRATIC)
    return full * factor**power


def evaluation_seconds(sampled: Regions, settings: EvaluationSettings) -> float:
    """Seconds of evaluating a method on `REGIONS` ID regions and as many OOD regions.

    They are matched with objects, and metrics are computed on all bootstrap resamples.
    """
    seconds, _ = timed(_evaluation(repeat_regions(sampled), settings))
    return seconds


def _evaluation(regions: Regions, settings: Any) -> Callable[[], None]:
    """Evaluates one method on a split whose objects are every third of the regions.

    The regions are also those of the ID split.
    """
    on_objects = regions[::3]
    objects = Objects(
        image_id=on_objects.image_id,
        object_id=np.arange(len(on_objects)),
        box=on_objects.box,
        category=np.full(len(on_objects), "unknown", dtype=object),
    )
    scores = regions.score.astype(np.float64)
    rules = MatchingRules(settings.iou, settings.protocol)

    def evaluate() -> None:
        split = OpenSetSplit.of(objects, regions, rules)
        outcome = split.match(scores < np.median(scores))
        open_set.metrics(outcome, -scores)
        if settings.replicates:
            draws = bootstrap.ImageDraws(set(regions.image_id), settings.replicates, settings.seed)
            rows = draws.rows(regions.image_id)
            ood.evaluate(scores, scores, rows, rows)
            open_set.metrics(outcome, -scores, draws.of(split.images))

    return evaluate

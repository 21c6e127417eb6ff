"""The best setting for a budget on the images that are chosen on: a method and its thresholds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from farther.evaluation.deploy.knobs import NOTHING_FLAGGED, Alarms, Knob
from farther.evaluation.deploy.results import Budget, DeploySetting, MethodGain
from farther.evaluation.deploy.steps import IdSteps, OodSteps, ThresholdSteps
from farther.metrics.statistics.risk_control import Guarantee, images_needed, largest_within


class Candidate(NamedTuple):
    """A method at a t*, and what raises alarms."""

    method: str
    operating: float
    alarms: Alarms = "detections"


@dataclass(frozen=True)
class Part:
    """Images that are chosen on.

    Args:
        id, ood: Masks of the ID validation images and of the OOD images.
        guarantee: What limits promise of new images.
        confidence: Of the guarantee "confidence", for each candidate and limit.
    """

    id: np.ndarray
    ood: np.ndarray
    guarantee: Guarantee = "none"
    confidence: float = 0.95


@dataclass(frozen=True)
class Point:
    """A setting, and its costs on the images that it was chosen on.

    Args:
        setting: The setting.
        reached: Whether it is within the limits.
        part: The images.
        misclassified, found: Shares of the unknown objects.
        false_alarms: Share of the ID images.
        recall_lost: Share of the known objects.
    """

    setting: DeploySetting
    reached: bool
    part: Part
    misclassified: float
    found: float
    false_alarms: float
    recall_lost: float

    def rank(self, budget: Budget) -> tuple[float, ...]:
        """Sort key of settings, the best first: those within the limits before all others.

        Where a limit on misclassified objects is met, false alarms rank first.
        """
        exceeds = int(not self.reached)
        if budget.max_misclassified is not None and self.reached:
            return (exceeds, self.false_alarms, -self.found, self.misclassified, self.recall_lost)
        return (exceeds, -self.found, self.misclassified, self.false_alarms, self.recall_lost)


@dataclass(frozen=True)
class Picked:
    """A setting that was picked from those of several methods.

    Args:
        point: The setting.
        passed_over: By how much the best method is better; None where the best one was picked.
    """

    point: Point
    passed_over: MethodGain | None = None


@dataclass(frozen=True)
class SearchSteps:
    """What a search for the best setting takes from the run.

    Args:
        steps_of: Costs of a method at a t*.
        pick: Picks one of the best settings of several methods.
        halved: Divides images in two, for a guarantee in expectation: it is of a candidate that was
            chosen on other images than its thresholds.
        source: Name of the source of proposals; None for none.
    """

    steps_of: Callable[[str, float], tuple[IdSteps, OodSteps]]
    pick: Callable[[Sequence[Point], Budget], Picked]
    halved: Callable[[Part], tuple[Part, Part]]
    source: str | None = None


@dataclass(frozen=True)
class Comparison:
    """The candidates that are compared at one confidence.

    Bonferroni's correction divides what may go wrong between them. Where that would leave too few
    images to show any limit, only the first ones are compared.

    Args:
        candidates: The candidates, in the order in which they are given up last.
        level: Confidence of each limit of each candidate.
    """

    candidates: Sequence[Candidate]
    level: float = field(default=0.95)

    @classmethod
    def of(cls, candidates: Sequence[Candidate], images: int, budget: Budget) -> Comparison:
        """As many candidates as the images can compare, one at least.

        Args:
            candidates: All candidates.
            images: The smallest number of images that a limit is shown on.
            budget: The limits.
        """
        if budget.guarantee != "confidence":
            return cls(candidates)
        for count in range(len(candidates), 1, -1):
            level = budget.level(count)
            needed = max(images_needed(limit, confidence=level) for limit in budget.limits.values())
            if needed <= images:
                return cls(candidates[:count], level)
        return cls(candidates[:1], budget.level(1))


def best_setting(
    candidates: Sequence[Candidate], part: Part, budget: Budget, search: SearchSteps
) -> Picked:
    """The setting to take of several methods, each at one or more values of t*.

    Args:
        candidates: Methods, values of t*, and what raises alarms.
        part: Images to choose on, and the confidence of each candidate.
        budget: The limits.
        search: Costs of candidates, and the rule that picks a method.
    """
    if budget.guarantee != "expected":
        promised = replace(part, guarantee=budget.guarantee)
        return search.pick(_best_by_method(candidates, promised, budget, search), budget)

    passed_over = None
    if len(candidates) > 1:
        method_part, part = search.halved(part)
        picked = search.pick(_best_by_method(candidates, method_part, budget, search), budget)
        passed_over = picked.passed_over
        setting = picked.point.setting
        candidates = [Candidate(setting.method, setting.operating, setting.alarms)]
    promised = replace(part, guarantee="expected")
    (point,) = _best_by_method(candidates, promised, budget, search)
    return Picked(point, passed_over)


def _best_by_method(
    candidates: Sequence[Candidate], part: Part, budget: Budget, search: SearchSteps
) -> list[Point]:
    """The best setting of each method over its candidates; of equal ones the first."""
    best_by_method: dict[str, Point] = {}
    for candidate in candidates:
        steps = search.steps_of(candidate.method, candidate.operating)
        point = best_level(candidate, steps, part, budget, search.source)
        best = best_by_method.get(candidate.method)
        if best is None or point.rank(budget) < best.rank(budget):
            best_by_method[candidate.method] = point
    return list(best_by_method.values())


def best_level(
    candidate: Candidate,
    steps: tuple[IdSteps, OodSteps],
    part: Part,
    budget: Budget,
    source: str | None = None,
) -> Point:
    """The best level of a candidate; see `farther.evaluation.deploy.knobs`.

    That is the smallest one within the limit on misclassified objects, or the largest one within
    the others where there is no such limit or it is not reached.

    Args:
        candidate: The method, t*, and what raises alarms.
        steps: Their costs.
        part: Images to choose on.
        budget: The limits.
        source: Name of the source of proposals; None for none.
    """
    id_steps, ood_steps = steps
    knob = Knob.of(candidate.alarms, ood_steps, part.ood)
    alarms = first_of_each_image(knob.alarms_of(id_steps))
    lost = knob.of_detections(id_steps.lost)
    misclassified = knob.of_detections(ood_steps.misclassified)
    found = knob.found(ood_steps)

    lower = -math.inf
    if budget.max_misclassified is not None:
        # A larger level misclassifies fewer objects: the same search on the other side of 0.
        mirrored = ThresholdSteps(-misclassified.at, misclassified.image)
        lower = -_largest(mirrored, part.ood, budget.max_misclassified, part)
    upper = math.inf
    if budget.max_false_alarms is not None:
        upper = _largest(alarms, part.id, budget.max_false_alarms, part, sizes=part.id.astype(int))
    if budget.max_recall_loss is not None:
        upper = min(upper, _largest(lost, part.id, budget.max_recall_loss, part))

    detections = knob.of_detections(ood_steps.detections)
    alarms_chosen_on = alarms.of(part.id)
    tried = [alarms_chosen_on.at, detections.of(part.ood).at, found.of(part.ood).at]
    level, reached = _between(np.concatenate(tried), lower, upper, budget)
    if upper < NOTHING_FLAGGED:
        # What the detector labels as unknown, or what t* loses, exceeds the limits by itself.
        costs = np.concatenate([alarms_chosen_on.at, lost.of(part.id).at])
        if np.any(costs < NOTHING_FLAGGED):
            reached = False

    objectness = knob.objectness(level)
    setting = DeploySetting(
        method=candidate.method,
        operating=candidate.operating,
        tau=knob.tau(level),
        alarms=candidate.alarms,
        source=None if objectness is None else source,
        objectness=objectness,
    )
    return Point(
        setting=setting,
        reached=reached,
        part=part,
        misclassified=_mean(misclassified.of(part.ood).at >= level),
        found=_mean(found.of(part.ood).at < level),
        false_alarms=len(alarms_chosen_on.below(level).at) / max(int(part.id.sum()), 1),
        recall_lost=_mean(lost.of(part.id).at < level),
    )


def _largest(
    units: ThresholdSteps,
    images: np.ndarray,
    limit: float,
    part: Part,
    sizes: np.ndarray | None = None,
) -> float:
    """The largest level within a limit on the share of units, which are lost above their steps.

    Args:
        units: The units.
        images: Mask of the images that are chosen on.
        limit: The limit.
        part: What it promises.
        sizes: Number of units of each image; of those of `units` when None.
    """
    if sizes is None:
        sizes = units.counts(len(images))
    chosen_on = units.of(images)
    has_units = images & (sizes > 0)
    number = np.cumsum(has_units) - 1
    return largest_within(
        chosen_on.at,
        number[chosen_on.image],
        sizes[has_units],
        limit,
        part.guarantee,
        part.confidence,
    )


def _between(scores: np.ndarray, lower: float, upper: float, budget: Budget) -> tuple[float, bool]:
    """The level above `lower` and up to `upper`, and whether there is one.

    It is one of the scores, or the next number after the largest score.
    """
    levels = np.unique(scores[np.isfinite(scores) & (scores > NOTHING_FLAGGED)])
    above_all = np.nextafter(levels[-1], np.inf) if len(levels) else 0.0
    levels = np.append(levels, above_all)

    within = levels[levels <= upper]
    if budget.max_misclassified is not None:
        enough = within[within > lower]
        if len(enough):
            return float(enough[0]), True

    reached = budget.max_misclassified is None
    if len(within):
        return float(within[-1]), reached
    # Where no score is within the limits, nothing is flagged, which costs no false alarm and no
    # object.
    return NOTHING_FLAGGED, reached


def first_of_each_image(steps: ThresholdSteps) -> ThresholdSteps:
    """The smallest step of each image."""
    order = np.lexsort((steps.at, steps.image))
    is_first = np.diff(steps.image[order], prepend=-1) != 0
    return steps[order[is_first]]


def _mean(flags: np.ndarray) -> float:
    return float(np.mean(flags)) if len(flags) else 0.0

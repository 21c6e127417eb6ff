"""The best setting for a budget on the images that are chosen on: the method, t* and τ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from farther.evaluation.deploy.results import Budget, DeploySetting, MethodGain
from farther.evaluation.deploy.steps import IdSteps, OodSteps, ThresholdSteps
from farther.methods.base import LABELLED_UNKNOWN
from farther.metrics.statistics.conformal import corrected, largest_within

#: A method and a value of t*.
Candidate = tuple[str, float]

#: τ that flags only what the detector labels as unknown, whose scores are below it.
NOTHING_FLAGGED = math.nextafter(-LABELLED_UNKNOWN, math.inf)


@dataclass(frozen=True)
class Part:
    """Images that are chosen on.

    Args:
        id, ood: Masks of the ID validation images and of the OOD images.
        guaranteed: Whether limits hold in expectation on new images, or on these.
    """

    id: np.ndarray
    ood: np.ndarray
    guaranteed: bool = False


@dataclass(frozen=True)
class Point:
    """A setting, and its costs on the images that it was chosen on.

    Args:
        setting: The setting.
        reached: Whether it is within the limits.
        part: The images.
        misclassified, recall_lost: Shares of the unknown and of the known objects.
        false_alarms: Per ID image.
    """

    setting: DeploySetting
    reached: bool
    part: Part
    misclassified: float
    false_alarms: float
    recall_lost: float

    def rank(self, budget: Budget) -> tuple[float, ...]:
        """Sort key of settings, the best first.

        Where a limit on misclassified objects is met, false alarms rank first.
        """
        if budget.max_misclassified is not None and self.reached:
            return (0, self.false_alarms, self.misclassified, self.recall_lost)
        return (1, self.misclassified, self.false_alarms, self.recall_lost)


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
        steps_of: Costs of a candidate.
        pick: Picks one of the best settings of several methods.
        halved: Divides images in two, for a guarantee: it is of a candidate that was chosen on
            other images than τ.
    """

    steps_of: Callable[[str, float], tuple[IdSteps, OodSteps]]
    pick: Callable[[Sequence[Point], Budget], Picked]
    halved: Callable[[Part], tuple[Part, Part]]


def best_setting(
    candidates: Sequence[Candidate], part: Part, budget: Budget, search: SearchSteps
) -> Picked:
    """The setting to take of several methods, each at one or more values of t*.

    Args:
        candidates: Methods and values of t*.
        part: Images to choose on.
        budget: The limits.
        search: Costs of candidates, and the rule that picks a method.
    """
    if budget.guarantee == "none":
        return search.pick(_best_by_method(candidates, part, budget, search), budget)

    passed_over = None
    if len(candidates) > 1:
        method_part, part = search.halved(part)
        picked = search.pick(_best_by_method(candidates, method_part, budget, search), budget)
        passed_over = picked.passed_over
        candidates = [(picked.point.setting.method, picked.point.setting.operating)]
    guaranteed = replace(part, guaranteed=True)
    (point,) = _best_by_method(candidates, guaranteed, budget, search)
    return Picked(point, passed_over)


def _best_by_method(
    candidates: Sequence[Candidate], part: Part, budget: Budget, search: SearchSteps
) -> list[Point]:
    """The best setting of each method over its values of t*; of equal ones the first."""
    best_by_method: dict[str, Point] = {}
    for method, operating in candidates:
        steps = search.steps_of(method, operating)
        point = best_tau(method, operating, steps, part, budget)
        best = best_by_method.get(method)
        if best is None or point.rank(budget) < best.rank(budget):
            best_by_method[method] = point
    return list(best_by_method.values())


def best_tau(
    method: str, operating: float, steps: tuple[IdSteps, OodSteps], part: Part, budget: Budget
) -> Point:
    """The best τ of a method at a t*.

    That is the smallest τ within the limit on misclassified objects, or the largest one within the
    others where there is no such limit or it is not reached.

    Args:
        method, operating: The method and t*.
        steps: Their costs.
        part: Images to choose on.
        budget: The limits.
    """
    id_steps, ood_steps = steps
    flagged = id_steps.flagged.of(part.id)
    lost = id_steps.lost.of(part.id)
    misclassified = ood_steps.misclassified.of(part.ood)
    detections = ood_steps.detections.of(part.ood)

    lower = _lower_bound(misclassified, part, budget)
    upper = _upper_bound(flagged, lost, part, budget)
    scores = np.concatenate([flagged.at, detections.at])
    tau, reached = _between(scores, lower, upper, budget)
    if upper < NOTHING_FLAGGED and np.any(flagged.at < NOTHING_FLAGGED):
        reached = False  # what the detector labels as unknown exceeds the limits by itself

    return Point(
        setting=DeploySetting(method=method, operating=operating, tau=tau),
        reached=reached,
        part=part,
        misclassified=_mean(misclassified.at >= tau),
        false_alarms=float(np.sum(flagged.at < tau)) / max(int(part.id.sum()), 1),
        recall_lost=_mean(lost.at < tau),
    )


def _lower_bound(misclassified: ThresholdSteps, part: Part, budget: Budget) -> float:
    """The bound that τ must exceed for the limit on misclassified objects; −∞ without a limit."""
    if budget.max_misclassified is None:
        return -math.inf
    losses, limit = _object_losses(misclassified, budget.max_misclassified, part)
    return -largest_within(-misclassified.at, losses, limit)


def _upper_bound(
    flagged: ThresholdSteps, lost: ThresholdSteps, part: Part, budget: Budget
) -> float:
    """The largest τ within the limits on false alarms and on recall; ∞ without limits."""
    upper = math.inf
    if budget.max_false_alarms is not None:
        images = int(part.id.sum())
        limit = budget.max_false_alarms
        steps = flagged
        if part.guaranteed:
            # A guarantee is of images with a false alarm: their number per image is not bounded.
            steps = _first_of_each_image(flagged)
            limit = corrected(limit, images)
        upper = largest_within(steps.at, np.full(len(steps.at), 1 / max(images, 1)), limit)
    if budget.max_recall_loss is not None:
        losses, limit = _object_losses(lost, budget.max_recall_loss, part)
        upper = min(upper, largest_within(lost.at, losses, limit))
    return upper


def _between(scores: np.ndarray, lower: float, upper: float, budget: Budget) -> tuple[float, bool]:
    """τ above `lower` and up to `upper`, and whether there is one.

    τ is one of the scores, or the next number after the largest score.
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


def _object_losses(objects: ThresholdSteps, limit: float, part: Part) -> tuple[np.ndarray, float]:
    """The loss of each object, and the limit of their sum.

    The sum is the share of all objects, or with a guarantee the mean of the shares per image.
    """
    if not part.guaranteed:
        return np.full(len(objects.at), 1 / max(len(objects.at), 1)), limit
    counts = objects.counts(int(objects.image.max(initial=-1)) + 1)
    images = int(np.sum(counts > 0))
    return 1 / (max(images, 1) * counts[objects.image]), corrected(limit, images)


def _first_of_each_image(steps: ThresholdSteps) -> ThresholdSteps:
    """The smallest step of each image."""
    order = np.lexsort((steps.at, steps.image))
    is_first = np.diff(steps.image[order], prepend=-1) != 0
    return steps[order[is_first]]


def _mean(flags: np.ndarray) -> float:
    return float(np.mean(flags)) if len(flags) else 0.0

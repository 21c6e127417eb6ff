"""The best setting for a budget on the images that are chosen on: the method, t* and τ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from farther.evaluation.deploy.results import Budget, DeploySetting
from farther.evaluation.deploy.steps import IdSteps, OodSteps, ThresholdSteps
from farther.methods.base import LABELLED_UNKNOWN
from farther.metrics.statistics.conformal import corrected, largest_within

#: A method and a value of t*.
Candidate = tuple[str, float]

#: τ that flags nothing but what the detector labels as unknown, whose scores are below it.
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
    """A setting, whether it is within the limits, and its costs on the images that it was chosen on.

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
        """Orders settings, the best first: by false alarms where a limit on misclassified objects is met."""
        if budget.max_misclassified is not None and self.reached:
            return (0, self.false_alarms, self.misclassified, self.recall_lost)
        return (1, self.misclassified, self.false_alarms, self.recall_lost)


def best_setting(
    steps_of: Callable[[str, float], tuple[IdSteps, OodSteps]],
    candidates: Sequence[Candidate],
    part: Part,
    budget: Budget,
    halved: Callable[[Part], tuple[Part, Part]],
) -> Point:
    """The best of several methods, each at one or more values of t*; of equal ones the first.

    Args:
        steps_of: Costs of a candidate.
        candidates: Methods and values of t*.
        part: Images to choose on.
        budget: The limits.
        halved: Divides images in two, for a guarantee: it is of a candidate that was chosen on
            other images than τ.
    """

    def first(among: Sequence[Candidate], images: Part) -> Point:
        points = [best_tau(*one, steps_of(*one), images, budget) for one in among]
        return min(points, key=lambda point: point.rank(budget))

    if budget.guarantee == "none":
        return first(candidates, part)
    if len(candidates) > 1:
        choosing, part = halved(part)
        setting = first(candidates, choosing).setting
        candidates = [(setting.method, setting.operating)]
    return first(candidates, replace(part, guaranteed=True))


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
    of_id, of_ood = steps
    flagged, lost = of_id.flagged.of(part.id), of_id.lost.of(part.id)
    misclassified, detections = of_ood.misclassified.of(part.ood), of_ood.detections.of(part.ood)
    least, most = -math.inf, _largest(flagged, lost, part, budget)
    if budget.max_misclassified is not None:
        shares = _of_objects(misclassified, budget.max_misclassified, part)
        least = -largest_within(-misclassified.at, *shares)
    tau, reached = _between(np.concatenate([flagged.at, detections.at]), least, most, budget)
    if most < NOTHING_FLAGGED and np.any(flagged.at < NOTHING_FLAGGED):
        reached = False  # what the detector labels as unknown exceeds the limits by itself
    return Point(
        setting=DeploySetting(method=method, operating=operating, tau=tau),
        reached=reached,
        part=part,
        misclassified=_mean(misclassified.at >= tau),
        false_alarms=float(np.sum(flagged.at < tau)) / max(int(part.id.sum()), 1),
        recall_lost=_mean(lost.at < tau),
    )


def _largest(flagged: ThresholdSteps, lost: ThresholdSteps, part: Part, budget: Budget) -> float:
    """The largest τ within the limits on false alarms and on recall."""
    most, images = math.inf, int(part.id.sum())
    if budget.max_false_alarms is not None:
        limit = budget.max_false_alarms / 100
        # A guarantee is of images with a false alarm: their number in an image has no bound.
        steps = _first_of_each_image(flagged) if part.guaranteed else flagged
        limit = corrected(limit, images) if part.guaranteed else limit
        most = largest_within(steps.at, np.full(len(steps.at), 1 / max(images, 1)), limit)
    if budget.max_recall_loss is not None:
        most = min(most, largest_within(lost.at, *_of_objects(lost, budget.max_recall_loss, part)))
    return most


def _between(scores: np.ndarray, least: float, most: float, budget: Budget) -> tuple[float, bool]:
    """τ above `least` and up to `most`: one of the scores, or the next number after all; and whether there is one."""
    levels = np.unique(scores[np.isfinite(scores) & (scores > NOTHING_FLAGGED)])
    levels = np.append(levels, np.nextafter(levels[-1], np.inf) if len(levels) else 0.0)
    within = levels[levels <= most]
    if budget.max_misclassified is not None:
        enough = within[within > least]
        if len(enough):
            return float(enough[0]), True
    # Where no score is within the limits, nothing is flagged, which costs no false alarm and no
    # object.
    return float(within[-1]) if len(within) else NOTHING_FLAGGED, budget.max_misclassified is None


def _of_objects(objects: ThresholdSteps, limit: float, part: Part) -> tuple[np.ndarray, float]:
    """The loss of each object, and the limit of their sum: shares of all objects, or means of shares per image."""
    if not part.guaranteed:
        return np.full(len(objects.at), 1 / max(len(objects.at), 1)), limit
    counts = objects.counts(int(objects.image.max(initial=-1)) + 1)
    images = int(np.sum(counts > 0))
    return 1 / (max(images, 1) * counts[objects.image]), corrected(limit, images)


def _first_of_each_image(steps: ThresholdSteps) -> ThresholdSteps:
    """The smallest step of each image."""
    order = np.lexsort((steps.at, steps.image))
    return steps[order[np.diff(steps.image[order], prepend=-1) != 0]]


def _mean(flags: np.ndarray) -> float:
    return float(np.mean(flags)) if len(flags) else 0.0

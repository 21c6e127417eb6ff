"""One scale for the two thresholds of a setting: τ of detections, and the objectness of proposals.

A false alarm is a detection that is flagged as unknown, or a proposal that is called unknown. With
two thresholds there are many ways to spend one limit on false alarms. Three are tried:

- "detections": no proposals;
- "both": a proposal of objectness o is worth as much as a detection of score s where as many OOD
  images have a proposal above o as have a detection below s. Both alone raise as many alarms there;
- "proposals": nothing is flagged but what the detector itself labels as unknown.

So every setting of a method and t* is one *level* on one scale, from strict to lax, which is fixed
by OOD images alone: no ID image, on which limits are tested, has a say in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from farther.evaluation.deploy.steps import IdSteps, OodSteps, ThresholdSteps
from farther.methods.rows import LABELLED_UNKNOWN

#: What raises alarms.
Alarms = Literal["detections", "both", "proposals"]

#: Objectness below that of every proposal.
BELOW_ALL = float(np.finfo(np.float32).min)

#: τ that flags only what the detector labels as unknown, whose scores are below it.
NOTHING_FLAGGED = float(np.nextafter(-LABELLED_UNKNOWN, np.inf))


@dataclass(frozen=True)
class Exchange:
    """The score of a detection that a proposal is worth.

    Args:
        scores: The lowest score of a detection in each of J OOD images, ascending; ∞ where an image
            has none, or only such that are labelled unknown. Shape (J,).
        objectness: The highest objectness of a proposal in each, descending; −∞ where an image has
            none. Shape (J,).
    """

    scores: np.ndarray
    objectness: np.ndarray

    @classmethod
    def of(cls, steps: OodSteps, images: np.ndarray) -> Exchange:
        """The exchange on some OOD images.

        Args:
            steps: Detections and proposals of all OOD images.
            images: Mask of the images.
        """
        scores = np.full(len(images), np.inf)
        detections = steps.detections
        scored = detections[detections.at > NOTHING_FLAGGED]
        np.minimum.at(scores, scored.image, scored.at)
        objectness = np.full(len(images), -np.inf)
        np.maximum.at(objectness, steps.proposals.image, steps.proposals.at)
        return cls(np.sort(scores[images]), -np.sort(-objectness[images]))

    def score_of(self, objectness: np.ndarray) -> np.ndarray:
        """The score that proposals are worth, ndarray of the same shape; ∞ where it is none."""
        above = np.searchsorted(-self.objectness, -objectness, side="left")
        scores = np.append(self.scores, np.inf)[above]
        return np.where(np.isneginf(objectness), np.inf, scores)

    def objectness_at(self, tau: float) -> float:
        """The objectness above which proposals are worth a score below τ."""
        below = int(np.searchsorted(self.scores, tau, side="left"))
        if not below:
            return np.inf
        return max(_below(self.objectness[below - 1]), BELOW_ALL)


@dataclass(frozen=True)
class Knob:
    """The scale of a method's settings at a t*.

    Args:
        alarms: What raises alarms.
        exchange: Of "both", else None.
    """

    alarms: Alarms
    exchange: Exchange | None = None

    @classmethod
    def of(cls, alarms: Alarms, steps: OodSteps, images: np.ndarray) -> Knob:
        """The scale, which OOD images fix.

        Args:
            alarms: What raises alarms.
            steps, images: See `Exchange.of`.
        """
        exchange = Exchange.of(steps, images) if alarms == "both" else None
        return cls(alarms, exchange)

    def of_detections(self, steps: ThresholdSteps) -> ThresholdSteps:
        """The levels above which detections are flagged, or what that changes of objects."""
        if self.alarms != "proposals":
            return steps
        at = np.where(steps.at < NOTHING_FLAGGED, -np.inf, np.inf)
        return ThresholdSteps(at, steps.image)

    def of_proposals(self, steps: ThresholdSteps) -> ThresholdSteps:
        """The levels above which proposals are called unknown, or objects found by them."""
        if self.exchange is not None:
            return ThresholdSteps(self.exchange.score_of(steps.at), steps.image)
        if self.alarms == "proposals":
            return ThresholdSteps(-steps.at, steps.image)
        return ThresholdSteps(np.full(len(steps.at), np.inf), steps.image)

    def alarms_of(self, steps: IdSteps) -> ThresholdSteps:
        """The levels above which detections and proposals of ID images raise a false alarm."""
        return ThresholdSteps.concatenate(
            [self.of_detections(steps.flagged), self.of_proposals(steps.proposals)]
        )

    def found(self, steps: OodSteps) -> ThresholdSteps:
        """The levels above which unknown objects are found, by either."""
        by_detection = self.of_detections(steps.found)
        by_proposal = self.of_proposals(steps.recovered)
        return ThresholdSteps(np.minimum(by_detection.at, by_proposal.at), by_detection.image)

    def tau(self, level: float) -> float:
        """τ of a level."""
        if self.alarms == "proposals":
            return NOTHING_FLAGGED
        return max(level, NOTHING_FLAGGED)

    def objectness(self, level: float) -> float | None:
        """The objectness above which proposals are called unknown; None where none are."""
        if self.exchange is not None:
            objectness = self.exchange.objectness_at(level)
        elif self.alarms == "proposals":
            objectness = _at_most(-level)
        else:
            return None
        return None if objectness == np.inf else objectness


def _below(value: float) -> float:
    """The next objectness below a value: tables hold it as float32."""
    return float(np.nextafter(np.float32(value), np.float32(-np.inf)))


def _at_most(value: float) -> float:
    """The largest objectness up to a value."""
    rounded = float(np.float32(value))
    return rounded if rounded <= value else _below(rounded)

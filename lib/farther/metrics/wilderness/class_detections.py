"""Detections of one class in closed and in wild images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClosedDetections:
    """Detections of one class in the closed images, matched to its objects.

    Args:
        positives: Number of objects of the class.
        score: Confidences, falling, ndarray of shape (n,), float64.
        is_true: True positives, ndarray of shape (n,), bool.
    """

    positives: int
    score: np.ndarray
    is_true: np.ndarray


@dataclass(frozen=True)
class ClassDetections:
    """Detections of one class in closed and in wild images; all of those in wild images are wrong.

    Args:
        closed: Detections in the closed images.
        wild_score: Confidences of the m detections in wild images, ndarray of shape (m,).
        wild_image: Position of each one's image in the order in which wild images are added,
            ndarray of shape (m,).
    """

    closed: ClosedDetections
    wild_score: np.ndarray
    wild_image: np.ndarray

    def ranked(self, added: float) -> np.ndarray:
        """Truth of the detections by falling confidence, ndarray of bool.

        Args:
            added: Number of wild images, whose detections are among them.
        """
        wild_score = self.wild_score[self.wild_image < added]
        order = np.argsort(-np.concatenate([self.closed.score, wild_score]), kind="stable")
        is_true = np.append(self.closed.is_true, np.zeros(len(wild_score), dtype=bool))
        ranked: np.ndarray = is_true[order]
        return ranked

"""Precision–recall curves and the areas under them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Curve:
    """Precision and recall after each detection, in the order of the ranking.

    Args:
        precision, recall: ndarray of shape (N,).
    """

    precision: np.ndarray
    recall: np.ndarray

    @classmethod
    def of(cls, is_true: np.ndarray, positives: float) -> Curve:
        """The curve of ranked detections.

        Args:
            is_true: ndarray of shape (N,): 1 for a true positive, 0 for a false one, the best ranked first.
            positives: Objects there are to be found; more than 0.
        """
        true = np.cumsum(is_true, dtype=np.float64)
        return cls(true / np.arange(1, len(true) + 1), true / positives)

    @property
    def interpolated(self) -> np.ndarray:
        """The largest precision at this recall or a larger one (FMIYC, Eq. 8)."""
        return np.maximum.accumulate(self.precision[::-1])[::-1]


def all_point_ap(curve: Curve) -> float:
    """Area under the interpolated curve, a rectangle a step in recall (FMIYC, Eqs. 6–8; Pascal VOC since 2010)."""
    steps = np.diff(curve.recall, prepend=0.0)
    return float(np.sum(steps * curve.interpolated))


def sampled_ap(curve: Curve, points: int) -> float:
    """Mean of the interpolated precision at evenly spaced recalls 0 … 1: 11 in Pascal VOC 2007, 101 in COCO."""
    wanted = np.linspace(0.0, 1.0, points)
    place = np.searchsorted(curve.recall, wanted, side="left")
    precision = np.append(curve.interpolated, 0.0)
    return float(np.mean(precision[place]))

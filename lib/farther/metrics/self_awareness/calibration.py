"""Calibration: for each class a map from confidence to expected IoU.

Source: Oksuz et al., CVPR 2023, arXiv:2307.00934, Section 5.3. A map is fitted to validation
detections: the target of a true positive is its IoU, that of a false positive 0. The calibrated
confidence then approximates precision × IoU, with which LaECE compares it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, StrictFloat
from pydantic.dataclasses import dataclass

from farther.errors import DataError
from farther.metrics.self_awareness.matches import TRUE_POSITIVE_IOU, ClassMatches, match
from farther.naming.registry import Parameters
from farther.tables import Objects, Regions
from farther.tables.arguments import floats, instance, one_of

# Imported in functions: parts of SciPy and scikit-learn that only fitting needs.

Kind = Literal["linear", "histogram", "isotonic", "temperature", "platt"]

#: Bins of histogram binning, each with about as many detections; a class with few has fewer, of at
#: least two.
HISTOGRAM_BINS = 25

#: Confidences are at least that far from 0 and 1 before their logit is taken.
SMALLEST = 1e-7


def _numbers(values: Any) -> np.ndarray:
    try:
        return floats(values, "values")
    except DataError as error:
        raise ValueError(error.problem) from None


#: Numbers: in memory an ndarray, in JSON a list.
Numbers = Annotated[np.ndarray, BeforeValidator(_numbers), PlainSerializer(np.ndarray.tolist)]

#: Of classes whose fields are what JSON holds, which pydantic checks.
STORED = ConfigDict(extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)


@dataclass(frozen=True, config=STORED)
class Linear(Parameters):
    """A straight line, cut off at 0 and 1."""

    slope: StrictFloat
    intercept: StrictFloat
    type: Literal["Linear"] = "Linear"

    def __call__(self, score: np.ndarray) -> np.ndarray:
        """Calibrated confidences, ndarray of shape (n,)."""
        return np.clip(self.slope * score + self.intercept, 0, 1)


@dataclass(frozen=True, config=STORED)
class StepFunction(Parameters):
    """A constant between two edges: `values[j]` from `edges[j − 1]` up to below `edges[j]`."""

    edges: Numbers
    values: Numbers
    type: Literal["Steps"] = "Steps"

    def __post_init__(self) -> None:
        if len(self.values) != len(self.edges) + 1:
            raise ValueError("there is one value more than edges")

    def __call__(self, score: np.ndarray) -> np.ndarray:
        """Calibrated confidences, ndarray of shape (n,)."""
        return self.values[np.searchsorted(self.edges, score, side="right")]


@dataclass(frozen=True, config=STORED)
class Polyline(Parameters):
    """Straight lines between points, constant beyond the first and the last."""

    x: Numbers
    y: Numbers
    type: Literal["Polyline"] = "Polyline"

    def __post_init__(self) -> None:
        if not len(self.x) or len(self.x) != len(self.y):
            raise ValueError("x and y have equally many values, at least one")

    def __call__(self, score: np.ndarray) -> np.ndarray:
        """Calibrated confidences, ndarray of shape (n,)."""
        return np.interp(score, self.x, self.y)


@dataclass(frozen=True, config=STORED)
class Logistic(Parameters):
    """A logistic curve of the confidence's logit: σ(slope · logit(p) + intercept)."""

    slope: StrictFloat
    intercept: StrictFloat
    type: Literal["Logistic"] = "Logistic"

    def __call__(self, score: np.ndarray) -> np.ndarray:
        """Calibrated confidences, ndarray of shape (n,)."""
        # Imported here, as below: SciPy takes half a second to start.
        from scipy.special import expit

        return expit(self.slope * _logit(score) + self.intercept)


Calibrator = Annotated[Linear | StepFunction | Polyline | Logistic, Field(discriminator="type")]


def fit(
    kind: Kind,
    objects: Objects,
    regions: Regions,
    classes: Sequence[str] | None = None,
    iou: float = TRUE_POSITIVE_IOU,
) -> dict[str, Calibrator]:
    """Fits a calibrator for each class that has detections.

    Args:
        kind: "linear" (least squares), "histogram" (bins of equal counts), "isotonic" (the best map
            that never falls), "temperature" (σ(logit(p) / T)) or "platt" (σ(a · logit(p) + b)),
            both by cross-entropy (Kuzucu et al., On Calibration of Object Detectors, ECCV 2024,
            arXiv:2405.20459).
        objects, regions: ID validation data.
        classes: Names of the known classes; those of `regions` when None.
        iou: From which IoU on a detection of the right class is a true positive.

    Raises:
        ParameterError: the kind is unknown, or the IoU is not above 0 and below 1.
    """
    return of_matched(kind, match(objects, regions, classes, iou))


def of_matched(kind: Kind, matched: Mapping[str, ClassMatches]) -> dict[str, Calibrator]:
    """As `fit`, of matched detections.

    Args:
        kind: One of `Kind`.
        matched: Those of each class; see `farther.metrics.self_awareness.matches.match`.

    Raises:
        ParameterError: the kind is unknown.
    """
    one_of(kind, get_args(Kind), "calibrator")
    instance(matched, Mapping, "matched")
    fit_by_kind: dict[str, Callable[[ClassMatches], Calibrator]] = {
        "linear": _linear,
        "histogram": _histogram,
        "isotonic": _isotonic,
        "temperature": partial(_logistic, intercept=False),
        "platt": partial(_logistic, intercept=True),
    }
    fit_class = fit_by_kind[kind]
    calibrators = {}
    for name, detections in matched.items():
        if len(detections.score):
            calibrator = fit_class(detections)
            calibrators[name] = calibrator
    return calibrators


def confidences(calibrators: Mapping[str, Calibrator], regions: Regions) -> np.ndarray:
    """Calibrated confidences, ndarray of shape (N,), float32.

    Args:
        calibrators: Calibrator of each class, as `fit` returns them. Confidences of a class without
            one stay as they are.
        regions: N detections.
    """
    instance(calibrators, Mapping, "calibrators")
    instance(regions, Regions, "regions")
    score = regions.score.astype(np.float64)
    for label in np.unique(regions.label).tolist():
        calibrator = calibrators.get(regions.classes[label])
        if calibrator is not None:
            rows = regions.label == label
            score[rows] = calibrator(score[rows])
    return score.astype(np.float32)


def _linear(detections: ClassMatches) -> Linear:
    """The line with the smallest squared error."""
    score = detections.score
    target = detections.quality
    centred = score - score.mean()
    variation = float(np.sum(centred**2))
    slope = 0.0
    if variation > 0:
        slope = float(np.sum(centred * target)) / variation
    return Linear(slope, float(target.mean() - slope * score.mean()))


def _histogram(detections: ClassMatches) -> StepFunction:
    """The mean target of each of `HISTOGRAM_BINS` bins of equal counts."""
    order = np.argsort(detections.score, kind="stable")
    score = detections.score[order]
    target = detections.quality[order]
    bins = max(1, min(HISTOGRAM_BINS, len(score) // 2))
    starts = np.arange(1, bins) * len(score) // bins
    # Equal confidences belong to one bin, so fewer edges than bins may be left.
    edges = np.unique(score[starts])
    edges = edges[edges > score[0]]
    bin_index = np.searchsorted(edges, score, side="right")
    counts = np.bincount(bin_index, minlength=len(edges) + 1)
    target_sums = np.bincount(bin_index, target, minlength=len(edges) + 1)
    return StepFunction(edges, target_sums / counts)


def _isotonic(detections: ClassMatches) -> Polyline:
    """The map that never falls with the smallest squared error."""
    from scipy.optimize import isotonic_regression

    levels, level, counts = np.unique(detections.score, return_inverse=True, return_counts=True)
    means = np.bincount(level, detections.quality) / counts
    return Polyline(levels, isotonic_regression(means, weights=counts).x)


def _logit(score: np.ndarray) -> np.ndarray:
    """log(p / (1 − p)), with p at least `SMALLEST` from 0 and 1."""
    from scipy.special import logit

    return logit(np.clip(np.asarray(score, dtype=np.float64), SMALLEST, 1 - SMALLEST))


def _logistic(detections: ClassMatches, *, intercept: bool) -> Logistic:
    """The curve with the smallest cross-entropy to the targets.

    Targets are kept off 0 and 1 as Platt (1999) does.
    """
    from sklearn.linear_model import LogisticRegression

    count = len(detections.score)
    target = np.clip(detections.quality, 1 / (count + 2), 1 - 1 / (count + 2))
    # A soft target is a positive sample and a negative one, weighted by it.
    features = np.tile(_logit(detections.score), 2)[:, None]
    labels = np.repeat([1, 0], count)
    weights = np.concatenate([target, 1 - target])
    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000, fit_intercept=intercept)
    model.fit(features, labels, sample_weight=weights)
    fitted_intercept = float(model.intercept_[0]) if intercept else 0.0
    return Logistic(float(model.coef_[0, 0]), fitted_intercept)

"""Uncertainty of an image, from the uncertainties of its detections (Oksuz et al., Towards Building Self-Aware Object
Detectors, CVPR 2023, arXiv:2307.00934, Section 4 and Tables 2 to 4).

A detection's uncertainty is minus its score under any method, or 1 − confidence. An aggregate makes
one number of those of an image; an image without detections is the most uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.matching.boxes import image_numbers
from farther.tables import Regions

#: The aggregates of the paper's Table 2.
AGGREGATES = ("sum", "mean", "top-5", "top-3", "top-2", "min")

#: Uncertainty of an image without detections, as in the published code.
NO_DETECTION = 1e12


def aggregate(
    uncertainty: np.ndarray, image_id: np.ndarray, images: Sequence[str], how: str = "top-3"
) -> np.ndarray:
    """Uncertainty of each image.

    Args:
        uncertainty: Of each detection, ndarray of shape (n,); higher means less certain.
        image_id: The image of each detection, ndarray of shape (n,).
        images: Names of all images, also of those without detections.
        how: "sum", "mean", "min", or "top-m": the mean of the m least uncertain detections, of all
            where an image has fewer.

    Returns:
        ndarray of shape (len(images),), float64; `NO_DETECTION` for an image without detections.

    Raises:
        DataError: a detection is of an image that is not named, or an uncertainty is not a number.
        ParameterError: the aggregate is unknown.

    >>> doubt, of = np.array([0.1, 0.5, 0.3, 0.8]), np.array(["a", "a", "a", "b"])
    >>> aggregate(doubt, of, ["a", "b", "c"], how="top-2").tolist()
    [0.2, 0.8, 1000000000000.0]
    """
    most = count(how)
    other = set(image_id) - set(images)
    if other:
        raise DataError(
            f"detections of {str(min(other))!r}, which is not one of the images", field="image_id"
        )
    doubt = np.asarray(uncertainty, dtype=np.float64)
    if np.isnan(doubt).any():
        raise DataError(f"not a number in row {int(np.isnan(doubt).argmax())}", field="uncertainty")
    different, (number, asked) = image_numbers(image_id, np.array(list(images), dtype=object))
    order = np.lexsort((doubt, number))
    in_order = number[order]
    rank = np.arange(len(order)) - np.searchsorted(in_order, in_order)
    counted = order[rank < most]
    of_image = number[counted]
    total = np.bincount(of_image, doubt[counted], minlength=len(different))
    detections = np.bincount(of_image, minlength=len(different))
    result = total if how == "sum" else total / np.maximum(detections, 1)
    return np.where(detections > 0, result, NO_DETECTION)[asked]


def count(how: str) -> float:
    """The most detections of an image that an aggregate counts, ∞ for "sum" and "mean".

    Args:
        how: "sum", "mean", "min" or "top-m".

    Raises:
        ParameterError: the aggregate is unknown.

    >>> count("top-3"), count("min"), count("mean")
    (3, 1, inf)
    """
    if how in ("sum", "mean"):
        return np.inf
    if how == "min":
        return 1
    found = re.fullmatch(r"top-([1-9]\d*)", how)
    if not found:
        raise ParameterError(
            f"unknown aggregate {how!r}. Known: sum, mean, min, and top-m with m from 1 on, as in top-3"
        )
    return int(found[1])


def of_confidence(regions: Regions, images: Sequence[str], how: str = "top-3") -> np.ndarray:
    """Uncertainty of each image, where that of a detection is 1 − confidence; see `aggregate`.

    Args:
        regions: Detections.
        images: Names of the images, those without detections too.
        how: An aggregate of the uncertainties of an image's detections.

    Returns:
        ndarray of shape (len(images),); higher means less certain.
    """
    return aggregate(1.0 - regions.score.astype(np.float64), regions.image_id, images, how)


def best_threshold(known: np.ndarray, unknown: np.ndarray) -> float | None:
    """The largest uncertainty at which an image is accepted, by balanced accuracy (Section 4, "Thresholding").

    Args:
        known: Uncertainties of ID validation images, ndarray of shape (n,).
        unknown: Those of pseudo-OOD images: the same ones with their objects blanked out, ndarray
            of shape (m,).

    Returns:
        Of the thresholds with the largest harmonic mean of the shares of known images accepted and
        of unknown images rejected the smallest one; None where a side has no image, or no threshold
        accepts one and rejects one.

    >>> best_threshold(np.array([0.1, 0.2, 0.6]), np.array([0.4, 0.7, 0.9]))
    0.2
    """
    if not len(known) or not len(unknown):
        return None
    levels = np.unique(np.concatenate([known, unknown]))
    accepted = np.searchsorted(np.sort(known), levels, side="right") / len(known)
    rejected = 1 - np.searchsorted(np.sort(unknown), levels, side="right") / len(unknown)
    balanced = np.where(
        accepted * rejected > 0,
        2 * accepted * rejected / np.maximum(accepted + rejected, 1e-300),
        0,
    )
    best = int(
        np.argmax(balanced >= balanced.max() - 1e-12)
    )  # rounding must not choose among equal ones
    return float(levels[best]) if balanced[best] > 0 else None


def keeping(known: np.ndarray, share: float = 0.95) -> float | None:
    """The smallest threshold that accepts a share of ID validation images (Table A.12); None without images.

    Args:
        known: Uncertainties of ID validation images, ndarray of shape (I,).
        share: Share of them to accept.
    """
    if not len(known):
        return None
    return float(np.sort(known)[int(np.ceil(share * len(known) - 1e-9)) - 1])

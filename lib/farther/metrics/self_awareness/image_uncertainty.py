"""Uncertainty of an image, from the uncertainties of its detections.

Source: Oksuz et al., Towards Building Self-Aware Object Detectors, CVPR 2023, arXiv:2307.00934,
Section 4 and Tables 2 to 4.

A detection's uncertainty is minus its score under any method, or 1 − confidence. An aggregate
reduces those of an image to one number; an image without detections is the most uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from farther.errors import DataError, ParameterError, shorten
from farther.metrics.matching.boxes import image_numbers
from farther.tables import Regions
from farther.tables.arguments import floats, instance, number, texts

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

    >>> uncertainty = np.array([0.1, 0.5, 0.3, 0.8])
    >>> image_id = np.array(["a", "a", "a", "b"])
    >>> aggregate(uncertainty, image_id, ["a", "b", "c"], how="top-2").tolist()
    [0.2, 0.8, 1000000000000.0]
    """
    largest_count = count(how)
    uncertainty = floats(uncertainty, "uncertainty")
    image_id = texts(image_id, "image_id", length=len(uncertainty))
    all_images = texts(images, "images")
    unnamed = set(image_id) - set(all_images)
    if unnamed:
        raise DataError(
            f"detections of {str(min(unnamed))!r}, which is not one of the images",
            field="image_id",
        )
    distinct, (detection_image, image_number) = image_numbers(image_id, all_images)
    order = np.lexsort((uncertainty, detection_image))
    sorted_image = detection_image[order]
    rank_in_image = np.arange(len(order)) - np.searchsorted(sorted_image, sorted_image)
    counted = order[rank_in_image < largest_count]
    counted_image = detection_image[counted]

    total = np.bincount(counted_image, uncertainty[counted], minlength=len(distinct))
    detections = np.bincount(counted_image, minlength=len(distinct))
    of_image: np.ndarray = total
    if how != "sum":
        of_image = total / np.maximum(detections, 1)
    return np.where(detections > 0, of_image, NO_DETECTION)[image_number]


def count(how: str) -> float:
    """Largest number of an image's detections that an aggregate counts, ∞ for "sum" and "mean".

    Args:
        how: "sum", "mean", "min" or "top-m".

    Raises:
        ParameterError: the aggregate is unknown.

    >>> count("top-3"), count("min"), count("mean")
    (3, 1, inf)
    """
    if not isinstance(how, str):
        raise ParameterError(f"unknown aggregate {shorten(how)}. Known: {', '.join(AGGREGATES)}")
    if how in ("sum", "mean"):
        return np.inf
    if how == "min":
        return 1
    match = re.fullmatch(r"top-([1-9]\d*)", how)
    if not match:
        raise ParameterError(
            f"unknown aggregate {how!r}. Known: sum, mean, min, and top-m with m from 1 on, "
            "as in top-3"
        )
    return int(match[1])


def of_confidence(regions: Regions, images: Sequence[str], how: str = "top-3") -> np.ndarray:
    """Uncertainty of each image, where that of a detection is 1 − confidence; see `aggregate`.

    Args:
        regions: Detections.
        images: Names of the images, those without detections too.
        how: An aggregate of the uncertainties of an image's detections.

    Returns:
        ndarray of shape (len(images),); higher means less certain.
    """
    instance(regions, Regions, "regions")
    return aggregate(1.0 - regions.score.astype(np.float64), regions.image_id, images, how)


def best_threshold(known: np.ndarray, unknown: np.ndarray) -> float | None:
    """The largest uncertainty at which an image is accepted, by balanced accuracy.

    Section 4, "Thresholding".

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
    known = floats(known, "known")
    unknown = floats(unknown, "unknown")
    if not len(known) or not len(unknown):
        return None
    levels = np.unique(np.concatenate([known, unknown]))
    accepted = np.searchsorted(np.sort(known), levels, side="right") / len(known)
    rejected = 1 - np.searchsorted(np.sort(unknown), levels, side="right") / len(unknown)
    product = accepted * rejected
    harmonic_mean = 2 * product / np.maximum(accepted + rejected, 1e-300)
    balanced = np.where(product > 0, harmonic_mean, 0)
    # Rounding must not choose among equal ones.
    best = int(np.argmax(balanced >= balanced.max() - 1e-12))
    if balanced[best] <= 0:
        return None
    return float(levels[best])


def threshold_accepting(known: np.ndarray, share: float = 0.95) -> float | None:
    """The smallest threshold that accepts a share of ID validation images (Table A.12).

    Args:
        known: Uncertainties of ID validation images, ndarray of shape (I,).
        share: Share of them to accept.

    Returns:
        None without images.
    """
    known = floats(known, "known")
    share = number(share, "share", above=0, at_most=1)
    if not len(known):
        return None
    accepted = int(np.ceil(share * len(known) - 1e-9))
    return float(np.sort(known)[accepted - 1])

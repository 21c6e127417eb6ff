"""Thresholds at which the mean loss of images is within a limit.

That is on the data, or in expectation on new images. The loss of an image rises with the threshold,
in steps. The largest threshold whose mean loss over n images is within a limit is chosen too
favourably for new images. Conformal risk control (Angelopoulos et al., 2022, arXiv:2208.02814,
Theorem 1) adds one image with the largest loss, 1: if the n images and a new one are exchangeable,
the expected loss of the new image is within the limit, whatever the distribution. With losses of 0
or 1 this is split conformal prediction, and "no conformal p-value of the image is at most the
limit" (Bates et al., 2021, arXiv:2104.08279).
"""

from __future__ import annotations

import math

import numpy as np

from farther.tables.arguments import floats, number, whole_number

#: Rounding of sums of shares.
ROUNDING = 1e-12


def largest_within(steps: np.ndarray, losses: np.ndarray, limit: float) -> float:
    """The largest threshold at which the losses of the steps below it sum to at most a limit.

    Args:
        steps: Thresholds above which a loss is added, ndarray of shape (N,);
            may be infinite.
        losses: Each loss, 0 or more, ndarray of shape (N,).
        limit: Of the sum; below 0 no threshold is within it, which gives −∞.

    Returns:
        The threshold; ∞ if the losses of all steps are within the limit.

    >>> steps = np.array([3.0, 1.0, 2.0, 4.0])
    >>> largest_within(steps, np.full(4, 0.25), limit=0.5)  # 1 and 2 are below 3, not 3
    3.0
    """
    steps = floats(steps, "steps", infinite=True)
    losses = floats(losses, "losses", shape=steps.shape)
    limit = number(limit, "limit", infinite=True)
    if limit < -ROUNDING:
        return -math.inf
    order = np.argsort(steps, kind="stable")
    exceeding = np.flatnonzero(np.cumsum(losses[order]) > limit + ROUNDING)
    if not len(exceeding):
        return math.inf
    return float(steps[order[exceeding[0]]])


def corrected(limit: float, images: int) -> float:
    """The limit on the mean loss of n images that bounds the expected loss of a new image.

    From (n · mean + 1) / (n + 1) ≤ limit, with losses of at most 1. It is below 0 for fewer than
    `images_needed`: no threshold has the guarantee.

    Args:
        limit: Of the expected loss of a new image.
        images: Number n of images.

    >>> round(corrected(0.1, images=99), 10), corrected(0.01, images=98) < 0
    (0.0909090909, True)
    """
    images = whole_number(images, "images", at_least=0)
    limit = number(limit, "limit")
    if not images:
        return -1.0
    return ((images + 1) * limit - 1) / images


def images_needed(limit: float) -> int:
    """The smallest number of images that can guarantee a limit above 0 on the expected loss.

    >>> images_needed(0.01), images_needed(0.02)
    (99, 49)
    """
    limit = number(limit, "limit", above=0)
    return math.ceil(1 / limit - 1 - ROUNDING)

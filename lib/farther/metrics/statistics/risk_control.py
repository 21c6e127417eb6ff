"""Thresholds at which a limit on errors holds on new images: risk control.

Units (images, or objects in images) are lost as a threshold rises. The largest threshold at which
the share of lost units among n images is within a limit is chosen too favourably for new images.
Two promises correct it, for new images that are exchangeable with these:

- "confidence": with a stated confidence, the share of lost units among new images is within the
  limit. Thresholds are tested from strict to lax, and the first that fails ends the search: a fixed
  sequence, which needs no correction (Angelopoulos et al., 2021, Learn then Test,
  arXiv:2110.01052). The test is the exact binomial one of Clopper and Pearson (1934) where units
  are images. Objects of one image are not independent: the test is that of an effective number of
  objects, as of Korn and Graubard (1998, Survey Methodology 24, 193-201): at most that of objects
  which are lost image by image (Kish, 1965), less where the variance between images is larger.
- "expected": the expected number of lost units in a new image is within the limit times that of its
  units. Conformal risk control (Angelopoulos et al., 2022, arXiv:2208.02814, Theorem 1) adds one
  image, as large as the largest, all of whose units are lost.

"none" promises nothing: the limit holds on these images.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np

from farther.errors import DataError
from farther.tables.arguments import floats, integers, number, one_of, whole_number

#: What a limit promises of new images.
Guarantee = Literal["confidence", "expected", "none"]

#: Rounding of shares.
ROUNDING = 1e-12


def largest_within(
    steps: np.ndarray,
    image: np.ndarray,
    sizes: np.ndarray,
    limit: float,
    guarantee: Guarantee = "confidence",
    confidence: float = 0.95,
) -> float:
    """The largest threshold at which the share of lost units keeps a limit.

    Args:
        steps: Threshold above which each unit is lost, ndarray of shape (N,); may be infinite.
        image: Index of each unit's image, ndarray of shape (N,).
        sizes: Number of units of each of I images, lost or not, ndarray of shape (I,).
        limit: Largest share of the units of all images that may be lost.
        guarantee: What is promised of new images; see the module.
        confidence: Of the guarantee "confidence", above 0 and below 1.

    Returns:
        The threshold: units whose step is below it are lost. ∞ if all units may be lost, −∞ if the
        images are too few for the limit even where none is lost.

    Raises:
        DataError: an image is not one of the I images; names the row.
        ParameterError: the arguments are not of these kinds and lengths.

    >>> steps = np.array([3.0, 1.0, 2.0, 4.0])
    >>> image = np.arange(4)
    >>> largest_within(steps, image, np.ones(4), 0.5, "none")  # 1 and 2 are below 3, 3 is not
    3.0
    >>> largest_within(steps, image, np.ones(4), 0.5, "expected")
    2.0
    >>> largest_within(steps, image, np.ones(4), 0.5)
    -inf
    """
    steps = floats(steps, "steps", infinite=True)
    image = integers(image, "image", shape=steps.shape)
    sizes = floats(sizes, "sizes")
    is_absent = (image < 0) | (image >= len(sizes))
    if is_absent.any():
        row = int(np.argmax(is_absent))
        problem = f"there are {len(sizes)} images, found number {image[row]}"
        raise DataError(problem, row=row, field="image")
    limit = number(limit, "limit")
    one_of(guarantee, get_args(Guarantee), "guarantee")
    confidence = number(confidence, "confidence", above=0, below=1)

    order = np.argsort(steps, kind="stable")
    exceeds = _exceeds(image[order], sizes, limit, guarantee, confidence)
    if not exceeds.any():
        return math.inf
    first = int(np.argmax(exceeds))
    if first == 0:
        return -math.inf
    return float(steps[order[first - 1]])


def _exceeds(
    image: np.ndarray, sizes: np.ndarray, limit: float, guarantee: Guarantee, confidence: float
) -> np.ndarray:
    """Whether the limit is exceeded where the first k units are lost, ndarray of shape (N + 1,).

    Args:
        image: Index of each unit's image, in the order in which units are lost.
        sizes, limit, guarantee, confidence: See `largest_within`.
    """
    lost = np.arange(len(image) + 1)
    total = float(sizes.sum())
    if limit >= 1:
        return np.zeros(len(lost), dtype=bool)
    if not total:
        return np.full(len(lost), guarantee != "none")
    if guarantee == "none":
        return lost > (limit + ROUNDING) * total
    if guarantee == "expected":
        largest = float(sizes.max())
        return lost + largest > (limit + ROUNDING) * (total + largest)

    # Sums over images of squares of the lost units l, and of l times the units n.
    rank = _rank_in_image(image)
    squares = np.concatenate([[0.0], np.cumsum(2.0 * rank + 1)])
    products = np.concatenate([[0.0], np.cumsum(sizes[image])])
    share = lost / total
    effective = _effective_number(share, squares, products, sizes)
    return ~_is_shown(share, effective, limit, confidence)


def _rank_in_image(image: np.ndarray) -> np.ndarray:
    """Number of earlier units of the same image, ndarray of shape (N,)."""
    order = np.argsort(image, kind="stable")
    sorted_image = image[order]
    is_first = np.diff(sorted_image, prepend=-1) != 0
    position = np.arange(len(image))
    start = np.maximum.accumulate(np.where(is_first, position, 0))
    rank = np.empty(len(image), dtype=np.int64)
    rank[order] = position - start
    return rank


def _effective_number(
    share: np.ndarray, squares: np.ndarray, products: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """The number of independent units whose share varies as that of units in images does.

    Args:
        share: Share of the units that are lost, ndarray of shape (K,).
        squares: Sum over images of l², with l the lost units of an image, shape (K,).
        products: Sum over images of l·n, with n the units of an image, shape (K,).
        sizes: n of each image.
    """
    total = sizes.sum()
    squared_sizes = float(np.sum(sizes**2))
    effective = np.full(len(share), total**2 / squared_sizes)
    # The variance of a ratio of sums over images, by linearisation.
    variance = squares - 2 * share * products + share**2 * squared_sizes
    varies = variance > ROUNDING
    of_variance = share[varies] * (1 - share[varies]) * total**2 / variance[varies]
    effective[varies] = np.minimum(effective[varies], of_variance)
    return effective


def _is_shown(
    share: np.ndarray, effective: np.ndarray, limit: float, confidence: float
) -> np.ndarray:
    """Whether the upper confidence bound of a share is within a limit, bool."""
    from scipy.special import betainc  # half a second, which `farther summary` does without

    lost = share * effective
    kept = np.maximum(effective - lost, ROUNDING)
    return betainc(lost + 1, kept, limit) >= confidence - ROUNDING


def upper_bound(lost: np.ndarray, sizes: np.ndarray, confidence: float = 0.95) -> float:
    """The upper confidence bound of the share of lost units among new images.

    Args:
        lost: Number of lost units of each of I images, ndarray of shape (I,).
        sizes: Number of units of each image, ndarray of shape (I,).
        confidence: Of the one-sided bound.

    Returns:
        The bound, from 0 to 1: that of Clopper and Pearson (1934) where each image is one unit,
        else of the effective number of units, see the module. 1 without units.

    >>> round(upper_bound(np.zeros(59), np.ones(59)), 4)
    0.0495
    """
    from scipy.special import betaincinv  # see `_is_shown`

    sizes = floats(sizes, "sizes")
    lost = floats(lost, "lost", shape=sizes.shape)
    confidence = number(confidence, "confidence", above=0, below=1)
    total = sizes.sum()
    if not total or lost.sum() >= total:
        return 1.0
    share = np.array([lost.sum() / total])
    squares = np.array([np.sum(lost**2)])
    products = np.array([np.sum(lost * sizes)])
    effective = _effective_number(share, squares, products, sizes)
    number_lost = share * effective
    return float(betaincinv(number_lost + 1, effective - number_lost, confidence)[0])


def images_needed(
    limit: float, guarantee: Guarantee = "confidence", confidence: float = 0.95
) -> int:
    """The smallest number of images that can show a limit, where nothing is lost in them.

    Args:
        limit: The limit, above 0.
        guarantee, confidence: See `largest_within`.

    >>> images_needed(0.05), images_needed(0.05, "expected"), images_needed(0.05, "none")
    (59, 19, 0)
    """
    limit = number(limit, "limit", above=0)
    one_of(guarantee, get_args(Guarantee), "guarantee")
    confidence = number(confidence, "confidence", above=0, below=1)
    if guarantee == "none" or limit >= 1:
        return 0
    if guarantee == "expected":
        return math.ceil(1 / limit - 1 - ROUNDING)
    return math.ceil(math.log(1 - confidence) / math.log1p(-limit) - ROUNDING)


def smallest_limit(
    images: int, guarantee: Guarantee = "confidence", confidence: float = 0.95
) -> float:
    """The smallest limit that a number of images can show, where nothing is lost in them.

    Args:
        images: Number of images.
        guarantee, confidence: See `largest_within`.

    >>> round(smallest_limit(21), 4)
    0.1329
    """
    images = whole_number(images, "images", at_least=0)
    one_of(guarantee, get_args(Guarantee), "guarantee")
    confidence = number(confidence, "confidence", above=0, below=1)
    if guarantee == "none":
        return 0.0
    if guarantee == "expected":
        return 1 / (images + 1)
    if not images:
        return 1.0
    return -math.expm1(math.log(1 - confidence) / images)

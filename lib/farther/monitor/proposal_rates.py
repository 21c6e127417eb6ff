"""Numbers of proposals that are called unknown, and those that are consistent with validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

#: Intervals that validation's proposals fall into in equal numbers.
INTERVALS = 10


@dataclass(frozen=True)
class ProposalRates:
    """Numbers of proposals that are called unknown, by their objectness.

    Args:
        edges: Deciles of validation's objectness; none where it has no proposal.
        counts: Number of proposals between each two of them: above the lower one, up to the upper
            one.
        dispersion: Variance of the number per image by its mean; 1 or more.
        design_effect: See `Rates`, of the share above the median.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    dispersion: float = 1.0
    design_effect: float = 1.0

    @classmethod
    def of(cls, image: np.ndarray, objectness: np.ndarray, images: int) -> ProposalRates:
        """Those of the validation split.

        Args:
            image: Number of each proposal's image, ndarray of shape (P,).
            objectness: ndarray of shape (P,).
            images: Number of images.
        """
        edges = np.zeros(0)
        if len(objectness):
            edges = np.quantile(objectness, np.arange(1, INTERVALS) / INTERVALS)
        empty = cls.none(tuple(edges.tolist()))
        is_above_median = empty.intervals(objectness) >= INTERVALS // 2
        proposals_by_image = np.bincount(image, minlength=images)
        above_median_by_image = np.bincount(image[is_above_median], minlength=images)

        dispersion = 1.0
        if images > 1 and len(image):
            variance = proposals_by_image.var(ddof=1)
            dispersion = max(1.0, float(variance / proposals_by_image.mean()))
        return replace(
            empty.adding(objectness),
            dispersion=dispersion,
            design_effect=design_effect(proposals_by_image, above_median_by_image),
        )

    @classmethod
    def none(cls, edges: Sequence[float]) -> ProposalRates:
        """No proposal yet."""
        return cls(tuple(edges), (0,) * (len(edges) + 1))

    def intervals(self, objectness: np.ndarray) -> np.ndarray:
        """The interval of each proposal, ndarray of shape (P,)."""
        return np.searchsorted(self.edges, objectness, side="left")

    def adding(self, objectness: np.ndarray) -> ProposalRates:
        """These and the proposals of one more image."""
        more = np.bincount(self.intervals(objectness), minlength=len(self.counts))
        return replace(self, counts=tuple((np.array(self.counts) + more).tolist()))

    @property
    def number(self) -> int:
        """Number of proposals."""
        return sum(self.counts)

    @property
    def above_median(self) -> int:
        """Number of those whose objectness is above validation's median."""
        return sum(self.counts[len(self.counts) // 2 :])


def consistent_number(
    validation: ProposalRates, images: int, window: int, level: float
) -> tuple[float, float] | None:
    """Smallest and largest number of proposals per image that is consistent with validation's.

    Given the number in both, that of the window is binomial. The numbers that the test does not
    refuse are quantiles of the negative binomial distribution, as P(K ≤ k | k + x; p) = P(NB(x, 1 −
    p) ≤ k) for x of validation.

    Args:
        validation: Proposals of the validation split.
        images: Number of its images.
        window: Number of images of the window.
        level: Of the two-sided test.

    Returns:
        None where there are no images to compare.
    """
    if not images or not window:
        return None
    from scipy.stats import nbinom  # takes a second, which a monitor need not wait for

    number = round(validation.number / validation.dispersion)
    share = images / (images + window)
    low = 0.0
    if number:
        low = float(nbinom.ppf(level / 2, number, share))
    high = float(nbinom.ppf(1 - level / 2, number + 1, share))
    return low * validation.dispersion / window, high * validation.dispersion / window


def design_effect(detections: np.ndarray, unknown: np.ndarray) -> float:
    """Design effect of the share of unknown detections, by linearisation.

    Args:
        detections, unknown: Numbers of detections and of unknown ones in each image, ndarrays of
            shape (I,).
    """
    count, images = int(detections.sum()), len(detections)
    if images < 2 or not count:
        return 1.0
    share = unknown.sum() / count
    if not 0 < share < 1:
        return 1.0
    residuals = unknown - share * detections
    over_images = images / (images - 1) * float(residuals @ residuals)
    return max(1.0, float(over_images / (count * share * (1 - share))))

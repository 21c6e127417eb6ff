"""Numbers of proposals that are called unknown, and the numbers that are consistent with those of validation."""

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
        shares = np.arange(1, INTERVALS) / INTERVALS
        edges = np.quantile(objectness, shares) if len(objectness) else np.zeros(0)
        number = np.bincount(image, minlength=images)
        none = cls.none(tuple(edges.tolist()))
        above = np.bincount(image[none.intervals(objectness) >= INTERVALS // 2], minlength=images)
        dispersion = (
            max(1.0, float(number.var(ddof=1) / number.mean()))
            if images > 1 and number.any()
            else 1.0
        )
        return replace(
            none.adding(objectness),
            dispersion=dispersion,
            design_effect=design_effect(number, above),
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
    validation: ProposalRates, of: int, size: int, level: float
) -> tuple[float, float] | None:
    """Numbers of proposals per image of a window that are consistent with validation's.

    Given the number in both, that of the window is binomial. The numbers that the test does not
    refuse are quantiles of the negative binomial distribution, as P(K ≤ k | k + x; p) = P(NB(x, 1 −
    p) ≤ k) for x of validation.
    """
    if not of or not size:
        return None
    from scipy.stats import nbinom  # takes a second, which a monitor need not wait for

    found, share = round(validation.number / validation.dispersion), of / (of + size)
    low = float(nbinom.ppf(level / 2, found, share)) if found else 0.0
    high = float(nbinom.ppf(1 - level / 2, found + 1, share))
    return low * validation.dispersion / size, high * validation.dispersion / size


def design_effect(detections: np.ndarray, unknown: np.ndarray) -> float:
    """Design effect of the share of unknown detections by linearisation, from the numbers of each image."""
    count, images = int(detections.sum()), len(detections)
    share = unknown.sum() / count if count else 0.0
    if images < 2 or not 0 < share < 1:
        return 1.0
    residuals = unknown - share * detections
    over_images = images / (images - 1) * float(residuals @ residuals)
    return max(1.0, float(over_images / (count * share * (1 - share))))

"""Agreement of reviewers beyond chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Agreement:
    """Agreement of two reviewers on the images that both decided; `kappa` is None where it is not defined."""

    first: str
    second: str
    images: int
    equal: int
    kappa: float | None


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Cohen's κ of two raters (Cohen 1960, https://doi.org/10.1177/001316446002000104).

    κ = (p_o - p_e) / (1 - p_e), where p_o is the share of equal ratings and p_e the share that two raters with the same
    frequencies would have by chance.

    Args:
        first, second: Ratings of the same items, in the same order.

    Returns:
        At most 1; 0 is chance. None without items, or where both give the same single rating to all (p_e is 1).

    Raises:
        ValueError: the lengths differ.

    Example:
        >>> cohen_kappa(["near", "near", "far", "far"], ["near", "near", "far", "near"])
        0.5
    """
    pairs = list(zip(first, second, strict=True))
    ours, theirs = Counter(first), Counter(second)
    count = len(pairs)
    by_chance = sum(ours[rating] * theirs[rating] for rating in ours)
    if by_chance == count * count:
        return None
    equal = sum(a == b for a, b in pairs)
    return (equal * count - by_chance) / (count * count - by_chance)


def agreements(outcomes: Sequence[Mapping[str, str]]) -> list[Agreement]:
    """Agreement of each pair of reviewers with common images, by name.

    Args:
        outcomes: For each image, reviewer → fate of the image by the reviewer's decision.
    """
    names = sorted({name for image in outcomes for name in image})
    found = []
    for first, second in combinations(names, 2):
        shared = [(image[first], image[second]) for image in outcomes if first in image and second in image]
        if shared:
            ours, theirs = zip(*shared, strict=True)
            equal = sum(a == b for a, b in shared)
            found.append(Agreement(first, second, len(shared), equal, cohen_kappa(ours, theirs)))
    return found

"""How far reviewers agree, beyond what chance would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Agreement:
    """Two reviewers on the images that both decided.

    Args:
        first, second: The reviewers.
        images: Number of images that both decided.
        equal: On how many of them they make the same of the image.
        kappa: Cohen's κ; None where it is not defined.
    """

    first: str
    second: str
    images: int
    equal: int
    kappa: float | None


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Cohen's κ of two raters (Cohen, A Coefficient of Agreement for Nominal Scales, 1960).

    κ = (p_o - p_e) / (1 - p_e), where p_o is the share of equal ratings and p_e the share that two raters with the same
    frequencies would have by chance.

    Args:
        first, second: What each rater says of the same items, in the same order.

    Returns:
        At most 1; 0 is chance. None without items, and where both give one and the same rating to all (p_e is 1).

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
    """Every two reviewers who decided an image in common, by name.

    Args:
        outcomes: For each image, reviewer → what the reviewer makes of it.
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

"""What a split shows and what became of the images it was chosen from, in numbers."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from farther.curation.fates import Fates
from farther.tables import Objects

#: What can become of an image of an OOD source, the nearest to the ID dataset first.
FATES = ("near", "far", "farther", "removed")

#: Kinds of rules, in words.
REASONS = {
    "ID class": "an ID class is labelled",
    "overlap": "a category that overlaps with an ID class is labelled",
    "near": "a near category is labelled",
    "decision": "people decided",
    "candidate": "nobody has reviewed the candidate yet",
}


class CategoryCount(NamedTuple):
    """How often a category occurs: objects, and images that show one."""

    category: str
    objects: int
    images: int


def category_counts(objects: Objects) -> list[CategoryCount]:
    """Objects and images of each category that occurs, the most frequent first (FMIYC, Figures 8 and 9)."""
    shown = Counter(objects.category.tolist())
    images = Counter(category for category, _ in set(zip(objects.category, objects.image_id, strict=True)))
    return sorted(
        (CategoryCount(category, count, images[category]) for category, count in shown.items()),
        key=lambda one: (-one.objects, one.category),
    )


class FateCount(NamedTuple):
    """How many images of a source met a fate for one kind of reason."""

    dataset: str
    subset: str
    fate: str
    reason: str
    images: int


def fate_counts(fates: Fates) -> list[FateCount]:
    """Images by source, fate and kind of reason, in words."""
    kinds = [REASONS.get(kind := rule.partition(": ")[0], kind) for rule in fates.rule]
    found = Counter(zip(fates.dataset, fates.subset, fates.fate, kinds, strict=True))
    counts = [FateCount(*key, images) for key, images in found.items()]
    return sorted(counts, key=lambda one: (one.dataset, one.subset, FATES.index(one.fate), -one.images, one.reason))

"""Outcomes where the threshold τ is another one in each bootstrap replicate.

Matching never crosses images, and an image changes with τ only where another of its regions is
flagged. So each image is copied, once for each set of its regions that some replicate flags, and a
replicate counts the copy at its own τ as often as it drew the image, and no other copy. The copies
are matched once, and the formulas that take weights of images give the replicates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from farther.metrics.matching.boxes import OverlapPairs
from farther.metrics.open_set.outcomes import OpenSetSplit, Outcome, RankedRegions
from farther.metrics.weighting import GroupWeights, ImageWeights
from farther.tables import Regions


@dataclass(frozen=True)
class Repeated:
    """Rows of a table, each repeated some times.

    Args:
        row: The row that each is a copy of, ascending.
        number: Its number among the copies of that row.
        first: The first copy of each row.
        copies: Number of copies of each row.
    """

    row: np.ndarray
    number: np.ndarray
    first: np.ndarray
    copies: np.ndarray

    @classmethod
    def of(cls, copies: np.ndarray) -> Repeated:
        """The rows of a table by the number of copies of each."""
        row = np.repeat(np.arange(len(copies)), copies)
        first = np.cumsum(copies) - copies
        return cls(row, np.arange(len(row)) - first[row], first, copies)


@dataclass(frozen=True)
class ImageCopies:
    """Copies of images, one for each set of their regions that some replicate flags.

    A replicate counts one copy of each image. `ImageCopies.of` builds it.

    Args:
        images: The images that are copied.
        tau: A threshold at which each copy counts, ndarray of shape (C,).
        first, end: The copy counts at the sorted thresholds with the numbers first … end − 1,
            ndarrays of shape (C,).
        thresholds: Number of sorted thresholds.
        replicate: Number of each replicate's threshold among them, ndarray of shape (B,).
    """

    images: Repeated
    tau: np.ndarray
    first: np.ndarray
    end: np.ndarray
    thresholds: int
    replicate: np.ndarray

    @classmethod
    def of(
        cls, image: np.ndarray, scores: np.ndarray, images: int, taus: np.ndarray
    ) -> ImageCopies:
        """The copies of I images with N regions.

        Args:
            image: Index of each region's image, ndarray of shape (N,).
            scores: Score of each region, which is flagged where it is below τ, ndarray of shape
                (N,).
            images: Number of images, I.
            taus: τ in each replicate, ndarray of shape (B,); of shape (1,) where it is the same in
                all of them.

        >>> copies = ImageCopies.of(np.array([0, 1]), np.array([0.5, 0.9]), 2, np.array([0.4, 0.6]))
        >>> copies.images.row.tolist(), copies.tau.tolist()
        ([0, 0, 1], [0.4, 0.6, 0.4])
        >>> copies.weights(np.array([[2, 1], [1, 1]])).tolist()
        [[2, 0, 1], [0, 1, 1]]
        """
        thresholds, replicate = np.unique(taus, return_inverse=True)
        count = len(thresholds)
        flagged_from = np.searchsorted(thresholds, scores, side="right")
        is_changed = (flagged_from > 0) & (flagged_from < count)
        # One number for each copy: that of its image and of its first threshold.
        unchanged = np.arange(images) * count
        changed = image[is_changed].astype(np.int64) * count + flagged_from[is_changed]
        copies = np.unique(np.concatenate([unchanged, changed]))

        image_of_copy = copies // count
        first = copies % count
        end = np.full(len(copies), count)
        has_next = image_of_copy[1:] == image_of_copy[:-1]
        end[:-1][has_next] = first[1:][has_next]
        repeated = Repeated.of(np.bincount(image_of_copy, minlength=images))
        return cls(repeated, thresholds[first], first, end, count, replicate)

    def rows(self, image: np.ndarray) -> tuple[Repeated, np.ndarray]:
        """The copies of rows of a table, and the image's copy that each belongs to.

        Args:
            image: Index of each row's image.
        """
        repeated = Repeated.of(self.images.copies[image])
        return repeated, self.images.first[image[repeated.row]] + repeated.number

    def flagged(self, image: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Number of flagged regions in each copy, ndarray of shape (C,).

        Args:
            image, scores: see `of`.
        """
        repeated, copy = self.rows(image)
        is_flagged = scores[repeated.row] < self.tau[copy]
        return np.bincount(copy[is_flagged], minlength=len(self.tau))

    def weights(self, weights: ImageWeights) -> ImageWeights:
        """Weights of the copies, shape (B, C), from those of the images, shape (B, I)."""
        return self._counted(weights, self.images.row, self.first, self.end)

    def row_weights(
        self, weights: ImageWeights, repeated: Repeated, copy: np.ndarray
    ) -> ImageWeights:
        """Weights of copies of rows, from those of the rows.

        Args:
            weights: Weights of the rows, shape (B, N).
            repeated, copy: From `rows`.
        """
        return self._counted(weights, repeated.row, self.first[copy], self.end[copy])

    def _counted(
        self, weights: ImageWeights, row: np.ndarray, first: np.ndarray, end: np.ndarray
    ) -> ImageWeights:
        """Weights of copies of rows: 0 in the replicates that do not count the copy."""
        columns = np.flatnonzero((first > 0) | (end < self.thresholds))
        replicate = self.replicate[:, None]
        is_counted = (replicate >= first[columns]) & (replicate < end[columns])
        if isinstance(weights, np.ndarray):
            of_copies = np.take(weights, row, axis=1)
            of_copies[:, columns] *= is_counted
            return of_copies

        # Each copy that some replicates do not count is a group of its own.
        groups = weights.of_groups.shape[1]
        of_columns = weights.of_groups[:, weights.group[row[columns]]] * is_counted
        group = weights.group[row]
        group[columns] = groups + np.arange(len(columns))
        return GroupWeights(np.concatenate([weights.of_groups, of_columns], axis=1), group)


@dataclass(frozen=True)
class FlaggedSplit:
    """Regions that are flagged at the τ of each replicate, matched to the objects of their images.

    `FlaggedSplit.of` builds it.

    Args:
        images: Names of the images before they were copied.
        copies: The copies of the images.
        regions, objects: The copies of the regions, and of the objects.
        object_copy: The image's copy that each copy of an object belongs to.
        scores: Scores of the copies of regions.
        is_unknown: Copies of regions that are flagged, bool.
        outcome: The outcome of all copies; its images are named by numbers if any is copied.
    """

    images: np.ndarray
    copies: ImageCopies
    regions: Repeated
    objects: Repeated
    object_copy: np.ndarray
    scores: np.ndarray
    is_unknown: np.ndarray
    outcome: Outcome

    @classmethod
    def of(cls, split: OpenSetSplit, scores: np.ndarray, taus: np.ndarray) -> FlaggedSplit:
        """Flags and matches the regions of a split.

        Args:
            split: A split with N regions.
            scores: Score of each region; −∞ for one that is flagged at any τ.
            taus: see `ImageCopies.of`.
        """
        image = split.detections.image
        copies = ImageCopies.of(image, scores, len(split.images), taus)
        regions, region_copy = copies.rows(image)
        objects, object_copy = copies.rows(split.object_image)
        copied_scores = scores[regions.row]
        is_unknown = copied_scores < copies.tau[region_copy]
        copied = split
        if len(copies.tau) > len(split.images):
            copied = replace(
                _with_copied_objects(split, len(copies.tau), objects, object_copy),
                detections=_copied_regions(split.detections, regions, region_copy),
                candidates=_copied_pairs(split.candidates, regions, objects),
            )
        return cls(
            images=split.images,
            copies=copies,
            regions=regions,
            objects=objects,
            object_copy=object_copy,
            scores=copied_scores,
            is_unknown=is_unknown,
            outcome=copied.match(is_unknown),
        )

    @property
    def unknown_score(self) -> np.ndarray:
        """Minus the scores of the copies of regions: higher means more likely unknown."""
        return -self.scores

    def weights(self, weights: ImageWeights | None) -> ImageWeights | None:
        """Weights of the copies of images, from those of `images`; None where each counts once."""
        if weights is None:
            return None
        return self.copies.weights(weights)

    def object_weights(self, weights: ImageWeights | None) -> ImageWeights | None:
        """Weights of the copies of objects, from those of objects; None likewise."""
        if weights is None:
            return None
        return self.copies.row_weights(weights, self.objects, self.object_copy)

    def pairs(self, pairs: OverlapPairs) -> OverlapPairs:
        """Copies of further pairs of the split's regions and objects."""
        return _copied_pairs(pairs, self.regions, self.objects)

    def table(self, regions: Regions) -> Regions:
        """The table of the copies, from that of the regions."""
        copied = self.outcome.split
        if len(copied.images) == len(self.images):
            return regions
        image_id = copied.images[copied.detections.image]
        return regions[self.regions.row].with_columns(image_id=image_id)


def _with_copied_objects(
    split: OpenSetSplit, copies: int, objects: Repeated, object_copy: np.ndarray
) -> OpenSetSplit:
    """A split with copies of its images, which are named by numbers, and of its objects.

    Args:
        split: The split.
        copies: Number of copies.
        objects: The copies of its objects.
        object_copy: The image's copy that each belongs to.
    """
    images = np.array([f"{number:09}" for number in range(copies)], dtype=object)
    table = split.objects
    if len(table):  # mixed images have no table of objects
        table = table[objects.row].with_columns(image_id=images[object_copy])
    return replace(
        split,
        objects=table,
        images=images,
        object_image=object_copy,
        object_class=split.object_class[objects.row],
        is_ignored=split.is_ignored[objects.row],
        is_known=split.is_known[objects.row],
    )


def _copied_regions(regions: RankedRegions, repeated: Repeated, image: np.ndarray) -> RankedRegions:
    """The regions of copies; copies of one region follow each other in the ranking.

    Args:
        regions: The regions.
        repeated: Their copies.
        image: The image's copy that each belongs to.
    """
    order = np.lexsort((repeated.number, regions.rank[repeated.row]))
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return RankedRegions(
        confidence=regions.confidence[repeated.row],
        rank=rank,
        image=image,
        counted=regions.counted[repeated.row],
        label=regions.label[repeated.row],
        classes=regions.classes,
    )


def _copied_pairs(pairs: OverlapPairs, regions: Repeated, objects: Repeated) -> OverlapPairs:
    """The pairs of copies of regions and of objects, each in its copy of the image."""
    repeated = Repeated.of(regions.copies[pairs.region])
    region = regions.first[pairs.region[repeated.row]] + repeated.number
    target = objects.first[pairs.target[repeated.row]] + repeated.number
    order = np.argsort(region, kind="stable")
    return OverlapPairs(
        region=region[order].astype(np.int32),
        target=target[order].astype(np.int32),
        overlap=pairs.overlap[repeated.row[order]],
    )

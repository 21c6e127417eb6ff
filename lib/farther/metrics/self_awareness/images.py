"""Images that a self-aware detector may accept, and the detections in them.

Overlaps are computed once, however often detections are matched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from farther.metrics import self_awareness
from farther.metrics.closed_set import ClosedSet
from farther.metrics.matching import above_of_class
from farther.metrics.matching.boxes import is_among
from farther.metrics.self_awareness import image_uncertainty
from farther.metrics.self_awareness.matches import MatchesByClass, of_closed_set
from farther.tables import Objects, Regions

#: Smallest IoU that is one: any overlap counts.
ANY_OVERLAP = float(np.nextafter(0, 1))


@dataclass(frozen=True)
class DetectedImages:
    """Detections in images that a detector may accept: one split, or several together.

    Args:
        objects, regions: Ground truth and N stored regions.
        names: All I images.
        original: The original of each (corrupted) image, as both are drawn together; the image
            itself where it is an original.
        may_reject: Images that may be rejected without loss.
    """

    objects: Objects
    regions: Regions
    names: tuple[str, ...]
    original: tuple[str, ...]
    may_reject: frozenset[str] = frozenset()

    @classmethod
    def of(cls, objects: Objects, regions: Regions, names: Sequence[str]) -> DetectedImages:
        """Images of one split."""
        return cls(objects, regions, tuple(names), tuple(names))

    @classmethod
    def pooled(cls, parts: Mapping[str, DetectedImages]) -> DetectedImages:
        """Several splits as one.

        Args:
            parts: Name of each split → its images, which get that name in front.
        """
        objects: list[Objects] = []
        regions: list[Regions] = []
        names: list[str] = []
        original: list[str] = []
        may_reject: set[str] = set()
        for split, images in parts.items():
            renamed = images._with_prefix(f"{split}/")
            objects.append(renamed.objects)
            regions.append(renamed.regions)
            names.extend(renamed.names)
            original.extend(renamed.original)
            may_reject.update(renamed.may_reject)
        return cls(
            Objects.concatenate(objects),
            Regions.concatenate(regions),
            tuple(names),
            tuple(original),
            frozenset(may_reject),
        )

    def _with_prefix(self, prefix: str) -> DetectedImages:
        """The same images with a prefix before their names, but not before `original`."""
        longer_name = pl.lit(prefix) + pl.col("image_id")
        objects = self.objects.frame.with_columns(image_id=longer_name)
        regions = self.regions.frame.with_columns(image_id=longer_name)
        return DetectedImages(
            self.objects.with_frame(objects),
            self.regions.with_frame(regions),
            tuple(prefix + name for name in self.names),
            self.original,
            frozenset(prefix + name for name in self.may_reject),
        )

    @cached_property
    def _uncertainty_by_aggregate(self) -> dict[str, np.ndarray]:
        return {}

    def uncertainty(self, aggregate: str) -> np.ndarray:
        """Uncertainty of each image, ndarray of shape (I,).

        Args:
            aggregate: See `farther.metrics.self_awareness.image_uncertainty.of_confidence`.
        """
        if aggregate not in self._uncertainty_by_aggregate:
            self._uncertainty_by_aggregate[aggregate] = image_uncertainty.of_confidence(
                self.regions, self.names, aggregate
            )
        return self._uncertainty_by_aggregate[aggregate]

    @cached_property
    def shows_object(self) -> np.ndarray:
        """Images with an annotated object, ndarray of shape (I,), bool."""
        return is_among(np.array(self.names, dtype=object), set(self.objects.image_id))

    @cached_property
    def with_objects(self) -> DetectedImages:
        """The images that show an annotated object, with their detections.

        D_Val+ of Algorithm A.1.
        """
        if self.shows_object.all():
            return self
        names = []
        original = []
        for index in np.flatnonzero(self.shows_object).tolist():
            names.append(self.names[index])
            original.append(self.original[index])
        in_these_images = is_among(self.regions.image_id, set(names))
        return DetectedImages(
            self.objects,
            self.regions[in_these_images],
            tuple(names),
            tuple(original),
            self.may_reject & frozenset(names),
        )

    @cached_property
    def _known(self) -> ClosedSet:
        return ClosedSet.of(
            self.objects,
            self.regions,
            max_detections=len(self.regions),
            smallest_overlap=ANY_OVERLAP,
        )

    def _of_known_images(self, flags: np.ndarray) -> np.ndarray:
        """Flags of the images that have detections or objects, in the order of `_known.images`.

        Args:
            flags: One per image, ndarray of shape (I,), bool.
        """
        index_by_name = {name: index for index, name in enumerate(self.names)}
        return flags[[index_by_name[name] for name in self._known.images]]

    def match(
        self,
        iou: float,
        kept: np.ndarray | None = None,
        score: np.ndarray | None = None,
        rejected: np.ndarray | None = None,
    ) -> MatchesByClass:
        """As `farther.metrics.self_awareness.matches.match`.

        Args:
            iou: Smallest overlap of a detection and its object.
            kept: ndarray of shape (N,), bool: the regions that count, all when None.
            score: ndarray of shape (N,), float32: their confidences; those of the detector when
                None.
            rejected: ndarray of shape (I,), bool: images whose detections are left out, and whose
                objects are too where they may be rejected.
        """
        known = self._known
        row = known.detections.row
        is_counted = np.ones(len(row), dtype=bool)
        if kept is not None:
            is_counted = kept[row]
        if score is None:
            score = self.regions.score

        excused = None
        if rejected is not None and rejected.any():
            is_rejected = self._of_known_images(rejected)
            is_counted &= ~is_rejected[known.detections.image]
            if self.may_reject:
                may_be_rejected = is_among(np.array(self.names, dtype=object), self.may_reject)
                excused = self._of_known_images(rejected & may_be_rejected)
        ranked = known.ranked_by(score, is_counted, self.regions.region_id, iou)
        return of_closed_set(ranked, iou, excused)

    @cached_property
    def _thresholds_by_iou(self) -> dict[float, dict[str, float | None]]:
        return {}

    def lrp_thresholds(self, iou: float) -> dict[str, float | None]:
        """See `farther.metrics.self_awareness.lrp_thresholds`."""
        if iou not in self._thresholds_by_iou:
            matched = self.match(iou)
            self._thresholds_by_iou[iou] = self_awareness.best_thresholds(matched, iou)
        return self._thresholds_by_iou[iou]

    def above(self, thresholds: Mapping[str, float | None]) -> np.ndarray:
        """The regions from their class's threshold on, ndarray of shape (N,), bool."""
        return above_of_class(self.regions, thresholds)

"""Images that a self-aware detector may accept, and the detections in them: matched again and again, overlaps computed
once."""

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
        original: The image that each is made from, for images that are drawn together; its name
            where it is none.
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
        """Several splits as one; images get the split's name in front."""
        renamed = [part._renamed(f"{name}/") for name, part in parts.items()]
        return cls(
            Objects.concatenate([one.objects for one in renamed]),
            Regions.concatenate([one.regions for one in renamed]),
            tuple(name for one in renamed for name in one.names),
            tuple(name for one in renamed for name in one.original),
            frozenset().union(*(one.may_reject for one in renamed)),
        )

    def _renamed(self, prefix: str) -> DetectedImages:
        longer = pl.lit(prefix) + pl.col("image_id")
        return DetectedImages(
            self.objects.with_frame(self.objects.frame.with_columns(image_id=longer)),
            self.regions.with_frame(self.regions.frame.with_columns(image_id=longer)),
            tuple(prefix + name for name in self.names),
            self.original,
            frozenset(prefix + name for name in self.may_reject),
        )

    @cached_property
    def _uncertainties(self) -> dict[str, np.ndarray]:
        return {}

    def uncertainty(self, aggregate: str) -> np.ndarray:
        """Uncertainty of each image; see `farther.metrics.self_awareness.image_uncertainty.of_confidence`."""
        if aggregate not in self._uncertainties:
            found = image_uncertainty.of_confidence(self.regions, self.names, aggregate)
            self._uncertainties[aggregate] = found
        return self._uncertainties[aggregate]

    @cached_property
    def shows_object(self) -> np.ndarray:
        """Images with an annotated object, ndarray of shape (I,), bool."""
        return is_among(np.array(self.names, dtype=object), set(self.objects.image_id))

    @cached_property
    def with_objects(self) -> DetectedImages:
        """The images that show an annotated object, with their detections (D_Val+ of Algorithm A.1)."""
        if self.shows_object.all():
            return self
        names = [name for name, shows in zip(self.names, self.shows_object, strict=True) if shows]
        originals = [
            name for name, shows in zip(self.original, self.shows_object, strict=True) if shows
        ]
        in_these = is_among(self.regions.image_id, set(names))
        return DetectedImages(
            self.objects,
            self.regions[in_these],
            tuple(names),
            tuple(originals),
            self.may_reject & frozenset(names),
        )

    @cached_property
    def _known(self) -> ClosedSet:
        return ClosedSet.of(
            self.objects, self.regions, max_detections=len(self.regions), least=ANY_OVERLAP
        )

    def _of_known(self, images: np.ndarray) -> np.ndarray:
        """What is said of each image (I,), in the order of those that have detections or objects."""
        place = dict(zip(self.names, range(len(self.names)), strict=True))
        return images[[place[name] for name in self._known.images]]

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
        known, excused = self._known, None
        counted = (
            np.ones(len(known.detections.row), dtype=bool)
            if kept is None
            else kept[known.detections.row]
        )
        if rejected is not None and rejected.any():
            counted &= ~self._of_known(rejected)[known.detections.image]
            if self.may_reject:
                excused = self._of_known(
                    rejected & is_among(np.array(self.names, dtype=object), self.may_reject)
                )
        number, score = self.regions.region_id, self.regions.score if score is None else score
        return of_closed_set(known.ranked_by(score, counted, number, iou), iou, excused)

    @cached_property
    def _thresholds(self) -> dict[float, dict[str, float | None]]:
        return {}

    def lrp_thresholds(self, iou: float) -> dict[str, float | None]:
        """See `farther.metrics.self_awareness.lrp_thresholds`."""
        if iou not in self._thresholds:
            self._thresholds[iou] = self_awareness.best_thresholds(self.match(iou), iou)
        return self._thresholds[iou]

    def above(self, thresholds: Mapping[str, float | None]) -> np.ndarray:
        """The regions from their class's threshold on, ndarray of shape (N,), bool."""
        return above_of_class(self.regions, thresholds)

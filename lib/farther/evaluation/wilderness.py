"""Effect of images without known objects on a run's detector.

It has four parts: wilderness impact, causes of errors, operating points, and the background class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from farther.evaluation import intervals
from farther.evaluation.inputs import RunInputs, named_together
from farther.evaluation.results import (
    BackgroundResults,
    ErrorCauses,
    Interval,
    Margins,
    OperatingPoints,
    WildernessResults,
)
from farther.metrics import wilderness
from farther.metrics.closed_set import ClosedSet
from farther.metrics.closed_set.matched_detections import MatchedDetections
from farther.metrics.errors import error_diagnosis
from farther.metrics.matching import true_classes
from farther.metrics.matching.boxes import is_among, places_among, sorted_together
from farther.metrics.statistics import bootstrap
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import ImageWeights, joined, value
from farther.metrics.wilderness import background_probability
from farther.tables import Objects, Regions

#: The recall at which unknown objects are confused with classes (Dhamija et al., 2020, Figures 3
#: and 4).
DIAGNOSIS_RECALL = 0.3

#: The wilderness ratio at which errors and confusions are diagnosed (Figures 3, 4 and 9 to 11).
DIAGNOSIS_RATIO = 1.0

CORRECT = error_diagnosis.CAUSES.index("correct")


@dataclass(frozen=True)
class ImageTables:
    """Objects and regions of the same images."""

    objects: Objects
    regions: Regions


@dataclass(frozen=True)
class DiagnosedDetections:
    """Matched detections of ID images and wild images together, and the cause of each.

    Args:
        matched: The detections.
        cause: Index in `error_diagnosis.CAUSES` of the cause of each, ndarray of shape (N,).
        weights: Weights of the images, shape (B, I); None without replicates.
    """

    matched: MatchedDetections
    cause: np.ndarray
    weights: ImageWeights | None


class WildImages:
    """The ID split of a run, and the images of its OOD splits without known objects as wild images.

    Args:
        inputs: The run's inputs.
    """

    def __init__(self, inputs: RunInputs):
        self._settings = inputs.settings
        self._similar = inputs.roles.similar
        self._id_split = inputs.id_split
        self._id_draws = inputs.id_draws
        self._wild_splits = [split for split in inputs.tested if not split.shows_known]
        self._wild_names: list[str] = []
        for split in self._wild_splits:
            self._wild_names.extend(f"{split.name}/{name}" for name in sorted(split.images))
        self._has_boxes = any(split.has_boxes for split in self._wild_splits)

        # The tables stay apart: no measure of an image depends on another image, and one table
        # after the other takes less memory.
        self._known = ImageTables(self._id_split.objects, self._id_split.regions())
        objects, regions = named_together(self._wild_splits, self._id_split)
        # In images that were not annotated no object is labelled, and a detection is wrong
        # nevertheless.
        self._wild = ImageTables(objects[~objects.is_unlabelled], regions)

        self._impact = wilderness.Wilderness(
            self._known.objects,
            self._known.regions,
            self._id_split.images,
            self._wild.regions,
            self._wild_names,
            iou=self._settings.iou,
            protocol=self._settings.protocol,
            seed=self._settings.seed,
        )

    def metrics(self) -> WildernessResults:
        """All metrics of wilderness.

        Those of `farther.metrics.wilderness.evaluate`, with intervals for `recomputed_replicates`;
        `confusion` as in `farther.metrics.errors.error_diagnosis`, at the recall
        `diagnosis_recall` and in the images of `errors`; `closed_errors` in the ID images alone;
        `operating_points` are the best thresholds of
        `farther.metrics.wilderness.Wilderness`.
        """
        thresholds = self._impact.operating_points(DIAGNOSIS_RECALL)
        threshold_by_class = dict(zip(self._impact.classes, thresholds, strict=True))
        metrics = self._impact.metrics()
        impact_intervals: dict[str, Interval] = {}
        if self._settings.recomputed_replicates:
            impact_intervals = self._impact_intervals(metrics)
        return WildernessResults(
            **metrics,
            intervals=impact_intervals,
            diagnosis_recall=DIAGNOSIS_RECALL,
            confusion=self._confusion(threshold_by_class),
            errors=self.errors(),
            closed_errors=self.closed_errors(),
            operating_points=OperatingPoints(**self._impact.best_thresholds()),
            background=self.background(),
        )

    def errors(self) -> ErrorCauses:
        """Causes of detections over recall, in the ID images and the same number of wild images.

        Where there are fewer wild images, all of them count.
        """
        return self._errors(self._impact.wild_images(DIAGNOSIS_RATIO))

    def closed_errors(self) -> ErrorCauses:
        """Causes of detections over recall, in the ID images alone (Figure 3 a to c)."""
        return self._errors([])

    def _errors(self, wild_names: list[str]) -> ErrorCauses:
        """Causes of detections over recall, in the ID images and in some wild images.

        Args:
            wild_names: Names of the wild images.
        """
        recalls = error_diagnosis.RECALLS
        diagnosed = self._diagnose(wild_names)
        counts, classes = error_diagnosis.counts_at_recalls(
            diagnosed.matched, diagnosed.cause, recalls
        )
        shares = {}
        for cause, share_at_recalls in error_diagnosis.shares(counts).items():
            shares[cause] = [value(share) for share in share_at_recalls[:, 0]]

        share_intervals: dict[str, list[Interval]] = {}
        if diagnosed.weights is not None:
            replicates, _ = error_diagnosis.counts_at_recalls(
                diagnosed.matched, diagnosed.cause, recalls, diagnosed.weights
            )
            for cause, share_at_recalls in error_diagnosis.shares(replicates).items():
                share_intervals[cause] = [
                    bootstrap.interval(share_replicates, value=share)
                    for share_replicates, share in zip(share_at_recalls, shares[cause], strict=True)
                ]

        if not self._has_boxes and wild_names:
            shares["unknown_unknown"] = [None] * len(recalls)
            if share_intervals:
                share_intervals["unknown_unknown"] = [None] * len(recalls)

        return ErrorCauses(
            ratio=len(wild_names) / len(self._id_split.images),
            similar=[list(group) for group in self._similar],
            recalls=list(recalls),
            classes=classes[:, 0].tolist(),
            detections=counts[:, :, 0].sum(axis=0).astype(int).tolist(),
            shares=shares,
            intervals=share_intervals,
        )

    def _diagnose(self, wild_names: list[str]) -> DiagnosedDetections:
        """The detections in the ID images and in some wild images, and their causes.

        Args:
            wild_names: Names of the wild images.
        """
        is_counted = is_among(self._wild.regions.image_id, wild_names)
        known = self._all_detections(self._known)
        wild = self._all_detections(self._wild_tables(wild_names))
        known_images = known.images
        wild_images = wild.images
        images, column = sorted_together(known_images, wild_images)
        together = known.joined(
            wild, images, column, len(self._known.regions), len(self._known.objects)
        )
        del known, wild  # copies of all detections

        weights = None
        if self._id_draws is not None:
            known_weights = self._id_draws.of(known_images)
            wild_weights = self._wild_draws(wild_names).of(wild_images)
            weights = joined(known_weights, wild_weights)[:, np.argsort(column)]

        causes = np.concatenate([self._known_cause, self._wild_cause[is_counted]])
        matched = together.match([self._settings.iou])
        return DiagnosedDetections(matched, causes[together.detections.row], weights)

    def _wild_tables(self, names: Sequence[str]) -> ImageTables:
        """Objects and regions of some wild images."""
        is_region = is_among(self._wild.regions.image_id, names)
        is_object = is_among(self._wild.objects.image_id, names)
        return ImageTables(self._wild.objects[is_object], self._wild.regions[is_region])

    def _all_detections(self, tables: ImageTables) -> ClosedSet:
        """Objects and detections of the known classes, without a limit of detections per image."""
        return ClosedSet.of(
            tables.objects,
            tables.regions,
            self._impact.classes,
            max_detections=len(tables.regions) + 1,
        )

    def background(self) -> BackgroundResults | None:
        """Class against background probability, of correct and of unknown detections.

        They are correct ID detections and detections of unknown objects, by predicted class; see
        `farther.metrics.wilderness.background_probability`. None where the detector has no column
        for the background.
        """
        id_margins = self._id_split.read_margins()
        if id_margins is None:
            return None

        is_correct = self._known_cause == CORRECT
        known = self._known.regions[is_correct]
        known_margins = id_margins[is_correct]

        truth = true_classes(self._wild.objects, self._wild.regions, self._settings.iou)
        on_unknown = (truth.category != "").astype(bool)
        unknown = self._wild.regions[on_unknown]
        unknown_margins = self._read_wild_margins()[on_unknown]

        replicates = {}
        if self._id_draws is not None:
            replicates = background_probability.metrics(
                known_margins,
                unknown_margins,
                self._id_draws.rows(known.image_id),
                self._wild_draws(self._wild_names).rows(unknown.image_id),
            )
        values = background_probability.metrics(known_margins, unknown_margins)
        images = {
            "rejected_known": len(np.unique(known.image_id)),
            "rejected_unknown": len(np.unique(unknown.image_id)),
        }
        return BackgroundResults(
            values=values,
            **intervals.of_metrics(values, replicates, images),
            known=self._margins(known_margins, known),
            unknown=self._margins(unknown_margins, unknown),
        )

    def _read_wild_margins(self) -> np.ndarray:
        """Margins of all wild regions, ndarray of shape (N,)."""
        margins = [np.zeros(0)]
        for split in self._wild_splits:
            split_margins = split.read_margins()
            if split_margins is not None:
                margins.append(split_margins)
        return np.concatenate(margins)

    def _margins(self, margins: np.ndarray, regions: Regions) -> Margins:
        """Histogram of the margins of regions, and their summary by predicted class."""
        classes = np.array(self._known.regions.classes, dtype=object)
        return Margins(
            histogram=background_probability.histogram(margins),
            classes=background_probability.by_class(margins, classes[regions.label]),
        )

    @cached_property
    def _known_cause(self) -> np.ndarray:
        """Cause of each ID detection; see `_cause`."""
        return self._cause(self._known)

    @cached_property
    def _wild_cause(self) -> np.ndarray:
        """Cause of each wild detection; see `_cause`."""
        return self._cause(self._wild)

    def _cause(self, tables: ImageTables) -> np.ndarray:
        """Index in `error_diagnosis.CAUSES` of the cause of each detection of any confidence."""
        settings = error_diagnosis.Diagnosis(self._similar, self._wild_names, self._settings.iou)
        any_confidence = dict.fromkeys(self._impact.classes, -np.inf)
        causes = error_diagnosis.diagnose(tables.objects, tables.regions, any_confidence, settings)
        return places_among(causes, error_diagnosis.CAUSES).astype(np.int8)

    def _confusion(
        self, threshold_by_class: Mapping[str, float | None]
    ) -> dict[str, dict[str, int]]:
        """`farther.metrics.errors.error_diagnosis.confusion` of ID images and as many wild ones."""
        counts: Counter[tuple[str, str]] = Counter()
        wild = self._wild_tables(self._impact.wild_images(DIAGNOSIS_RATIO))
        for tables in (self._known, wild):
            confusion = error_diagnosis.confusion(
                tables.objects, tables.regions, threshold_by_class
            )
            for category, count_by_class in confusion.items():
                for detected_as, count in count_by_class.items():
                    counts[category, detected_as] += count

        table: dict[str, dict[str, int]] = {}
        for (category, detected_as), count in sorted(counts.items()):
            table.setdefault(category, {})[detected_as] = count
        return table

    def _wild_draws(self, names: Sequence[str]) -> ImageDraws:
        settings = self._settings
        return ImageDraws(names, settings.replicates, settings.seed + 1, settings.drawn_images)

    def _impact_intervals(self, metrics: Mapping[str, Any]) -> dict[str, Interval]:
        """Intervals of wilderness impact, which is computed anew in each replicate.

        Args:
            metrics: Those of the images as they are.
        """
        replicates = self._settings.recomputed_replicates
        seed = self._settings.seed
        id_draws = ImageDraws(self._id_split.images, replicates, seed)
        wild_draws = ImageDraws(self._wild_names, replicates, seed + 1)

        def compute(replicate: int) -> dict[str, Any]:
            objects, _ = id_draws.written_out(replicate, self._known.objects)
            regions, _ = id_draws.written_out(replicate, self._known.regions)
            wild_regions, _ = wild_draws.written_out(replicate, self._wild.regions)
            metrics = wilderness.evaluate(
                objects,
                regions,
                id_draws.drawn_names(replicate),
                wild_regions,
                wild_draws.drawn_names(replicate),
                protocol=self._settings.protocol,
                seed=seed,
            )
            return _impacts(metrics)

        measured = intervals.of_metrics(
            _impacts(metrics), bootstrap.recomputed(replicates, compute)
        )
        return measured["intervals"]


def _impacts(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of `farther.metrics.wilderness.evaluate` with intervals, by their names."""
    values = {"map_closed": metrics["map_closed"], "map_open": metrics["map_open"]}
    for recall, impact in metrics["at_recall"].items():
        for name in ("average_impact", "average_impact_by_precision"):
            values[f"{name}@{recall}"] = impact[name]
    return values

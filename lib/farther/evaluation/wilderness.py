"""Effect of images without known objects on a run's detector: impact, errors, operating points, background."""

from __future__ import annotations

from collections import Counter
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
from farther.metrics.errors import error_diagnosis
from farther.metrics.matching import true_classes
from farther.metrics.matching.boxes import is_among, places_among, sorted_together
from farther.metrics.statistics import bootstrap
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import joined, value
from farther.metrics.wilderness import background_probability

#: The recall at which unknown objects are confused with classes (Dhamija et al., 2020, Figures 3
#: and 4).
DIAGNOSIS_RECALL = 0.3

#: The wilderness ratio at which errors are diagnosed (Figures 3 and 9 to 11).
DIAGNOSIS_RATIO = 1.0

CORRECT = error_diagnosis.CAUSES.index("correct")


class WildImages:
    """The ID split of a run, and the images of its OOD splits without known objects as wild images.

    Args:
        inputs: The run's inputs.
    """

    def __init__(self, inputs: RunInputs):
        self._settings, self._similar = inputs.settings, inputs.roles.similar
        self._closed, self._draws = inputs.id_split, inputs.id_draws
        self._known = inputs.id_split.regions()
        self._wild = wild = [split for split in inputs.tested if not split.shows_known]
        self._names = [f"{split.name}/{name}" for split in wild for name in sorted(split.images)]
        objects, self._regions = named_together(wild, self._closed)
        #: In images that nobody annotated nothing is labelled, and a detection there is wrong
        #: nevertheless.
        self._objects = objects[~objects.is_unlabelled]
        self._has_boxes = any(split.has_boxes for split in wild)
        #: Objects and regions of the ID images, and of the wild ones: nothing that is measured here
        #: of an image depends on another, and one part after the other takes less memory.
        self._parts = (self._closed.objects, self._known), (self._objects, self._regions)
        self._impact = wilderness.Wilderness(
            self._closed.objects,
            self._known,
            self._closed.images,
            self._regions,
            self._names,
            iou=self._settings.iou,
            protocol=self._settings.protocol,
            seed=self._settings.seed,
        )

    def metrics(self) -> WildernessResults:
        """All metrics of wilderness.

        Those of `farther.metrics.wilderness.evaluate`, with intervals for `recomputed_replicates`;
        `confusion` as in `farther.metrics.errors.error_diagnosis`, at the recall
        `diagnosis_recall`; `operating_points` are the best thresholds of
        `farther.metrics.wilderness.Wilderness`.
        """
        points = dict(
            zip(self._impact.classes, self._impact.operating_points(DIAGNOSIS_RECALL), strict=True)
        )
        replicates = self._settings.recomputed_replicates
        return WildernessResults(
            **self._impact.metrics(),
            intervals=self._impact_intervals(replicates) if replicates else {},
            diagnosis_recall=DIAGNOSIS_RECALL,
            confusion=self._confusion(points),
            errors=self.errors(),
            operating_points=OperatingPoints(**self._impact.best_thresholds()),
            background=self.background(),
        )

    def errors(self) -> ErrorCauses:
        """Causes of detections over recall, in the ID images and as many wild ones, or in all where there are fewer."""
        wild = self._impact.wild_images(DIAGNOSIS_RATIO)
        rows = is_among(self._regions.image_id, wild)
        tables = (
            self._parts[0],
            (self._objects[is_among(self._objects.image_id, wild)], self._regions[rows]),
        )
        parts = [
            ClosedSet.of(*of, self._impact.classes, max_detections=len(of[1]) + 1) for of in tables
        ]
        of_known, of_wild = (part.images for part in parts)
        images, places = sorted_together(of_known, of_wild)
        known = parts[0].joined(
            parts[1], images, places, len(self._known), len(self._closed.objects)
        )
        del parts  # copies of all detections
        cause = np.concatenate(
            [self._cause[: len(self._known)], self._cause[len(self._known) :][rows]]
        )
        matched, cause = known.match([self._settings.iou]), cause[known.detections.row]
        recalls = error_diagnosis.RECALLS
        counts, classes = error_diagnosis.counts_at_recalls(matched, cause, recalls)
        within = {}
        if self._draws is not None:
            both = joined(self._draws.of(of_known), self._wild_draws(wild).of(of_wild))
            drawn, _ = error_diagnosis.counts_at_recalls(
                matched, cause, recalls, both[:, np.argsort(places)]
            )
            within = {
                name: [bootstrap.interval(at) for at in of]
                for name, of in error_diagnosis.shares(drawn).items()
            }
        shares = {
            name: [value(one) for one in of[:, 0]]
            for name, of in error_diagnosis.shares(counts).items()
        }
        if not self._has_boxes and wild:
            shares["unknown_unknown"] = [None] * len(recalls)
            within |= {"unknown_unknown": [None] * len(recalls)} if within else {}
        return ErrorCauses(
            ratio=len(wild) / len(self._closed.images),
            similar=[list(group) for group in self._similar],
            recalls=list(recalls),
            classes=classes[:, 0].tolist(),
            detections=counts[:, :, 0].sum(axis=0).astype(int).tolist(),
            shares=shares,
            intervals=within,
        )

    def background(self) -> BackgroundResults | None:
        """Class against background probability, of correct ID detections and of detections of unknown objects.

        See `farther.metrics.wilderness.background_probability`; classes are those predicted. None
        where the detector has no column for the background.
        """
        of_known = self._closed.read_margins()
        if of_known is None:
            return None
        of_unknown = true_classes(self._objects, self._regions, self._settings.iou).category != ""
        sides = {
            "known": self._known[self._cause[: len(self._known)] == CORRECT],
            "unknown": self._regions[of_unknown.astype(bool)],
        }
        stored = [each for split in self._wild if (each := split.read_margins()) is not None]
        margins = {
            "known": of_known[self._cause[: len(self._known)] == CORRECT],
            "unknown": np.concatenate([np.zeros(0), *stored])[of_unknown.astype(bool)],
        }
        both = margins["known"], margins["unknown"]
        within = {}
        if self._draws is not None:
            weights = (
                self._draws.rows(sides["known"].image_id),
                self._wild_draws(self._names).rows(sides["unknown"].image_id),
            )
            within = intervals.within(background_probability.metrics(*both, *weights))
        classes = np.array(self._known.classes, dtype=object)
        found = {
            name: Margins(
                histogram=background_probability.histogram(margins[name]),
                classes=background_probability.by_class(margins[name], classes[regions.label]),
            )
            for name, regions in sides.items()
        }
        return BackgroundResults(
            values=background_probability.metrics(*both), intervals=within, **found
        )

    @cached_property
    def _cause(self) -> np.ndarray:
        """Place in `error_diagnosis.CAUSES` of the cause of each detection of both parts, whatever its confidence."""
        settings = error_diagnosis.Diagnosis(self._similar, self._names, self._settings.iou)
        points = dict.fromkeys(self._impact.classes, -np.inf)
        causes = error_diagnosis.CAUSES
        each = [
            places_among(error_diagnosis.diagnose(*part, points, settings), causes)
            for part in self._parts
        ]
        return np.concatenate([of_part.astype(np.int8) for of_part in each])

    def _confusion(self, points: dict[str, float | None]) -> dict[str, dict[str, int]]:
        """`farther.metrics.errors.error_diagnosis.confusion` of both parts."""
        found = [error_diagnosis.confusion(*part, points) for part in self._parts]
        counts = sum(
            (Counter({(k, c): n for k, of in one.items() for c, n in of.items()}) for one in found),
            Counter(),
        )
        table: dict[str, dict[str, int]] = {}
        for (category, detected_as), count in sorted(counts.items()):
            table.setdefault(category, {})[detected_as] = count
        return table

    def _wild_draws(self, names: list[str]) -> ImageDraws:
        settings = self._settings
        return ImageDraws(names, settings.replicates, settings.seed + 1, settings.drawn_images)

    def _impact_intervals(self, replicates: int) -> dict[str, Interval]:
        seed = self._settings.seed
        closed, drawn = (
            ImageDraws(self._closed.images, replicates, seed),
            ImageDraws(self._names, replicates, seed + 1),
        )

        def compute(replicate: int) -> dict[str, Any]:
            again = wilderness.evaluate(
                closed.written_out(replicate, self._closed.objects)[0],
                closed.written_out(replicate, self._known)[0],
                closed.drawn_names(replicate),
                drawn.written_out(replicate, self._regions)[0],
                drawn.drawn_names(replicate),
                protocol=self._settings.protocol,
                seed=seed,
            )
            averages = ("average_impact", "average_impact_by_precision")
            at = {
                f"{name}@{recall}": of[name]
                for recall, of in again["at_recall"].items()
                for name in averages
            }
            return {"map_closed": again["map_closed"], "map_open": again["map_open"], **at}

        return intervals.within(bootstrap.recomputed(replicates, compute))

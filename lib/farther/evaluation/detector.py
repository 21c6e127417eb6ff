"""Evaluation of a run's detector, whatever the methods: known classes, wilderness, self-awareness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from farther.evaluation import across, intervals
from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.self_awareness import evaluate_self_awareness
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.sweeps import mean_average_precision
from farther.metrics import bootstrap, closed_set, wilderness
from farther.tables import Objects, Regions

#: The recall at which errors are diagnosed and unknown objects are confused (Dhamija et al., 2020, Figs. 3 and 4).
DIAGNOSIS_RECALL = 0.3


def evaluate_detector(inputs: RunInputs) -> dict[str, Any]:
    """Metrics of the detector.

    Returns:
        As in `evaluation/<run>.json`: closed_set, classifier (None for a detector of objects), wilderness,
        self_awareness, splits; and map_at: {t*: {"map50", "map"}} for the sweep over t*.

    Raises:
        DataError: the calibration split is absent or wrong.
    """
    id_split, settings = inputs.id_split, inputs.settings
    known = closed_set.ClosedSet.of(id_split.objects, id_split.regions())
    summaries = {id_split.name: id_split.summary(inputs.id_regions)}
    summaries |= {split.name: split.data.summary(split.regions) for split in inputs.test_splits}
    matched = known.match(closed_set.COCO_IOUS)
    return {
        "closed_set": _closed_set(inputs, known),
        "classifier": across.classifier(inputs),
        "wilderness": _wilderness(id_split, [split for split in inputs.tested if not split.shows_known], settings),
        "self_awareness": evaluate_self_awareness(inputs),
        "splits": summaries,
        "map_at": {str(t): mean_average_precision(matched, t) for t in settings.confidences},
    }


def _closed_set(inputs: RunInputs, known: closed_set.ClosedSet) -> dict[str, Any]:
    found = closed_set.evaluate(inputs.id_split.objects, inputs.id_split.regions())
    if inputs.id_draws is not None:
        found["intervals"] = intervals.within(closed_set.metrics(known, inputs.id_draws.of(known.images)))
    return found


def _wilderness(id_split: RunSplit, tested: Sequence[RunSplit], settings: EvaluationSettings) -> dict[str, Any]:
    """Wilderness impact with the images of OOD splits as wild images, and the causes of errors in them."""
    objects, regions = id_split.objects, id_split.regions()
    wild_objects, of_splits, names = zip(*map(_named_by_split, tested), strict=True) if tested else ((), (), ())
    images = [name for of_split in names for name in of_split]
    wild_regions = Regions.concatenate(of_splits) if tested else regions[:0]
    impact = wilderness.Wilderness(
        objects, regions, id_split.images, wild_regions, images, iou=settings.iou, seed=settings.seed
    )
    found = impact.metrics()
    points = dict(zip(impact.classes, impact.operating_points(DIAGNOSIS_RECALL), strict=True))
    all_objects = Objects.concatenate([objects, *wild_objects])
    all_regions = Regions.concatenate([regions, wild_regions])
    causes = wilderness.diagnose(
        all_objects, all_regions, points, wilderness.Diagnosis(wild_images=images, iou=settings.iou)
    )
    counts = {cause: int(np.sum(causes == cause)) for cause in wilderness.CAUSES}
    confusion = wilderness.confusion(all_objects, all_regions, points)
    if settings.recomputed_replicates:
        drawn_from = ((id_split.images, settings.seed), (images, settings.seed + 1))
        closed, drawn = (bootstrap.ImageDraws(i, settings.recomputed_replicates, seed) for i, seed in drawn_from)

        def compute(replicate: int) -> dict[str, Any]:
            again = wilderness.evaluate(
                closed.written_out(replicate, objects)[0],
                closed.written_out(replicate, regions)[0],
                closed.drawn_names(replicate),
                drawn.written_out(replicate, wild_regions)[0],
                drawn.drawn_names(replicate),
                seed=settings.seed,
            )
            averages = ("average_impact", "average_impact_by_precision")
            at = {f"{name}@{recall}": of[name] for recall, of in again["at_recall"].items() for name in averages}
            return {"map_closed": again["map_closed"], "map_open": again["map_open"], **at}

        found["intervals"] = intervals.within(bootstrap.recomputed(settings.recomputed_replicates, compute))
    return {**found, "diagnosis_recall": DIAGNOSIS_RECALL, "diagnosis": counts, "confusion": confusion}


def _named_by_split(split: RunSplit) -> tuple[Objects, Regions, list[str]]:
    """Objects, regions and images with the split's name in front, as images of two splits may have one name."""

    def longer(names: Iterable[str]) -> np.ndarray:
        return np.array([f"{split.name}/{name}" for name in names], dtype=object)

    objects, regions = split.objects, split.regions()
    return (
        objects.with_columns(image_id=longer(objects.image_id)),
        regions.with_columns(image_id=longer(regions.image_id)),
        sorted(longer(split.images)),
    )

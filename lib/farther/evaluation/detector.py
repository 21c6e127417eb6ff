"""Evaluation of a run's detector, whatever the methods: known classes, wilderness, self-awareness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, get_args

import numpy as np

from farther.evaluation import intervals
from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.sweeps import mean_average_precision
from farther.metrics import bootstrap, calibration, closed_set, ood, self_awareness, wilderness
from farther.tables import Objects, Regions

#: The recall at which errors are diagnosed and unknown objects are confused (Dhamija et al., 2020, Figs. 3 and 4).
DIAGNOSIS_RECALL = 0.3


def evaluate_detector(inputs: RunInputs) -> dict[str, Any]:
    """Metrics of the detector.

    Returns:
        As in `evaluation/<run>.json`: closed_set, wilderness, self_awareness, splits; and map_at: {t*: {"map50",
        "map"}} for the sweep over t*.

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
        "wilderness": _wilderness(id_split, [split for split in inputs.tested if not split.shows_known], settings),
        "self_awareness": _self_awareness(inputs),
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


def _self_awareness(inputs: RunInputs) -> dict[str, Any]:
    """Calibration and accuracy of the detections that are kept, and acceptance of images.

    The calibration split gives the LRP-optimal confidence thresholds, the calibrators, and the image threshold, which
    accepts 95% of its images.
    """
    id_split, settings = inputs.id_split, inputs.settings
    held_out = RunSplit(inputs.files, settings.calibration_split)
    thresholds = self_awareness.lrp_thresholds(held_out.objects, held_out.regions())
    kept = self_awareness.above(id_split.regions(), thresholds)
    level = ood.threshold_at(_image_scores(held_out), 0.95)
    images, scores = sorted(id_split.images), _image_scores(id_split)
    rejected = [] if level is None else [name for name, s in zip(images, scores, strict=True) if s < level]
    found = self_awareness.evaluate(id_split.objects, kept, rejected=rejected, protocol=settings.protocol)
    if settings.recomputed_replicates:
        draws = bootstrap.ImageDraws(images, settings.recomputed_replicates, settings.seed)
        # The objects of rejected images are missed.
        accepted = kept[~np.isin(kept.image_id.astype(str), rejected)]

        def compute(replicate: int) -> dict[str, Any]:
            objects, _ = draws.written_out(replicate, id_split.objects)
            drawn = draws.written_out(replicate, accepted)[0]
            return self_awareness.evaluate(objects, drawn, protocol=settings.protocol)

        found["intervals"] = intervals.within(bootstrap.recomputed(settings.recomputed_replicates, compute))
    calibrated = {}
    for kind in get_args(calibration.Kind):
        calibrators = calibration.fit(kind, held_out.objects, self_awareness.above(held_out.regions(), thresholds))
        after = self_awareness.evaluate(
            id_split.objects, calibration.apply(calibrators, kept), rejected=rejected, protocol=settings.protocol
        )
        calibrated[kind] = {name: after[name] for name in ("laece", "idq")}
    by_split = {}
    for split in inputs.tested:
        others = _image_scores(split)
        accepted_shares = {} if level is None else self_awareness.balanced_accuracy(scores, others, level)
        by_split[split.name] = {"auroc": ood.auroc(scores, others), **accepted_shares}
    chosen = {"confidence_thresholds": thresholds, "image_threshold": level}
    return {**chosen, **found, "rejected_images": len(rejected), "calibrated": calibrated, "splits": by_split}


def _image_scores(split: RunSplit) -> np.ndarray:
    return self_awareness.image_scores(sorted(split.images), split.regions())

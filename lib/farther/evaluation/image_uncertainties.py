"""How well image uncertainty tells ID from OOD images, by the uncertainty of detections that it is made of, and how
accurate a run is on each split (Oksuz et al., CVPR 2023, arXiv:2307.00934, Tables 3, 6, A.8 to A.11, A.13 and A.14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import MetricValues
from farther.evaluation.self_aware_run import SelfAwareRun
from farther.methods import create
from farther.metrics import closed_set, ood
from farther.metrics.self_awareness import image_uncertainty
from farther.metrics.self_awareness.images import DetectedImages
from farther.metrics.statistics.bootstrap import ImageDraws, interval
from farther.metrics.weighting import RowWeights, joined, mean_of_defined, row_weights, value

CONFIDENCE, ENTROPY, BOX_ENTROPY, DETERMINANT = (
    "1 − confidence",
    "entropy",
    "box entropy",
    "box determinant",
)
MEAN_OF_SIGMOIDS = "entropy, mean of sigmoids"
BOTH, BALANCED, NORMALISED = (
    "entropy + box entropy",
    "4 · entropy + box entropy",
    "both entropies, normalised",
)

#: Uncertainties that are computed from stored regions: method and parameters. Eqs. A.6 and A.7
#: count the background of a softmax head as one more class, K + 1 in all, as the published code
#: does.
COMPUTED: dict[str, tuple[str, dict[str, Any]]] = {
    ENTROPY: ("entropy", {"background": "keep"}),
    MEAN_OF_SIGMOIDS: ("entropy", {"activation": "detector"}),
    "entropy, largest sigmoid": ("entropy", {"activation": "detector", "sigmoids": "largest"}),
    "Dempster–Shafer": ("dempster_shafer", {"background": "keep"}),
    DETERMINANT: ("box_uncertainty", {"measure": "determinant"}),
    "box trace": ("box_uncertainty", {"measure": "trace"}),
    BOX_ENTROPY: ("box_uncertainty", {"measure": "entropy"}),
}

#: The aggregate of Tables 3, A.9 and A.10; Table A.11 has all of them, of two uncertainties.
AGGREGATE = "top-3"


def of_detections(
    splits: Sequence[RunSplit], held_out: Callable[[], RunSplit]
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Name, and uncertainty of each stored detection of each split; those that need what is not stored are left out.

    Args:
        splits: The splits.
        held_out: The ID validation split, whose smallest and largest entropies are 0 and 1 of
            `NORMALISED`.
    """
    yield CONFIDENCE, [1.0 - split.regions().score.astype(np.float64) for split in splits]
    folder, entropies = splits[0].folder, {}
    for title, (name, options) in COMPUTED.items():
        of_sigmoids = options.get("activation") == "detector"
        if create(name, **options).missing(folder) or (
            of_sigmoids and folder.header.activation != "sigmoid"
        ):
            continue
        doubts = _computed(title, splits)
        if title in (ENTROPY, BOX_ENTROPY):
            entropies[title] = doubts
        yield title, doubts
    if len(entropies) == 2:
        pairs = list(zip(*entropies.values(), strict=True))
        known = [_computed(title, [held_out()])[0] for title in entropies]
        (low, size), (box_low, box_size) = (
            (float(of.min()), float(np.ptp(of)) or 1.0) if len(of) else (0.0, 1.0) for of in known
        )
        yield BOTH, [of_class + of_box for of_class, of_box in pairs]
        yield BALANCED, [4 * of_class + of_box for of_class, of_box in pairs]
        yield (
            NORMALISED,
            [(of_class - low) / size + (of_box - box_low) / box_size for of_class, of_box in pairs],
        )


def _computed(title: str, splits: Sequence[RunSplit]) -> list[np.ndarray]:
    name, options = COMPUTED[title]
    return [-create(name, **options).score(split.folder) for split in splits]


def uncertainties(run: SelfAwareRun, inputs: RunInputs) -> dict[str, MetricValues]:
    """AUROC of ID test images against all OOD images, by uncertainty of detections and by aggregate."""
    others = [split for split in inputs.tested if split.name in run.ood]
    if not others:
        return {}
    splits = [inputs.id_split, *others]
    names = [run.clean.names, *(run.ood[split.name].names for split in others)]
    weights = _weights(run, [split.name for split in others])
    found = {}
    for title, doubts in of_detections(
        splits, lambda: RunSplit(inputs.files, run.settings.calibration_split)
    ):
        of = found[title] = MetricValues()
        for how in (
            image_uncertainty.AGGREGATES if title in (CONFIDENCE, DETERMINANT) else (AGGREGATE,)
        ):
            known, *unknown = (
                image_uncertainty.aggregate(doubt, split.regions().image_id, images, how)
                for doubt, split, images in zip(doubts, splits, names, strict=True)
            )
            sides = -known, -np.concatenate(unknown)
            of.values[how] = ood.auroc(*sides)
            if weights is not None:
                of.intervals[how] = interval(ood.auroc(*sides, *weights))
    return found


def _weights(run: SelfAwareRun, others: Sequence[str]) -> tuple[RowWeights, RowWeights] | None:
    """How often each ID image and each OOD image is drawn; None without replicates."""
    if not run.draws:
        return None
    each = [run.draws[name].of(np.array(run.ood[name].names, dtype=object)) for name in others]
    sides = run.draws["clean"].of(np.array(run.clean.names, dtype=object)), reduce(joined, each)
    known, unknown = (row_weights(of, np.arange(of.shape[1]), of.shape[1]) for of in sides)
    return known, unknown


def accuracy(run: SelfAwareRun) -> dict[str, MetricValues]:
    """AP of all detections in ID validation, ID test and shifted images of both, and LRP of those above the class
    thresholds in the first. No image is rejected. Without values for a classifier of whole images.
    """
    if run.clean.regions.header.whole_images:
        return {}
    settings, held_out = run.settings, run.held_out
    of_held_out = settings.draws(held_out.names)
    draws = {settings.calibration_split: of_held_out, settings.id_split: run.draws.get("clean")}
    images = {
        settings.calibration_split: held_out,
        settings.id_split: run.clean,
        **run.shifted,
        **run.shifted_val,
    }
    if run.shifted_val:
        names_of_shifted_val = frozenset().union(*(of.names for of in run.shifted_val.values()))
        draws |= dict.fromkeys(run.shifted_val, settings.draws(names_of_shifted_val))
    found = {
        name: average_precision(of, draws.get(name, run.draws.get("shifted")))
        for name, of in images.items()
    }
    matched = held_out.match(run.asked.iou, held_out.above(run.detector.confidence_thresholds))
    lrp = found[settings.calibration_split]
    lrp.values["lrp"] = value(run.means(matched, None)["lrp"][0])
    if of_held_out is not None:
        lrp.intervals["lrp"] = interval(run.means(matched, of_held_out.of(matched.images))["lrp"])
    return found


def average_precision(
    images: DetectedImages, draws: ImageDraws | None, kept: np.ndarray | None = None
) -> MetricValues:
    """COCO's AP of detections, with its interval where there are draws of the images.

    Args:
        kept: ndarray of shape (N,), bool: the regions that count, all when None.
    """
    regions = images.regions if kept is None else images.regions[kept]
    known = closed_set.ClosedSet.of(images.objects, regions)
    matched = known.match(closed_set.COCO_IOUS)

    def mean(weights: Any) -> np.ndarray:
        return mean_of_defined(matched.average_precision(weights), axis=(0, 1))

    found = MetricValues(values={"ap": value(mean(None)[0])})
    if draws is not None:
        found.intervals["ap"] = interval(mean(draws.of(known.images)))
    return found

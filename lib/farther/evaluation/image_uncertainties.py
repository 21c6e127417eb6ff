"""Separation of ID from OOD images by image uncertainty, and the accuracy of a run on each split.

Oksuz et al., CVPR 2023, arXiv:2307.00934: Tables 3 and A.9 to A.11 by the uncertainty of detections
that image uncertainty aggregates, and Tables 6, A.8, A.13 and A.14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from farther.metrics.weighting import (
    ImageWeights,
    RowWeights,
    joined,
    mean_of_defined,
    row_weights,
    value,
)

CONFIDENCE = "1 − confidence"
ENTROPY = "entropy"
BOX_ENTROPY = "box entropy"
DETERMINANT = "box determinant"
MEAN_OF_SIGMOIDS = "entropy, mean of sigmoids"
BOTH = "entropy + box entropy"
BALANCED = "4 · entropy + box entropy"
NORMALISED = "both entropies, normalised"

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


@dataclass(frozen=True)
class ValueRange:
    """The range of an entropy on the ID validation split, which is scaled to 0 to 1."""

    low: float
    size: float

    @classmethod
    def of(cls, values: np.ndarray) -> ValueRange:
        """The range of some values; 0 to 1 without values, and of size 1 where they are equal."""
        if not len(values):
            return cls(0.0, 1.0)
        return cls(float(values.min()), float(np.ptp(values)) or 1.0)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Values with the range scaled to 0 to 1."""
        return (values - self.low) / self.size


def detection_uncertainties(
    splits: Sequence[RunSplit], held_out: Callable[[], RunSplit]
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Uncertainties of each stored detection of each split.

    Those that need columns that are not stored are left out.

    Args:
        splits: The splits.
        held_out: Reads the ID validation split, whose smallest and largest entropies are 0 and 1 of
            `NORMALISED`.

    Yields:
        The name of an uncertainty, and one array per split with the value of each detection.
    """
    yield CONFIDENCE, [1.0 - split.regions().score.astype(np.float64) for split in splits]

    entropies = {}
    for title in COMPUTED:
        if not _is_computable(title, splits[0]):
            continue
        uncertainties_by_split = [_computed(title, split) for split in splits]
        if title in (ENTROPY, BOX_ENTROPY):
            entropies[title] = uncertainties_by_split
        yield title, uncertainties_by_split

    if len(entropies) == 2:
        yield from _combined(entropies, held_out())


def _combined(
    entropies: Mapping[str, Sequence[np.ndarray]], held_out: RunSplit
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Sums of the entropies of class and box.

    Args:
        entropies: `ENTROPY` and `BOX_ENTROPY` of the detections of each split.
        held_out: The ID validation split.
    """
    class_range = ValueRange.of(_computed(ENTROPY, held_out))
    box_range = ValueRange.of(_computed(BOX_ENTROPY, held_out))
    both = []
    balanced = []
    normalised = []
    for of_class, of_box in zip(entropies[ENTROPY], entropies[BOX_ENTROPY], strict=True):
        both.append(of_class + of_box)
        balanced.append(4 * of_class + of_box)
        normalised.append(class_range.scaled(of_class) + box_range.scaled(of_box))
    yield BOTH, both
    yield BALANCED, balanced
    yield NORMALISED, normalised


def _is_computable(title: str, split: RunSplit) -> bool:
    """Whether the columns that an uncertainty needs are stored."""
    method, options = COMPUTED[title]
    if create(method, **options).missing(split.folder):
        return False
    needs_sigmoids = options.get("activation") == "detector"
    return not needs_sigmoids or split.folder.header.activation == "sigmoid"


def _computed(title: str, split: RunSplit) -> np.ndarray:
    """An uncertainty of each stored detection of a split, ndarray of shape (N,)."""
    method, options = COMPUTED[title]
    return -create(method, **options).score(split.folder)


def uncertainties(run: SelfAwareRun, inputs: RunInputs) -> dict[str, MetricValues]:
    """AUROC of ID test images against all OOD images.

    Returns:
        Uncertainty of detections → AUROC by aggregate.
    """
    ood_splits = [split for split in inputs.tested if split.name in run.ood]
    if not ood_splits:
        return {}

    splits = [inputs.id_split, *ood_splits]
    names_by_split = [run.clean.names, *(run.ood[split.name].names for split in ood_splits)]
    weights = _weights(run, [split.name for split in ood_splits])

    def held_out() -> RunSplit:
        return RunSplit(inputs.files, run.settings.calibration_split)

    results = {}
    for title, uncertainties_by_split in detection_uncertainties(splits, held_out):
        aggregates = [AGGREGATE]
        if title in (CONFIDENCE, DETERMINANT):
            aggregates = list(image_uncertainty.AGGREGATES)

        results[title] = MetricValues()
        for aggregate in aggregates:
            image_uncertainties = []
            for uncertainty, split, names in zip(
                uncertainties_by_split, splits, names_by_split, strict=True
            ):
                image_id = split.regions().image_id
                image_uncertainties.append(
                    image_uncertainty.aggregate(uncertainty, image_id, names, aggregate)
                )
            id_side = -image_uncertainties[0]
            ood_side = -np.concatenate(image_uncertainties[1:])
            results[title].values[aggregate] = ood.auroc(id_side, ood_side)
            if weights is not None:
                replicates = ood.auroc(id_side, ood_side, *weights)
                results[title].intervals[aggregate] = interval(
                    replicates, value=results[title].values[aggregate]
                )
    return results


def _weights(run: SelfAwareRun, ood_splits: Sequence[str]) -> tuple[RowWeights, RowWeights] | None:
    """Weights of the ID images, and of the OOD images of all splits; None without replicates."""
    if run.draws is None:
        return None
    id_weights = run.draws.clean.of(np.array(run.clean.names, dtype=object))
    weights_by_split = []
    for name in ood_splits:
        images = np.array(run.ood[name].names, dtype=object)
        weights_by_split.append(run.draws.ood[name].of(images))
    ood_weights = reduce(joined, weights_by_split)
    return _one_row_per_image(id_weights), _one_row_per_image(ood_weights)


def _one_row_per_image(weights: ImageWeights) -> RowWeights:
    images = weights.shape[1]
    return row_weights(weights, np.arange(images), images)


def accuracy(run: SelfAwareRun) -> dict[str, MetricValues]:
    """AP of all detections on each split, and LRP on the ID validation split.

    The splits are ID validation, ID test, and shifted images of both. LRP is of the detections
    above the thresholds of their classes. No image is rejected.

    Returns:
        Split → ap, and lrp; {} for a classifier of whole images.
    """
    if run.clean.regions.header.whole_images:
        return {}

    settings = run.settings
    validation_draws = settings.draws(run.held_out.names)
    clean_draws = None
    shifted_draws = None
    if run.draws is not None:
        clean_draws = run.draws.clean
        shifted_draws = run.draws.shifted
    results = {
        settings.calibration_split: average_precision(run.held_out, validation_draws),
        settings.id_split: average_precision(run.clean, clean_draws),
    }
    for name, images in run.shifted.items():
        results[name] = average_precision(images, shifted_draws)
    if run.shifted_val:
        names: frozenset[str] = frozenset()
        for images in run.shifted_val.values():
            names |= frozenset(images.names)
        draws = settings.draws(names)
        for name, images in run.shifted_val.items():
            results[name] = average_precision(images, draws)

    is_kept = run.held_out.above(run.detector.confidence_thresholds)
    matched = run.held_out.match(run.iou, is_kept)
    on_validation = results[settings.calibration_split]
    on_validation.values["lrp"] = value(run.means(matched, None)["lrp"][0])
    if validation_draws is not None:
        weights = validation_draws.of(matched.images)
        on_validation.intervals["lrp"] = interval(
            run.means(matched, weights)["lrp"], value=on_validation.values["lrp"]
        )
    return results


def average_precision(
    images: DetectedImages, draws: ImageDraws | None, is_kept: np.ndarray | None = None
) -> MetricValues:
    """COCO's AP of detections, with its interval where there are draws of the images.

    Args:
        images: The images, with N regions.
        draws: Draws of the images.
        is_kept: Whether each region counts, ndarray of shape (N,), bool; all count when None.
    """
    regions = images.regions
    if is_kept is not None:
        regions = regions[is_kept]
    known = closed_set.ClosedSet.of(images.objects, regions)
    matched = known.match(closed_set.COCO_IOUS)

    ap = mean_of_defined(matched.average_precision(None), axis=(0, 1))
    results = MetricValues(values={"ap": value(ap[0])})
    if draws is not None:
        weights = draws.of(known.images)
        replicates = mean_of_defined(matched.average_precision(weights), axis=(0, 1))
        results.intervals["ap"] = interval(replicates, value=results.values["ap"])
    return results

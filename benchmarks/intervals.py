"""How often 95% intervals have the true value, on images that are drawn many times.

python benchmarks/intervals.py
    the share found at τ, from a population of known scores; with τ resampled, and with τ fixed
python benchmarks/intervals.py --project . --run voc-faster_rcnn
    shares of unknown objects at t* and τ: ID images are drawn from the validation and test
    images of a run together, OOD images from all of its OOD images; the true values are those
    at the t* (rule "best_f1") and τ of all these images
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist

import numpy as np

from farther.evaluation.deploy.steps import OodImages, OodSteps
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.methods.tau import threshold, weighted_thresholds
from farther.metrics.closed_set import COCO_IOUS, ClosedSet
from farther.metrics.matching.boxes import places
from farther.metrics.open_set.drawn_thresholds import ImageCopies
from farther.metrics.precision_recall import IGNORED, TRUE
from farther.metrics.statistics.bootstrap import ImageDraws, interval

#: Spread of the scores, between images and within them.
SPREAD = 0.7
#: Mean score of ID and of OOD detections.
OF_ID, OF_OOD = 2.0, 0.5
#: Detections per image.
PER_IMAGE = 2
#: Share of the ID detections that τ keeps.
KEEP = 0.95


def print_coverage(numbers: Sequence[int], draws: int, seed: int) -> None:
    """Prints the share of draws whose interval has the population's share found at its own τ."""
    spread = float(np.hypot(SPREAD, SPREAD))
    tau = NormalDist(OF_ID, spread).inv_cdf(1 - KEEP)
    true_share = NormalDist(OF_OOD, spread).cdf(tau)
    print("| images | coverage with τ | without | width with τ | without |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for images in numbers:
        covered = np.zeros((draws, 2))
        widths = np.zeros((draws, 2))
        for draw in range(draws):
            random = np.random.default_rng([seed, images, draw])
            for column, ends in enumerate(intervals_of(random, images)):
                low, high = ends
                covered[draw, column] = low <= true_share <= high
                widths[draw, column] = high - low
        shares = " | ".join(f"{share:.1%}" for share in covered.mean(axis=0))
        mean_widths = " | ".join(f"{width:.3f}" for width in widths.mean(axis=0))
        print(f"| {images:,} | {shares} | {mean_widths} |", flush=True)


def intervals_of(random: np.random.Generator, images: int) -> list[tuple[float, float]]:
    """The intervals of the share of OOD detections below τ: with τ drawn, too, and with τ fixed."""
    names = [f"{number:05}" for number in range(images)]
    image = np.repeat(np.arange(images), PER_IMAGE)
    id_scores = scores_of(random, OF_ID, images)
    ood_scores = scores_of(random, OF_OOD, images)
    draws = ImageDraws(names, 1000, int(random.integers(2**31)))
    of_validation = ImageDraws(names, 1000, int(random.integers(2**31)))
    weights = np.asarray(of_validation.weights)[:, image]
    fixed = threshold(id_scores, KEEP)
    drawn = weighted_thresholds(id_scores, weights, KEEP, "percentile")
    share = float(np.mean(ood_scores < fixed))
    ends = []
    for taus in (drawn, np.array([fixed])):
        copies = ImageCopies.of(image, ood_scores, images, taus)
        flagged = copies.weights(draws.weights) @ copies.flagged(image, ood_scores)
        ends.append(interval(flagged / len(image), value=share, images=images) or (share, share))
    return ends


def scores_of(random: np.random.Generator, mean: float, images: int) -> np.ndarray:
    """Scores of the detections of images, which depend on the image."""
    of_image = np.repeat(random.normal(mean, SPREAD, images), PER_IMAGE)
    return of_image + random.normal(0, SPREAD, len(of_image))


# --------------------------------------------------------------------------------------------------
# intervals at t* that a rule takes


class RunOutcomes:
    """What t* and τ are taken from in a run, and the outcomes of unknown objects under them.

    t* is taken by the rule "best_f1" and rounded to thousandths.

    Args:
        inputs: The run's inputs. Its ID validation and test images are one pool.
        method: The method.

    Attributes:
        id_images, ood_images: Numbers of images.
    """

    def __init__(self, inputs: RunInputs, method: str):
        splits = [RunSplit(inputs.files, inputs.settings.calibration_split), inputs.id_split]
        self._method = method
        self._ood = OodImages(inputs, inputs.tested)
        self._steps: dict[float, OodSteps] = {}
        self._classes = ranked_classes(splits)
        self.id_images = 0
        self.ood_images = len(self._ood.names)

        images = []
        confidences = []
        scores = []
        for split in splits:
            regions = split.regions()
            names = np.array(sorted(split.images), dtype=object)
            images.append(self.id_images + places(names, regions.image_id))
            confidences.append(regions.score)
            scores.append(inputs.scores(method, split))
            self.id_images += len(names)
        self._image = np.concatenate(images)
        self._confidence = np.concatenate(confidences)
        self._scores = np.concatenate(scores)

    def operating(self, weights: np.ndarray) -> np.ndarray:
        """t* of weighted ID images, ndarray of shape (B,).

        Args:
            weights: Number of times that each image counts, ndarray of shape (B, I).
        """
        best = np.array([ranked.best_f1(weights) for ranked in self._classes])
        mean_over_classes = np.asarray(np.nanmean(best, axis=0))
        return mean_over_classes.round(3)

    def taus(self, weights: np.ndarray, operating: np.ndarray) -> np.ndarray:
        """τ of weighted ID images, ndarray of shape (B,).

        Args:
            weights: See `operating`.
            operating: t*, ndarray of shape (B,) or (1,).
        """
        confidence = operating[:, None].astype(np.float32)
        rows = self._confidence >= confidence.min()
        is_used = self._confidence[rows] >= confidence
        of_detections = weights[:, self._image[rows]] * is_used
        return weighted_thresholds(self._scores[rows], of_detections, KEEP, "percentile")

    def shares(
        self, weights: np.ndarray, operating: np.ndarray, taus: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Shares of the unknown objects by outcome, ndarrays of shape (B,).

        Args:
            weights: Number of times that each OOD image counts, ndarray of shape (B, J).
            operating, taus: t* and τ, ndarrays of shape (B,) or (1,).
        """
        values, number = np.unique(operating, return_inverse=True)
        steps = [self._at(value) for value in values.tolist()]
        found_above = np.array([step.found.at for step in steps])
        misclassified_to = np.array([step.misclassified.at for step in steps])
        of_objects = weights[:, steps[0].found.image]
        total = of_objects.sum(axis=1)
        is_found = found_above[number] < taus[:, None]
        is_misclassified = misclassified_to[number] >= taus[:, None]
        return {
            "found": np.sum(of_objects * is_found, axis=1) / total,
            "misclassified": np.sum(of_objects * is_misclassified, axis=1) / total,
        }

    @cached_property
    def operating_of_all(self) -> np.ndarray:
        """t* of all ID images, ndarray of shape (1,)."""
        return self.operating(np.ones((1, self.id_images), dtype=np.int64))

    def shares_of_all(self, operating: np.ndarray) -> dict[str, float]:
        """Shares in all OOD images at a t*, of shape (1,), and the τ of all ID images there."""
        taus = self.taus(np.ones((1, self.id_images), dtype=np.int64), operating)
        shares = self.shares(np.ones((1, self.ood_images), dtype=np.int64), operating, taus)
        return {name: float(value[0]) for name, value in shares.items()}

    def _at(self, operating: float) -> OodSteps:
        if operating not in self._steps:
            self._steps[operating] = self._ood.steps(self._method, operating)
        return self._steps[operating]


@dataclass(frozen=True)
class RankedClass:
    """Detections of a class in pooled images, by falling confidence.

    Args:
        confidence: ndarray of shape (n,).
        is_true: Whether each matches an object at an IoU of 0.5, bool.
        image: Its image.
        objects: Number of the class's objects in each image, ndarray of shape (I,).
    """

    confidence: np.ndarray
    is_true: np.ndarray
    image: np.ndarray
    objects: np.ndarray

    def best_f1(self, weights: np.ndarray) -> np.ndarray:
        """The confidence with the best F1 in each replicate, NaN for none; shape (B,).

        Args:
            weights: Number of times that each image counts, ndarray of shape (B, I).
        """
        of_detections = weights[:, self.image]
        true = np.cumsum(of_detections * self.is_true, axis=1)
        detected = np.cumsum(of_detections, axis=1)
        objects = weights @ self.objects
        f1 = 2 * true / np.maximum(detected + objects[:, None], 1)
        # Detections of equal confidence are kept together.
        f1[:, :-1][:, self.confidence[:-1] == self.confidence[1:]] = 0
        best = self.confidence[np.argmax(f1, axis=1)].astype(np.float64)
        best[(f1.max(axis=1) == 0) | (objects == 0)] = np.nan
        return best


def ranked_classes(splits: Sequence[RunSplit]) -> list[RankedClass]:
    """The classes of a run's ID splits, whose images are pooled."""
    images = sum(len(split.images) for split in splits)
    first_image = 0
    columns: dict[str, list[np.ndarray]] = {}
    objects_of_class: dict[int, np.ndarray] = {}
    for split in splits:
        closed_set = ClosedSet.of(split.objects, split.regions())
        matched = closed_set.match(COCO_IOUS[:1])
        names = np.array(sorted(split.images), dtype=object)
        image = first_image + places(names, closed_set.images)
        is_ranked = matched.kind[0] != IGNORED
        of_split = {
            "class": matched.of_class[is_ranked],
            "confidence": matched.score[is_ranked],
            "is_true": matched.kind[0, is_ranked] == TRUE,
            "image": image[matched.image[is_ranked]],
        }
        for name, column in of_split.items():
            columns.setdefault(name, []).append(column)
        for k in range(len(closed_set.classes)):
            of_class = image[matched.object_image[matched.object_class == k]]
            counts = objects_of_class.setdefault(k, np.zeros(images, dtype=np.int64))
            counts += np.bincount(of_class, minlength=images)
        first_image += len(names)

    pooled_columns = {name: np.concatenate(parts) for name, parts in columns.items()}
    classes = []
    for k, objects in objects_of_class.items():
        rows = np.flatnonzero(pooled_columns["class"] == k)
        if len(rows) and objects.any():
            rows = rows[np.argsort(-pooled_columns["confidence"][rows], kind="stable")]
            confidence, is_true, image = (
                pooled_columns[name][rows] for name in ("confidence", "is_true", "image")
            )
            classes.append(RankedClass(confidence, is_true, image, objects))
    return classes


def print_coverage_of_run(run: RunOutcomes, options: argparse.Namespace) -> None:
    """Prints the share of draws whose interval has the value of all images.

    It is their value at the t* that the drawn images gave, or at that of all images; τ is always
    that of all images at this t*.
    """
    columns = (
        "at the t* taken, τ fixed | at the t* taken, τ resampled "
        "| at t* of all images, τ resampled | at t* of all images, both resampled"
    )
    print(f"| images | share | {columns} |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for images in options.images:
        covered: dict[str, list[list[bool]]] = {}
        for draw in range(options.draws):
            random = np.random.default_rng([options.seed, images, draw])
            for name, has_value in covered_by_run(run, random, images).items():
                covered.setdefault(name, []).append(has_value)
        for name, has_values in covered.items():
            shares = " | ".join(f"{share:.1%}" for share in np.mean(has_values, axis=0))
            print(f"| {images:,} | {name} | {shares} |", flush=True)


def covered_by_run(
    run: RunOutcomes, random: np.random.Generator, images: int
) -> dict[str, list[bool]]:
    """Draws images; whether the intervals of each share have the values of all images.

    See the columns of `print_coverage_of_run`.
    """
    id_counts, id_replicates = resampled(random, run.id_images, images)
    ood_counts, ood_replicates = resampled(random, run.ood_images, images)
    operating = run.operating(id_counts)
    drawn_operating = run.operating(id_replicates)
    tau = run.taus(id_counts, operating)
    values = run.shares(ood_counts, operating, tau)

    tau_fixed = run.shares(ood_replicates, operating, tau)
    drawn_taus = run.taus(id_replicates, operating)
    tau_drawn = run.shares(ood_replicates, operating, drawn_taus)
    drawn_taus = run.taus(id_replicates, drawn_operating)
    both_drawn = run.shares(ood_replicates, drawn_operating, drawn_taus)

    same = run.shares_of_all(operating)
    of_all = run.shares_of_all(run.operating_of_all)
    compared = ((tau_fixed, same), (tau_drawn, same), (tau_drawn, of_all), (both_drawn, of_all))
    covered: dict[str, list[bool]] = {}
    for name, value in values.items():
        share = float(value[0])
        covered[name] = []
        for replicates, true_shares in compared:
            ends = interval(replicates[name], value=share, images=images) or (share, share)
            covered[name].append(ends[0] <= true_shares[name] <= ends[1])
    return covered


def resampled(random: np.random.Generator, pool: int, images: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws images of a pool, and bootstrap replicates of these.

    Returns:
        How often each image of the pool is drawn, ndarray of shape (1, pool), and how often it
        counts in each replicate, of shape (1000, pool).
    """
    drawn = random.integers(0, pool, images)
    is_drawn = np.zeros((images, pool), dtype=np.float32)
    is_drawn[np.arange(images), drawn] = 1
    names = [f"{number:05}" for number in range(images)]
    replicates = ImageDraws(names, 1000, int(random.integers(2**31))).weights
    weights = np.asarray(replicates, dtype=np.float32) @ is_drawn
    counts = is_drawn.sum(axis=0, keepdims=True)
    return counts.astype(np.int32), weights.astype(np.int32)


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--project", type=Path, help="a project whose run is drawn from")
    parser.add_argument("--run", help="the run; needed with --project")
    parser.add_argument("--benchmark", default="voc", help="its benchmark")
    parser.add_argument("--method", default="msp")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--images", type=int, nargs="+", default=[50, 100, 250, 500, 1000])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.project is None:
        print_coverage(options.images, options.draws, options.seed)
        return
    if options.run is None:
        parser.error("--run is needed with --project")
    files = RunFiles(options.run, options.benchmark, options.project / "artifacts")
    inputs = RunInputs(files, files.roles, EvaluationSettings(replicates=0))
    print_coverage_of_run(RunOutcomes(inputs, options.method), options)


if __name__ == "__main__":
    main()

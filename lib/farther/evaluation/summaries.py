"""Summaries over a benchmark: means over splits, errors on ID images, costs, classifiers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from farther.evaluation import intervals
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import (
    ClassifierResults,
    Interval,
    KnownCategory,
    MeanOverSplits,
    MetricValues,
    Number,
    SplitResults,
)
from farther.evaluation.threshold import StoredTau
from farther.metrics.catalogue import METRICS, Metric
from farther.metrics.ood import classification, misclassification
from farther.metrics.open_set.drawn_thresholds import ImageCopies
from farther.metrics.open_set.known_outcomes import FLAGGED, MISSED, NOT_COUNTED, KnownOutcome
from farther.metrics.statistics import bootstrap
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import plain, ratio


def means_by_distance(
    results: Mapping[str, SplitResults],
    replicates: Mapping[str, Mapping[str, np.ndarray]],
    distance: Mapping[str, str],
) -> dict[str, MeanOverSplits]:
    """Means over the near, the far and the farther splits, as in OpenOOD (arXiv:2210.07242).

    Args:
        results: Results of a method by split.
        replicates: {split: {metric: ndarray of shape (B,)}}.
        distance: Distance of each split.

    Returns:
        Distance → means of the metrics that all of its splits have, None where one of them has no
        value.
    """
    distances = []
    for split in distance:
        if split in results and distance[split] not in distances:
            distances.append(distance[split])

    mean_by_distance = {}
    for name in distances:
        splits = [split for split in results if distance.get(split) == name]
        mean_by_distance[name] = _mean_over(splits, results, replicates)
    return mean_by_distance


def _mean_over(
    splits: Sequence[str],
    results: Mapping[str, SplitResults],
    replicates: Mapping[str, Mapping[str, np.ndarray]],
) -> MeanOverSplits:
    """Means of the metrics that all splits have, with intervals of those with replicates."""
    mean_values: dict[str, float | None] = {}
    mean_intervals: dict[str, Interval] = {}
    no_interval: dict[str, str] = {}
    for metric in METRICS.values():
        if not metric.averaged or not _all_have(metric, splits, results):
            continue

        values = [results[split].value(metric) for split in splits]
        mean_values[metric.name] = None
        if None not in values:
            mean_values[metric.name] = float(np.mean(np.array(values, dtype=float)))

        if all(metric.name in replicates[split] for split in splits):
            replicates_by_split = [replicates[split][metric.name] for split in splits]
            mean = mean_values[metric.name]
            mean_interval = _interval_of_mean(
                metric, mean, [results[split] for split in splits], replicates_by_split
            )
            mean_intervals |= mean_interval.intervals
            no_interval |= mean_interval.no_interval

    return MeanOverSplits(
        splits=list(splits), values=mean_values, intervals=mean_intervals, no_interval=no_interval
    )


def _interval_of_mean(
    metric: Metric,
    mean: float | None,
    results: Sequence[SplitResults],
    replicates: Sequence[np.ndarray],
) -> MetricValues:
    """The interval of a mean over splits, or why it has none.

    A share that is 0 in all splits, or 1, has an exact interval. Else a split whose own interval is
    not from resamples leaves the mean without one: that split would count as certain.

    Args:
        metric: The metric.
        mean: Its mean; None where a split has no value.
        results: The results on each split.
        replicates: Its replicates in each split.
    """
    images = [split.share_images(metric) for split in results]
    images_of_mean = {}
    problem = ""
    if mean in (0, 1) and None not in images:
        # A share of 0 in S splits of n images or more is a mean of 0 in S · n images.
        smallest = min(count for count in images if count is not None)
        images_of_mean[metric.name] = len(results) * smallest
    for split, split_replicates in zip(results, replicates, strict=True):
        problem = problem or bootstrap.why_no_interval(split_replicates, split.value(metric))
        problem = problem or split.why_no_interval(metric)
    return MetricValues(
        **intervals.of_metrics(
            {metric.name: mean},
            {metric.name: np.mean(replicates, axis=0)},
            images_of_mean,
            problem and f"in one of the splits, {problem}",
        )
    )


def _all_have(metric: Metric, splits: Sequence[str], results: Mapping[str, SplitResults]) -> bool:
    return all(metric.group in results[split].groups for split in splits)


def misclassification_results(inputs: RunInputs, id_scores: np.ndarray) -> MetricValues:
    """Misclassification detection by a method on the ID split, with intervals.

    Args:
        inputs: The run's splits.
        id_scores: Scores of the regions at or above t*.
    """
    is_correct = inputs.is_correct
    values = {"correct": int(is_correct.sum()), "errors": int((~is_correct).sum())}
    values |= misclassification.evaluate(id_scores, is_correct)

    replicates = {}
    if inputs.id_draws is not None:
        weights = inputs.id_draws.rows(inputs.id_regions.image_id)
        replicates = misclassification.evaluate(id_scores, is_correct, weights)
    return MetricValues(values=values, **intervals.of_metrics(values, replicates))


def flagging_costs(
    inputs: RunInputs,
    id_scores: np.ndarray,
    tau: StoredTau,
    image_ids: Collection[str] | None = None,
) -> MetricValues:
    """Detections on the ID split that a method flags as unknown, with intervals.

    Args:
        inputs: The run's splits.
        id_scores: Scores of the regions at or above t*.
        tau: The method's threshold, in all and in each replicate.
        image_ids: The images that count; all by default.

    Returns:
        The numbers flagged, id_regions and images; false_alarms per image, id_flagged per region.
    """
    image_of_region = inputs.id_regions.image_id
    images = len(inputs.id_split.images)
    if image_ids is not None:
        images = len(image_ids)
        is_counted = np.isin(image_of_region.astype(str), sorted(image_ids))
        image_of_region = image_of_region[is_counted]
        id_scores = id_scores[is_counted]

    flagged = int((id_scores < tau.threshold).sum())
    false_alarms = flagged / images if images else None
    id_flagged = flagged / len(id_scores) if len(id_scores) else None

    replicates = {}
    draws = inputs.id_draws
    if draws is not None:
        flagged_replicates = _flagged_replicates(draws, image_of_region, id_scores, tau)
        if image_ids is None:
            replicates["false_alarms"] = flagged_replicates / max(images, 1)
        else:
            images_drawn = draws.rows(np.array(sorted(image_ids), dtype=object)).total()
            replicates["false_alarms"] = ratio(flagged_replicates, images_drawn)
        replicates["id_flagged"] = ratio(flagged_replicates, draws.rows(image_of_region).total())

    values: dict[str, Number] = {
        "flagged": flagged,
        "id_regions": len(id_scores),
        "images": images,
        "false_alarms": false_alarms,
        "id_flagged": id_flagged,
    }
    images_of_shares = {"id_flagged": len(np.unique(image_of_region))}
    if not flagged:  # then the share of images with a false alarm
        images_of_shares["false_alarms"] = images
    return MetricValues(values=values, **intervals.of_metrics(values, replicates, images_of_shares))


def costs_by_attribute(
    inputs: RunInputs, id_scores: np.ndarray, tau: StoredTau
) -> dict[str, dict[str, MetricValues]]:
    """`flagging_costs` of the ID images with each value of each attribute.

    Args:
        inputs, id_scores, tau: See `flagging_costs`.

    Returns:
        Attribute → value → costs. Images without a value are left out.
    """
    costs: dict[str, dict[str, MetricValues]] = {}
    for attribute, value_by_image in inputs.id_split.attributes.items():
        images_by_value: dict[str, list[str]] = {}
        for image_id, value in value_by_image.items():
            images_by_value.setdefault(value, []).append(image_id)
        costs[attribute] = {}
        for value, image_ids in sorted(images_by_value.items()):
            costs[attribute][value] = flagging_costs(inputs, id_scores, tau, image_ids)
    return costs


def known_objects(known: KnownOutcome) -> dict[str, KnownCategory]:
    """Number of the known objects of the ID split with each outcome, by category."""
    split = known.outcome.split
    categories: dict[str, KnownCategory] = {}
    for row in np.argsort(split.objects.category.astype(str), kind="stable"):
        outcome = known.of_object[row]
        if outcome == NOT_COUNTED:
            continue
        counts = categories.setdefault(str(split.objects.category[row]), KnownCategory())
        if outcome == FLAGGED:
            counts.flagged += 1
        elif outcome == MISSED:
            counts.missed += 1
        else:
            label = split.detections.classes[split.detections.label[known.region[row]]]
            counts.kept_as[label] = counts.kept_as.get(label, 0) + 1
    return categories


def _flagged_replicates(
    draws: ImageDraws, image_of_region: np.ndarray, id_scores: np.ndarray, tau: StoredTau
) -> np.ndarray:
    """Number of detections on the ID split that are flagged in each replicate, shape (B,)."""
    image = draws.places(image_of_region)
    copies = ImageCopies.of(image, id_scores, len(draws.names), tau.taus)
    flagged: np.ndarray = copies.weights(draws.weights) @ copies.flagged(image, id_scores)
    return flagged


def classifier_results(inputs: RunInputs) -> ClassifierResults | None:
    """Accuracy and calibration of a classifier; None for a detector of objects.

    They are measured on the ID split, with intervals, and on each shifted split.
    """
    if not inputs.whole_images:
        return None

    metrics_by_shifted = {}
    for split in inputs.shifted:
        shifted = classification.Classified.of(split.objects, split.regions())
        metrics_by_shifted[split.name] = plain(classification.metrics(shifted))

    values = plain(classification.metrics(inputs.classified))
    images = len(np.unique(inputs.classified.images))
    return ClassifierResults(
        values=values,
        **intervals.of_metrics(
            values,
            classifier_replicates(inputs),
            {"accuracy": images, "accuracy_top5": images},
        ),
        shifted=metrics_by_shifted,
    )


def classifier_replicates(inputs: RunInputs) -> dict[str, np.ndarray]:
    """A classifier's metrics on the ID split in each replicate; {} without replicates."""
    if inputs.id_draws is None:
        return {}
    weights = inputs.id_draws.of(inputs.classified.images)
    return classification.metrics(inputs.classified, weights)

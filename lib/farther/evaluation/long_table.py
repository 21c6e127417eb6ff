"""One long table with every value of a run, as Parquet: `artifacts/results/<run>.parquet`.

A row is one value. Files of metrics, reports and commands select rows; users query it:

    import polars as pl

    results = pl.read_parquet("artifacts/results/*.parquet")
    results.filter(metric="auroc", part="").sort("value", descending=True)

The columns:

    run, split, method
        what the value is of; `split` is "" for a value over several splits, `method` is "" for one
        of the detector
    group, metric
        names of `farther.metrics.catalogue`, or of a count that a metric is computed from; a metric
        has one group
    part
        "" for the whole, else what of it: "category=zebra", "size=small", "distance=near", and of
        an attribute of images "weather=rainy"; several keys are "class=cow, beta=1, ratio=0"; see
        `farther.evaluation.parts`
    value, low, high
        the value and its 95% interval; null where there is none
    no_interval
        why a value has no interval; "" where it has one, and without replicates
    p
        p-value of a difference ("best=knn", "minus=confidence"); null for all other values
    n
        number of images that the value is of; null where it is not known
    unit
        "fraction", "count", "per image", or "score" of a threshold

Values of the groups that only their papers' tables have, by their parts:

    wilderness            recall=0.3: mean wilderness impact over the ratios; category=zebra,
                          class=horse: detections of a category as a class, at the recall of
                          Figure 4; set=open: OOD images per ID image of wilderness_errors, and with
                          recall=0.3 the number of classes that reach it
    wilderness_errors     set=open, recall=0.3: detections, and the share of each cause of them, in
                          the ID images and as many wild ones; set=closed in the ID images alone
    operating_points      class=cow, beta=1, ratio=0: the largest F_β; without a class, the mean
    background            class=boat, objects=known: class minus background probability
    self_awareness        "": all images of a split; accepted=all: of all detections, no image
                          rejected; accepted=by uncertainty: of those in accepted images, against
                          all OOD images; class=boat; aggregate=sum; uncertainty=entropy,
                          aggregate=top-3; calibrator=linear; image_threshold=keep_95;
                          confidence_threshold=half,
                          calibrator=linear, image_threshold=keep_95 (the ablation); dummies=100;
                          score_threshold=0.5
    known_objects         category=dog, class=cat: objects of a known category that are kept as a
                          class; category=dog: those that are flagged, and missed
    proposals             source=rpn: of a split, and in the ID images false alarms and τ_o;
                          source=rpn, distance=near; the same with size=small, and with alarms=0.1
    with_proposals        source=rpn: detections and proposals together, and of these size=small and
                          error=missed and found; regions=detections: detections alone
    open_set              category=zebra, class=horse; error=missed; iou=mean: mean over IoU
                          thresholds; ranking=confidence: of detections ranked by confidence
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from farther.errors import DataError
from farther.evaluation.parts import FURTHER_KEY, has_further_key, keys_of, part_text, read_value
from farther.evaluation.paths import RunFiles
from farther.evaluation.recovery import RecoveredObjects, RecoveredRun
from farther.evaluation.results import (
    CLOSED_SET_KEYS,
    AcceptedImages,
    BackgroundResults,
    ClassesResults,
    ErrorBudget,
    ErrorCauses,
    Evaluation,
    Gain,
    Interval,
    KnownCategory,
    MethodResults,
    MetricValues,
    Number,
    OperatingPoints,
    SelfAwarenessResults,
    SplitResults,
    WildernessResults,
)
from farther.evaluation.self_aware_run import ALL_OOD
from farther.evaluation.with_proposals import MethodWithProposals
from farther.metrics.catalogue import METRICS, PREFIXES, Metric
from farther.tables.parquet import read_parquet, write_parquet
from farther.tables.writing import write_aside

SCHEMA: dict[str, type[pl.DataType]] = {
    "run": pl.String,
    "split": pl.String,
    "method": pl.String,
    "group": pl.String,
    "metric": pl.String,
    "part": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "no_interval": pl.String,
    "p": pl.Float64,
    "n": pl.Int64,
    "unit": pl.String,
}

#: Values of the table that the catalogue does not have and papers' tables do.
NOT_IN_CATALOGUE = (
    "images",
    "objects",
    "regions",
    "correct",
    "errors",
    "ood_regions",
    "id_regions_kept",
    "map_closed",
    "map_open",
    "average_impact",
    "detections",
    "localisation",
    "similar",
    "other_class",
    "background",
    "unknown_unknown",
    "mixed_unknown",
    "f",
    "precision",
    "recall",
    "operating_points_threshold",
    "mean",
    "sd",
    "daq",
    "balanced_accuracy",
    "tpr",
    "tnr",
    "self_awareness_auroc",
    "ap",
    "detections_per_image",
    "idq",
    "laece",
    "lrp",
    "lrp_loc",
    "lrp_fp",
    "lrp_fn",
    "idq_t",
    "laece_t",
    "lrp_t",
    "lrp_loc_t",
    "lrp_fp_t",
    "lrp_fn_t",
    "classes_auroc",
    "classes_fpr95",
    "classes_detection_error95",
)

#: Why the difference of two methods has no interval that agree in all bootstrap resamples.
NO_DIFFERENCE = "the same in all bootstrap resamples"

_CATALOGUE_KEYS = {key: name for name, key in CLOSED_SET_KEYS.items()}


class ResultRows:
    """Collects the rows of a run.

    Args:
        evaluation: All metrics of the run.
    """

    def __init__(self, evaluation: Evaluation):
        self._evaluation = evaluation
        self._id_split = evaluation.settings.id_split
        self._rows: list[tuple[object, ...]] = []

    def frame(self) -> pl.DataFrame:
        """The rows, with the columns `SCHEMA`."""
        return pl.DataFrame(self._rows, schema=SCHEMA, orient="row")

    def add(
        self,
        key: str,
        value: Number,
        *,
        group: str,
        split: str = "",
        method: str = "",
        part: str = "",
        interval: Interval = None,
        no_interval: str = "",
        p: float | None = None,
        images: int | None = None,
        unit: str | None = None,
    ) -> None:
        """Adds one value.

        Args:
            key: The metric's key in its group, or the name of a count.
            value, interval: The value and its 95% interval.
            group, split, method, part, no_interval, p: See the module.
            images: Number of images that the value is of; those of the split by default.
            unit: Its unit; that of the metric by default.
        """
        metric = _metric_of(group, key)
        low, high = interval or (None, None)
        if images is None and split in self._evaluation.splits and not part:
            images = self._evaluation.splits[split].images
        row = (
            self._evaluation.run,
            split,
            method,
            group,
            _metric_name(metric, group, key),
            part,
            value,
            low,
            high,
            no_interval,
            p,
            images,
            unit or _unit(metric, value),
        )
        self._rows.append(row)

    def add_all(
        self,
        results: MetricValues,
        *,
        group: str,
        split: str = "",
        method: str = "",
        part: str = "",
    ) -> None:
        """Adds all values of a section."""
        for key, value in results.values.items():
            self.add(
                key,
                value,
                group=group,
                split=split,
                method=method,
                part=part,
                interval=results.intervals.get(key),
                no_interval=results.no_interval.get(key, ""),
                images=results.share_images.get(key),
            )

    def add_map(
        self,
        values: Mapping[str, Number],
        *,
        group: str,
        split: str = "",
        method: str = "",
        part: str = "",
    ) -> None:
        """Adds values without intervals."""
        for key, value in values.items():
            self.add(key, value, group=group, split=split, method=method, part=part)

    def add_detector(self) -> None:
        """Adds the results that depend on no method."""
        evaluation = self._evaluation
        self.add("threshold", evaluation.threshold, group="detector", unit="score")
        for split, counts in evaluation.splits.items():
            self.add("no_detection", counts.no_detection, group="split", split=split)
            for key in ("images", "failed_images", "objects", "regions"):
                self.add(key, getattr(counts, key), group="split", split=split)

        closed_set = evaluation.closed_set
        for key, value in closed_set.values.items():
            self.add(
                _CATALOGUE_KEYS.get(key, key),
                value,
                group="detector",
                split=self._id_split,
                interval=closed_set.intervals.get(key),
                no_interval=closed_set.no_interval.get(key, ""),
                images=closed_set.share_images.get(key),
            )
        for name, values in closed_set.per_class.items():
            for key, value in values.items():
                self.add(
                    _CATALOGUE_KEYS.get(key, key),
                    value,
                    group="detector",
                    split=self._id_split,
                    part=part_text({"class": name}),
                )
        for threshold, values in evaluation.map_at.items():
            self.add_map(
                values, group="detector", split=self._id_split, part=f"threshold={threshold}"
            )
        if evaluation.error_budget is not None:
            self._add_error_budget(evaluation.error_budget)
        if evaluation.classifier is not None:
            self.add_all(evaluation.classifier, group="classifier", split=self._id_split)
            for split, values in evaluation.classifier.shifted.items():
                self.add_map(values, group="classifier", split=split)
        self._add_wilderness(evaluation.wilderness)
        self._add_self_awareness(evaluation.self_awareness)

    def _add_error_budget(self, budget: ErrorBudget) -> None:
        self.add("ap", budget.ap, group="errors", split=self._id_split)
        for kind, errors in budget.kinds.items():
            part = f"error={kind}"
            self.add("count", errors.count, group="errors", split=self._id_split, part=part)
            self.add(
                kind,
                errors.gain,
                group="error_budget",
                split=self._id_split,
                interval=errors.interval,
            )

    def _add_wilderness(self, wilderness: WildernessResults) -> None:
        self.add("ratio", wilderness.ratio, group="wilderness", unit="per image")
        for key in ("map_closed", "map_open"):
            interval = wilderness.intervals.get(key)
            self.add(key, getattr(wilderness, key), group="wilderness", interval=interval)
        for recall, impact in wilderness.at_recall.items():
            for key in ("average_impact", "average_impact_by_precision", "classes"):
                value = getattr(impact, key)
                self.add(key, value, group="wilderness", part=f"recall={recall}")
        for category, count_by_class in wilderness.confusion.items():
            for name, detections in count_by_class.items():
                part = part_text({"category": category, "class": name})
                self.add("detected_as", detections, group="wilderness", part=part)
        self._add_wilderness_errors(wilderness.closed_errors, "closed")
        self._add_wilderness_errors(wilderness.errors, "open")
        self._add_operating_points(wilderness.operating_points)
        if wilderness.background is not None:
            self._add_background(wilderness.background)

    def _add_wilderness_errors(self, errors: ErrorCauses, image_set: str) -> None:
        part = f"set={image_set}"
        self.add("ratio", errors.ratio, group="wilderness", part=part, unit="per image")
        for index, recall in enumerate(errors.recalls):
            part = f"set={image_set}, recall={recall:g}"
            self.add("classes", errors.classes[index], group="wilderness", part=part)
            detections = errors.detections[index]
            self.add("detections", detections, group="wilderness_errors", part=part)
            for cause, shares in errors.shares.items():
                interval = None
                if cause in errors.intervals:
                    interval = errors.intervals[cause][index]
                share = shares[index]
                self.add(cause, share, group="wilderness_errors", part=part, interval=interval)

    def _add_operating_points(self, points: OperatingPoints) -> None:
        for beta, thresholds in points.betas.items():
            if thresholds.mean is not None:
                self._add_best_thresholds(thresholds.mean, points.ratios, f"beta={beta}")
            for name, values in thresholds.classes.items():
                part = part_text({"class": name, "beta": beta})
                self._add_best_thresholds(values, points.ratios, part)

    def _add_best_thresholds(
        self, values: Mapping[str, Sequence[float]], ratios: Sequence[float], part: str
    ) -> None:
        for index, ratio in enumerate(ratios):
            for key, value_by_ratio in values.items():
                self.add(
                    key,
                    value_by_ratio[index],
                    group="operating_points",
                    part=f"{part}, ratio={ratio:g}",
                    unit="score" if key == "threshold" else None,
                )

    def _add_background(self, background: BackgroundResults) -> None:
        self.add_all(background, group="background")
        margins = {"known": background.known, "unknown": background.unknown}
        for objects, of_objects in margins.items():
            for name, values in of_objects.classes.items():
                part = part_text({"class": name, "objects": objects})
                self.add_map(values, group="background", part=part)

    def _add_self_awareness(self, results: SelfAwarenessResults) -> None:
        self.add_all(results, group="self_awareness")
        for name, values in results.per_class.items():
            part = part_text({"class": name})
            self.add_map(values, group="self_awareness", part=part)
            thresholds = {
                "threshold": results.detector.confidence_thresholds.get(name),
                "best_on_test": results.thresholds_on_test.get(name),
            }
            for key, threshold in thresholds.items():
                self.add(key, threshold, group="self_awareness", part=part, unit="score")
        for split, values in results.splits.items():
            if split == ALL_OOD:
                # The other values of all OOD images are among those of the run.
                self.add("auroc", values["auroc"], group="self_awareness")
            else:
                self.add_map(values, group="self_awareness", split=split)
        for split, accuracy in results.accuracy.items():
            self.add_all(accuracy, group="self_awareness", split=split, part="accepted=all")
        for split, accepted in results.images.items():
            self._add_accepted_images(split, accepted)
        self._add_image_uncertainties(results)
        self._add_choices_of_self_awareness(results)

    def _add_accepted_images(self, split: str, accepted: AcceptedImages) -> None:
        """Adds what the self-aware detector accepts of a split, and the metrics of that."""
        values: dict[str, Number] = {
            "images": accepted.images,
            "rejected_images": accepted.rejected_images,
            "auroc": accepted.auroc,
            **accepted.metrics,
        }
        self.add_map(values, group="self_awareness", split=split, part="accepted=by uncertainty")

    def _add_image_uncertainties(self, results: SelfAwarenessResults) -> None:
        """Adds AUROC by the aggregate and the uncertainty of detections."""
        for aggregate, auroc_by_split in results.aggregates.items():
            part = f"aggregate={aggregate}"
            for split, auroc in auroc_by_split.items():
                name = "" if split == ALL_OOD else split
                self.add("auroc", auroc, group="self_awareness", split=name, part=part)
        for uncertainty, section in results.uncertainties.items():
            for aggregate, auroc in section.values.items():
                self.add(
                    "auroc",
                    auroc,
                    group="self_awareness",
                    part=f"uncertainty={uncertainty}, aggregate={aggregate}",
                    interval=section.intervals.get(aggregate),
                )

    def _add_choices_of_self_awareness(self, results: SelfAwarenessResults) -> None:
        """Adds values by calibrator, by thresholds and by further detections."""
        for calibrator, errors in results.calibrated.items():
            part = f"calibrator={calibrator}"
            self.add_map(errors, group="self_awareness", split=self._id_split, part=part)
        for split, diagrams in results.reliabilities.items():
            for calibrator, diagram in diagrams.items():
                if split == self._id_split and calibrator in results.calibrated:
                    continue
                part = f"calibrator={calibrator}"
                laece = diagram.laece
                self.add("laece", laece, group="self_awareness", split=split, part=part)
        for rule, values in results.image_thresholds.items():
            self.add_map(values, group="self_awareness", part=f"image_threshold={rule}")
        for step in results.ablation:
            part = (
                f"confidence_threshold={step.confidence_threshold}, "
                f"calibrator={step.calibrator or 'none'}, image_threshold={step.image_threshold}"
            )
            self.add_map(step.metrics, group="self_awareness", part=part)
        for row in results.top_k:
            name = "none" if row["k"] is None else f"{row['k']:g}"
            self._add_quality_on_validation(row, f"dummies={name}")
        for row in results.by_threshold:
            name = "lrp_optimal" if row["threshold"] is None else f"{row['threshold']:g}"
            self._add_quality_on_validation(row, f"score_threshold={name}")

    def _add_quality_on_validation(self, row: Mapping[str, Number], part: str) -> None:
        split = self._evaluation.settings.calibration_split
        detections = row["detections_per_image"]
        self.add(
            "detections_per_image",
            detections,
            group="self_awareness",
            split=split,
            part=part,
            unit="per image",
        )
        for key in ("laece", "lrp", "ap"):
            interval = None
            low = row.get(f"{key}_low")
            high = row.get(f"{key}_high")
            if low is not None and high is not None:
                interval = (low, high)
            self.add(
                key, row[key], group="self_awareness", split=split, part=part, interval=interval
            )

    def add_method(self, name: str, results: MethodResults) -> None:
        """Adds the results of a method."""
        self.add("tau", results.tau, group="threshold", method=name, unit="score")
        self.add("id_regions_kept", results.id_regions_kept, group="threshold", method=name)
        self.add("id_regions", results.id_regions, group="threshold", method=name)
        id_sections = {"costs": results.costs, "misclassification": results.misclassification}
        for group, section in id_sections.items():
            self.add_all(section, group=group, split=self._id_split, method=name)
        for attribute, costs_by_value in results.costs_by_attribute.items():
            for value, costs in costs_by_value.items():
                self.add_all(
                    costs,
                    group="costs",
                    split=self._id_split,
                    method=name,
                    part=part_text({attribute: value}),
                )
        for category, outcomes in results.known_objects.items():
            self._add_known_category(name, category, outcomes)
        for distance, means in results.means.items():
            self._add_means(name, distance, means)
        for split, split_results in results.splits.items():
            self._add_split(name, split, split_results)
            self._add_differences(name, split, split_results)
        for metric, gain in self._evaluation.gains.methods.get(name, {}).items():
            self._add_gain(name, metric, gain)

    def _add_known_category(self, method: str, category: str, outcomes: KnownCategory) -> None:
        """Adds the outcomes of the objects of a known category in the ID split."""
        for name, objects in outcomes.kept_as.items():
            self.add(
                "kept_as",
                objects,
                group="known_objects",
                split=self._id_split,
                method=method,
                part=part_text({"category": category, "class": name}),
            )
        self.add_map(
            {"flagged": outcomes.flagged, "missed": outcomes.missed},
            group="known_objects",
            split=self._id_split,
            method=method,
            part=part_text({"category": category}),
        )

    def _add_means(self, method: str, distance: str, means: MetricValues) -> None:
        """Adds means over the splits of a distance, whose keys are names of metrics."""
        for metric_name, value in means.values.items():
            metric = METRICS[metric_name]
            self.add(
                metric.key,
                value,
                group=metric.group,
                method=method,
                part=f"distance={distance}",
                interval=means.intervals.get(metric_name),
                no_interval=means.no_interval.get(metric_name, ""),
            )

    def _add_gain(self, method: str, metric: str, gain: Gain) -> None:
        group = METRICS[metric].group
        key = METRICS[metric].key
        self.add(
            key,
            gain.value,
            group=group,
            method=method,
            part="distance=all",
            interval=gain.interval,
        )
        if gain.gain is not None:
            self.add(
                key,
                gain.gain,
                group=group,
                method=method,
                part=f"minus={self._evaluation.gains.baseline}",
                interval=gain.gain_interval,
                p=gain.p,
            )

    def _add_split(self, method: str, split: str, results: SplitResults) -> None:
        for group, of_group in results.groups.items():
            self.add_all(of_group, group=group, split=split, method=method)
            for key, value_by_class in of_group.parts.items():
                for name, value in value_by_class.items():
                    self.add(
                        key,
                        value,
                        group=group,
                        split=split,
                        method=method,
                        part=part_text({"class": name}),
                    )
        by_part = {
            "category": results.by_category,
            "size": results.by_size,
            "supercategory": results.by_supercategory,
            **results.by_attribute,
        }
        for kind, sections in by_part.items():
            for name, section in sections.items():
                self.add_all(
                    section,
                    group="open_set",
                    split=split,
                    method=method,
                    part=part_text({kind: name}),
                )
        for category, classes in results.taken_for.items():
            for name, objects in classes.items():
                self.add(
                    "taken_for",
                    objects,
                    group="open_set",
                    split=split,
                    method=method,
                    part=part_text({"category": category, "class": name}),
                )
        if results.ap_u_by_confidence is not None:
            self.add(
                "ap_u",
                results.ap_u_by_confidence,
                group="open_set",
                split=split,
                method=method,
                part="ranking=confidence",
            )
        if results.over_iou is not None:
            self.add_all(
                results.over_iou, group="open_set", split=split, method=method, part="iou=mean"
            )
        for kind, section in (results.error_budget or {}).items():
            self.add_all(
                section, group="open_set", split=split, method=method, part=f"error={kind}"
            )

    def _add_differences(self, method: str, split: str, results: SplitResults) -> None:
        """Adds the differences from the best methods of a split."""
        for name, difference in results.against_best.items():
            metric = METRICS[name]
            value = results.value(metric)
            best = self._evaluation.methods[difference.best].splits[split].value(metric)
            if value is None or best is None:
                continue
            no_interval = difference.why_none
            if difference.interval is None and difference.p == 1:
                no_interval = NO_DIFFERENCE
            self.add(
                metric.key,
                value - best,
                group=metric.group,
                split=split,
                method=method,
                part=f"best={difference.best}",
                interval=difference.interval,
                no_interval=no_interval,
                p=difference.p,
            )

    def add_classes(self, classes: ClassesResults) -> None:
        """Adds results by the OODness of classes."""
        sections = {"oodness": classes.by_oodness, "id up to": classes.id_up_to}
        for kind, by_method in sections.items():
            for method, by_oodness in by_method.items():
                for oodness, values in by_oodness.items():
                    part = f"{kind}={oodness}"
                    self.add_map(values, group="classes", method=method, part=part)
        for method, outcomes in classes.outcomes.items():
            for oodness, counts in outcomes.items():
                self.add_map(
                    dict(counts), group="classes", method=method, part=f"oodness={oodness}"
                )

    def add_proposals(self, recovered: RecoveredRun) -> None:
        """Adds what proposals find of the objects that are missed."""
        for source, results in recovered.sources.items():
            part = f"source={source}"
            for split, section in results.splits.items():
                self.add_all(section, group="proposals", split=split, part=part)
            for distance, recovered_objects in results.distances.items():
                self._add_recovered(recovered_objects, f"{part}, distance={distance}")
            self.add(
                "threshold",
                results.threshold,
                group="proposals",
                split=self._id_split,
                part=part,
                unit="score",
            )
            self.add(
                "alarms",
                results.alarms,
                group="proposals",
                split=self._id_split,
                part=part,
                interval=results.alarms_interval,
                unit="per image",
            )
            for method, splits in results.methods.items():
                for split, together in splits.items():
                    self._add_with_proposals(together, split, method, part)

    def _add_recovered(self, objects: RecoveredObjects, part: str) -> None:
        """Adds what a source covers of the unknown objects of a distance."""
        self.add_all(objects, group="proposals", part=part)
        for size, values in objects.by_size.items():
            self.add_map(values, group="proposals", part=f"{part}, size={size}")
        for point in objects.froc:
            part_of_point = f"{part}, alarms={point.alarms:g}"
            self.add("recovered", point.recovered, group="proposals", part=part_of_point)
            self.add(
                "still_missed",
                point.still_missed,
                group="proposals",
                part=part_of_point,
                interval=point.interval,
            )

    def _add_with_proposals(
        self, together: MethodWithProposals, split: str, method: str, part: str
    ) -> None:
        """Adds metrics of detections and proposals together, and of detections alone."""
        sections: dict[str, MetricValues] = {part: together}
        for size, of_size in together.by_size.items():
            sections[f"{part}, size={size}"] = of_size
        for kind, errors in together.error_budget.items():
            sections[f"{part}, error={kind}"] = errors
        for part_of_section, section in sections.items():
            self.add_all(
                section, group="with_proposals", split=split, method=method, part=part_of_section
            )
        self.add_map(
            together.without,
            group="with_proposals",
            split=split,
            method=method,
            part=f"{part}, regions=detections",
        )


def _metric_of(group: str, key: str) -> Metric | None:
    """The metric of a value; None where the catalogue has none."""
    for name in (f"{PREFIXES.get(group, '')}{key}", key):
        metric = METRICS.get(name)
        if metric is not None and metric.group == group:
            return metric
    return None


def _metric_name(metric: Metric | None, group: str, key: str) -> str:
    """The name of a value: never that of a metric of another group."""
    if metric is not None:
        return metric.name
    if key in METRICS:
        return f"{group}_{key}"
    return key


def _unit(metric: Metric | None, value: Number) -> str:
    """The unit of a value; of what no metric is, an integer is a count."""
    if metric is None:
        return "count" if isinstance(value, int) else "fraction"
    if metric.is_count:
        return "count"
    if metric.is_rate:
        return "per image"
    return "fraction"


def long_table(evaluation: Evaluation, recovered: RecoveredRun | None = None) -> pl.DataFrame:
    """The long table of a run.

    Args:
        evaluation: All metrics of the run.
        recovered: Results of its proposals; None where it has none.

    Returns:
        One row per value; columns `SCHEMA`.
    """
    rows = ResultRows(evaluation)
    rows.add_detector()
    for name, results in evaluation.methods.items():
        rows.add_method(name, results)
    if evaluation.classes is not None:
        rows.add_classes(evaluation.classes)
    if recovered is not None:
        rows.add_proposals(recovered)
    return rows.frame()


def write_long_table(files: RunFiles, table: pl.DataFrame) -> None:
    """Writes the long table of a run."""
    with write_aside(files.long_table) as path:
        write_parquet(table, path)


def read_long_table(file: Path) -> pl.DataFrame:
    """The long table of a run.

    Raises:
        DataError: the file is absent, damaged, or lacks a column.
    """
    try:
        return read_parquet(file, tuple(SCHEMA))
    except DataError as error:
        problem = f"{error.problem}: run `farther repro evaluate`"
        raise DataError(problem, file=file, field=error.field) from None


@dataclass(frozen=True, slots=True)
class Result:
    """A value of the long table.

    Args:
        value: The value; a count is an integer.
        interval: Its 95% interval; None where it has none.
        no_interval: Why it has none; "" where it has one, and without replicates.
        images: Number of images that it is of; None where that is not known.
    """

    value: Number
    interval: Interval = None
    no_interval: str = ""
    images: int | None = None


@dataclass(frozen=True, slots=True)
class FromBest:
    """How far a method is from the best method on a split, by one metric.

    Args:
        best: The best method.
        interval, no_interval: See `Result`.
        p: p-value of the difference; None where there is none.
    """

    best: str
    interval: Interval
    no_interval: str
    p: float | None

    @property
    def is_significant(self) -> bool:
        """Whether its interval leaves out zero; True where nothing is known of it."""
        if self.interval is None:
            return self.p != 1
        low, high = self.interval
        return not low <= 0 <= high


#: Key of a value in its group → the value.
Results = Mapping[str, Result]


#: Split and method → value of a key of parts → values by their keys.
_ByPart = Mapping[tuple[str, str], Mapping[str, Results]]


#: No keys of a part: all of it.
WHOLE: Mapping[str, object] = {}


class LongTable:
    """Selections of a long table.

    Args:
        frame: The table; columns `SCHEMA`.
    """

    def __init__(self, frame: pl.DataFrame):
        self.frame = frame
        self._selected: dict[tuple[str, str], dict[tuple[str, str], dict[str, Result]]] = {}
        self._parted: dict[tuple[str, str], _ByPart] = {}
        self._by_keys: dict[str, dict[tuple[object, ...], pl.DataFrame]] = {}

    @cached_property
    def methods(self) -> list[str]:
        """Methods that have values."""
        return self._different("method")

    @cached_property
    def splits(self) -> list[str]:
        """Splits that have values."""
        return self._different("split")

    def _different(self, column: str) -> list[str]:
        names = self.frame[column].unique(maintain_order=True).to_list()
        return [name for name in names if name]

    def parts(self, kind: str) -> list[str]:
        """The values of the only key of parts, such as the distances of "distance"."""
        part = pl.col("part")
        of_kind = self.frame.filter(part.str.starts_with(f"{kind}="))
        values = of_kind.select(part.str.strip_prefix(f"{kind}=")).filter(~has_further_key(part))
        return [read_value(value) for value in values["part"].unique(maintain_order=True)]

    def values(self, group: str, *, split: str = "", method: str = "", part: str = "") -> Results:
        """Values by their keys in a group; {} where there are none.

        Args:
            group, split, method, part: See the module.
        """
        if (group, part) not in self._selected:
            self._selected[group, part] = self._select(group, part)
        return self._selected[group, part].get((split, method), {})

    def by_part(
        self,
        group: str,
        key: str,
        *,
        split: str = "",
        method: str = "",
        within: Mapping[str, object] = WHOLE,
    ) -> Mapping[str, Results]:
        """Values by the value of a key of their parts, such as the categories of "category".

        Args:
            group, split, method: See the module.
            key: The last key of the parts.
            within: The keys before it with their values, such as `{"category": "zebra"}`.

        Returns:
            In the order of the table; {} where there are none.
        """
        keys = part_text({**within, key: ""})
        if (group, keys) not in self._parted:
            self._parted[group, keys] = self._select_by_part(group, keys)
        return self._parted[group, keys].get((split, method), {})

    def outer_parts(self, group: str, key: str) -> list[str]:
        """The values of the first of several keys of the parts of a group."""
        of_group = self._of_group(group)["part"]
        values = of_group.str.extract(f"^{key}=(.*?){FURTHER_KEY}").drop_nulls()
        return [read_value(value) for value in values.unique(maintain_order=True)]

    def part_keys(self, group: str) -> list[str]:
        """The first keys of the parts of a group, in the order of the table."""
        parts = self._of_group(group).filter(pl.col("part") != "")["part"]
        return parts.str.extract("^([^=]+)=").unique(maintain_order=True).to_list()

    def from_best(self, split: str, method: str) -> Mapping[str, FromBest]:
        """Metric → difference from the best method of a split; {} without replicates."""
        return self._differences.get((split, method), {})

    @cached_property
    def _differences(self) -> dict[tuple[str, str], dict[str, FromBest]]:
        """Differences from the best methods, by split and method."""
        differences: dict[tuple[str, str], dict[str, FromBest]] = {}
        rows = self.frame.filter(pl.col("part").str.starts_with("best="))
        for row in rows.iter_rows(named=True):
            interval = None if row["low"] is None else (row["low"], row["high"])
            best = row["part"].removeprefix("best=")
            difference = FromBest(best, interval, row["no_interval"], row["p"])
            differences.setdefault((row["split"], row["method"]), {})[row["metric"]] = difference
        return differences

    def _of_group(self, group: str) -> pl.DataFrame:
        """The rows of a group."""
        return self._groups.get((group,), self.frame.clear())

    @cached_property
    def _groups(self) -> dict[tuple[object, ...], pl.DataFrame]:
        """The rows by group."""
        return self.frame.partition_by("group", maintain_order=True, as_dict=True)

    def _select(self, group: str, part: str) -> dict[tuple[str, str], dict[str, Result]]:
        """The values of a group by split and method."""
        selected: dict[tuple[str, str], dict[str, Result]] = {}
        for row in _rows(group, self._of_group(group).filter(part=part)):
            selected.setdefault((row.split, row.method), {})[row.key] = row.result
        return selected

    def _select_by_part(self, group: str, keys: str) -> _ByPart:
        """The values of a group by split and method, and by the last value of their parts.

        Args:
            group: The group.
            keys: The parts up to that value.
        """
        if group not in self._by_keys:
            of_group = self._of_group(group).with_columns(keys=keys_of(pl.col("part")))
            self._by_keys[group] = of_group.partition_by("keys", as_dict=True)

        selected: dict[tuple[str, str], dict[str, dict[str, Result]]] = {}
        for row in _rows(group, self._by_keys[group].get((keys,), self.frame.clear())):
            by_part = selected.setdefault((row.split, row.method), {})
            value = read_value(row.part.removeprefix(keys))
            by_part.setdefault(value, {})[row.key] = row.result
        return selected


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a group, as selections hold it."""

    split: str
    method: str
    part: str
    key: str
    result: Result


def _rows(group: str, frame: pl.DataFrame) -> Iterator[_Row]:
    """The rows of a frame of a group."""
    key_by_name = {name: _key(group, name) for name in frame["metric"].unique()}
    columns = frame.select(
        "split", "method", "part", "metric", "value", "low", "high", "no_interval", "n", "unit"
    )
    for row in columns.iter_rows(named=True):
        value = row["value"]
        if row["unit"] == "count" and value is not None and value == int(value):
            value = int(value)
        interval = None if row["low"] is None else (row["low"], row["high"])
        result = Result(value, interval, row["no_interval"], row["n"])
        yield _Row(row["split"], row["method"], row["part"], key_by_name[row["metric"]], result)


def _key(group: str, name: str) -> str:
    """The key in its group of a value; see `_metric_name`."""
    metric = METRICS.get(name)
    if metric is not None and metric.group == group:
        return metric.key
    key = name.removeprefix(f"{group}_")
    return key if key in METRICS else name

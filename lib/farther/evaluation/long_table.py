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
        "" for the whole, else what of it: "category=zebra", "size=small", "distance=near"
    value, low, high
        the value and its 95% interval; null where there is none
    n
        number of images that the value is of; null where it is not known
    unit
        "fraction", "count", "per image", or "score" of a threshold
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from farther.evaluation.paths import RunFiles
from farther.evaluation.proposals import RecoveredRun
from farther.evaluation.results import (
    CLOSED_SET_KEYS,
    ClassesResults,
    ErrorBudget,
    Evaluation,
    Gain,
    Interval,
    MethodResults,
    MetricValues,
    Number,
    SelfAwarenessResults,
    SplitResults,
    WildernessResults,
)
from farther.metrics.catalogue import METRICS, Metric
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
    "n": pl.Int64,
    "unit": pl.String,
}

#: Group → key of a value → its metric, of the metrics that have another name.
_METRIC_BY_KEY: dict[tuple[str, str], Metric] = {
    (metric.group, metric.key): metric for metric in METRICS.values()
}

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
        images: int | None = None,
        unit: str | None = None,
    ) -> None:
        """Adds one value.

        Args:
            key: The metric's key in its group, or the name of a count.
            value, interval: The value and its 95% interval.
            group, split, method, part: See the module.
            images: Number of images that the value is of; those of the split by default.
            unit: Its unit; that of the metric by default.
        """
        metric = _METRIC_BY_KEY.get((group, key))
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
                images=closed_set.share_images.get(key),
            )
        for name, values in closed_set.per_class.items():
            for key, value in values.items():
                self.add(
                    _CATALOGUE_KEYS.get(key, key),
                    value,
                    group="detector",
                    split=self._id_split,
                    part=f"class={name}",
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

    def _add_self_awareness(self, results: SelfAwarenessResults) -> None:
        self.add_all(results, group="self_awareness")
        for name, values in results.per_class.items():
            self.add_map(values, group="self_awareness", part=f"class={name}")
        for split, values in results.splits.items():
            self.add_map(values, group="self_awareness", split=split)
        for name, section in results.uncertainties.items():
            self.add_all(section, group="self_awareness", part=f"uncertainty={name}")
        for split, accuracy in results.accuracy.items():
            self.add_all(accuracy, group="self_awareness", split=split, part="accepted=all")

    def add_method(self, name: str, results: MethodResults) -> None:
        """Adds the results of a method."""
        self.add("tau", results.tau, group="threshold", method=name, unit="score")
        id_sections = {"costs": results.costs, "misclassification": results.misclassification}
        for group, section in id_sections.items():
            self.add_all(section, group=group, split=self._id_split, method=name)
        for distance, means in results.means.items():
            self._add_means(name, distance, means)
        for split, split_results in results.splits.items():
            self._add_split(name, split, split_results)
        for metric, gain in self._evaluation.gains.methods.get(name, {}).items():
            self._add_gain(name, metric, gain)

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
            )

    def _add_split(self, method: str, split: str, results: SplitResults) -> None:
        for group, of_group in results.groups.items():
            self.add_all(of_group, group=group, split=split, method=method)
        by_part = {
            "category": results.by_category,
            "size": results.by_size,
            "supercategory": results.by_supercategory,
        }
        for kind, sections in by_part.items():
            for name, section in sections.items():
                self.add_all(
                    section, group="open_set", split=split, method=method, part=f"{kind}={name}"
                )
        for category, classes in results.taken_for.items():
            for name, objects in classes.items():
                self.add(
                    "taken_for",
                    objects,
                    group="open_set",
                    split=split,
                    method=method,
                    part=f"category={category}, class={name}",
                )
        if results.over_iou is not None:
            self.add_all(
                results.over_iou, group="open_set", split=split, method=method, part="iou=mean"
            )
        for kind, section in (results.error_budget or {}).items():
            self.add_all(
                section, group="open_set", split=split, method=method, part=f"error={kind}"
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
            for distance, section in results.distances.items():
                self.add_all(section, group="proposals", part=f"{part}, distance={distance}")
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
                    self.add_all(
                        together, group="with_proposals", split=split, method=method, part=part
                    )


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
    return read_parquet(file, tuple(SCHEMA))

"""Results of the previous stages, read from their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import polars as pl

from farther import curation, methods
from farther.errors import ParameterError, known_names
from farther.evaluation.files import RunFiles
from farther.evaluation.groups import GROUPS
from farther.evaluation.long_table import Result, Results
from farther.evaluation.parts import read_value
from farther.evaluation.results import (
    FittedMethod,
    Number,
    RunDescription,
    SourceDrawings,
)
from farther.evaluation.stored_results import StoredResults
from farther.methods.base import METHODS
from farther.metrics.catalogue import COMPARED, METRICS, Metric
from farther.report.kinds import POST_HOC, kind_of
from farther.report.listing import ABSENT, RATE_DECIMALS, interval_text, percent, rate
from farther.report.replicates import Replicates
from farther.tables.regions import OUTPUTS

#: Distances from the nearest to the farthest.
DISTANCES = ("near", "far", "farther")


def _compared_metrics(group: str) -> tuple[Metric, ...]:
    """Metrics of a group that methods are compared by; missed objects belong to them."""
    metrics = [METRICS[name] for name in (*COMPARED, "missed")]
    return tuple(metric for metric in metrics if metric.group == group)


#: Metrics that compare detections (FMIYC, Appendix D).
OOD = _compared_metrics("ood")

#: Metrics that count unknown objects (FMIYC, Section 4.2).
OPEN_SET = _compared_metrics("open_set")

SHOWN: tuple[Metric, ...] = (*OOD, *OPEN_SET)

#: Metrics with means over the splits of a distance.
AVERAGED = tuple(metric for metric in METRICS.values() if metric.averaged)

#: Metrics that methods are compared by: those with charts.
CHARTED = tuple(METRICS[name] for name in COMPARED)

#: Heading of `Run.image_counts`.
IMAGES = "Images, ID / OOD"

#: Values from fewer detections or objects are printed grey and are never the best. `report.few`
#: sets another number.
FEW_OBJECTS = 30

#: Columns of `Run.values`: values as fractions, `printed` and `text` in per cent; numbers of the
#: OOD split, null where unknown.
VALUES: dict[str, type[pl.DataType]] = {
    "run": pl.String,
    "benchmark": pl.String,
    "split": pl.String,
    "dataset": pl.String,
    "distance": pl.String,
    "method": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "printed": pl.Float64,
    "text": pl.String,
    "interval": pl.String,
    "no_interval": pl.String,
    "is_best": pl.Boolean,
    "is_second": pl.Boolean,
    "is_tied": pl.Boolean,
    "is_few": pl.Boolean,
    "images": pl.Int64,
    "objects": pl.Int64,
    "detections": pl.Int64,
    "label": pl.String,
    "family": pl.String,
    "split_title": pl.String,
}


@dataclass(frozen=True)
class OodTestSplit:
    """An OOD test split of a benchmark.

    Args:
        name: Its name.
        dataset: The dataset of its images.
        distance: `near`, `far` or `farther`.
    """

    name: str
    dataset: str
    distance: str

    @property
    def title(self) -> str:
        """Its name in words."""
        return title_of_split(self.name)


@dataclass(frozen=True)
class Run:
    """A detector on a benchmark, and all that was measured with it.

    Args:
        name, benchmark, adapter, weights: As in params.yaml.
        splits: The benchmark's OOD test splits, by dataset, the nearest first.
        results: All that was measured, read when it is needed.
        title: Its title in params.yaml; without one, its name without the benchmark's.
        known_title: The benchmark's title in params.yaml; without one, its name.
        few: See `FEW_OBJECTS`.
        kinds: Method → its kind, see `farther.report.kinds`, in the order of params.yaml; {} for
            all methods that have values.
        replicates: Reads its tables of bootstrap replicates.
    """

    name: str
    benchmark: str
    adapter: str
    weights: str
    splits: tuple[OodTestSplit, ...]
    results: StoredResults = field(compare=False, repr=False)
    title: str = ""
    known_title: str = ""
    few: int = FEW_OBJECTS
    kinds: Mapping[str, str] = field(default_factory=dict)
    replicates: Replicates = field(default_factory=Replicates, compare=False, repr=False)

    @property
    def detector(self) -> Mapping[str, float | None]:
        """Metrics of the detector itself; {} where the run is not evaluated."""
        return self.results.detector

    @property
    def description(self) -> RunDescription | None:
        """How it was evaluated; None where that is not on this machine."""
        return self.results.description

    @property
    def sources(self) -> Mapping[str, SourceDrawings]:
        """Sources of its proposals; {} where it has none, or they are not on this machine."""
        if self.description is None or self.description.proposals is None:
            return {}
        return self.description.proposals.sources

    def of_source(self, source: str, split: str) -> Results:
        """What a source of its proposals covers of a split; of ID images, its false alarms."""
        return self.results.table.values("proposals", split=split, part=f"source={source}")

    @cached_property
    def values(self) -> pl.DataFrame:
        """One row per split, method and metric of `SHOWN`, in this order; columns `VALUES`."""
        return self._values(SHOWN)

    def values_of(self, metrics: Sequence[Metric]) -> pl.DataFrame:
        """Rows like those of `values` of further metrics; splits without any value are left out."""
        return self._values(metrics).filter(pl.col("value").is_not_null().any().over("split"))

    def _values(self, metrics: Sequence[Metric]) -> pl.DataFrame:
        """Rows with the columns `VALUES`, one per split, method and metric."""
        rows: list[dict[str, Any]] = []
        for split in self.splits:
            for method in self.methods:
                rows += self._rows(split, method, metrics)

        frame = with_best(pl.DataFrame(rows, schema=VALUES))
        is_compared = ~pl.col("is_best") & ~pl.col("is_few")
        return frame.with_columns(is_tied=pl.col("is_tied") & is_compared)

    def _rows(
        self, split: OodTestSplit, method: str, metrics: Sequence[Metric]
    ) -> list[dict[str, Any]]:
        """Rows of a method on a split, one per metric."""
        description: dict[str, Any] = {
            "run": self.name,
            "benchmark": self.benchmark,
            "split": split.name,
            "split_title": split.title,
            "dataset": split.dataset,
            "distance": split.distance,
            "method": method,
            "label": self.label(method),
            "family": self.family(method),
            "images": self.images(split.name) if self.has_split(split.name) else None,
            "objects": self.value(split.name, method, "open_set", "unknown_objects"),
            "detections": self.value(split.name, method, "ood", "ood_regions"),
        }
        from_best = self.results.table.from_best(split.name, method)
        rows = []
        for metric in metrics:
            result = self.result(split.name, method, metric)
            row = {**description, **cell_of(metric, result)}
            row["is_few"] = self.is_from_few(split.name, method, metric.group)
            row["is_tied"] = False
            if metric.name in from_best and from_best[metric.name].best != method:
                row["is_tied"] = not from_best[metric.name].is_significant
            rows.append(row)
        return rows

    def group(self, split: str, method: str, group: str) -> Results:
        """Values and counts of a group of metrics by their keys; {} where it does not apply."""
        return self.results.table.values(group, split=split, method=method)

    def result(self, split: str, method: str, metric: Metric) -> Result | None:
        """A metric of a method on a split; None where it was not measured."""
        return self.group(split, method, metric.group).get(metric.key)

    def value(self, split: str, method: str, group: str, key: str) -> Number:
        """A value or count of a group of metrics; None where it was not measured."""
        result = self.group(split, method, group).get(key)
        return None if result is None else result.value

    def categories(self, splits: Sequence[str], method: str) -> list[str]:
        """Categories of the unknown objects of some splits."""
        is_category = pl.col("part").str.starts_with("category=")
        rows = self.results.table.frame.filter(
            pl.col("split").is_in(splits), is_category, method=method, metric="unknown_objects"
        )
        written = rows["part"].str.strip_prefix("category=").unique(maintain_order=True)
        return [read_value(value) for value in written]

    def is_from_few(self, split: str, method: str, group: str) -> bool:
        """Whether metrics of a group come from fewer than `few` detections, objects or images."""
        metric_group = GROUPS[group]
        if not metric_group.sizes:
            return False
        counts = self.group(split, method, metric_group.counted_in)
        return metric_group.is_from_few(
            {key: counts[key].value for key in metric_group.sizes if key in counts}, self.few
        )

    @property
    def full_title(self) -> str:
        """Its title with the benchmark's name."""
        return f"{self.title or self.name} ({self.benchmark_title})"

    @property
    def benchmark_title(self) -> str:
        """The benchmark's title."""
        return self.known_title or self.benchmark

    @property
    def titled_values(self) -> pl.DataFrame:
        """Its values with columns `detector`, its title, and `kind` of the methods."""
        return self.with_kind(self.values).with_columns(detector=pl.lit(self.full_title))

    def with_kind(self, values: pl.DataFrame) -> pl.DataFrame:
        """Rows like those of `values` with a column `kind`."""
        kind = pl.col("method").replace_strict(self.kinds, default=POST_HOC, return_dtype=pl.String)
        return values.with_columns(kind=kind)

    @cached_property
    def methods(self) -> list[str]:
        """Methods that have values, in the order of params.yaml."""
        with_values = self.results.table.methods
        return [name for name in self.kinds or with_values if name in with_values]

    @property
    def is_evaluated(self) -> bool:
        """True if any method has values."""
        return bool(self.splits and self.methods)

    @property
    def whole_images(self) -> bool:
        """True if the detector is a classifier of whole images."""
        return "accuracy" in self.detector

    @property
    def has_no_method(self) -> bool:
        """True if the run is evaluated, but no method applies to its detector."""
        return bool(self.detector) and not self.is_evaluated

    @property
    def not_applicable(self) -> dict[str, str]:
        """Method → why it does not apply to this detector."""
        if self.description is None:
            return {}
        return self.description.not_applicable

    @property
    def id_split(self) -> str | None:
        """The ID test split; None where the details are not on this machine."""
        if self.description is None:
            return None
        return self.description.settings.id_split

    @cached_property
    def first_source(self) -> str | None:
        """The first source of its proposals by name; None where it has none."""
        return min(self.results.table.parts("source"), default=None)

    @property
    def tested_splits(self) -> list[str]:
        """The ID split and OOD splits that were tested; [] where that is not on this machine."""
        return [split for split in self.results.table.splits if self.has_split(split)]

    def has_split(self, split: str | None) -> bool:
        """Whether a split was tested; False where that is not on this machine."""
        return split is not None and bool(self.results.table.values("split", split=split))

    def count(self, split: str | None, key: str) -> Number:
        """A count of a split that was tested, such as its images; None where it is not known."""
        if split is None:
            return None
        counts = self.results.table.values("split", split=split)
        return counts[key].value if key in counts else None

    def images(self, split: str | None) -> int:
        """Images of a split that were tested; 0 where the details are not on this machine."""
        return int(self.count(split, "images") or 0)

    @property
    def id_images(self) -> int:
        """ID test images that were tested; 0 where the details are not on this machine."""
        return self.images(self.id_split)

    def image_counts(self, *, with_known: bool = False) -> str:
        """Number of ID test images and of OOD images, as "250 / 699".

        Args:
            with_known: Also images of splits that show known objects; wilderness and self-awareness
                leave these out.
        """
        names = [split.name for split in self.splits]
        if not with_known:
            values = self.results.table.values
            names = [name for name in names if "auroc" in values("self_awareness", split=name)]
        ood_images = sum(self.images(name) for name in names)
        return f"{self.id_images:,} / {ood_images:,}"

    @property
    def without_detection(self) -> dict[str, float | None]:
        """Cells with the share of the images of each split without a detection."""
        return {
            f"No detection: {split.title} (%)": self.no_detection(split.name)
            for split in self.splits
        }

    def no_detection(self, split: str) -> float | None:
        """Share of the images of a split without a detection above the operating threshold."""
        share = self.count(split, "no_detection")
        return None if share is None else float(share)

    def mean(self, distance: str, method: str, metric: Metric) -> Result | None:
        """A method's mean of a metric over the splits of a distance; None where it has none."""
        table = self.results.table
        means = table.values(metric.group, method=method, part=f"distance={distance}")
        return means.get(metric.key)

    def has_means(self, distance: str, method: str) -> bool:
        """Whether a method has means over the splits of a distance."""
        return any(self.mean(distance, method, metric) is not None for metric in AVERAGED)

    def splits_at(self, distance: str) -> list[str]:
        """The OOD test splits of a distance that were tested."""
        names = {split.name for split in self.splits if split.distance == distance}
        return [split for split in self.tested_splits if split in names]

    def fitted(self, method: str) -> FittedMethod:
        """The fitted method; only its name where the details are not on this machine."""
        if self.description is None or method not in self.description.fitted:
            return FittedMethod(name=method)
        return self.description.fitted[method]

    def label(self, method: str) -> str:
        """Title of a method in tables of this run.

        A method whose parameters were chosen on test data is marked.
        """
        if self.fitted(method).is_oracle:
            return f"{title_of(method)} (oracle)"
        return title_of(method)

    def family(self, method: str) -> str:
        """The inputs of a method, as FMIYC sorts methods (Section 5.2).

        Returns:
            `output` (reads logits), `feature`, `mixed` (both) or `latent` (activations of an inner
            layer).
        """
        needs = set(self.fitted(method).needs) - OUTPUTS
        if any(need == "latent" or need.startswith(("latent.", "gram.")) for need in needs):
            return "latent"
        if "features" not in needs:
            return "output"
        if needs & {"logits", "last_layer"}:
            return "mixed"
        return "feature"

    def ranked(self, metric: str) -> list[str]:
        """Methods by their mean over splits, the best first; ties by name."""
        means = (
            self.values.filter(metric=metric)
            .group_by("method", maintain_order=True)
            .agg(pl.col("value").mean())
            .drop_nulls()
        )
        highest_first = METRICS[metric].higher_is_better is not False
        ranking = means.sort("value", "method", descending=[highest_first, False])
        return ranking["method"].to_list()

    def shown_method(self, preferred: str | None) -> str:
        """The method whose outcomes are shown of an evaluated run.

        It is the preferred one, else the detector's own confidence, else the first by name. It is
        never chosen by its results. A preferred method that does not apply to this detector is
        ignored.

        Raises:
            ParameterError: the run does not have the preferred method.
        """
        if preferred is not None and preferred not in self.not_applicable:
            if preferred not in self.methods:
                raise ParameterError(
                    f"report: {self.name} has no method {preferred!r}. {known_names(self.methods)}"
                )
            return preferred
        for name in sorted(self.methods):
            if self.fitted(name).name == "confidence":
                return name
        return min(self.methods)


@cache
def title_of(method: str) -> str:
    """A method's title in publications; its own name where params.yaml gives it another.

    "mcm_on_crops" is MCM on crops, and "odin" ODIN, which is another method over a pass.
    """
    name, is_on_inputs, inputs = method.partition("_on_")
    if name not in methods.names():
        return METHODS.written.published_title(method) or method
    title = methods.get(name).title
    if is_on_inputs:
        return f"{title} on {inputs.replace('_', ' ')}"
    return title


def heading(metric: str) -> str:
    """Title of a metric with its arrow, as headings of plain tables have it."""
    return f"{METRICS[metric].title}\N{NO-BREAK SPACE}{METRICS[metric].arrow}"


def title_of_split(name: str) -> str:
    """The name of a split in words."""
    return name.replace("_", " ")


def read_runs(params: Mapping[str, Any], artifacts: Path) -> list[Run]:
    """All runs of params.yaml, evaluated or not.

    Args:
        params: All of params.yaml.
        artifacts: The artifacts folder.

    Raises:
        ParameterError: a section is absent, or a run is on an unknown benchmark.
        DataError: a file is damaged.
    """
    for section in ("detectors", "benchmarks", "methods"):
        if not isinstance(params.get(section), Mapping):
            raise ParameterError(f"params.yaml: no section {section!r}")
    splits_by_benchmark: dict[str, tuple[OodTestSplit, ...]] = {}
    runs = []
    for name in params["detectors"]:
        run = _read_run(name, params, artifacts, splits_by_benchmark)
        runs.append(run)

    # Runs of one title on one benchmark are distinguished by their names.
    runs_of_title = Counter(run.full_title for run in runs)
    distinct = []
    for run in runs:
        if runs_of_title[run.full_title] > 1:
            distinct.append(replace(run, title=f"{run.title}, {run.name}"))
        else:
            distinct.append(run)
    return distinct


def read_evaluated_runs(params: Mapping[str, Any], artifacts: Path) -> list[Run]:
    """The runs of `read_runs` that are evaluated.

    Args:
        params: All sections of params.yaml.
        artifacts: The folder of the artifacts.
    """
    return [run for run in read_runs(params, artifacts) if run.is_evaluated]


def read_run(name: str, params: Mapping[str, Any], artifacts: Path) -> Run:
    """One run; see `read_runs`."""
    return _read_run(name, params, artifacts, {})


def _read_run(
    name: str,
    params: Mapping[str, Any],
    artifacts: Path,
    splits_by_benchmark: dict[str, tuple[OodTestSplit, ...]],
) -> Run:
    """One run; see `read_runs`.

    Args:
        name, params, artifacts: The run's name, and where it is.
        splits_by_benchmark: The OOD test splits of benchmarks that other runs are on; this adds
            those of the run's own.
    """
    detector = params["detectors"][name]
    benchmark = detector.get("benchmark")
    if benchmark not in params["benchmarks"]:
        known = known_names(params["benchmarks"])
        raise ParameterError(
            f"params.yaml: detectors.{name} names no known benchmark: {benchmark!r}. {known}"
        )
    benchmark_entry = params["benchmarks"][benchmark]
    files = RunFiles(name, benchmark, artifacts)
    if benchmark not in splits_by_benchmark:
        splits_by_benchmark[benchmark] = _ood_splits(benchmark, benchmark_entry, files)

    kinds = {}
    for method in params["methods"]:
        kinds[method] = kind_of(params["methods"], method, detector)
    return Run(
        name=name,
        benchmark=benchmark,
        title=str(detector.get("title") or name.removeprefix(f"{benchmark}-")),
        known_title=str(benchmark_entry.get("title") or benchmark),
        adapter=str(detector.get("adapter", "")),
        weights=str(detector.get("weights", "")),
        splits=splits_by_benchmark[benchmark],
        few=(params.get("report") or {}).get("few", FEW_OBJECTS),
        results=StoredResults(files),
        kinds=kinds,
    )


def _ood_splits(
    benchmark_name: str, entry: Mapping[str, Any], files: RunFiles
) -> tuple[OodTestSplit, ...]:
    """OOD test splits of a benchmark, by dataset, the nearest first; without those of no image."""
    benchmark = curation.benchmark(benchmark_name, entry)
    splits = []
    for name in benchmark.test_splits:
        settings = benchmark.splits[name]
        splits.append(OodTestSplit(name, settings.dataset, settings.distance))
    splits.sort(key=lambda split: (split.dataset, DISTANCES.index(split.distance), split.name))

    if files.roles_file.exists():
        tested = files.roles.test  # without the splits that have no image
        splits = [split for split in splits if split.name in tested]
    return tuple(splits)


def cell_of(metric: Metric, result: Result | None) -> dict[str, Any]:
    """A value of a long table as columns of `VALUES`; see `cell`.

    Args:
        metric: The metric.
        result: Its value; None where it was not measured.
    """
    if result is None:
        return cell(metric, None)
    return cell(metric, result.value, result.interval, result.no_interval)


def cell(
    metric: Metric,
    value: float | None,
    interval: Sequence[float] | None = None,
    no_interval: str = "",
) -> dict[str, Any]:
    """A value with its interval as columns of `VALUES`: as numbers, and as they are printed.

    Args:
        metric: The metric.
        value, interval: Its value and interval; None without.
        no_interval: Why a value has no interval; then the interval is printed as a dash.
    """
    low, high = interval or (None, None)
    columns: dict[str, Any] = {"metric": metric.name, "value": value, "low": low, "high": high}
    if value is None:
        columns["printed"] = None
        columns["text"] = percent(None)
    elif metric.is_count:
        columns["printed"] = value
        columns["text"] = f"{int(value):,}"
    elif metric.is_rate:
        columns["printed"] = round(value, RATE_DECIMALS)
        columns["text"] = rate(value)
    else:
        columns["printed"] = round(100 * value, 1)
        columns["text"] = percent(value)
    columns["interval"] = ABSENT if no_interval and not metric.is_count else ""
    columns["no_interval"] = no_interval
    if metric.is_rate and interval is not None:
        columns["interval"] = f"[{rate(low)}, {rate(high)}]"
    elif not metric.is_count and interval is not None:
        columns["interval"] = interval_text(interval)
    return columns


def with_best(
    values: pl.DataFrame, over: Sequence[str] = ("run", "split", "metric")
) -> pl.DataFrame:
    """The frame with `is_best` and `is_second` set by the printed numbers; ties are marked alike.

    None is marked where all values that are compared are equal, there is only one, they come from
    few detections, or neither direction of the metric is better.

    Args:
        values: Rows with the columns `VALUES`.
        over: Rows with the same values in these columns are compared.
    """
    higher = [metric.name for metric in METRICS.values() if metric.higher_is_better is True]
    lower = [metric.name for metric in METRICS.values() if metric.higher_is_better is False]
    name = pl.col("metric")
    sign = pl.when(name.is_in(higher)).then(1).when(name.is_in(lower)).then(-1)
    is_from_many = pl.col("is_few").not_().fill_null(value=True)

    # The larger, the better; null where a value is not compared.
    quality = pl.when(is_from_many).then(sign * pl.col("printed"))
    rank = quality.rank("dense", descending=True).over(over)
    differ = quality.drop_nulls().n_unique().over(over) > 1
    return values.with_columns(
        is_best=((rank == 1) & differ).fill_null(value=False),
        is_second=((rank == 2) & differ).fill_null(value=False),
    )


def not_significant(interval: Sequence[float] | None, p: float | None) -> bool:
    """Whether the interval of a difference contains zero, or the methods agree in all resamples.

    Args:
        interval, p: See `farther.metrics.statistics.bootstrap.compare_with`.
    """
    if interval is None:
        return p == 1
    low, high = interval
    return low <= 0 <= high

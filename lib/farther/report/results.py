"""Results of the previous stages, read from their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl

from farther import curation, methods
from farther.errors import ParameterError
from farther.evaluation.files import RunFiles
from farther.evaluation.groups import GROUPS
from farther.evaluation.recovery import RecoveredRun, SourceResults, read_recovered
from farther.evaluation.results import (
    Evaluation,
    FittedMethod,
    FromBest,
    MeanOverSplits,
    MethodResults,
    SplitCounts,
    SplitResults,
    read_evaluation,
)
from farther.metrics.catalogue import COMPARED, METRICS, Metric
from farther.report.kinds import POST_HOC, kind_of
from farther.report.listing import ABSENT, RATE_DECIMALS, interval_text, percent, rate
from farther.report.replicates import Replicates
from farther.tables.files import inside
from farther.tables.regions import OUTPUTS
from farther.tables.schema import read_typed

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

#: (split, method) → metric → fraction, None where it is not defined.
StoredValues = Mapping[tuple[str, str], Mapping[str, float | None]]


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
        detector: Metrics of the detector itself; {} where the run is not evaluated.
        evaluation: All details (`evaluation/<run>.json`); None where they are not on this machine.
        values: One row per split, method and metric, in this order; columns `VALUES`. See
            `with_values`.
        title: Its title in params.yaml; without one, its name without the benchmark's.
        known_title: The benchmark's title in params.yaml; without one, its name.
        few: See `FEW_OBJECTS`.
        kinds: Method → its kind, see `farther.report.kinds`.
        recovered: Results of its proposals; None where it has none, or they are not on this
            machine.
        replicates: Reads its tables of bootstrap replicates.
    """

    name: str
    benchmark: str
    adapter: str
    weights: str
    splits: tuple[OodTestSplit, ...]
    detector: Mapping[str, Any]
    evaluation: Evaluation | None
    values: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=VALUES))
    title: str = ""
    known_title: str = ""
    few: int = FEW_OBJECTS
    kinds: Mapping[str, str] = field(default_factory=dict)
    recovered: RecoveredRun | None = None
    replicates: Replicates = field(default_factory=Replicates, compare=False, repr=False)

    def with_values(self, stored: StoredValues) -> Run:
        """The run with its values.

        Args:
            stored: (split, method) → metric → fraction, None where it is not defined. Metrics that
                are absent there are taken from the details.
        """
        method_names = dict.fromkeys(method for _, method in stored)
        return replace(self, values=self._values(method_names, SHOWN, stored))

    def values_of(self, metrics: Sequence[Metric]) -> pl.DataFrame:
        """Rows like those of `values` of further metrics; splits without any value are left out."""
        rows = self._values(self.methods, metrics, {})
        return rows.filter(pl.col("value").is_not_null().any().over("split"))

    def _values(
        self, method_names: Iterable[str], metrics: Sequence[Metric], stored: StoredValues
    ) -> pl.DataFrame:
        """Rows with the columns `VALUES`, one per split, method and metric."""
        rows: list[dict[str, Any]] = []
        for split in self.splits:
            for method in method_names:
                stored_values = stored.get((split.name, method), {})
                rows += self._rows(split, method, metrics, stored_values)

        frame = with_best(pl.DataFrame(rows, schema=VALUES))
        is_compared = ~pl.col("is_best") & ~pl.col("is_few")
        return frame.with_columns(is_tied=pl.col("is_tied") & is_compared)

    def _rows(
        self,
        split: OodTestSplit,
        method: str,
        metrics: Sequence[Metric],
        stored_values: Mapping[str, float | None],
    ) -> list[dict[str, Any]]:
        """Rows of a method on a split, one per metric."""
        details = self.details(split.name, method)
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
            "images": None,
            "objects": details.of_group("open_set").get("unknown_objects"),
            "detections": details.of_group("ood").get("ood_regions"),
        }
        if split.name in self.counts:
            description["images"] = self.images(split.name)

        rows = []
        for metric in metrics:
            value = stored_values.get(metric.name, details.value(metric))
            reason = details.why_no_interval(metric)
            row = {**description, **cell(metric, value, details.interval(metric), reason)}
            row["is_few"] = GROUPS[metric.group].is_from_few(details, self.few)
            row["is_tied"] = _is_tied(method, details.against_best.get(metric.name))
            rows.append(row)
        return rows

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

    @property
    def methods(self) -> list[str]:
        """Methods that have values, in the order of params.yaml."""
        return self.values["method"].unique(maintain_order=True).to_list()

    @property
    def is_evaluated(self) -> bool:
        """True if any method has values."""
        return not self.values.is_empty()

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
        if self.evaluation is None:
            return {}
        return self.evaluation.not_applicable

    @property
    def id_split(self) -> str | None:
        """The ID test split; None where the details are not on this machine."""
        if self.evaluation is None:
            return None
        return self.evaluation.settings.id_split

    @property
    def counts(self) -> dict[str, SplitCounts]:
        """Counts of each split; {} where the details are not on this machine."""
        if self.evaluation is None:
            return {}
        return self.evaluation.splits

    @property
    def first_source(self) -> tuple[str, SourceResults] | None:
        """Name and results of the first source of its proposals by name; None where it has none."""
        if self.recovered is None or not self.recovered.sources:
            return None
        name = min(self.recovered.sources)
        return name, self.recovered.sources[name]

    def images(self, split: str | None) -> int:
        """Images of a split that were tested; 0 where the details are not on this machine."""
        if split not in self.counts:
            return 0
        return self.counts[split].images

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
            pure: Mapping[str, Any] = {}
            if self.evaluation is not None:
                pure = self.evaluation.self_awareness.splits
            names = [name for name in names if name in pure]
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
        if split not in self.counts:
            return None
        return self.counts[split].no_detection

    def method(self, name: str) -> MethodResults | None:
        """All that was measured with a method; None where that is not on this machine."""
        if self.evaluation is None:
            return None
        return self.evaluation.methods.get(name)

    def means(self, method: str) -> dict[str, MeanOverSplits]:
        """Distance → means of a method over its splits; {} where they are not on this machine."""
        results = self.method(method)
        if results is None:
            return {}
        return results.means

    def details(self, split: str, method: str) -> SplitResults:
        """All that was measured with a method in a split; empty where it is not on this machine."""
        results = self.method(method)
        if results is None:
            return SplitResults()
        return results.splits.get(split, SplitResults())

    def fitted(self, method: str) -> FittedMethod:
        """The fitted method; only its name where the details are not on this machine."""
        results = self.method(method)
        if results is None:
            return FittedMethod(name=method)
        return results.fitted

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
                    f"report: {self.name} has no method {preferred!r}. "
                    f"Known: {', '.join(self.methods)}"
                )
            return preferred
        for name in sorted(self.methods):
            if self.fitted(name).name == "confidence":
                return name
        return min(self.methods)


@cache
def title_of(method: str) -> str:
    """A method's title in publications; its own name where params.yaml gives it another.

    "mcm_on_crops" is MCM on crops.
    """
    name, is_on_inputs, inputs = method.partition("_on_")
    if name not in methods.names():
        return method
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
    runs = [read_run(name, params, artifacts) for name in params["detectors"]]

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
    detector = params["detectors"][name]
    benchmark = detector.get("benchmark")
    if benchmark not in params["benchmarks"]:
        known = ", ".join(params["benchmarks"])
        raise ParameterError(
            f"params.yaml: detectors.{name} names no known benchmark: {benchmark!r}. Known: {known}"
        )
    benchmark_entry = params["benchmarks"][benchmark]
    files = RunFiles(name, benchmark, artifacts)
    splits = _ood_splits(benchmark, benchmark_entry, files)

    kinds = {}
    for method in params["methods"]:
        kinds[method] = kind_of(params["methods"], method, detector)
    evaluation = None
    if files.evaluation.exists():
        evaluation = read_evaluation(files.evaluation)

    run = Run(
        name=name,
        benchmark=benchmark,
        title=str(detector.get("title") or name.removeprefix(f"{benchmark}-")),
        known_title=str(benchmark_entry.get("title") or benchmark),
        adapter=str(detector.get("adapter", "")),
        weights=str(detector.get("weights", "")),
        splits=splits,
        few=(params.get("report") or {}).get("few", FEW_OBJECTS),
        detector=_read_metrics(files.metrics / "detector.json"),
        evaluation=evaluation,
        kinds=kinds,
        recovered=read_recovered(files),
    )
    return run.with_values(_read_values(params["methods"], splits, files))


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


def _read_values(
    method_names: Iterable[str], splits: Sequence[OodTestSplit], files: RunFiles
) -> StoredValues:
    """Metrics of `COMPARED` of each method on each split, from the files that exist."""
    stored = {}
    for method in method_names:
        for split in splits:
            file = inside(files.metrics, f"{split.name}/{method}.json")
            if file.exists():
                metrics = _read_metrics(file)
                stored[split.name, method] = {name: metrics.get(name) for name in COMPARED}
    return stored


def _read_metrics(file: Path) -> dict[str, float | None]:
    """The content of a file of metrics, {} where it is absent."""
    if not file.exists():
        return {}
    return read_typed(dict[str, float | None], file)


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


def _is_tied(method: str, from_best: FromBest | None) -> bool:
    """Whether a method is not significantly different from the best one, and is another one."""
    if from_best is None or from_best.best == method:
        return False
    return not_significant(from_best.interval, from_best.p)


def not_significant(interval: Sequence[float] | None, p: float | None) -> bool:
    """Whether the interval of a difference contains zero, or the methods agree in all resamples.

    Args:
        interval, p: See `farther.metrics.statistics.bootstrap.compare_with`.
    """
    if interval is None:
        return p == 1
    low, high = interval
    return low <= 0 <= high

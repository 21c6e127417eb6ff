"""Results of the previous stages, read from their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl

from farther import curation, methods
from farther.errors import ParameterError
from farther.evaluation.files import RunFiles
from farther.evaluation.groups import GROUPS
from farther.evaluation.proposals import RecoveredRun, SourceResults, read_recovered
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
from farther.report.listing import between, percent
from farther.tables.files import inside
from farther.tables.regions import OUTPUTS
from farther.tables.schema import read_typed

#: Distances from the nearest to the farthest.
DISTANCES = ("near", "far", "farther")

#: Metrics that compare detections (FMIYC, Appendix D), and those that count unknown objects (FMIYC,
#: Section 4.2).
OOD, OPEN_SET = (
    tuple(METRICS[name] for name in (*COMPARED, "missed") if METRICS[name].group == g)
    for g in ("ood", "open_set")
)
SHOWN: tuple[Metric, ...] = (*OOD, *OPEN_SET)

#: Metrics that methods are compared by: those with charts.
CHARTED = tuple(METRICS[name] for name in COMPARED)

#: Heading of `Run.image_counts`.
IMAGES = "Images, ID / OOD"

#: Values from fewer detections or objects are printed grey and are never the best; `report.few` is
#: another number.
FEW = 30

#: Columns of `Run.values`: values as fractions, `printed` and `text` in per cent; numbers of the
#: OOD split, null where unknown.
VALUES = {
    **dict.fromkeys(
        ("run", "benchmark", "split", "dataset", "distance", "method", "metric"), pl.String
    ),
    **dict.fromkeys(("value", "low", "high", "printed"), pl.Float64),
    **dict.fromkeys(("text", "interval"), pl.String),
    **dict.fromkeys(("is_best", "is_second", "is_tied", "is_few"), pl.Boolean),
    **dict.fromkeys(("images", "objects", "detections"), pl.Int64),
    **dict.fromkeys(("label", "family", "split_title"), pl.String),
}


@dataclass(frozen=True)
class OodSplit:
    """An OOD test split of a benchmark: its name, the dataset of its images, and `near`, `far` or `farther`."""

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
        detector: Metrics of the detector alone; {} where the run is not evaluated.
        evaluation: All details (`evaluation/<run>.json`); None where they are not on this machine.
        values: One row per split, method and metric, in this order; columns `VALUES`. See
            `with_values`.
        title: Its title in params.yaml; without one, its name without the benchmark's.
        known_title: The benchmark's title in params.yaml; without one, its name.
        few: See `FEW`.
        kinds: Method → its kind, see `farther.report.kinds`.
        recovered: What its proposals find; None where it has none, or their results are not on this
            machine.
    """

    name: str
    benchmark: str
    adapter: str
    weights: str
    splits: tuple[OodSplit, ...]
    detector: Mapping[str, Any]
    evaluation: Evaluation | None
    values: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=VALUES))
    title: str = ""
    known_title: str = ""
    few: int = FEW
    kinds: Mapping[str, str] = field(default_factory=dict)
    recovered: RecoveredRun | None = None

    def with_values(self, found: Mapping[tuple[str, str], Mapping[str, float | None]]) -> Run:
        """The run with its values.

        Args:
            found: (split, method) → metric → fraction, None where it is not defined; metrics that
                are absent there are those of the details.
        """
        methods = list(dict.fromkeys(method for _, method in found))
        return replace(self, values=self._values(methods, SHOWN, found))

    def values_of(self, metrics: Sequence[Metric]) -> pl.DataFrame:
        """Rows like those of `values` of other metrics, of the splits that any method has a value in."""
        rows = self._values(self.methods, metrics, {})
        return rows.filter(pl.col("value").is_not_null().any().over("split"))

    def _values(
        self,
        methods: Sequence[str],
        metrics: Sequence[Metric],
        found: Mapping[tuple[str, str], Mapping[str, float | None]],
    ) -> pl.DataFrame:
        described = {
            name: {"method": name, "label": self.label(name), "family": self.family(name)}
            for name in methods
        }
        rows = []
        for split in self.splits:
            of_split = {"split": split.name, "split_title": split.title}
            of_split |= {"dataset": split.dataset, "distance": split.distance}
            for method, description in described.items():
                measured, stored = (
                    self.details(split.name, method),
                    found.get((split.name, method), {}),
                )
                counts = {
                    "images": self.images(split.name) if split.name in self.counts else None,
                    "objects": measured.of_group("open_set").get("unknown_objects"),
                    "detections": measured.of_group("ood").get("ood_regions"),
                }
                place = {
                    "run": self.name,
                    "benchmark": self.benchmark,
                    **of_split,
                    **description,
                    **counts,
                }
                rows += [
                    {
                        **place,
                        **cell(
                            metric,
                            stored.get(metric.name, measured.value(metric)),
                            measured.interval(metric),
                        ),
                        "is_few": GROUPS[metric.group].is_from_few(measured, self.few),
                        "is_tied": _is_tied(method, measured.against_best.get(metric.name)),
                    }
                    for metric in metrics
                ]
        frame = with_best(pl.DataFrame(rows, schema=VALUES))
        return frame.with_columns(
            is_tied=pl.col("is_tied") & ~pl.col("is_best") & ~pl.col("is_few")
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
        return self.evaluation.not_applicable if self.evaluation else {}

    @property
    def id_split(self) -> str | None:
        """The ID test split; None where the details are not on this machine."""
        return self.evaluation.settings.id_split if self.evaluation else None

    @property
    def counts(self) -> dict[str, SplitCounts]:
        """Counts of each split; {} where the details are not on this machine."""
        return self.evaluation.splits if self.evaluation else {}

    @property
    def first_source(self) -> tuple[str, SourceResults] | None:
        """Name and results of the first source of its proposals in params.yaml; None where it has none."""
        return next(iter(self.recovered.sources.items()), None) if self.recovered else None

    def images(self, split: str | None) -> int:
        """Images of a split that the detector saw; 0 where the details are not on this machine."""
        return self.counts[split].images if split in self.counts else 0

    @property
    def id_images(self) -> int:
        """ID test images that the detector saw; 0 where the details are not on this machine."""
        return self.images(self.id_split)

    def image_counts(self, *, with_known: bool = False) -> str:
        """Number of ID test images and of OOD images, as "250 / 699".

        Args:
            with_known: Also images of splits that show known objects; wilderness and self-awareness
                leave these out.
        """
        pure = self.evaluation.self_awareness.splits if self.evaluation else {}
        ood = sum(
            self.images(split.name) for split in self.splits if with_known or split.name in pure
        )
        return f"{self.id_images:,} / {ood:,}"

    @property
    def without_detection(self) -> dict[str, float | None]:
        """Cells with the share of the images of each split without a detection."""
        return {
            f"No detection: {split.title} (%)": self.no_detection(split.name)
            for split in self.splits
        }

    def no_detection(self, split: str) -> float | None:
        """Share of the images of a split without a detection above the operating threshold."""
        return self.counts[split].no_detection if split in self.counts else None

    def method(self, name: str) -> MethodResults | None:
        """All that was measured with a method; None where that is not on this machine."""
        return self.evaluation.methods.get(name) if self.evaluation else None

    def means(self, method: str) -> dict[str, MeanOverSplits]:
        """Distance → means of a method over its splits; {} where they are not on this machine."""
        found = self.method(method)
        return found.means if found else {}

    def details(self, split: str, method: str) -> SplitResults:
        """All that was measured with a method in a split; nothing where that is not on this machine."""
        found = self.method(method)
        return found.splits.get(split, SplitResults()) if found else SplitResults()

    def fitted(self, method: str) -> FittedMethod:
        """The fitted method; its name alone where the details are not on this machine."""
        found = self.method(method)
        return found.fitted if found else FittedMethod(name=method)

    def label(self, method: str) -> str:
        """Title of a method in tables of this run; one whose parameters were chosen on test data is marked."""
        return f"{title_of(method)} (oracle)" if self.fitted(method).is_oracle else title_of(method)

    def family(self, method: str) -> str:
        """The inputs of a method, as FMIYC sorts methods (Section 5.2).

        Returns:
            `output` (reads logits), `feature`, `mixed` (both) or `latent` (activations of an inner
            layer).
        """
        needs = set(self.fitted(method).needs) - OUTPUTS
        if any(need == "latent" or need.startswith(("latent.", "gram.")) for need in needs):
            return "latent"
        if "features" in needs:
            return "mixed" if needs & {"logits", "last_layer"} else "feature"
        return "output"

    def ranked(self, metric: str) -> list[str]:
        """Methods by their mean over splits, the best first; equal ones in the order of params.yaml."""
        means = (
            self.values.filter(metric=metric)
            .group_by("method", maintain_order=True)
            .agg(pl.col("value").mean())
        )
        higher = METRICS[metric].higher_is_better is not False
        return (
            means.drop_nulls()
            .sort("value", descending=higher, maintain_order=True)["method"]
            .to_list()
        )

    def shown_method(self, wanted: str | None) -> str:
        """The method whose outcomes are shown of an evaluated run.

        It is the one asked for, else the detector's own confidence, else the first.

        It is never chosen by its results. A method that does not apply to this detector counts as
        not asked for.
        """
        if wanted is not None and wanted not in self.not_applicable:
            if wanted not in self.methods:
                raise ParameterError(
                    f"report: {self.name} has no method {wanted!r}. Known: {', '.join(self.methods)}"
                )
            return wanted
        own = [name for name in self.methods if self.fitted(name).name == "confidence"]
        return [*own, *self.methods][0]


@cache
def title_of(method: str) -> str:
    """A method's title in publications; the line's own name where params.yaml gives it another.

    "mcm_on_crops" is MCM on crops.
    """
    name, joined, words = method.partition("_on_")
    if name not in methods.names():
        return method
    return (
        f"{methods.get(name).title} on {words.replace('_', ' ')}"
        if joined
        else methods.get(name).title
    )


def heading(metric: str) -> str:
    """Title of a metric with its arrow, as heads of plain tables have it."""
    return f"{METRICS[metric].title}\N{NO-BREAK SPACE}{METRICS[metric].arrow}"


def title_of_split(name: str) -> str:
    """The name of a split in words."""
    return name.replace("_", " ")


def read_runs(params: Mapping[str, Any], artifacts: Path) -> list[Run]:
    """All runs of params.yaml, evaluated or not."""
    for section in ("detectors", "benchmarks", "methods"):
        if not isinstance(params.get(section), Mapping):
            raise ParameterError(f"params.yaml: no section {section!r}")
    runs = [read_run(name, params, artifacts) for name in params["detectors"]]
    times = Counter(run.full_title for run in runs)
    # Runs of one title on one benchmark are told apart by their names.
    return [
        replace(run, title=f"{run.title}, {run.name}") if times[run.full_title] > 1 else run
        for run in runs
    ]


def read_run(name: str, params: Mapping[str, Any], artifacts: Path) -> Run:
    """One run; see `read_runs`."""
    detector = params["detectors"][name]
    benchmark = detector.get("benchmark")
    if benchmark not in params["benchmarks"]:
        known = ", ".join(params["benchmarks"])
        raise ParameterError(
            f"params.yaml: detectors.{name} names no known benchmark: {benchmark!r}. Known: {known}"
        )
    files = RunFiles(name, benchmark, artifacts)
    splits = _splits(benchmark, params["benchmarks"][benchmark])
    if files.roles_file.exists():
        tested = files.roles.test  # without the splits that have no image
        splits = tuple(split for split in splits if split.name in tested)
    wanted = {
        (s.name, m): inside(files.metrics, f"{s.name}/{m}.json")
        for m in params["methods"]
        for s in splits
    }
    found = {place: _numbers(file) for place, file in wanted.items() if file.exists()}
    run = Run(
        name=name,
        benchmark=benchmark,
        title=str(detector.get("title") or name.removeprefix(f"{benchmark}-")),
        known_title=str(params["benchmarks"][benchmark].get("title") or benchmark),
        adapter=str(detector.get("adapter", "")),
        weights=str(detector.get("weights", "")),
        splits=splits,
        few=(params.get("report") or {}).get("few", FEW),
        detector=_numbers(files.metrics / "detector.json"),
        evaluation=read_evaluation(files.evaluation) if files.evaluation.exists() else None,
        kinds={
            method: kind_of(entry or {}, method, detector)
            for method, entry in params["methods"].items()
        },
        recovered=read_recovered(files),
    )
    return run.with_values(
        {place: {metric: of.get(metric) for metric in COMPARED} for place, of in found.items()}
    )


def cell(
    metric: Metric, value: float | None, interval: Sequence[float] | None = None
) -> dict[str, Any]:
    """A value as columns of `VALUES`: the number, its interval, both as they are printed, and the printed number."""
    count = metric.is_count and value is not None
    return {
        "metric": metric.name,
        "value": value,
        "low": interval and interval[0],
        "high": interval and interval[1],
        "printed": value if count or value is None else round(100 * value, 1),
        "text": f"{int(value or 0):,}" if count else percent(value),
        "interval": "" if metric.is_count else between(interval),
    }


def with_best(
    values: pl.DataFrame, over: Sequence[str] = ("run", "split", "metric")
) -> pl.DataFrame:
    """The frame with `is_best` and `is_second` set by the printed numbers: equal ones are marked alike.

    None is marked where all values that are compared are equal, there is only one, they come from
    few detections, or neither direction of the metric is better.

    Args:
        values: Rows with the columns `VALUES`.
        over: Rows with the same values in these columns are compared.
    """
    higher, lower = (
        [m.name for m in METRICS.values() if m.higher_is_better is way] for way in (True, False)
    )
    sign = (
        pl.when(pl.col("metric").is_in(higher)).then(1).when(pl.col("metric").is_in(lower)).then(-1)
    )
    key = pl.when(pl.col("is_few").not_().fill_null(value=True)).then(sign * pl.col("printed"))
    place = key.rank("dense", descending=True).over(over)
    differ = key.drop_nulls().n_unique().over(over) > 1
    return values.with_columns(
        is_best=((place == 1) & differ).fill_null(value=False),
        is_second=((place == 2) & differ).fill_null(value=False),
    )


def _is_tied(method: str, compared: FromBest | None) -> bool:
    """True if the interval of a method's difference from the best one contains zero."""
    if compared is None or compared.interval is None or compared.best == method:
        return False
    low, high = compared.interval
    return low <= 0 <= high


def _splits(name: str, params: Mapping[str, Any]) -> tuple[OodSplit, ...]:
    benchmark = curation.benchmark(name, params)
    found = ((split, benchmark.splits[split]) for split in benchmark.test_splits)
    splits = (OodSplit(split, settings.dataset, settings.distance) for split, settings in found)
    return tuple(sorted(splits, key=lambda split: (split.dataset, DISTANCES.index(split.distance))))


def _numbers(file: Path) -> dict[str, float | None]:
    """The content of a file of metrics, {} where it is absent."""
    return read_typed(dict[str, float | None], file) if file.exists() else {}

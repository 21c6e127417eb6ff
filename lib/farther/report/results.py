"""What the stages before have measured, read from their files into one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farther import curation
from farther.errors import DataError, ParameterError
from farther.evaluation.files import RunFiles
from farther.tables.files import inside, read_json

#: Distances from the nearest to the farthest.
DISTANCES = ("near", "far", "farther")

#: How published tables call the methods; others keep the name that params.yaml gives them.
TITLES = {
    "ash": "ASH",
    "ddu": "DDU",
    "dempster_shafer": "Dempster–Shafer",
    "dice": "DICE",
    "dice_react": "DICE+ReAct",
    "energy": "Energy",
    "entropy": "Entropy",
    "fdbd": "fDBD",
    "gen": "GEN",
    "gradnorm": "GradNorm",
    "kl_matching": "KL matching",
    "knn": "kNN",
    "lard_gmm": "LaRD (GMM)",
    "lard_knn": "LaRD (kNN)",
    "lard_mahalanobis": "LaRD (Mahalanobis)",
    "mahalanobis": "Mahalanobis",
    "mls": "MLS",
    "msp": "MSP",
    "nnguide": "NNGuide",
    "oodl": "OODL",
    "openmax": "OpenMax",
    "react": "ReAct",
    "relative_mahalanobis": "Relative Mahalanobis",
    "residual": "Residual",
    "scale": "SCALE",
    "she": "SHE",
    "temperature_scaling": "Temperature scaling",
    "uncertainty": "Uncertainty",
    "vim": "ViM",
    "vos": "VOS",
}


@dataclass(frozen=True)
class Metric:
    """A figure that methods are compared by.

    Args:
        name: Its key in metrics files.
        title: How tables call it.
        symbol: The same in LaTeX.
        rises: Whether a higher value is better.
        meaning: One sentence.
    """

    name: str
    title: str
    symbol: str
    rises: bool
    meaning: str

    @property
    def arrow(self) -> str:
        """↑ where higher is better, ↓ where lower is."""
        return "↑" if self.rises else "↓"

    @property
    def latex(self) -> str:
        """Symbol and arrow for LaTeX."""
        return self.symbol + (r"$\uparrow$" if self.rises else r"$\downarrow$")

    def best(self, values: Sequence[float | None]) -> float | None:
        """The best of some values, None where there is none."""
        known = [value for value in values if value is not None]
        return (max if self.rises else min)(known) if known else None


#: Comparing detections, wherever they lie (FMIYC, Appendix D, "previous metrics").
OOD = (
    Metric(
        "auroc",
        "AUROC",
        "AUROC",
        True,
        "How well the score separates detections in ID images from detections in OOD images; 50% is chance.",
    ),
    Metric(
        "fpr95",
        "FPR95",
        "FPR95",
        False,
        "Share of detections in OOD images that pass as in-distribution when 95% of those in ID images do.",
    ),
)

#: Comparing what happens to the unknown objects themselves (FMIYC, Section 4.2).
OPEN_SET = (
    Metric("nose", "nOSE", "nOSE", False, "Share of unknown objects that are taken for a known class."),
    Metric("ap_u", "AP_U", "$AP_U$", True, "Area under the precision–recall curve of finding unknown objects."),
    Metric(
        "p_u", "P_U", "$P_U$", True, "Share of the detections flagged as unknown that lie on a labelled unknown object."
    ),
    Metric("r_u", "R_U", "$R_U$", True, "Share of unknown objects that are found and flagged as unknown."),
)

METRICS = OOD + OPEN_SET


@dataclass(frozen=True)
class Split:
    """An OOD split of a benchmark.

    Args:
        name: Its name.
        dataset: Where its images come from.
        distance: `near`, `far` or `farther`.
    """

    name: str
    dataset: str
    distance: str

    @property
    def title(self) -> str:
        """Its name, to be read."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Run:
    """A detector on a benchmark, and all that was measured with it.

    Args:
        name, benchmark, adapter, weights: As params.yaml has them.
        splits: The benchmark's OOD splits, by dataset, the nearest first.
        methods: Methods that have figures, in the order of params.yaml.
        figures: (split, method) → metric → fraction, or None where it has no value.
        detector: The detector's own figures; {} where the run was not evaluated.
        evaluation: All details; {} where they are not on this machine.
        silent: Split → share of its images without any detection above t*.
    """

    name: str
    benchmark: str
    adapter: str
    weights: str
    splits: tuple[Split, ...]
    methods: tuple[str, ...]
    figures: Mapping[tuple[str, str], Mapping[str, float | None]]
    detector: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    silent: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def is_evaluated(self) -> bool:
        """Whether any method has figures."""
        return bool(self.methods)

    @property
    def has_no_method(self) -> bool:
        """Whether the run was evaluated, but no method can be applied to its detector."""
        return bool(self.detector) and not self.methods

    @property
    def not_applicable(self) -> dict[str, str]:
        """Method → why it cannot be applied to this detector."""
        return dict(self.evaluation.get("not_applicable", {}))

    @property
    def left_out(self) -> str:
        """A sentence on the methods that cannot be applied, and why; "" where there is none."""
        reasons = "; ".join(f"{title_of(method)} ({reason})" for method, reason in self.not_applicable.items())
        return f"Not applicable to this detector: {reasons}." if reasons else ""

    def value(self, split: str, method: str, metric: str) -> float | None:
        """A figure, None where there is none."""
        return self.figures.get((split, method), {}).get(metric)

    def interval(self, split: str, method: str, metric: str) -> tuple[float, float] | None:
        """The 95% interval of a figure, None where there is none."""
        found = self.details(split, method).get("intervals", {}).get(metric)
        return None if found is None else (float(found[0]), float(found[1]))

    def is_tied(self, split: str, method: str, metric: str) -> bool:
        """Whether a method that is not the best may be as good: the interval of the difference holds zero."""
        compared = self.details(split, method).get("against_best", {}).get(metric) or {}
        interval = compared.get("interval")
        return interval is not None and compared.get("best") != method and interval[0] <= 0 <= interval[1]

    def details(self, split: str, method: str) -> Mapping[str, Any]:
        """All that was measured with a method in a split; {} where that is not on this machine."""
        found: Mapping[str, Any] = self._of_method(method).get("splits", {}).get(split, {})
        return found

    def fitted(self, method: str) -> Mapping[str, Any]:
        """How a method was fitted, as its `method.json` says; {} where that is not on this machine."""
        found: Mapping[str, Any] = self._of_method(method).get("fitted", {})
        return found

    def _of_method(self, method: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.evaluation.get("methods", {}).get(method, {})
        return found

    def label(self, method: str) -> str:
        """How tables of this run call a method: one whose parameters were chosen on test data says so in its name."""
        is_oracle = (self.fitted(method).get("choice") or {}).get("oracle", False)
        return f"{title_of(method)} (oracle)" if is_oracle else title_of(method)

    def mean(self, method: str, metric: str) -> float | None:
        """A method's mean over the splits that have a value."""
        values = [v for split in self.splits if (v := self.value(split.name, method, metric)) is not None]
        return sum(values) / len(values) if values else None

    def ranked(self, metric: str) -> list[str]:
        """Methods with a value, the highest mean first; equal ones in the order of params.yaml."""
        means = {method: mean for method in self.methods if (mean := self.mean(method, metric)) is not None}
        return sorted(means, key=lambda method: -means[method])

    def family(self, method: str) -> str:
        """What a method looks at, as FMIYC sorts them (Section 5.2): output, features, both, or latent activations."""
        needs = set(self.fitted(method).get("needs", []))
        if "latent" in needs:
            return "latent"
        if "features" in needs:
            return "mixed" if needs & {"logits", "last_layer"} else "feature"
        return "output"

    def shown_method(self, wanted: str | None) -> str | None:
        """The method whose decisions are shown: the one asked for, else the best by mean AP_U, else by mean AUROC.

        One that cannot be applied to this detector counts as not asked for.

        Raises:
            ParameterError: the one asked for has no figures.
        """
        if wanted is not None and wanted not in self.not_applicable:
            if self.is_evaluated and wanted not in self.methods:
                raise ParameterError(f"report: {self.name} has no method {wanted!r}. Known: {', '.join(self.methods)}")
            return wanted
        return next(iter([*self.ranked("ap_u"), *self.ranked("auroc"), *self.methods]), None)


def read_runs(params: Mapping[str, Any], artifacts: Path) -> list[Run]:
    """All runs of params.yaml, evaluated or not.

    Raises:
        ParameterError: a run names a benchmark that params.yaml does not have, or a section is absent.
        DataError: a file is damaged.
    """
    for section in ("detectors", "benchmarks", "methods"):
        if not isinstance(params.get(section), Mapping):
            raise ParameterError(f"params.yaml: no section {section!r}")
    return [read_run(name, params, artifacts) for name in params["detectors"]]


def read_run(name: str, params: Mapping[str, Any], artifacts: Path) -> Run:
    """One run; see `read_runs`."""
    detector = params["detectors"][name]
    benchmark = detector.get("benchmark")
    if benchmark not in params["benchmarks"]:
        known = ", ".join(params["benchmarks"])
        raise ParameterError(f"params.yaml: detectors.{name} names no known benchmark: {benchmark!r}. Known: {known}")
    files = RunFiles(name, benchmark, artifacts)
    splits = _splits(benchmark, params["benchmarks"][benchmark])
    figures = {}
    for split in splits:
        for method in params["methods"]:
            file = inside(files.metrics, f"{split.name}/{method}.json")
            if file.exists():
                figures[split.name, method] = _figures(file)
    measured = {method for _, method in figures}
    return Run(
        name=name,
        benchmark=benchmark,
        adapter=str(detector.get("adapter", "")),
        weights=str(detector.get("weights", "")),
        splits=splits,
        methods=tuple(method for method in params["methods"] if method in measured),
        figures=figures,
        detector=_read_or_empty(files.metrics / "detector.json"),
        silent={
            split.name: _read_or_empty(inside(files.metrics, f"{split.name}/detector.json")).get("no_detection")
            for split in splits
        },
        evaluation=_read_or_empty(files.evaluation),
    )


def title_of(method: str) -> str:
    """How tables call a method."""
    return TITLES.get(method, method)


def _splits(name: str, params: Mapping[str, Any]) -> tuple[Split, ...]:
    written = curation.benchmark(name, params).splits.items()
    splits = [Split(name, split.dataset, split.distance) for name, split in written if split.use == "test"]
    return tuple(sorted(splits, key=lambda split: (split.dataset, DISTANCES.index(split.distance))))


def _figures(file: Path) -> dict[str, float | None]:
    content = _object(file)
    for metric in METRICS:
        value = content.get(metric.name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise DataError(f"expected a number or null, found {value!r}", file=file, field=metric.name)
    return {metric.name: content.get(metric.name) for metric in METRICS}


def _read_or_empty(file: Path) -> dict[str, Any]:
    return _object(file) if file.exists() else {}


def _object(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise DataError(f"expected an object, found {content!r}", file=file)
    return content

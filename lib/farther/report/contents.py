"""What stands on each page, except the gallery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from farther.errors import ParameterError
from farther.evaluation.files import RunFiles
from farther.report import choices, overview, published, tables
from farther.report.charts import curves, outcomes
from farther.report.charts.parts import Figures
from farther.report.documented import MethodText, texts_of
from farther.report.examples import examples
from farther.report.parameters import ReportSettings
from farther.report.results import METRICS, OOD, OPEN_SET, Run, title_of
from farther.report.splits import splits_of
from farther.scoring.entries import OWN

#: Sections of a detector's page.
DETECTOR = (
    ("results", "Results"),
    ("unknown", "Unknown objects"),
    ("figures", "Figures"),
    ("examples", "Examples"),
    ("thresholds", "Thresholds and parameters"),
    ("inputs", "Inputs"),
)

#: The recall at which detectors are compared by their wilderness impact, as `wilderness.csv` writes it.
WILDERNESS_RECALL = "0.3"


@dataclass(frozen=True)
class Findings:
    """All that the pipeline found; each function gives what one page shows.

    Args:
        params: All of params.yaml.
        settings: Its section `report`, checked.
        runs: All runs.
        artifacts: The artifacts folder.
        roots: Dataset → folder of its image files.
        root: The project's folder.
        printed: Published figures.
    """

    params: Mapping[str, Any]
    settings: ReportSettings
    runs: list[Run]
    artifacts: Path
    roots: Mapping[str, Path]
    root: Path
    printed: published.Figures

    @cached_property
    def described(self) -> list[Run]:
        """Runs that have figures of their own, whether or not a method applies to them."""
        return [run for run in self.runs if run.is_evaluated or run.has_no_method]

    @cached_property
    def evaluated(self) -> list[Run]:
        """Runs that have figures of methods."""
        return [run for run in self.runs if run.is_evaluated]

    @cached_property
    def texts(self) -> dict[str, list[MethodText]]:
        """Line of section `methods` → the documentation of its method, or of all that may be chosen."""
        own = self.root / OWN
        return {name: texts_of(name, values or {}, own) for name, values in self.params["methods"].items()}

    def by_benchmark(self) -> dict[str, list[Run]]:
        """Runs that have figures of methods, by their benchmark."""
        found = {name: [run for run in self.evaluated if run.benchmark == name] for name in self.params["benchmarks"]}
        return {name: runs for name, runs in found.items() if runs}

    def index(self) -> dict[str, Any]:
        """The first page."""
        images = {
            (run.benchmark, split.name): _images(run, split.name) for run in self.evaluated for split in run.splits
        }
        methods = [method for method in self.params["methods"] if any(method in run.methods for run in self.evaluated)]
        return {
            "title": self.settings.title,
            "tiles": [
                ("detectors evaluated", len(self.evaluated)),
                ("methods compared", len(methods)),
                ("OOD splits", len(images)),
                ("images in them", sum(images.values())),
            ],
            "contents": self._contents(),
            "without_method": [run.name for run in self.described if run.has_no_method],
            "without_reason": _refused([run for run in self.described if run.has_no_method]),
            "unmeasured": [run.name for run in self.runs if run not in self.described],
            "benchmarks": [self._results(name, runs) for name, runs in self.by_benchmark().items()],
            "metrics": METRICS,
            "ran": overview.ran(self.runs),
            "run_pages": self._run_pages(),
            "methods": [(name, title_of(name)) for name in self.params["methods"]],
            "checkpoints": overview.checkpoints(self.described, self.params),
            "splits": overview.tables_of_splits(self.described),
            "files": [(run.name, _files_of(run)) for run in self.evaluated],
        }

    def _contents(self) -> list[tuple[str, str]]:
        results = [(f"results-{k}", f"Results on {name}") for k, name in enumerate(self.by_benchmark(), start=1)]
        if results:
            results += [("unknown", "Unknown objects"), ("metrics", "What the metrics say")]
        return [*results, ("ran", "What ran"), ("inputs", "Made from"), ("files", "To take along")]

    def _results(self, name: str, runs: list[Run]) -> dict[str, Any]:
        shown = [(run, self._shown_method(run)) for run in runs]
        notes = [note for run in runs if (note := choices.note(run))]
        return {
            "name": name,
            "sheets": tables.benchmark_sheets(name, runs),
            "notes": notes,
            "refused": _refused(runs),
            "shown": [(run.name, run.label(method)) for run, method in shown],
            "fates": outcomes.fates_by_split(shown),
        }

    def _shown_method(self, run: Run) -> str:
        method = run.shown_method(self.settings.method)
        if method is None:
            raise ParameterError(f"report: run {run.name!r} has no method to show")
        return method

    def detectors(self) -> dict[str, Any]:
        """All detectors beside each other."""
        wild = []
        for name, runs in self.by_benchmark().items():
            folders = {run.name: self._files(run).plots for run in runs}
            group = curves.wilderness_of(folders, WILDERNESS_RECALL)
            wild += [(name, group)] if group else []
        return {
            "quality": overview.detectors(self.described),
            "open_world": overview.open_world(self.described),
            "wilderness": wild,
            "run_pages": self._run_pages(),
        }

    def detector(self, run: Run) -> dict[str, Any]:
        """One detector on one benchmark."""
        content: dict[str, Any] = {
            "run": run,
            "quality": overview.quality(run),
            "not_applicable": _refused([run]),
        }
        if not run.is_evaluated:
            return content
        method = self._shown_method(run)
        plots = self._files(run).plots
        wanted = run.ranked("auroc")[: self.settings.curves]
        points = self.settings.curve_points
        return content | {
            "contents": [
                (anchor, title) for anchor, title in DETECTOR if anchor != "examples" or self.settings.examples
            ],
            "sheets": tables.run_sheets(run),
            "notes": [note for note in [choices.note(run)] if note],
            "fate_keys": outcomes.FATE_KEYS,
            "fates": outcomes.fates(run, method),
            "confusion": outcomes.confusion(run, self.settings.categories),
            "recall": f"{100 * run.evaluation.get('wilderness', {}).get('diagnosis_recall', 0):g}",
            "methods": outcomes.methods(run),
            "roc": curves.curves(run, plots, "roc", wanted, points),
            "pr": curves.curves(run, plots, "pr", wanted, points),
            "tau": curves.sweep(run, plots, "tau", wanted),
            "confidence": curves.sweep(run, plots, "confidence", wanted),
            "silence": curves.silence(run, plots),
            "wilderness": curves.wilderness(run, plots),
            "reliability": curves.reliability(run, plots),
            "examples": self._examples(run, method),
            "shown_method": run.label(method),
            "has_gallery": bool(self.settings.gallery.images),
            "thresholds": overview.thresholds(run),
            "inputs": overview.inputs(run),
            "method_pages": self._method_pages("../", [run]),
        }

    def _examples(self, run: Run, method: str) -> list[tuple[Any, Any]]:
        count, side = self.settings.examples, self.settings.image_side
        if not count or not run.evaluation:
            return []
        return [
            (split, examples(run, split.name, method, self.artifacts, self.roots, count, side)) for split in run.splits
        ]

    def methods(self) -> dict[str, Any]:
        """All methods beside each other."""
        summaries = {
            name: texts[0].summary if len(texts) == 1 else f"The best of {', '.join(text.name for text in texts)}."
            for name, texts in self.texts.items()
        }
        return {
            "table": overview.methods(self.params["methods"], self.evaluated, summaries),
            "method_pages": self._method_pages("", self.evaluated),
            "not_applicable": _refused(self.described),
        }

    def method(self, name: str) -> dict[str, Any]:
        """One line of section `methods`."""
        having = {benchmark: [r for r in runs if name in r.methods] for benchmark, runs in self.by_benchmark().items()}
        having = {benchmark: runs for benchmark, runs in having.items() if runs}
        everywhere = [run for runs in having.values() for run in runs]
        return {
            "title": everywhere[0].label(name) if everywhere else title_of(name),
            "texts": self.texts[name],
            "remarks": list(dict.fromkeys(_sentence(r) for run in everywhere for r in choices.remarks(run, name))),
            "sheets": [
                sheet for benchmark, runs in having.items() for sheet in tables.method_sheets(benchmark, runs, name)
            ],
            "figures_by_benchmark": [(benchmark, outcomes.detectors(runs, name)) for benchmark, runs in having.items()],
            "as_run": overview.as_run(everywhere, name),
            "run_pages": self._run_pages("../"),
            "not_applicable": [
                (run.name, run.not_applicable[name]) for run in self.described if name in run.not_applicable
            ],
        }

    def splits(self) -> dict[str, Any]:
        """All benchmarks and datasets."""
        return {
            "benchmarks": [(name, overview.splits(name, self.artifacts)) for name in self.params["benchmarks"]],
            "datasets": overview.datasets(self.artifacts),
        }

    def benchmark(self, name: str) -> dict[str, Any]:
        """How the splits of a benchmark came about, and what is in them."""
        return {
            "view": splits_of(name, self.params["benchmarks"][name], self.artifacts, self.settings.categories),
            "counts": overview.splits(name, self.artifacts),
            "reasons": overview.reasons(name, self.artifacts),
            "rules": overview.rules(name, self.artifacts),
        }

    def figures(self) -> dict[str, Any]:
        """Figures over all detectors and methods."""
        families: dict[str, Figures] = {
            "ood": outcomes.families(self.evaluated, OOD),
            "open_set": outcomes.families(self.evaluated, OPEN_SET),
        }
        return {
            **families,
            "correlations": outcomes.correlations(self.evaluated),
            "benchmarks": list(self.params["benchmarks"]),
            "runs": [run.name for run in self.evaluated],
        }

    def published(self) -> dict[str, Any]:
        """Ours beside published figures."""
        wanted = [
            (run, self.settings.published[run.name]) for run in self.evaluated if run.name in self.settings.published
        ]
        beside = [(run.name, published.beside(run, counterpart, self.printed)) for run, counterpart in wanted]
        return {"published": [(name, table) for name, table in beside if table is not None]}

    def _files(self, run: Run) -> RunFiles:
        return RunFiles(run.name, run.benchmark, self.artifacts)

    def _run_pages(self, up: str = "") -> dict[str, str]:
        return {run.name: f"{up}detectors/{quote(run.name)}.html" for run in self.described}

    def _method_pages(self, up: str, runs: list[Run]) -> dict[str, str]:
        names = self.params["methods"]
        pages = {title_of(name): f"{up}methods/{quote(name)}.html" for name in names}
        return pages | {run.label(name): f"{up}methods/{quote(name)}.html" for run in runs for name in run.methods}


def _images(run: Run, split: str) -> int:
    return int(run.evaluation.get("splits", {}).get(split, {}).get("images", 0))


def _files_of(run: Run) -> list[tuple[str, str]]:
    """What each table of a run shows, and the name of its files."""
    heads = {"open_set": "Unknown objects", "ood": "Detections"}
    return [(heads[kind], f"{run.name}-{kind}") for kind, *_ in reversed(tables.KINDS)]


def _refused(runs: list[Run]) -> list[tuple[str, list[str], str]]:
    """Methods that do not apply: title, to which runs, and why."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for method, reason in run.not_applicable.items():
            found.setdefault((title_of(method), reason), []).append(run.name)
    return [(title, names, reason) for (title, reason), names in found.items()]


def _sentence(remark: str) -> str:
    return f"{remark[0].upper()}{remark[1:]}."

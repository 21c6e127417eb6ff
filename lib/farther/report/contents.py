"""Contents of each page, except the gallery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from farther.errors import ParameterError
from farther.evaluation.files import RunFiles
from farther.report import documented, metric_groups, overview, problems, seeds, tables, wilderness
from farther.report.charts import curves, error_budget
from farther.report.charts import distances as distance_charts
from farther.report.charts import results as charts
from farther.report.citations import bibtex
from farther.report.distances import Distances
from farther.report.examples import examples
from farther.report.listing import Listing
from farther.report.outcomes import SplitOutcomes
from farther.report.papers.pages import PAPERS
from farther.report.papers.published import Published
from farther.report.papers.table import PRINTED, PaperTable, Sources
from farther.report.results import CHARTED, OOD, OPEN_SET, SHOWN, VALUES, Run, title_of
from farther.report.settings import Counterpart, ReportSettings
from farther.report.splits import split_counts, splits_of

#: Sections of a detector's page.
DETECTOR = {
    "results": "Results",
    "further": "Further metrics",
    "unknown": "Unknown objects",
    "error-budget": "Error budget",
    "charts": "Charts",
    "examples": "Examples",
    "thresholds": "Thresholds and parameters",
    "inputs": "Inputs",
}

#: Formats of the first figure's files.
FIGURES = ("svg", "png", "pdf")

#: Headings of the files of a run, by kind of table.
FILES = {"open_set": "Unknown objects", "ood": "Detections"}


@dataclass(frozen=True)
class Contents:
    """All results; each function gives the contents of one page.

    Args:
        params: All of params.yaml.
        settings: Its section `report`, checked.
        runs: All runs.
        root: The project's folder.
        roots: Dataset → folder of its image files.
        texts: Line of section `methods` → the documentation of its method, or of all that it chooses from.
    """

    params: Mapping[str, Any]
    settings: ReportSettings
    runs: Sequence[Run]
    root: Path
    roots: Mapping[str, Path]
    texts: Mapping[str, Sequence[documented.MethodText]]

    @property
    def artifacts(self) -> Path:
        """The artifacts folder."""
        return self.root / "artifacts"

    @cached_property
    def measured(self) -> list[Run]:
        """Runs that are evaluated, whether or not a method applies to them."""
        return [run for run in self.runs if run.is_evaluated or run.has_no_method]

    @cached_property
    def evaluated(self) -> list[Run]:
        """Runs with values of methods."""
        return [run for run in self.runs if run.is_evaluated]

    @cached_property
    def values(self) -> pl.DataFrame:
        """`Run.values` of all runs."""
        return pl.concat([pl.DataFrame(schema=VALUES), *(run.values for run in self.evaluated)])

    @cached_property
    def distances(self) -> Distances:
        """Outcomes of unknown objects by distance."""
        return Distances(self.evaluated, self.artifacts, self.settings.method)

    @cached_property
    def papers(self) -> dict[str, list[PaperTable]]:
        """Name of each paper → its tables."""
        sources = Sources(self.evaluated, self.params, self.root, self.settings.published)
        return {paper.name: paper.tables(sources) for paper in PAPERS}

    def by_benchmark(self) -> dict[str, list[Run]]:
        """Runs with values of methods, by their benchmark."""
        found = {name: [run for run in self.evaluated if run.benchmark == name] for name in self.params["benchmarks"]}
        return {name: runs for name, runs in found.items() if runs}

    def index(self) -> dict[str, Any]:
        """The first page."""
        images = {(run.benchmark, s.name): run.images(s.name) for run in self.evaluated for s in run.splits}
        without_method = [run for run in self.measured if run.has_no_method]
        titles = [runs[0].benchmark_title for runs in self.by_benchmark().values()]
        results = {f"results-{k}": f"Results on {title}" for k, title in enumerate(titles, start=1)}
        if results:
            results |= {"unknown": "Unknown objects by split", "metrics": "Metrics"}
        warnings = problems.warnings(self.artifacts, self.params)
        unusable = problems.unusable_images(self.artifacts, self.params, [run.name for run in self.runs])
        doubts = problems.doubts(self.artifacts, self.params, self.measured)
        if warnings or unusable or doubts:
            results |= {"warnings": "Warnings"}
        return {
            "title": self.settings.title,
            "hero": distance_charts.panels(self.distances.rows),
            "hero_methods": list(dict.fromkeys(run.label(method) for run, method in self.distances.shown)),
            "sentences": self.distances.sentences(),
            "figures": FIGURES if self.evaluated else (),
            "tiles": {
                "detectors evaluated": len(self.evaluated),
                "methods compared": self.values["method"].n_unique(),
                "OOD splits": len(images),
                "images in them": sum(images.values()),
            },
            "contents": {**results, "runs": "Runs", "files": "Downloads"},
            "without_method": [run.full_title for run in without_method],
            "without_reason": _not_applicable(without_method),
            "unmeasured": [run.full_title for run in self.runs if run not in self.measured],
            "benchmarks": [self._results(name, runs) for name, runs in self.by_benchmark().items()],
            "warnings": warnings,
            "doubts": doubts,
            "unusable": unusable,
            "metrics": SHOWN,
            "runs": overview.runs_table(self.runs),
            "methods": {name: title_of(name) for name in self.params["methods"]},
            "file_heads": FILES,
            "files": {
                run.name: (run.full_title, [table.name for table in tables.run_tables(run)]) for run in self.evaluated
            },
        }

    def provenance(self) -> dict[str, Any]:
        """Digests of what the results were computed from."""
        return {
            "checkpoints": overview.checkpoints(self.measured, self.params),
            "splits": overview.tables_of_splits(self.measured),
            "bibtex": bibtex(
                [paper.citation for paper in PAPERS],
                [reference for texts in self.texts.values() for text in texts for reference in text.references],
            ),
        }

    def _results(self, name: str, runs: list[Run]) -> dict[str, Any]:
        shown = [(run, self.shown_method(run)) for run in runs]
        return {
            "name": runs[0].benchmark_title,
            "tables": [
                *tables.benchmark_tables(name, seeds.merged(runs, self.settings.seeds)),
                *metric_groups.cost_tables(name, runs),
            ],
            "kinds": overview.kinds(runs, {run.name: method for run, method in shown}),
            "notes": [note for run in runs if (note := documented.note_on(run))],
            "not_applicable": _not_applicable(runs),
            "shown": {run.full_title: run.label(method) for run, method in shown},
            "outcomes": charts.outcomes_by_split(shown),
        }

    def shown_method(self, run: Run) -> str:
        """The method whose outcomes are shown for an evaluated run."""
        method = run.shown_method(self.settings.method)
        if method is None:
            raise ParameterError(f"report: run {run.name!r} has no method to show")
        return method

    def detectors(self) -> dict[str, Any]:
        """All detectors side by side."""
        return {
            "quality": list(overview.detectors(self.measured)),
            "budget": error_budget.overview([(run, self.shown_method(run)) for run in self.evaluated]),
        }

    def wilderness(self) -> dict[str, Any]:
        """What images without known objects cost the detectors."""
        plots = {run.name: self._plots(run) for run in self.evaluated}
        return wilderness.content(self.evaluated, plots)

    def detector(self, run: Run, found: Mapping[str, SplitOutcomes]) -> dict[str, Any]:
        """One detector on one benchmark."""
        content: dict[str, Any] = {
            "run": run,
            "quality": overview.quality(run),
            "not_applicable": _not_applicable([run]),
        }
        if not run.is_evaluated:
            return content
        method = self.shown_method(run)
        count, side = self.settings.examples, self.settings.image_side
        drawn = curves.RunCurves(run, self._plots(run), run.ranked("auroc")[: self.settings.curves])
        return content | {
            "contents": {
                name: title
                for name, title in DETECTOR.items()
                if (name != "examples" or count)
                and (name != "error-budget" or (run.evaluation and run.evaluation.error_budget))
            },
            "tables": tables.run_tables(run),
            "notes": [note for note in [documented.note_on(run)] if note],
            "further": list(metric_groups.further_tables(run)),
            "parts": list(metric_groups.parts(run, method)),
            "outcome_keys": charts.OUTCOME_KEYS,
            "outcomes": charts.outcomes(run, method),
            "confusion": charts.confusion(run, self.settings.categories),
            "recall": f"{100 * (run.evaluation.wilderness.diagnosis_recall if run.evaluation else 0):g}",
            "budget_known": error_budget.known(run),
            "budget_unknown": error_budget.unknown(run, method),
            "budget": error_budget.listing(run, method),
            "methods": charts.methods(run),
            "roc": drawn.curves("roc", self.settings.curve_points),
            "pr": drawn.curves("pr", self.settings.curve_points),
            "tau": drawn.sweep("tau"),
            "confidence": drawn.sweep("confidence"),
            "no_detection": drawn.no_detection(),
            "wilderness": drawn.wilderness(),
            "reliability": drawn.reliability(),
            "examples": {
                split.title: examples(found[split.name], method, self.roots, count, side)
                for split in run.splits
                if count and split.name in found
            },
            "shown_method": run.label(method),
            "has_gallery": bool(self.settings.gallery.images),
            "thresholds": overview.parameters_by_method(run),
            "inputs": overview.inputs(run),
            "unusable": problems.unusable_images(self.artifacts, {"datasets": {}}, [run.name]),
            "method_pages": self._method_pages("../", [run]),
        }

    def methods(self) -> dict[str, Any]:
        """All methods side by side."""
        summaries = {
            name: texts[0].summary if len(texts) == 1 else f"The best of {', '.join(text.name for text in texts)}."
            for name, texts in self.texts.items()
        }
        return {
            "table": overview.methods(self.params["methods"], self.evaluated, summaries),
            "method_pages": self._method_pages("", self.evaluated),
            "not_applicable": _not_applicable(self.measured),
        }

    def method(self, name: str) -> dict[str, Any]:
        """One line of section `methods`."""
        by_benchmark = {
            on: having for on, runs in self.by_benchmark().items() if (having := [r for r in runs if name in r.methods])
        }
        runs = [run for run in self.evaluated if name in run.methods]
        remarks = dict.fromkeys(remark for run in runs for remark in documented.remarks(run, name))
        return {
            "title": runs[0].label(name) if runs else title_of(name),
            "texts": self.texts[name],
            "remarks": [f"{remark[0].upper()}{remark[1:]}." for remark in remarks],
            "tables": [table for on, those in by_benchmark.items() for table in tables.method_tables(on, those, name)],
            "charts_by_benchmark": {
                those[0].benchmark_title: charts.detectors(those, name) for those in by_benchmark.values()
            },
            "parameters": overview.parameters_by_run(runs, name),
            "not_applicable": {
                run.full_title: run.not_applicable[name] for run in self.measured if name in run.not_applicable
            },
        }

    def splits(self) -> dict[str, Any]:
        """All benchmarks and datasets."""
        return {
            "benchmarks": {
                name: split_counts(name, params, self.artifacts) for name, params in self.params["benchmarks"].items()
            },
            "datasets": overview.datasets(self.artifacts),
        }

    def benchmark(self, name: str) -> dict[str, Any]:
        """The splits of a benchmark."""
        params = self.params["benchmarks"][name]
        return {"view": splits_of(name, params, self.artifacts, self.settings.categories)}

    def charts(self) -> dict[str, Any]:
        """Charts over all detectors and methods."""
        return {
            "ood": charts.families(self.values, OOD),
            "open_set": charts.families(self.values, [metric for metric in CHARTED if metric in OPEN_SET]),
            "correlations": charts.correlations(self.values),
            "benchmarks": list(self.params["benchmarks"]),
            "runs": {run.name: run.full_title for run in self.evaluated},
        }

    def published(self) -> dict[str, Any]:
        """Results beside published ones."""
        printed = Published.read(self.root / PRINTED)
        parts = {title: [r for r in self.evaluated if r.name in of] for title, of in self.settings.seeds.items()}
        means = seeds.merged([run for part in parts.values() for run in part], self.settings.seeds)
        found: dict[str, list[Listing]] = {}
        for run in [*self.evaluated, *means]:
            counterpart = self.settings.published.get(run.name)
            if counterpart is not None:
                _refuse_unknown(run.name, counterpart, printed.detectors)
                tables = printed.beside(run, counterpart, parts.get(run.name, ()))
                found[run.full_title] = [table for table in tables if len(table)]
        return {"published": {name: of for name, of in found.items() if of}}

    def _plots(self, run: Run) -> Path:
        return RunFiles(run.name, run.benchmark, self.artifacts).plots

    def _method_pages(self, up: str, runs: Sequence[Run]) -> dict[str, str]:
        labels = {title_of(name): name for name in self.params["methods"]}
        labels |= {run.label(name): name for run in runs for name in run.methods}
        return {label: f"{up}methods/{quote(name)}.html" for label, name in labels.items()}


def _not_applicable(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Methods that do not apply: title, runs and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for method, reason in run.not_applicable.items():
            found.setdefault((title_of(method), reason), []).append(run.full_title)
    return [{"method": title, "runs": names, "reason": reason} for (title, reason), names in found.items()]


def _refuse_unknown(run: str, counterpart: Counterpart, known: set[tuple[str, str]]) -> None:
    if (counterpart.detector, counterpart.id) not in known:
        pairs, found = ", ".join("/".join(pair) for pair in sorted(known)), f"{counterpart.detector}/{counterpart.id}"
        raise ParameterError(f"report.published.{run}: no published table has {found}. Known: {pairs}")

"""All results of a project, as pages need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from farther.evaluation import plots
from farther.evaluation.files import RunFiles
from farther.evaluation.stored_results import StoredResults
from farther.report import power
from farther.report.distances import Distances
from farther.report.documented import MethodText
from farther.report.drawn import Drawn
from farther.report.replicates import Replicates
from farther.report.results import VALUES, Run, title_of
from farther.report.seeds import on_one_benchmark
from farther.report.settings import ReportSettings


@dataclass(frozen=True)
class AllResults:
    """All results of a project.

    Args:
        params: All of params.yaml.
        settings: Its section `report`, checked.
        runs: All runs.
        root: The project's folder.
        roots: Dataset → folder of its image files.
        texts: Line of section `methods` → the documentation of its method, or of all that it
            chooses from.
        code: Hash of the code of reports, "" where files of an earlier report are not reused.
        jobs: Detectors whose pages are written at the same time.
    """

    params: Mapping[str, Any]
    settings: ReportSettings
    runs: Sequence[Run]
    root: Path
    roots: Mapping[str, Path]
    texts: Mapping[str, Sequence[MethodText]]
    code: str = ""
    jobs: int = 1

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
    def drawn(self) -> Drawn:
        """The evaluated runs that are drawn."""
        return self.drawn_of(self.evaluated)

    def drawn_of(self, runs: Sequence[Run]) -> Drawn:
        """Those of some runs that are drawn."""
        return Drawn.of(runs, self.settings.drawn, self.settings.seeds)

    @cached_property
    def drawn_distances(self) -> Distances:
        """Outcomes of unknown objects by distance, of the runs that are drawn."""
        return Distances(self.drawn.runs, self.artifacts, self.settings.method)

    @cached_property
    def sizes(self) -> pl.DataFrame:
        """Differences that the images of each run and split can show.

        See `farther.report.power.sizes`.
        """
        return power.sizes(self.evaluated, self.artifacts)

    @cached_property
    def by_benchmark(self) -> dict[str, list[Run]]:
        """Runs with values of methods, by their benchmark, in the order of params.yaml."""
        return self._by_benchmark(self.evaluated)

    @cached_property
    def drawn_by_benchmark(self) -> dict[str, list[Run]]:
        """Runs that are drawn, by their benchmark, in the order of params.yaml."""
        return self._by_benchmark(self.drawn.runs)

    def _by_benchmark(self, runs: Sequence[Run]) -> dict[str, list[Run]]:
        by_benchmark: dict[str, list[Run]] = {}
        for benchmark in self.params["benchmarks"]:
            of_benchmark = [run for run in runs if run.benchmark == benchmark]
            if of_benchmark:
                by_benchmark[benchmark] = of_benchmark
        return by_benchmark

    @cached_property
    def seeds(self) -> dict[str, list[str]]:
        """Name → runs of one benchmark that are one row of its tables.

        Raises:
            ParameterError: see `farther.report.seeds.on_one_benchmark`.
        """
        return on_one_benchmark(self.settings.seeds, self.params)

    def of_run(self, run: Run) -> AllResults:
        """The results of one run, with the names of methods, but without other parameters.

        Its page gets these, so that it cannot show anything that its key does not cover.
        """
        params = {"methods": dict.fromkeys(self.params["methods"])}
        return replace(self, params=params, runs=[run], texts={})

    def unread(self) -> AllResults:
        """The same results, of which no file is read yet: for another process."""
        runs = []
        for run in self.runs:
            unread_results = StoredResults(run.results.files)
            runs.append(replace(run, results=unread_results, replicates=Replicates()))
        return replace(self, runs=runs)

    def shown_method(self, run: Run) -> str:
        """The method whose outcomes are shown for an evaluated run."""
        return run.shown_method(self.settings.method)

    def plots(self, run: Run) -> dict[str, Path]:
        """The files of a run's curves, by kind."""
        files = RunFiles(run.name, run.benchmark, self.artifacts)
        return {kind: files.plot(kind) for kind in plots.SCHEMAS}

    def method_pages(self, up: str, runs: Sequence[Run]) -> dict[str, str]:
        """Title of each method, as tables of these runs have it → its section of a page.

        Args:
            up: The path to the report's folder.
            runs: The runs of the tables.
        """
        names_by_label = {title_of(name): name for name in self.params["methods"]}
        for run in runs:
            for name in run.methods:
                names_by_label[run.label(name)] = name
        page = f"{up}methods.html"
        return {label: f"{page}#method-{quote(name)}" for label, name in names_by_label.items()}


def not_applicable(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Methods that do not apply: title, runs and reason."""
    runs_by_reason: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for method, reason in run.not_applicable.items():
            runs_by_reason.setdefault((title_of(method), reason), []).append(run.full_title)
    rows = []
    for (title, reason), names in runs_by_reason.items():
        rows.append({"method": title, "runs": names, "reason": reason})
    return rows

"""The page of results beside published ones."""

from __future__ import annotations

from typing import Any

from farther.errors import ParameterError
from farther.report import seeds
from farther.report.all_results import AllResults
from farther.report.papers.openood import divided_benchmarks
from farther.report.papers.published import Published
from farther.report.papers.table import PRINTED
from farther.report.results import Run
from farther.report.settings import Counterpart
from farther.report.site import Site


def write(site: Site, results: AllResults) -> None:
    """Writes the page.

    Raises:
        ParameterError: a counterpart is in no published table.
    """
    site.write("published.html", published=_tables(results))


def _tables(results: AllResults) -> dict[str, list[Any]]:
    """Title of each run with a counterpart → the tables that have values of both."""
    published = Published.read(results.root / PRINTED)
    runs_by_seeds = _runs_by_seeds(results)
    tables_by_run = {}
    for run in [*results.evaluated, *_mean_runs(results, runs_by_seeds)]:
        counterpart = results.settings.published.get(run.name)
        if counterpart is None:
            continue
        _check_counterpart(run.name, counterpart, published)
        runs_of_seeds = runs_by_seeds.get(run.name, ())
        tables = published.beside(run, counterpart, runs_of_seeds)
        tables_with_rows = [table for table in tables if len(table)]
        if tables_with_rows:
            tables_by_run[run.full_title] = tables_with_rows
    return tables_by_run


def _runs_by_seeds(results: AllResults) -> dict[str, list[Run]]:
    """Name of `seeds` → its runs that are evaluated."""
    runs_by_seeds = {}
    for title, names in results.settings.seeds.items():
        runs_by_seeds[title] = [run for run in results.evaluated if run.name in names]
    return runs_by_seeds


def _mean_runs(results: AllResults, runs_by_seeds: dict[str, list[Run]]) -> list[Run]:
    """One run per name of `seeds`, with means over its runs."""
    runs = [run for runs_of_seeds in runs_by_seeds.values() for run in runs_of_seeds]
    divisions = divided_benchmarks(results.params["benchmarks"])
    return seeds.merge_seeds(runs, results.settings.seeds, divisions)


def _check_counterpart(run: str, counterpart: Counterpart, published: Published) -> None:
    """Checks that a published table has the counterpart of a run.

    Raises:
        ParameterError: none has it.
    """
    if (counterpart.detector, counterpart.id) not in published.detectors:
        known = ", ".join(sorted("/".join(names) for names in published.detectors))
        raise ParameterError(
            f"report.published.{run}: no published table has "
            f"{counterpart.detector}/{counterpart.id}. Known: {known}"
        )

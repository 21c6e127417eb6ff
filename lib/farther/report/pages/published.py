"""The page of results beside published ones."""

from __future__ import annotations

from typing import Any

from farther.errors import ParameterError
from farther.report import seeds
from farther.report.all_results import AllResults
from farther.report.papers.openood import divided_benchmarks
from farther.report.papers.published import Published
from farther.report.papers.table import PRINTED
from farther.report.site import Site


def write(site: Site, results: AllResults) -> None:
    """Writes the page.

    Raises:
        ParameterError: a counterpart is in no published table.
    """
    printed, settings = Published.read(results.root / PRINTED), results.settings
    parts = {
        title: [run for run in results.evaluated if run.name in of]
        for title, of in settings.seeds.items()
    }
    divisions = divided_benchmarks(results.params["benchmarks"])
    means = seeds.merged(
        [run for part in parts.values() for run in part], settings.seeds, divisions
    )
    found: dict[str, Any] = {}
    for run in [*results.evaluated, *means]:
        counterpart = settings.published.get(run.name)
        if counterpart is not None:
            if (counterpart.detector, counterpart.id) not in printed.detectors:
                known = ", ".join(sorted(map("/".join, printed.detectors)))
                pair = f"{counterpart.detector}/{counterpart.id}"
                raise ParameterError(
                    f"report.published.{run.name}: no published table has {pair}. Known: {known}"
                )
            tables = [
                table
                for table in printed.beside(run, counterpart, parts.get(run.name, ()))
                if len(table)
            ]
            found |= {run.full_title: tables} if tables else {}
    site.write("published.html", published=found)

"""The page of charts over all detectors and methods, as in the figures of FMIYC."""

from __future__ import annotations

from farther.report.all_results import AllResults
from farther.report.charts.results import correlations, families
from farther.report.results import CHARTED, OOD, OPEN_SET
from farther.report.site import Site


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    open_set_metrics = [metric for metric in CHARTED if metric in OPEN_SET]
    site.write(
        "charts.html",
        ood=families(results.values, OOD),
        open_set=families(results.values, open_set_metrics),
        correlations=correlations(results.values),
        benchmarks=list(results.params["benchmarks"]),
        runs={run.name: run.full_title for run in results.evaluated},
    )

"""The first page: outcomes by distance, and means of each detector and method."""

from __future__ import annotations

from typing import Any

from farther.report import means, power, problems
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts import distances
from farther.report.charts.figures import FORMATS
from farther.report.site import Site


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write("index.html", **content(results))


def content(results: AllResults) -> dict[str, Any]:
    """Variables of the template `index.html`."""
    evaluated, params = results.evaluated, results.params
    images = {(run.benchmark, s.name): run.images(s.name) for run in evaluated for s in run.splits}
    without_method = [run for run in results.measured if run.has_no_method]
    return {
        "title": results.settings.title,
        "hero": distances.panels(results.distances.rows),
        "proposed": any(run.recovered for run in results.evaluated),
        "hero_methods": list(
            dict.fromkeys(run.label(method) for run, method in results.distances.shown)
        ),
        "sentences": list(
            filter(None, [*results.distances.sentences(), power.undecided(results.sizes)])
        ),
        "figures": FORMATS if evaluated else (),
        "tiles": {
            "detectors evaluated": len(evaluated),
            "methods compared": results.values["method"].n_unique(),
            "OOD splits": len(images),
            "images in them": sum(images.values()),
        },
        "without_method": [run.full_title for run in without_method],
        "without_reason": not_applicable(without_method),
        "unmeasured": [run.full_title for run in results.runs if run not in results.measured],
        "doubts": problems.doubts(results.artifacts, params, results.measured),
        "about_data": sum(
            row["Number"] for row in problems.warnings(results.artifacts, params).frame.to_dicts()
        ),
        "means": means.table(evaluated, results.artifacts),
    }

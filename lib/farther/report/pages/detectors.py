"""The page of detectors: all of them side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from farther.report.all_results import AllResults
from farther.report.charts import error_budget
from farther.report.listing import Listing
from farther.report.results import Run
from farther.report.site import Site


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    budget = error_budget.overview(results.distances.shown)
    site.write("detectors.html", quality=list(_quality(results.measured)), budget=budget)


def _quality(runs: Sequence[Run]) -> Iterator[Listing]:
    """ID quality and images without detections of all runs, one table per benchmark (FMIYC, Tables 1 and 3)."""
    for benchmark in dict.fromkeys(run.benchmark_title for run in runs):
        yield Listing.of(
            f"Detectors on benchmark {benchmark}: quality on the ID test set, operating threshold t*, and the share of "
            "images without a detection above it.",
            (
                {
                    "Detector": run.full_title,
                    "Adapter": run.adapter,
                    **_columns(run),
                }
                for run in runs
                if run.benchmark_title == benchmark
            ),
        )


def _columns(run: Run) -> dict[str, float | None]:
    images = {"Images": run.id_images or None}
    if run.whole_images:
        return {**images, **{f"{title} (%)": run.detector.get(title.lower()) for title in ("Accuracy", "ECE")}}
    quality = {"mAP50 (%)": run.detector.get("map50"), "mAP (%)": run.detector.get("map")}
    return {**images, **quality, "t*": run.detector.get("threshold"), **run.without_detection}

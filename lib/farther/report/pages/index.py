"""The first page: outcomes by distance, and means of each detector and method."""

from __future__ import annotations

from typing import Any

from farther.report import linked_table, means, power, problems
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts import distances
from farther.report.charts.figures import FORMATS
from farther.report.distances import too_few
from farther.report.gallery.examples import Example, ReadImages, one_of_each
from farther.report.gallery.outcomes import read_run_outcomes
from farther.report.links import with_links
from farther.report.outcomes import COVERED
from farther.report.site import Site


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write("index.html", **content(results))


def content(results: AllResults) -> dict[str, Any]:
    """Variables of the template `index.html`."""
    without_method = [run for run in results.measured if run.has_no_method]
    rows = results.drawn_distances.rows
    hero = distances.panels(with_links(rows, results))
    return {
        "title": results.settings.title or results.distances.finding(),
        "examples": _examples(results),
        "told": results.distances.told,
        "hero": hero,
        "hero_tables": linked_table.of_outcome_charts(hero),
        "has_covered": COVERED in set(rows["part"]),
        "hero_methods": _method_labels(results),
        "not_drawn": results.drawn.note,
        "sentences": _sentences(results),
        "figures": FORMATS if results.evaluated else (),
        "tiles": _tiles(results),
        "without_method": [run.full_title for run in without_method],
        "without_reason": not_applicable(without_method),
        "unmeasured": _unmeasured(results),
        "doubts": problems.doubts(results.artifacts, results.params, results.measured),
        "about_data": _count_warnings(results),
        "means": means.table(results.evaluated, results.artifacts),
    }


def _examples(results: AllResults) -> dict[str, Example]:
    """Outcome → an image of the finding that shows it; {} where the report has no examples."""
    told = results.distances.told
    if told is None or not results.settings.examples:
        return {}
    run, split, method = told
    outcomes = read_run_outcomes(run, results.artifacts)
    if split not in outcomes:
        return {}
    images = ReadImages(results.roots)
    return one_of_each(outcomes[split], method, images, results.settings.image_side)


def _unmeasured(results: AllResults) -> list[str]:
    """Titles of the runs that are not evaluated."""
    measured = {run.name for run in results.measured}
    return [run.full_title for run in results.runs if run.name not in measured]


def _method_labels(results: AllResults) -> list[str]:
    """Titles of the methods that the figure shows, each once."""
    return results.drawn_distances.rows["method"].unique(maintain_order=True).to_list()


def _sentences(results: AllResults) -> list[str]:
    """Sentences on the figure, and on images that are too few to tell methods or show limits."""
    sentences = results.distances.sentences()
    undecided = power.undecided(results.sizes)
    if undecided:
        sentences.append(undecided)
    return [*sentences, *too_few(results.evaluated, results.artifacts)]


def _tiles(results: AllResults) -> dict[str, int]:
    """Numbers of runs, methods, OOD splits and images.

    Runs of detectors and of classifiers are counted apart where there are both.
    """
    images = {}
    for run in results.evaluated:
        for split in run.splits:
            images[run.benchmark, split.name] = run.images(split.name)
    classifiers = sum(run.whole_images for run in results.evaluated)
    detectors = len(results.evaluated) - classifiers
    runs = {"runs evaluated": len(results.evaluated)}
    if classifiers and detectors:
        runs = {"runs of detectors": detectors, "runs of classifiers": classifiers}
    return {
        **runs,
        "methods compared": results.values["method"].n_unique(),
        "OOD splits": len(images),
        "images in them": sum(images.values()),
    }


def _count_warnings(results: AllResults) -> int:
    """Number of warnings about the data."""
    rows = problems.warnings(results.artifacts, results.params).frame.to_dicts()
    return sum(row["Number"] for row in rows)

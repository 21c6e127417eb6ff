"""The page that compares detectors: all of them side by side, and the tables of each benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farther.evaluation.long_table import Result
from farther.metrics.catalogue import METRICS, Metric
from farther.report import documented, linked_table, metric_groups, pairs, seeds, tables
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts import error_budget
from farther.report.charts.results import outcomes_by_split
from farther.report.kinds import POST_HOC
from farther.report.links import GalleryLinks
from farther.report.listing import ABSENT, Listing, percent
from farther.report.pages import comparisons, self_awareness, wilderness
from farther.report.results import DISTANCES, SHOWN, Run, heading
from farther.report.site import Site

#: Metrics of `kinds`: of detections, then of unknown objects.
GLANCE = ("auroc", "ap_u", "r_u", "nose")


def applies(results: AllResults) -> bool:
    """Whether there are detectors to compare."""
    return len(results.measured) > 1


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write("compare.html", **content(results))


def content(results: AllResults) -> dict[str, Any]:
    """Variables of the template `compare.html`."""
    benchmarks = [
        _benchmark_view(name, runs, results) for name, runs in results.drawn_by_benchmark.items()
    ]
    drawn = results.drawn.runs
    budget = error_budget.overview(results.drawn_distances.runs_with_method)
    plots = {run.name: results.plots(run)["wilderness"] for run in drawn}
    links_by_run = {run.name: GalleryLinks.of(run, results, "") for run in drawn}
    variables = {
        "not_drawn": results.drawn.note,
        "has_covered": any(run.first_source for run in drawn),
        "runs": _runs(results.runs),
        "quality": list(_quality(results.measured)),
        "classifiers": comparisons.classifiers(results.evaluated),
        "budget": budget,
        "pairs": pairs.listing(results.drawn_distances, links_by_run),
        "benchmarks": benchmarks,
        "metrics": _shown_metrics(benchmarks),
        "wild": wilderness.content(drawn, plots),
        "aware": self_awareness.content(drawn),
    }
    variables["contents"] = _contents(variables)
    return variables


def _contents(variables: Mapping[str, Any]) -> dict[str, str]:
    """Anchor of each section → its title."""
    sections = {}
    if any(view["outcomes"].charts for view in variables["benchmarks"]):
        sections["unknown"] = "Outcomes by split"
    if variables["pairs"]:
        sections["pairs"] = "Two detectors"
    for number, view in enumerate(variables["benchmarks"], start=1):
        sections[f"results-{number}"] = f"Results on {view['name']}"
    if variables["benchmarks"]:
        sections["metrics"] = "Metrics"
    if variables["budget"]:
        sections["error-budget"] = "Error budget"
    if variables["wild"]["overview"]:
        sections["wilderness"] = "Images without known objects"
    if variables["aware"]["overview"]:
        sections["self-awareness"] = "Self-awareness"
    if variables["classifiers"]:
        sections["classifiers"] = "Classifiers"
    sections["quality"] = "Quality"
    sections["runs"] = "Runs"
    return sections


def _shown_metrics(benchmarks: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """Metrics of `SHOWN` that any table of a benchmark has."""
    in_tables: set[str] = set()
    for view in benchmarks:
        for table in view["tables"]:
            in_tables.update(metric.name for metric in table.metrics)
    return [metric for metric in SHOWN if metric.name in in_tables]


def _benchmark_view(name: str, runs: list[Run], results: AllResults) -> dict[str, Any]:
    """Tables and charts of the runs on a benchmark."""
    runs_with_method = [(run, results.shown_method(run)) for run in runs]
    notes = [documented.note_on(run) for run in runs]
    result_tables = tables.benchmark_tables(name, seeds.merge_seeds(runs, results.seeds))
    result_tables += metric_groups.cost_tables(name, runs)
    links = {run.name: GalleryLinks.of(run, results, "") for run in runs}
    outcomes = outcomes_by_split(runs_with_method, links)
    return {
        "name": runs[0].benchmark_title,
        "tables": result_tables,
        "kinds": kinds(runs, {run.name: method for run, method in runs_with_method}),
        "notes": [note for note in notes if note],
        "not_applicable": not_applicable(runs),
        "shown": {run.full_title: run.label(method) for run, method in runs_with_method},
        "outcomes": outcomes,
        "outcome_tables": linked_table.of_outcome_charts(outcomes),
    }


def _runs(runs: Sequence[Run]) -> Listing:
    """All runs, evaluated or not."""
    has_classifiers = any(run.whole_images for run in runs)
    rows = []
    for run in runs:
        row: dict[str, Any] = {
            "Detector": run.full_title,
            "Run": run.name,
            "Adapter": run.adapter,
            "Classifier": _classifier(run),
            "Weights": run.weights,
            "mAP50 (%)": None,
        }
        if not run.whole_images:
            row["mAP50 (%)"] = run.detector.get("map50")
        if has_classifiers:
            row["Accuracy (%)"] = run.detector.get("accuracy")
        row["Methods"] = len(run.methods) or None
        row["Images tested"] = sum(run.images(split) for split in run.tested_splits)
        rows.append(row)
    return Listing.from_rows("Detectors on benchmarks.", rows)


def _classifier(run: Run) -> str:
    """The kind of its classifier (Dhamija et al., 2020, Section 2).

    See `farther.evaluation.classifier_types`.
    """
    if run.description is None or not run.description.classifier_type:
        return ABSENT
    return run.description.classifier_type


def _quality(runs: Sequence[Run]) -> Iterator[Listing]:
    """ID quality and images without detections of all runs (FMIYC, Tables 1 and 3).

    One table per benchmark.
    """
    for benchmark in dict.fromkeys(run.benchmark_title for run in runs):
        rows = []
        for run in runs:
            if run.benchmark_title == benchmark:
                names = {
                    "Detector": run.full_title,
                    "Adapter": run.adapter,
                    "Classifier": _classifier(run),
                }
                rows.append({**names, **_quality_cells(run)})
        caption = f"Detectors on benchmark {benchmark}: quality on the ID test set"
        if any("t*" in row for row in rows):
            caption += (
                ", operating threshold t*, and the share of images without a detection above it"
            )
        yield Listing.from_rows(f"{caption}.", rows)


def _quality_cells(run: Run) -> dict[str, float | None]:
    """Quality of a run's detector on the ID test set."""
    cells: dict[str, float | None] = {"Images": run.id_images or None}
    if run.whole_images:
        cells["Accuracy (%)"] = run.detector.get("accuracy")
        cells["ECE (%)"] = run.detector.get("ece")
        return cells
    cells["mAP50 (%)"] = run.detector.get("map50")
    cells["mAP (%)"] = run.detector.get("map")
    cells["t*"] = run.detector.get("threshold")
    return {**cells, **run.without_detection}


def kinds(runs: Sequence[Run], post_hoc_methods: Mapping[str, str]) -> Listing:
    """Post-hoc, native and text scores side by side: means over splits of a distance.

    Empty where there is only one kind.

    Args:
        runs: Evaluated runs on one benchmark.
        post_hoc_methods: Run → its post-hoc method, which is not chosen by results.
    """
    rows = []
    for run in runs:
        for method in run.methods:
            kind = run.kinds.get(method, POST_HOC)
            if method == post_hoc_methods[run.name] or not kind.startswith(POST_HOC):
                names = {"Detector": run.full_title, "Method": run.label(method), "Kind": kind}
                rows.append({**names, **_mean_cells(run, method)})
    if len({row["Kind"] for row in rows}) < 2:
        rows = []
    numbers = []
    if rows:
        numbers = [title for title in rows[0] if title not in ("Detector", "Method", "Kind")]
    caption = (
        f"{runs[0].benchmark_title}: post-hoc, native and text scores, means over splits of a "
        "distance (%), with 95% intervals. Post-hoc: the method of the charts; native: the "
        "detector's own label of unknown objects; text: similarities to class names or prompts."
    )
    return Listing.from_rows(caption, rows, numbers)


def _mean_cells(run: Run, method: str) -> dict[str, str]:
    """Means of the metrics of `GLANCE` at each distance."""
    cells = {}
    for distance in DISTANCES:
        if not run.has_means(distance, method):
            continue
        for name in GLANCE:
            mean = run.mean(distance, method, METRICS[name]) or Result(None)
            title = f"{distance.capitalize()} {heading(name)}"
            cells[title] = percent(mean.value, mean.interval)
    return cells

"""The page of detectors: all of them side by side, and the tables of each benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farther.report import documented, metric_groups, seeds, tables
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts import error_budget
from farther.report.charts.results import outcomes_by_split
from farther.report.kinds import POST_HOC
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import DISTANCES, SHOWN, Run, heading
from farther.report.site import Site

#: Headings of the files of a run, by kind of table.
FILES = {"open_set": "Unknown objects", "ood": "Detections"}

#: Metrics of `kinds`: of detections, then of unknown objects.
GLANCE = ("auroc", "ap_u", "r_u", "nose")


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write("detectors.html", **content(results))


def content(results: AllResults) -> dict[str, Any]:
    """Variables of the template `detectors.html`."""
    benchmarks = [_of_benchmark(name, runs, results) for name, runs in results.by_benchmark.items()]
    budget = error_budget.overview(results.distances.shown)
    sections = {
        "runs": "Runs",
        "quality": "Quality",
        **({"error-budget": "Error budget"} if budget else {}),
    }
    if any(one["outcomes"].charts for one in benchmarks):
        sections |= {"unknown": "Unknown objects by split"}
    sections |= {
        f"results-{k}": f"Results on {one['name']}" for k, one in enumerate(benchmarks, start=1)
    }
    return {
        "contents": {
            **sections,
            **({"metrics": "Metrics"} if benchmarks else {}),
            "files": "Downloads",
        },
        "runs": _runs(results.runs),
        "quality": list(_quality(results.measured)),
        "budget": budget,
        "benchmarks": benchmarks,
        "metrics": [
            one
            for one in SHOWN
            if any(one in table.metrics for view in benchmarks for table in view["tables"])
        ],
        "file_heads": FILES,
        "files": {
            run.name: (run.full_title, [table.name for table in tables.run_tables(run)])
            for run in results.evaluated
        },
    }


def _of_benchmark(name: str, runs: list[Run], results: AllResults) -> dict[str, Any]:
    shown = [(run, results.shown_method(run)) for run in runs]
    merged = seeds.merged(runs, results.seeds)
    return {
        "name": runs[0].benchmark_title,
        "tables": [*tables.benchmark_tables(name, merged), *metric_groups.cost_tables(name, runs)],
        "kinds": kinds(runs, {run.name: method for run, method in shown}),
        "notes": [note for run in runs if (note := documented.note_on(run))],
        "not_applicable": not_applicable(runs),
        "shown": {run.full_title: run.label(method) for run, method in shown},
        "outcomes": outcomes_by_split(shown),
    }


def _runs(runs: Sequence[Run]) -> Listing:
    """All runs, evaluated or not."""
    return Listing.of(
        "Detectors on benchmarks.",
        (
            {
                "Detector": run.full_title,
                "Run": run.name,
                "Adapter": run.adapter,
                "Classifier": _classifier(run),
                "Weights": run.weights,
                "mAP50 (%)": None if run.whole_images else run.detector.get("map50"),
                **(
                    {"Accuracy (%)": run.detector.get("accuracy")}
                    if any(one.whole_images for one in runs)
                    else {}
                ),
                "Methods": len(run.methods) or None,
                "Images tested": sum(counts.images for counts in run.counts.values()),
            }
            for run in runs
        ),
    )


def _classifier(run: Run) -> str:
    """The kind of its classifier (Dhamija et al., 2020, Section 2); see `farther.evaluation.classifier_types`."""
    if run.evaluation is None or not run.evaluation.classifier_type:
        return ABSENT
    return run.evaluation.classifier_type


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
                    "Classifier": _classifier(run),
                    **_columns(run),
                }
                for run in runs
                if run.benchmark_title == benchmark
            ),
        )


def _columns(run: Run) -> dict[str, float | None]:
    images = {"Images": run.id_images or None}
    if run.whole_images:
        return {
            **images,
            **{f"{title} (%)": run.detector.get(title.lower()) for title in ("Accuracy", "ECE")},
        }
    quality = {"mAP50 (%)": run.detector.get("map50"), "mAP (%)": run.detector.get("map")}
    return {**images, **quality, "t*": run.detector.get("threshold"), **run.without_detection}


def kinds(runs: Sequence[Run], shown: Mapping[str, str]) -> Listing:
    """Post-hoc, native and text scores side by side: means over splits of a distance; empty where there is one kind.

    Args:
        runs: Evaluated runs on one benchmark.
        shown: Run → its post-hoc method, which is not chosen by results.
    """
    rows = []
    for run in runs:
        chosen = [
            m
            for m in run.methods
            if m == shown[run.name] or not run.kinds.get(m, POST_HOC).startswith(POST_HOC)
        ]
        for method in chosen:
            means = run.means(method)
            row = {
                "Detector": run.full_title,
                "Method": run.label(method),
                "Kind": run.kinds.get(method, POST_HOC),
            }
            for distance, of in ((name, means[name]) for name in DISTANCES if name in means):
                for name in GLANCE:
                    text = percent(of.values.get(name), of.intervals.get(name))
                    row[f"{distance.capitalize()} {heading(name)}"] = text
            rows.append(row)
    if len({row["Kind"] for row in rows}) < 2:
        rows = []
    caption = (
        f"{runs[0].benchmark_title}: post-hoc, native and text scores, means over splits of a distance (%), with 95% "
        "intervals. Post-hoc: the method of the charts; native: the detector's own label of unknown objects; text: "
        "similarities to class names or prompts."
    )
    return Listing.of(caption, rows, [head for row in rows[:1] for head in list(row)[3:]])

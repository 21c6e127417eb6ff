"""The page of a detector on a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farther.report import documented, metric_groups, problems, tables
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts import curves, error_budget
from farther.report.charts import results as charts
from farther.report.gallery.examples import examples
from farther.report.gallery.outcomes import SplitOutcomes
from farther.report.listing import Listing, percent
from farther.report.results import Run

#: Sections of the page.
SECTIONS = {
    "results": "Results",
    "further": "Further metrics",
    "unknown": "Unknown objects",
    "error-budget": "Error budget",
    "charts": "Charts",
    "examples": "Examples",
    "thresholds": "Thresholds and parameters",
    "inputs": "Inputs",
}


def content(run: Run, found: Mapping[str, SplitOutcomes], results: AllResults) -> dict[str, Any]:
    """Variables of the template `detector.html`.

    Args:
        run: The run.
        found: Split → its outcomes; {} where they are not on this machine.
        results: All results.
    """
    shown: dict[str, Any] = {
        "run": run,
        "quality": _quality(run),
        "not_applicable": not_applicable([run]),
    }
    if not run.is_evaluated:
        return shown
    method = results.shown_method(run)
    count, side = results.settings.examples, results.settings.image_side
    of_objects = {
        "outcomes": charts.outcomes(run, method),
        "confusion": charts.confusion(run, results.settings.categories),
    }
    of_known = None
    if of_objects["confusion"]:
        of_known = charts.confusion_of_known(run, results.settings.categories)
    absent = {
        "examples": not count,
        "error-budget": not error_budget.of_known(run),
        "unknown": not any(of_objects.values()),
    }
    drawn = curves.RunCurves(
        run, results.plots(run), run.ranked("auroc")[: results.settings.curves]
    )
    return shown | {
        "contents": {name: title for name, title in SECTIONS.items() if not absent.get(name)},
        "tables": tables.run_tables(run),
        "notes": [note for note in [documented.note_on(run)] if note],
        "further": list(metric_groups.further_tables(run)),
        "parts": list(metric_groups.parts(run, method)),
        "outcome_keys": charts.OUTCOME_KEYS,
        **of_objects,
        "confusion_of_known": of_known,
        "recall": f"{100 * (run.evaluation.wilderness.diagnosis_recall if run.evaluation else 0):g}",
        "budget_known": error_budget.known(run),
        "budget_unknown": error_budget.unknown(run, method),
        "budget": error_budget.listing(run, method),
        "methods": charts.methods(run),
        "roc": drawn.curves("roc", results.settings.curve_points),
        "pr": drawn.curves("pr", results.settings.curve_points),
        "tau": drawn.sweep("tau"),
        "confidence": drawn.sweep("confidence"),
        "no_detection": drawn.no_detection(),
        "wilderness": drawn.wilderness(),
        "reliability": drawn.reliability(),
        "examples": {
            split.title: examples(found[split.name], method, results.roots, count, side)
            for split in run.splits
            if count and split.name in found
        },
        "shown_method": run.label(method),
        "has_gallery": bool(results.settings.gallery.images),
        "thresholds": _parameters(run),
        "inputs": _inputs(run),
        "unusable": problems.unusable_images(results.artifacts, {"datasets": {}}, [run.name]),
        "method_pages": results.method_pages("../", [run]),
    }


def _quality(run: Run) -> Listing:
    """Quality of a detector on the ID test set: a table of one row."""
    row: dict[str, Any] = {}
    kinds: tuple[tuple[str, str, str], ...] = (
        ("mAP50 (%)", "map50", "ap50"),
        ("mAP (%)", "map", "ap"),
    )
    if run.whole_images:
        kinds = (
            ("Accuracy (%)", "accuracy", "accuracy"),
            ("Top-5 accuracy (%)", "accuracy_top5", "accuracy_top5"),
            ("ECE (%)", "ece", "ece"),
        )
    found = run.evaluation and (
        run.evaluation.classifier if run.whole_images else run.evaluation.closed_set
    )
    intervals = found.intervals if found else {}
    for title, name, detail in kinds:
        row[title] = percent(run.detector.get(name), intervals.get(detail))
    row["t*"] = run.detector.get("threshold")
    caption = (
        "Quality on the ID test set with 95% intervals, operating threshold t*, and the share of images without a "
        "detection above it."
    )
    images = {"Images": run.id_images or None}
    return Listing.of(caption, [{**row, **images, **run.without_detection}], numbers=list(row))


def _parameters(run: Run) -> Listing:
    """Parameters of each method of a run and its threshold τ: one row per method."""
    rows = (
        {
            "Method": run.label(method),
            "Family": run.family(method),
            "Reads": ", ".join(run.fitted(method).needs),
            **documented.parameters(run, method),
        }
        for method in run.methods
    )
    return Listing.of(
        f"{run.full_title}: methods, their parameters and thresholds.", rows, numbers=["τ"]
    )


def _inputs(run: Run) -> Listing:
    """Inputs of a run's evaluation: digests of tables, settings, and the detector's identity."""
    parts: dict[str, dict[str, Any]] = {}
    if run.evaluation:
        parts["detector"] = {
            key: value for key, value in run.evaluation.detector.items() if key != "vos_head"
        }
        parts |= {split: counts.inputs for split, counts in run.counts.items()}
        parts["evaluation"] = run.evaluation.model_dump(mode="json", include={"settings"})[
            "settings"
        ]
    rows = (
        {"Part": part, "Name": key, "Value": documented.word(v)}
        for part, named in parts.items()
        for key, v in named.items()
    )
    return Listing.of(f"{run.full_title}: inputs of the evaluation.", rows)

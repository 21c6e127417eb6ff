"""The page of a detector on a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from farther.evaluation.results import Interval
from farther.metrics.catalogue import METRICS, Metric
from farther.report import documented, linked_table, metric_groups, problems, subsets, tables
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts import curves, error_budget
from farther.report.charts import results as charts
from farther.report.charts import vega as vl
from farther.report.confusion import Confusion
from farther.report.gallery.accepted import DecidedImages, decided_images
from farther.report.gallery.examples import ReadImages, choose_examples
from farther.report.gallery.outcomes import SplitOutcomes
from farther.report.links import GalleryLinks
from farther.report.listing import Listing, percent
from farther.report.outcomes import alarms_in_words, alarms_of_source
from farther.report.pages import classes, comparisons, self_awareness, wilderness
from farther.report.results import Run
from farther.report.settings import ReportSettings

#: Sections of the page.
SECTIONS = {
    "unknown": "Outcomes",
    "confusion": "Confusion",
    "subsets": "Subsets",
    "results": "Results",
    "further": "Further metrics",
    "error-budget": "Error budget",
    "charts": "Charts",
    "wilderness": "Images without known objects",
    "self-awareness": "Self-awareness",
    "classes": "Classes by similarity",
    "examples": "Examples",
    "run": "Detector and run",
    "thresholds": "Thresholds and parameters",
    "inputs": "Inputs",
}

#: Most example images of a page, but one per split.
MOST_EXAMPLES = 60

#: Points of a ROC or precision–recall curve.
CURVE_POINTS = 80

#: Heading → metric of the detector, and its name among the intervals of the evaluation.
DETECTOR_QUALITY = {"mAP50 (%)": "map50", "mAP (%)": "map"}
CLASSIFIER_QUALITY = {
    "Accuracy (%)": "accuracy",
    "Top-5 accuracy (%)": "accuracy_top5",
    "ECE (%)": "ece",
}


def content(
    run: Run, outcomes: Mapping[str, SplitOutcomes], results: AllResults, images: ReadImages
) -> dict[str, Any]:
    """Variables of the template `detector.html`.

    Args:
        run: The run.
        outcomes: Split → its outcomes; {} where they are not on this machine.
        results: The results of this run; see `AllResults.of_run`.
        images: Reads the images of the examples.
    """
    variables: dict[str, Any] = {
        "run": run,
        "quality": _quality(run),
        "classifier": comparisons.classifiers([run]),
        "not_applicable": not_applicable([run]),
    }
    if not run.is_evaluated:
        return variables
    method = results.shown_method(run)
    note = documented.note_on(run)
    unknown = _unknown_objects(run, method, results)
    variables |= {
        "tables": [*tables.run_tables(run), *metric_groups.cost_tables(run.name, [run])],
        "notes": [note] if note else [],
        "further": list(metric_groups.further_tables(run)),
        "parts": list(metric_groups.parts(run, method)),
        **unknown,
        "outcome_sentences": results.distances.outcome_sentences(run, method),
        "alarms": _alarms(run),
        "recall": _diagnosis_recall(run),
        "budget_known": error_budget.known(run),
        "budget_unknown": error_budget.unknown(run, method),
        "budget": error_budget.listing(run, method),
        "methods": charts.methods(run),
        **_curves(run, results),
        "examples": _examples(run, method, outcomes, results.settings, images),
        "shown_method": run.label(method),
        "has_gallery": bool(results.settings.gallery.images),
        "thresholds": _parameters(run),
        "inputs": _inputs(run),
        "unusable": problems.unusable_images(results.artifacts, {"datasets": {}}, [run.name]),
        "method_pages": results.method_pages("../", [run]),
        "wilderness_section": wilderness.of_run(run),
        "aware": self_awareness.of_run(run, _decided_images(run, results, images)),
        "classes": classes.of_run(run),
    }
    variables["contents"] = _contents(variables)
    return {name: _with_run(value, run) for name, value in variables.items()}


def _with_run(value: Any, run: Run) -> Any:
    """A variable of the template; its charts with the run that they are of."""
    if isinstance(value, vl.ChartGroup):
        return vl.of_run(value, run.name, run.full_title)
    if isinstance(value, vl.Chart):
        return vl.chart_of_run(value, run.name, run.full_title)
    if isinstance(value, dict) and isinstance(value.get("charts"), list):  # a section of the page
        return {**value, "charts": [_with_run(group, run) for group in value["charts"]]}
    return value


def _contents(variables: Mapping[str, Any]) -> dict[str, str]:
    """Anchor of each section that the page has → its title."""
    has_content = {
        "unknown": variables["outcomes"].charts,
        "confusion": variables["confusion"],
        "subsets": variables["subsets"],
        "error-budget": variables["budget"],
        "wilderness": variables["wilderness_section"],
        "self-awareness": variables["aware"],
        "classes": variables["classes"],
        "examples": variables["examples"],
    }
    return {anchor: title for anchor, title in SECTIONS.items() if has_content.get(anchor, True)}


def _decided_images(run: Run, results: AllResults, images: ReadImages) -> list[DecidedImages]:
    """Images that the self-aware detector accepts and rejects; [] where the report has none."""
    if not results.settings.examples:
        return []
    return decided_images(run, results.artifacts, images)


def _unknown_objects(run: Run, method: str, results: AllResults) -> dict[str, Any]:
    """Charts of the outcomes of unknown objects, and the confusion of all objects."""
    links = GalleryLinks.of(run, results, "../")
    categories = results.settings.categories
    outcomes = charts.outcomes(run, method, links)
    confusion = Confusion.of(run, method)
    return {
        "outcomes": outcomes,
        "outcome_tables": linked_table.of_outcome_charts(outcomes),
        "subsets": subsets.tables(run, method, links),
        "confusion": confusion.table(links, run.id_split or "", categories),
        "confusion_of_known": charts.confusion_at_recall(run, categories, of_known=True),
        "confusion_of_unknown": charts.confusion_at_recall(run, categories, of_known=False),
    }


def _alarms(run: Run) -> str:
    """The rate of false alarms of a run's proposals, in words; "" without proposals."""
    alarms = alarms_of_source(run)
    if alarms is None:
        return ""
    return alarms_in_words([alarms])


def _diagnosis_recall(run: Run) -> str:
    """Recall of the confusion of known classes, in per cent."""
    recall = 0.0
    if run.description is not None:
        recall = run.description.wilderness.diagnosis_recall
    return f"{100 * recall:g}"


def _curves(run: Run, results: AllResults) -> dict[str, Any]:
    """Charts of curves, of the methods with the highest mean AUROC."""
    methods = run.ranked("auroc")[: results.settings.curves]
    run_curves = curves.RunCurves(run, results.plots(run), methods)
    return {
        "roc": run_curves.curves("roc", CURVE_POINTS),
        "pr": run_curves.curves("pr", CURVE_POINTS),
        "tau": run_curves.sweep("tau"),
        "confidence": run_curves.sweep("confidence"),
        "no_detection": run_curves.no_detection(),
        "wilderness": run_curves.wilderness(),
        "reliability": run_curves.reliability(),
    }


def _examples(
    run: Run,
    method: str,
    outcomes: Mapping[str, SplitOutcomes],
    settings: ReportSettings,
    images: ReadImages,
) -> dict[str, Any]:
    """Split title → example images; {} where the report has none."""
    if not settings.examples:
        return {}
    count = min(settings.examples, max(1, MOST_EXAMPLES // len(run.splits)))
    by_split = {}
    for split in run.splits:
        if split.name in outcomes:
            by_split[split.title] = choose_examples(
                outcomes[split.name], method, images, count, settings.image_side
            )
    return by_split


def _quality(run: Run) -> Listing:
    """Quality of a detector on the ID test set: a table of one row."""
    metrics = CLASSIFIER_QUALITY if run.whole_images else DETECTOR_QUALITY
    row: dict[str, Any] = {}
    for title, name in metrics.items():
        row[title] = percent(run.detector.get(name), _quality_interval(run, METRICS[name]))
    row["t*"] = run.detector.get("threshold")
    numbers = list(row)
    row["Images"] = run.id_images or None
    row.update(run.without_detection)
    caption = (
        "Quality on the ID test set with 95% intervals, operating threshold t*, and the share of "
        "images without a detection above it."
    )
    return Listing.from_rows(caption, [row], numbers)


def _quality_interval(run: Run, metric: Metric) -> Interval:
    """95% interval of a metric of a detector itself; None where it has none."""
    results = run.results.table.values(metric.group, split=run.id_split or "")
    return results[metric.key].interval if metric.key in results else None


def _parameters(run: Run) -> Listing:
    """Parameters of each method of a run and its threshold τ: one row per method."""
    rows = []
    for method in run.methods:
        row = {
            "Method": run.label(method),
            "Family": run.family(method),
            "Reads": ", ".join(run.fitted(method).needs),
            **documented.parameters(run, method),
        }
        rows.append(row)
    caption = f"{run.full_title}: methods, their parameters and thresholds."
    return Listing.from_rows(caption, rows, numbers=["τ"])


def _inputs(run: Run) -> Listing:
    """Inputs of a run's evaluation: hashes of tables, settings, and the detector's identity."""
    rows = []
    for part, values in _input_parts(run):
        for name, value in values.items():
            rows.append({"Part": part, "Name": name, "Value": documented.word(value)})
    return Listing.from_rows(f"{run.full_title}: inputs of the evaluation.", rows)


def _input_parts(run: Run) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The detector, each split and the settings of a run's evaluation, with their values."""
    if run.description is None:
        return
    detector = dict(run.description.detector)
    detector.pop("vos_head", None)
    yield "detector", detector
    yield from run.description.inputs.items()
    yield "evaluation", run.description.model_dump(mode="json", include={"settings"})["settings"]

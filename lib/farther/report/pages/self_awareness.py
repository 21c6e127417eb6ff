"""Sections on self-awareness of the pages of detectors, and of their comparison (SAOD).

They show which images a detector accepts, and how calibrated it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from farther.evaluation.long_table import Result, Results
from farther.evaluation.results import Reliability, SelfAwareDrawings
from farther.report.charts.vega import Axis, ChartGroup, line_group, series
from farther.report.gallery.accepted import DecidedImages
from farther.report.listing import Listing, interval_text, percent, percent_range, with_and
from farther.report.per_run import per_run
from farther.report.results import Run

#: Heading of each metric, and of the same on shifted images.
SUMMARY = {
    "daq": "DAQ (%)",
    "balanced_accuracy": "BA (%)",
    "idq": "IDQ (%)",
    "laece": "LaECE (%)",
    "lrp": "LRP (%)",
    "idq_t": "IDQ_T (%)",
    "laece_t": "LaECE_T (%)",
    "lrp_t": "LRP_T (%)",
}

#: Metrics with 95% intervals.
WITH_INTERVALS = ("daq", "balanced_accuracy", "idq", "idq_t")

#: Headings of the errors of a class.
CLASS_ERRORS = {
    "lrp": "LRP (%)",
    "lrp_loc": "LRP_Loc (%)",
    "lrp_fp": "LRP_FP (%)",
    "lrp_fn": "LRP_FN (%)",
    "laece": "LaECE (%)",
}

#: Calibrators in the legend of Figure A.14.
CALIBRATED = {"none": "uncalibrated"}

#: Sweeps of Figure A.15: their name, what changes, and the axis.
SWEEPS = (
    ("image_threshold", "image threshold", "largest uncertainty of an accepted image"),
    ("confidence", "confidence threshold", "confidence threshold of all classes"),
)

#: Lines of Figure A.15.
SWEPT = {
    "daq": "DAQ",
    "balanced_accuracy": "BA",
    "lrp": "LRP",
    "laece": "LaECE",
    "lrp_t": "LRP_T",
    "laece_t": "LaECE_T",
}

#: Lines of Figure A.13.
BY_IOU = {"lrp": "LRP", "laece": "LaECE, calibrated", "laece_before": "LaECE"}

#: The line of a calibrated detector in reliability diagrams.
DIAGONAL = ((0, 0), (1, 1))


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of the section of the comparison: tables of all runs.

    Args:
        runs: The evaluated runs.
    """
    measured = [run for run in runs if _whole(run)]
    overview = (
        "DAQ is the harmonic mean of BA (acceptance of ID and rejection of OOD images), IDQ "
        "(accuracy and calibration on ID test images) and IDQ_T (the same on shifted images); "
        "LaECE and LRP are errors (SAOD, Table 6)."
    )
    intervals = "95% intervals, bootstrap over images."
    return {
        "message": first_sentence([_whole(run) for run in measured]),
        "overview": per_run(overview, measured, _summary),
        "intervals": per_run(intervals, measured, _intervals),
    }


def _whole(run: Run) -> Results:
    """Metrics of a run in all images together; {} where it is not evaluated."""
    return run.results.table.values("self_awareness")


def _summary(run: Run) -> Iterator[dict[str, Any]]:
    values = _whole(run)
    yield {title: values.get(name, Result(None)).value for name, title in SUMMARY.items()}


def of_run(run: Run, examples: Sequence[DecidedImages]) -> dict[str, Any] | None:
    """Variables of the section of a detector's page; None where its details are absent.

    Args:
        run: The run.
        examples: Accepted and rejected images.
    """
    if run.description is None:
        return None
    drawings = run.description.self_awareness
    return {
        **content([run]),
        "images": _images(run, drawings),
        "classes": _classes(run),
        "charts": [group for group in _charts(run, drawings) if group.charts],
        "examples": examples,
    }


#: Values of the message → what they say.
ANSWERS = {
    "tpr": "{} of the ID test images are accepted",
    "tnr": "{} of the OOD images are rejected",
    "laece": "calibrated confidences are off by {} on ID images (LaECE)",
    "laece_t": "by {} on shifted ones",
}


def first_sentence(results: Sequence[Results]) -> str:
    """Which images are accepted, and how far confidences are off: ranges over the runs.

    "" where nothing is evaluated.

    Args:
        results: Metrics of each run.
    """
    clauses = []
    for name, clause in ANSWERS.items():
        defined = []
        for values in results:
            value = values[name].value if name in values else None
            if value is not None:
                defined.append(value)
        if defined:
            clauses.append(clause.format(percent_range(defined)))
    if not clauses:
        return ""
    if len(results) == 1:
        return f"{with_and(clauses)}."
    return f"Over {len(results)} runs, {with_and(clauses)}."


def _intervals(run: Run) -> Iterator[dict[str, Any]]:
    """Cells with the intervals of a run; none without replicates."""
    values = _whole(run)
    if any(result.interval for result in values.values()):
        cells = {}
        for name in WITH_INTERVALS:
            cells[SUMMARY[name]] = interval_text(values.get(name, Result(None)).interval)
        yield cells


def _images(run: Run, drawings: SelfAwareDrawings) -> Listing:
    """Accepted and rejected images of each split, and the quality of the accepted ones."""
    rows = []
    for name, images in drawings.images.items():
        accepted = _accepted(run, name)
        count = accepted["images"].value
        rejected = None
        if count:
            rejected = (accepted["rejected_images"].value or 0) / count
        row = {
            "Images": name,
            "Severity": images.severity,
            "Number": count,
            "Rejected (%)": rejected,
            "AUROC against OOD (%)": accepted["auroc"].value,
        }
        for metric in ("idq", "laece", "lrp"):
            row[SUMMARY[metric]] = accepted.get(metric, Result(None)).value
        rows.append(row)
    caption = (
        "Clean, shifted and OOD images: how many are rejected, and the detections in the others."
    )
    return Listing.from_rows(caption, rows)


def _accepted(run: Run, split: str) -> Results:
    """What the self-aware detector accepts of a split, and metrics of the detections in it."""
    part = "accepted=by uncertainty"
    return run.results.table.values("self_awareness", split=split, part=part)


def _classes(run: Run) -> Listing:
    """Confidence thresholds and errors of each class."""
    rows = []
    for name, values in run.results.table.by_part("self_awareness", "class").items():
        row = {
            "Class": name,
            "Threshold": values["threshold"].value,
            "Best on test": values["best_on_test"].value,
            "Objects": values["objects"].value,
            "Detections": values["detections"].value,
        }
        for error, title in CLASS_ERRORS.items():
            row[title] = values[error].value
        rows.append(row)
    caption = "Classes: LRP-optimal threshold of validation, and of the test images (Figure A.16)."
    return Listing.from_rows(caption, rows)


def _charts(run: Run, drawings: SelfAwareDrawings) -> Iterator[ChartGroup]:
    """Line charts after Figures 2, 4, A.14, A.15 and A.13."""
    yield _uncertainty_charts(drawings)
    yield _calibration_charts(drawings)
    yield from _reliability_charts(run, drawings)
    for name, threshold, axis in SWEEPS:
        yield line_group(
            f"Metrics by {threshold} (Figure A.15)",
            "DAQ and BA, and the errors LRP and LaECE on ID test images and on shifted ones, "
            f"by {threshold}.",
            _lines(drawings.sweeps[name], name, SWEPT),
            Axis(axis, domain=None),
            Axis("metric"),
        )
    yield line_group(
        "Sensitivity to τ (Figure A.13)",
        "LRP and LaECE by the IoU of a true positive; thresholds stay, calibrators are fitted at "
        "each.",
        _lines(drawings.ious, "iou", BY_IOU),
        Axis("IoU of a true positive", domain=None),
        Axis("error"),
    )


def _uncertainty_charts(drawings: SelfAwareDrawings) -> ChartGroup:
    """Image uncertainty of each split, and AP of the ID and shifted images, by bins."""
    bins: dict[str, Sequence[float | None]] = {}
    for name, images in drawings.images.items():
        bins[name] = images.histogram
    bins["AP of ID and shifted"] = drawings.map_by_uncertainty

    points = {}
    for name, values in bins.items():
        points[name] = [((n + 0.5) / len(values), value) for n, value in enumerate(values)]
    return line_group(
        "Image uncertainty",
        "Share of the images in each bin of uncertainty, "
        "and AP of the ID and shifted images in it.",
        series(points),
        Axis("uncertainty", domain=None),
        Axis("share of images; AP"),
    )


def _calibration_charts(drawings: SelfAwareDrawings) -> ChartGroup:
    """Reliability before and after calibration."""
    points = {
        "before calibration": _reliability_points(drawings.reliability_before),
        "after calibration": _reliability_points(drawings.reliability),
        "calibrated": DIAGONAL,
    }
    return line_group(
        "Reliability (Figure 4)",
        "Precision × mean IoU by confidence on ID test images, before and after calibration.",
        series(points),
        Axis("confidence", domain=None),
        Axis("precision × mean IoU"),
    )


def _reliability_points(
    reliability: Reliability,
) -> Iterable[tuple[float | None, float | None]]:
    """Confidence and performance of each bin of a reliability diagram."""
    return zip(reliability.confidence, reliability.performance, strict=True)


def _reliability_charts(run: Run, drawings: SelfAwareDrawings) -> Iterator[ChartGroup]:
    """Reliability by calibrator.

    One chart of the ID validation images, which calibrators are fitted on, and one of the ID test
    images.
    """
    for split, diagrams in drawings.reliabilities.items():
        errors = run.results.table.by_part("self_awareness", "calibrator", split=split)
        points: dict[str, Iterable[tuple[float | None, float | None]]] = {}
        for kind, diagram in diagrams.items():
            laece = errors[kind]["laece"].value
            name = f"{CALIBRATED.get(kind, kind)}, LaECE {percent(laece)}"
            points[name] = _reliability_points(diagram)
        points["calibrated"] = DIAGONAL
        yield line_group(
            f"Reliability by calibrator, split {split} (Figure A.14)",
            f"Precision × mean IoU by confidence in split {split}, by calibrator; LaECE in per "
            "cent. No image is rejected.",
            series(points),
            Axis("confidence", domain=None),
            Axis("precision × mean IoU"),
        )


def _lines(rows: Sequence[Mapping[str, Any]], x: str, titles: Mapping[str, str]) -> pl.DataFrame:
    """One line per titled column of rows.

    Args:
        rows: The points.
        x: Column of the x axis.
        titles: Column of the y axis → title of its line.
    """
    lines = {}
    for column, title in titles.items():
        lines[title] = [(row[x], row[column]) for row in rows]
    return series(lines)

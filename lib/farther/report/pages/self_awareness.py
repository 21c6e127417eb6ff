"""The page of self-awareness: which images the runs accept, and how calibrated they are (SAOD)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from farther.evaluation.results import SelfAwarenessResults
from farther.report.all_results import AllResults
from farther.report.charts.vega import Axis, ChartGroup, line_group, series
from farther.report.gallery.accepted import DecidedImages, decided_images
from farther.report.listing import Listing, between, percent
from farther.report.papers.saod import values_of
from farther.report.papers.table import per_run
from farther.report.results import Run
from farther.report.site import Site

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


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    examples: dict[str, list[DecidedImages]] = {}
    if results.settings.examples:
        for run in results.evaluated:
            examples[run.name] = decided_images(run, results.artifacts, results.roots)
    site.write("self_awareness.html", **content(results.evaluated, examples))


def content(runs: Sequence[Run], examples: Mapping[str, Sequence[DecidedImages]]) -> dict[str, Any]:
    """Variables of the template `self_awareness.html`: tables of all runs, charts and examples of each.

    Args:
        runs: The evaluated runs.
        examples: Run → its examples; those of a run may be absent.
    """
    found = [(run, run.evaluation.self_awareness) for run in runs if run.evaluation]
    overview = (
        "DAQ is the harmonic mean of BA (acceptance of ID and rejection of OOD images), IDQ (accuracy and calibration "
        "on ID test images) and IDQ_T (the same on shifted images); LaECE and LRP are errors (SAOD, Table 6)."
    )
    sections = {f"run-{number}": run.full_title for number, (run, _) in enumerate(found, start=1)}
    return {
        "overview": per_run(overview, found, partial(values_of, heads=SUMMARY), first="Detector"),
        "intervals": per_run(
            "95% intervals, by drawing images.", found, _intervals, first="Detector"
        ),
        "runs": {
            run.full_title: {
                "images": _images(aware),
                "classes": _classes(aware),
                "charts": [group for group in _charts(aware) if group.charts],
                "examples": examples.get(run.name, ()),
            }
            for run, aware in found
        },
        "contents": {"images": "Accepting images", **sections},
    }


def _intervals(run: Run, aware: SelfAwarenessResults) -> Iterator[dict[str, Any]]:
    if within := aware.intervals:
        yield {
            SUMMARY[part]: between(within.get(part))
            for part in ("daq", "balanced_accuracy", "idq", "idq_t")
        }


def _images(aware: SelfAwarenessResults) -> Listing:
    rows = [
        {
            "Images": name,
            "Severity": accepted.severity,
            "Number": accepted.images,
            "Rejected (%)": accepted.rejected_images / accepted.images if accepted.images else None,
            "AUROC against OOD (%)": accepted.auroc,
            **{SUMMARY[part]: accepted.metrics.get(part) for part in ("idq", "laece", "lrp")},
        }
        for name, accepted in aware.images.items()
    ]
    return Listing.of(
        "Clean, shifted and OOD images: how many are rejected, and the detections in the others.",
        rows,
    )


def _classes(aware: SelfAwarenessResults) -> Listing:
    chosen, best = aware.detector.confidence_thresholds, aware.thresholds_on_test
    titles = {
        "lrp": "LRP (%)",
        "lrp_loc": "LRP_Loc (%)",
        "lrp_fp": "LRP_FP (%)",
        "lrp_fn": "LRP_FN (%)",
        "laece": "LaECE (%)",
    }
    rows = [
        {
            "Class": name,
            "Threshold": chosen.get(name),
            "Best on test": best.get(name),
            "Objects": values["objects"],
            "Detections": values["detections"],
            **{title: values[part] for part, title in titles.items()},
        }
        for name, values in aware.per_class.items()
    ]
    return Listing.of(
        "Classes: LRP-optimal threshold of validation, and of the test images (Figure A.16).", rows
    )


def _charts(aware: SelfAwarenessResults) -> Iterator[ChartGroup]:
    """Line charts after Figures 2, 4, A.14, A.15 and A.13."""
    bins: dict[str, Sequence[float | None]] = {
        name: of.histogram for name, of in aware.images.items()
    }
    bins["AP of ID and shifted"] = aware.map_by_uncertainty
    yield line_group(
        "Image uncertainty",
        "Share of the images in each bin of uncertainty, and AP of the ID and shifted images in it.",
        series(
            {
                name: [((n + 0.5) / len(y), value) for n, value in enumerate(y)]
                for name, y in bins.items()
            }
        ),
        Axis("uncertainty", domain=None),
        Axis("share of images; AP"),
    )
    parts = {"before calibration": aware.reliability_before, "after calibration": aware.reliability}
    points = {title: zip(of.confidence, of.performance, strict=True) for title, of in parts.items()}
    yield line_group(
        "Reliability (Figure 4)",
        "Precision × mean IoU by confidence on ID test images, before and after calibration.",
        series({**points, "calibrated": [(0, 0), (1, 1)]}),
        Axis("confidence", domain=None),
        Axis("precision × mean IoU"),
    )
    yield from _reliabilities(aware)
    for kind, threshold, axis in SWEEPS:
        yield line_group(
            f"Metrics by {threshold} (Figure A.15)",
            f"DAQ and BA, and the errors LRP and LaECE on ID test images and on shifted ones, by {threshold}.",
            _columns(aware.sweeps[kind], kind, SWEPT),
            Axis(axis, domain=None),
            Axis("metric"),
        )
    yield line_group(
        "Sensitivity to τ (Figure A.13)",
        "LRP and LaECE by the IoU of a true positive; thresholds and calibrators stay.",
        _columns(
            aware.ious, "iou", {"lrp": "LRP", "laece": "LaECE, calibrated", "laece_before": "LaECE"}
        ),
        Axis("IoU of a true positive", domain=None),
        Axis("error"),
    )


def _reliabilities(aware: SelfAwarenessResults) -> Iterator[ChartGroup]:
    """A chart of the ID validation images, from which calibrators are learnt, and one of the ID test images."""
    for split, diagrams in aware.reliabilities.items():
        points: dict[str, Iterable[tuple[float | None, float | None]]] = {}
        for kind, diagram in diagrams.items():
            name = f"{CALIBRATED.get(kind, kind)}, LaECE {percent(diagram.laece)}"
            points[name] = zip(diagram.confidence, diagram.performance, strict=True)
        points["calibrated"] = [(0, 0), (1, 1)]
        yield line_group(
            f"Reliability by calibrator, split {split} (Figure A.14)",
            f"Precision × mean IoU by confidence in split {split}, by calibrator; LaECE in per cent. No image is "
            "rejected.",
            series(points),
            Axis("confidence", domain=None),
            Axis("precision × mean IoU"),
        )


def _columns(rows: Sequence[Mapping[str, Any]], x: str, titles: Mapping[str, str]) -> pl.DataFrame:
    """A line for each titled column of rows, over another one."""
    return series({title: [(row[x], row[part]) for row in rows] for part, title in titles.items()})

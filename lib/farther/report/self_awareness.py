"""The page of self-awareness: which images the runs accept, and how calibrated they are (SAOD)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farther.evaluation.results import SelfAwarenessResults
from farther.report.charts.vega import Axis, ChartGroup, line_group, series
from farther.report.listing import Listing, between
from farther.report.overview import IMAGES, images
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


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of the template `self_awareness.html`: tables of all runs, and charts of each."""
    found = {run.full_title: run.evaluation.self_awareness for run in runs if run.evaluation}
    counts = {run.full_title: {IMAGES: images(run)} for run in runs}
    return {
        "overview": overview(found, counts),
        "intervals": _intervals(found, counts),
        "runs": {name: _of_run(values) for name, values in found.items()},
        "contents": {"images": "Accepting images", **{f"run-{n}": name for n, name in enumerate(found, start=1)}},
    }


def overview(found: Mapping[str, SelfAwarenessResults], counts: Mapping[str, Mapping[str, str]]) -> Listing | None:
    """DAQ and its parts, one row per run (SAOD, Table 6).

    Args:
        found: Run → its self-awareness.
        counts: Run → further columns.
    """
    rows = [
        {"Detector": name, **{title: aware.values.get(part) for part, title in SUMMARY.items()}, **counts[name]}
        for name, aware in found.items()
    ]
    return _listing(
        "DAQ is the harmonic mean of BA (acceptance of ID and rejection of OOD images), IDQ (accuracy and calibration "
        "on ID test images) and IDQ_T (the same on shifted images); LaECE and LRP are errors (SAOD, Table 6).",
        rows,
    )


def _intervals(found: Mapping[str, SelfAwarenessResults], counts: Mapping[str, Mapping[str, str]]) -> Listing | None:
    titles = {part: SUMMARY[part] for part in ("daq", "balanced_accuracy", "idq", "idq_t")}
    rows = [
        {
            "Detector": name,
            **{title: between(aware.intervals.get(part)) for part, title in titles.items()},
            **counts[name],
        }
        for name, aware in found.items()
        if aware.intervals
    ]
    return _listing("95% intervals, by drawing images.", rows)


def _of_run(aware: SelfAwarenessResults) -> dict[str, Any]:
    return {
        "images": _images(aware),
        "classes": _classes(aware),
        "charts": [group for group in _charts(aware) if group.charts],
    }


def _charts(aware: SelfAwarenessResults) -> Iterator[ChartGroup]:
    yield _uncertainty(aware)
    yield _reliability(aware)
    yield from _sweeps(aware)
    yield _ious(aware)


def _images(aware: SelfAwarenessResults) -> Listing | None:
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
    return _listing("Clean, shifted and OOD images: how many are rejected, and the detections in the others.", rows)


def _classes(aware: SelfAwarenessResults) -> Listing | None:
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
    return _listing("Classes: LRP-optimal threshold of validation, and of the test images (Figure A.16).", rows)


def _uncertainty(aware: SelfAwarenessResults) -> ChartGroup:
    """Histograms of image uncertainty, and AP of ID and shifted images by it (Figure 2)."""
    bins: dict[str, Sequence[float | None]] = {name: of.histogram for name, of in aware.images.items()}
    bins["AP of ID and shifted"] = aware.map_by_uncertainty
    points = {name: [((n + 0.5) / len(y), value) for n, value in enumerate(y)] for name, y in bins.items()}
    words = "Share of the images in each bin of uncertainty, and AP of the ID and shifted images in it."
    return _chart("Image uncertainty", words, points, "uncertainty", "share of images; AP")


def _reliability(aware: SelfAwarenessResults) -> ChartGroup:
    points = {
        title: list(zip(bins.confidence, bins.performance, strict=True))
        for bins, title in (
            (aware.reliability_before, "before calibration"),
            (aware.reliability, "after calibration"),
        )
    }
    points["calibrated"] = [(0.0, 0.0), (1.0, 1.0)]
    words = "Precision × mean IoU by confidence on ID test images, before and after calibration."
    return _chart("Reliability (Figure 4)", words, points, "confidence", "precision × mean IoU")


def _sweeps(aware: SelfAwarenessResults) -> Iterator[ChartGroup]:
    titles = {"daq": "DAQ", "balanced_accuracy": "BA", "idq": "IDQ", "idq_t": "IDQ_T"}
    for kind, column, axis in (
        ("image_threshold", "kept", "ID validation images accepted"),
        ("confidence", "confidence", "confidence threshold of all classes"),
    ):
        points = {t: [(row[column], row[part]) for row in aware.sweeps[kind]] for part, t in titles.items()}
        yield _chart(f"DAQ by {axis} (Figure A.15)", f"DAQ and its parts by {axis}.", points, axis, "quality")


def _ious(aware: SelfAwarenessResults) -> ChartGroup:
    titles = {"lrp": "LRP", "laece": "LaECE, calibrated", "laece_before": "LaECE"}
    points = {title: [(row["iou"], row[part]) for row in aware.ious] for part, title in titles.items()}
    words = "LRP and LaECE by the IoU of a true positive; thresholds and calibrators stay."
    return _chart("Sensitivity to τ (Figure A.13)", words, points, "IoU of a true positive", "error")


def _chart(
    title: str, words: str, points: Mapping[str, Sequence[tuple[float | None, float | None]]], x: str, y: str
) -> ChartGroup:
    return line_group(title, words, series(points), Axis(x, domain=None), Axis(y))


def _listing(caption: str, rows: Sequence[Mapping[str, Any]]) -> Listing | None:
    return Listing.of(caption, rows) if rows else None

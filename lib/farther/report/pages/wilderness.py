"""The page of wilderness: what images without known objects cost a detector (Dhamija et al., 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from farther.evaluation.results import Interval, WildernessResults
from farther.metrics.wilderness.background_probability import BINS
from farther.report.all_results import AllResults
from farther.report.charts import curves
from farther.report.charts import vega as vl
from farther.report.listing import between, percent
from farther.report.papers.table import per_run
from farther.report.results import Run
from farther.report.site import Site

#: Legend of the causes of errors: key in an evaluation → name, in the order in which they are
#: stacked.
CAUSES = {
    "unknown_unknown": vl.Key("unknown object", "#D55E00", "■"),
    "mixed_unknown": vl.Key("nothing labelled (OOD image)", "#E69F00", "■"),
    "background": vl.Key("nothing labelled (ID image)", "#F0E442", "■"),
    "other_class": vl.Key("other class", "#CC79A7", "■"),
    "similar": vl.Key("similar class", "#0072B2", "■"),
    "localisation": vl.Key("localisation", "#56B4E9", "■"),
}

#: Two thresholds, and two kinds of objects, in line charts.
THRESHOLDS = ("thresholds chosen at each ratio", "thresholds chosen without OOD images")
SIDES = ("known objects, detected correctly", "unknown objects")

#: The recall and the β that the overview and the charts show.
RECALL = 0.3
BETA = "1"


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write(
        "wilderness.html",
        **content(results.evaluated, {run.name: results.plots(run) for run in results.evaluated}),
    )


def content(runs: Sequence[Run], plots: Mapping[str, Path]) -> dict[str, Any]:
    """Variables of the template `wilderness.html`: tables of all runs, and charts of each.

    Args:
        runs: All evaluated runs; classifiers, whose images have one region each, are left out.
        plots: The folder of the plot files of each run.
    """
    pairs = [
        (run, run.evaluation.wilderness) for run in runs if run.evaluation and not run.whole_images
    ]
    found = {run.full_title: wild for run, wild in pairs}
    folders: dict[str, dict[str, Path]] = {}
    for run, _ in pairs:
        folders.setdefault(run.benchmark_title, {})[run.full_title] = plots[run.name]
    overview = (
        "Open: with one OOD image per ID image (wilderness ratio 1). WI: wilderness impact, averaged over ratios. "
        "Unknown objects: share of the detections at recall 0.3 and ratio 1, with 95% interval. F1 lost: at ratio 1, "
        "by thresholds chosen without OOD images and by new ones. Rejected: detections whose class is less probable "
        "than the background."
    )
    return {
        "message": _message(found),
        "overview": per_run(overview, pairs, _overview, ["Unknown objects (%)"], first="Detector"),
        "impact": {name: curves.wilderness_of(of, f"{RECALL:g}") for name, of in folders.items()},
        "runs": {name: _of_run(name, wild) for name, wild in found.items()},
        "recall": f"{100 * RECALL:g}",
        "contents": {
            "impact": "Wilderness impact",
            **{f"run-{n}": name for n, name in enumerate(found, start=1)},
        },
    }


def _message(found: Mapping[str, WildernessResults]) -> str:
    """The result in one sentence: ranges over the runs."""
    shares = {name: _share(wild, "unknown_unknown")[0] for name, wild in found.items()}
    unknown = {name: share for name, share in shares.items() if share is not None}
    lost = {name: points for name, wild in found.items() if (points := _lost(wild)) is not None}
    parts = []
    if unknown:
        parts.append(
            f"With one OOD image per ID image, where {100 * RECALL:g}% of the known objects are found, "
            f"{_range(unknown)} per cent of the detections are unknown objects"
        )
    if lost:
        parts.append(f"thresholds chosen without OOD images lose {_range(lost)} points of F1")
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}." if parts else ""


def _range(values: Mapping[str, float]) -> str:
    """The smallest and the largest value in per cent, each with its run; one value where there is one run."""
    if len(values) == 1:
        return percent(next(iter(values.values())))
    ends = dict.fromkeys(of(values, key=values.__getitem__) for of in (min, max))
    return " to ".join(f"{percent(values[name])} [{name}]" for name in ends)


def _share(wild: WildernessResults, cause: str) -> tuple[float | None, Interval]:
    """Share of a cause at `RECALL` and ratio 1, and its interval; None where images or detections do not reach them."""
    errors = wild.errors
    if errors.ratio < 1:
        return None, None
    at = errors.recalls.index(RECALL)
    return errors.shares[cause][at], errors.intervals[cause][at] if errors.intervals else None


def _lost(wild: WildernessResults, then: str = "f_of_closed") -> float | None:
    """F1 lost at wilderness ratio 1 by thresholds chosen without wild images; None where there are fewer.

    Args:
        then: "f" for what thresholds chosen at that ratio lose.
    """
    points = wild.operating_points
    mean = points.betas[BETA].mean
    if mean is None or 1.0 not in points.ratios:
        return None
    return mean["f"][0] - mean[then][points.ratios.index(1.0)]


def _overview(run: Run, wild: WildernessResults) -> Iterator[dict[str, Any]]:
    background = wild.background.values if wild.background else {}
    yield {
        "mAP closed (%)": wild.map_closed,
        "mAP open (%)": wild.map_open,
        **{
            f"WI at recall {at} (%)": of.average_impact for at, of in sorted(wild.at_recall.items())
        },
        "Unknown objects (%)": percent(*_share(wild, "unknown_unknown")),
        "F1 lost (%)": _lost(wild),
        "F1 lost, new thresholds (%)": _lost(wild, "f"),
        "Known rejected (%)": background.get("rejected_known"),
        "Unknown rejected (%)": background.get("rejected_unknown"),
    }


def _of_run(name: str, wild: WildernessResults) -> dict[str, Any]:
    return {
        "charts": [
            group
            for group in (_errors(name, wild), _f1(name, wild), _background(name, wild))
            if group.charts
        ],
        "ratio": f"{wild.errors.ratio:.3g}",
        "similar": wild.errors.similar,
    }


def _errors(name: str, wild: WildernessResults) -> vl.ChartGroup:
    """Causes of errors over recall, as far as all classes reach it (Figures 9 to 11)."""
    errors = wild.errors
    most = max(errors.classes, default=0)
    reached = [n for n, count in enumerate(errors.classes) if count == most > 0]
    used = {
        cause: key for cause, key in CAUSES.items() if any(errors.shares[cause][n] for n in reached)
    }
    rows = []
    for n in reached:
        for order, (cause, key) in enumerate(used.items()):
            interval = errors.intervals[cause][n] if errors.intervals else None
            rows.append(
                {
                    "recall": errors.recalls[n],
                    "cause": key.name,
                    "order": order,
                    "share": round(errors.shares[cause][n] or 0, 4),
                    "interval": between(interval),
                    "detections": errors.detections[n],
                }
            )
    if not rows:
        return vl.ChartGroup()
    at = errors.recalls.index(RECALL)
    words = "; ".join(
        f"{key.name} {percent(errors.shares[cause][at])}%" for cause, key in used.items()
    )
    drawn = vl.chart(
        "Causes of errors by recall",
        f"{name}: causes of wrong detections by recall; the rest up to 100% is correct. At recall {RECALL:g}: {words}.",
        pl.DataFrame(rows),
        vl.layer({"type": "bar", "width": {"band": 0.9}}),
        x=vl.named(
            "recall",
            type="ordinal",
            title="recall of known objects",
            axis={**vl.PERCENT, "labelAngle": 0, "labelOverlap": True},
        ),
        y=vl.number("share", title="share of detections", axis=vl.PERCENT),
        order=vl.number("order"),
        tooltip=vl.tooltip(
            "recall:~%",
            "cause",
            "share:.1%",
            "interval 95% interval (%)",
            "detections: all detections",
        ),
        **vl.by("cause", list(used.values())),
    )
    return vl.ChartGroup(tuple(used.values()), (drawn,))


def _f1(name: str, wild: WildernessResults) -> vl.ChartGroup:
    """Mean F1 over the wilderness ratio of thresholds that are chosen anew and of those that stay (after Table 4)."""
    points = wild.operating_points
    mean = points.betas[BETA].mean
    if mean is None or len(points.ratios) < 2:
        return vl.ChartGroup()
    words = f"{name}: F1, mean over the classes, by the ratio of images without known objects to images with them."
    drawn = {
        title: zip(points.ratios, f, strict=True)
        for title, f in zip(THRESHOLDS, (mean["f"], mean["f_of_closed"]), strict=True)
    }
    axes = vl.Axis(curves.RATIO, "~g", None), vl.Axis("F1", domain=None)
    return vl.line_group("F1 by wilderness ratio", words, vl.series(drawn), *axes)


def _background(name: str, wild: WildernessResults) -> vl.ChartGroup:
    """Distributions of class against background probability (Figure 8), cumulated: their values at 0 are rejected."""
    background = wild.background
    if background is None:
        return vl.ChartGroup()
    words = (
        f"{name}: class probability minus background probability. The background is more probable in "
        f"{percent(background.values['rejected_known'])}% of the correct detections of known objects and "
        f"{percent(background.values['rejected_unknown'])}% of the detections of unknown objects."
    )
    ends = [2 * (n + 1) / BINS - 1 for n in range(BINS)]
    drawn = {
        title: zip(ends, accumulate(margins.histogram), strict=False)
        for title, margins in zip(SIDES, (background.known, background.unknown), strict=True)
    }
    axes = (
        vl.Axis("class − background probability, at most", "~g", (-1, 1)),
        vl.Axis("share of detections"),
    )
    return vl.line_group("Class against background probability", words, vl.series(drawn), *axes)

"""Sections on wilderness of the pages of detectors, and of their comparison.

They show what images without known objects cost a detector (Dhamija et al., 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from farther.evaluation.results import ErrorCauses, Interval, WildernessResults
from farther.metrics.wilderness.background_probability import BINS
from farther.report.charts import curves
from farther.report.charts import vega as vl
from farther.report.listing import Listing, interval_text, percent
from farther.report.per_run import per_run
from farther.report.results import Run

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

#: The recall and the β that the overview and the charts show.
RECALL = 0.3
BETA = "1"


def content(runs: Sequence[Run], plots: Mapping[str, Path]) -> dict[str, Any]:
    """Variables of the section of the comparison: tables and charts of all runs.

    Args:
        runs: All evaluated runs; classifiers, whose images have one region each, are left out.
        plots: The file of the wilderness impact of each run.
    """
    detectors = []
    results_by_title = {}
    for run in runs:
        if run.evaluation and not run.whole_images:
            detectors.append((run, run.evaluation.wilderness))
            results_by_title[run.full_title] = run.evaluation.wilderness
    return {
        "message": _message(results_by_title),
        "overview": _overview(detectors),
        "impact": _impact_charts([run for run, _ in detectors], plots),
        "recall": f"{100 * RECALL:g}",
    }


def of_run(run: Run) -> dict[str, Any] | None:
    """Variables of the section of a detector's page; None for a classifier."""
    if run.evaluation is None or run.whole_images:
        return None
    wild = run.evaluation.wilderness
    groups = [
        _error_charts(run.full_title, wild.errors),
        _f1_charts(run.full_title, wild),
        _background_charts(run.full_title, wild),
    ]
    return {
        "message": _message({run.full_title: wild}),
        "overview": _overview([(run, wild)]),
        "charts": [group for group in groups if group.charts],
        "ratio": f"{wild.errors.ratio:.3g}",
        "similar": wild.errors.similar,
    }


def _overview(detectors: Sequence[tuple[Run, WildernessResults]]) -> Listing:
    """What images without known objects cost each run."""
    caption = (
        "Open: with one OOD image per ID image (wilderness ratio 1). WI: wilderness impact, "
        "averaged over ratios. Unknown objects: share of the detections at recall 0.3 and ratio 1, "
        "with 95% interval. F1 lost: at ratio 1, by thresholds chosen without OOD images and by "
        "new ones. Rejected: detections whose class is less probable than the background."
    )
    return per_run(caption, detectors, _overview_cells, ["Unknown objects (%)"])


def _impact_charts(runs: Sequence[Run], plots: Mapping[str, Path]) -> dict[str, vl.ChartGroup]:
    """Title of each benchmark → wilderness impact of its runs."""
    files_by_benchmark: dict[str, dict[str, Path]] = {}
    for run in runs:
        files = files_by_benchmark.setdefault(run.benchmark_title, {})
        files[run.full_title] = plots[run.name]
    return {
        benchmark: curves.wilderness_by_run(files, f"{RECALL:g}")
        for benchmark, files in files_by_benchmark.items()
    }


def _message(results_by_title: Mapping[str, WildernessResults]) -> str:
    """What images without known objects cost, in two sentences: the largest cost of any run."""
    sentences = [_unknown_objects(results_by_title), _lost_by_thresholds(results_by_title)]
    return " ".join(sentence for sentence in sentences if sentence)


def _unknown_objects(results_by_title: Mapping[str, WildernessResults]) -> str:
    """A sentence on the share of detections that are unknown objects; "" without any."""
    shares = {}
    for title, wild in results_by_title.items():
        share, _ = _share(wild, "unknown_unknown")
        if share is not None:
            shares[title] = share
    if not shares:
        return ""
    worst = max(sorted(shares), key=shares.__getitem__)
    share, interval = _share(results_by_title[worst], "unknown_unknown")
    bracket = f" {interval_text(interval)}" if interval else ""
    return (
        f"With one OOD image per ID image, {percent(share)}%{bracket} of the detections of {worst} "
        f"are unknown objects{_rank(shares, '%')}, at the confidence where {100 * RECALL:g}% of "
        "the known objects are found."
    )


def _lost_by_thresholds(results_by_title: Mapping[str, WildernessResults]) -> str:
    """A sentence on the F1 that thresholds chosen without OOD images lose; "" without any."""
    lost_f1 = {}
    for title, wild in results_by_title.items():
        lost = _lost_f1(wild)
        if lost is not None:
            lost_f1[title] = lost
    if not lost_f1:
        return ""
    worst = max(sorted(lost_f1), key=lost_f1.__getitem__)
    return (
        f"With confidence thresholds that were chosen without OOD images, the F1 of {worst} is "
        f"{percent(lost_f1[worst])} points lower there than on ID images alone{_rank(lost_f1)}."
    )


def _rank(values: Mapping[str, float], unit: str = "") -> str:
    """The number of runs of which a value is the highest, and the lowest one; "" for one run."""
    if len(values) == 1:
        return ""
    lowest = percent(min(values.values()))
    return f" (the highest of {len(values)} runs; the lowest: {lowest}{unit})"


def _share(wild: WildernessResults, cause: str) -> tuple[float | None, Interval]:
    """Share of a cause at `RECALL` and ratio 1, and its interval.

    None where images or detections do not reach them.
    """
    errors = wild.errors
    if errors.ratio < 1:
        return None, None
    position = errors.recalls.index(RECALL)
    return errors.shares[cause][position], _interval(errors, cause, position)


def _interval(errors: ErrorCauses, cause: str, position: int) -> Interval:
    """95% interval of the share of a cause at a recall; None without replicates."""
    if not errors.intervals:
        return None
    return errors.intervals[cause][position]


def _lost_f1(wild: WildernessResults, thresholds: str = "f_of_closed") -> float | None:
    """F1 lost at wilderness ratio 1; None where there are fewer images.

    Args:
        wild: Results of a run.
        thresholds: "f_of_closed" for thresholds chosen without wild images; "f" for those chosen
            at that ratio.
    """
    points = wild.operating_points
    mean = points.betas[BETA].mean
    if mean is None or 1.0 not in points.ratios:
        return None
    return mean["f"][0] - mean[thresholds][points.ratios.index(1.0)]


def _overview_cells(run: Run, wild: WildernessResults) -> Iterator[dict[str, Any]]:
    """Cells of a run in the overview."""
    cells: dict[str, Any] = {"mAP closed (%)": wild.map_closed, "mAP open (%)": wild.map_open}
    for recall, impact in sorted(wild.at_recall.items()):
        cells[f"WI at recall {recall} (%)"] = impact.average_impact
    share, interval = _share(wild, "unknown_unknown")
    cells["Unknown objects (%)"] = percent(share, interval)
    cells["F1 lost (%)"] = _lost_f1(wild)
    cells["F1 lost, new thresholds (%)"] = _lost_f1(wild, "f")
    cells["Known rejected (%)"] = None
    cells["Unknown rejected (%)"] = None
    if wild.background:
        cells["Known rejected (%)"] = wild.background.values.get("rejected_known")
        cells["Unknown rejected (%)"] = wild.background.values.get("rejected_unknown")
    yield cells


def _error_charts(title: str, errors: ErrorCauses) -> vl.ChartGroup:
    """Causes of errors over recall, as far as all classes reach it (Figures 9 to 11)."""
    largest = max(errors.classes, default=0)
    positions = [n for n, classes in enumerate(errors.classes) if classes == largest > 0]
    if not positions:
        return vl.ChartGroup()
    causes = {
        cause: key for cause, key in CAUSES.items() if _occurs(errors.shares[cause], positions)
    }
    if not causes:
        return vl.ChartGroup()
    chart = vl.chart(
        "Causes of errors by recall",
        f"{title}: causes of wrong detections by recall; the rest up to 100% is correct. "
        f"At recall {RECALL:g}: {_shares_in_words(errors, causes)}.",
        pl.DataFrame(list(_error_rows(errors, causes, positions))),
        vl.layer({"type": "bar", "width": {"band": 0.9}}),
        x=vl.nominal(
            "recall",
            type="ordinal",
            title="recall of known objects",
            axis={**vl.PERCENT, "labelAngle": 0, "labelOverlap": True},
        ),
        y=vl.quantitative("share", title="share of detections", axis=vl.PERCENT),
        order=vl.quantitative("order"),
        tooltip=vl.tooltip(
            "recall:~%",
            "cause",
            "share:.1%",
            "interval 95% interval (%)",
            "detections: all detections",
        ),
        **vl.legend_channels("cause", list(causes.values())),
    )
    return vl.ChartGroup(tuple(causes.values()), (chart,))


def _occurs(shares: Sequence[float | None], positions: Sequence[int]) -> bool:
    """True if a cause has a share above zero at any of some recalls."""
    return any(shares[position] for position in positions)


def _error_rows(
    errors: ErrorCauses, causes: Mapping[str, vl.Key], positions: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """One row per recall and cause.

    Args:
        errors: Causes of errors of a run.
        causes: The causes that the chart shows.
        positions: Indices of the recalls that all classes reach.
    """
    for position in positions:
        for order, (cause, key) in enumerate(causes.items()):
            yield {
                "recall": errors.recalls[position],
                "cause": key.name,
                "order": order,
                "share": round(errors.shares[cause][position] or 0, 4),
                "interval": interval_text(_interval(errors, cause, position)),
                "detections": errors.detections[position],
            }


def _shares_in_words(errors: ErrorCauses, causes: Mapping[str, vl.Key]) -> str:
    """Shares of causes at `RECALL`."""
    position = errors.recalls.index(RECALL)
    shares = []
    for cause, key in causes.items():
        shares.append(f"{key.name} {percent(errors.shares[cause][position])}%")
    return "; ".join(shares)


def _f1_charts(title: str, wild: WildernessResults) -> vl.ChartGroup:
    """Mean F1 over the wilderness ratio, of new thresholds and of unchanged ones.

    After Table 4.
    """
    points = wild.operating_points
    mean = points.betas[BETA].mean
    if mean is None or len(points.ratios) < 2:
        return vl.ChartGroup()
    f1_by_thresholds = {
        "thresholds chosen at each ratio": zip(points.ratios, mean["f"], strict=True),
        "thresholds chosen without OOD images": zip(
            points.ratios, mean["f_of_closed"], strict=True
        ),
    }
    return vl.line_group(
        "F1 by wilderness ratio",
        f"{title}: F1, mean over the classes, "
        "by the ratio of images without known objects to images with them.",
        vl.series(f1_by_thresholds),
        vl.Axis(curves.RATIO, "~g", None),
        vl.Axis("F1", domain=None),
    )


def _background_charts(title: str, wild: WildernessResults) -> vl.ChartGroup:
    """Cumulated distributions of class against background probability (Figure 8).

    Their values at 0 are rejected.
    """
    background = wild.background
    if background is None:
        return vl.ChartGroup()
    bin_ends = [2 * (n + 1) / BINS - 1 for n in range(BINS)]
    known = accumulate(background.known.histogram)
    unknown = accumulate(background.unknown.histogram)
    distributions = {
        "known objects, detected correctly": zip(bin_ends, known, strict=False),
        "unknown objects": zip(bin_ends, unknown, strict=False),
    }
    description = (
        f"{title}: class probability minus background probability. "
        f"The background is more probable in {percent(background.values['rejected_known'])}% of "
        "the correct detections of known objects and "
        f"{percent(background.values['rejected_unknown'])}% of the detections of unknown objects."
    )
    return vl.line_group(
        "Class against background probability",
        description,
        vl.series(distributions),
        vl.Axis("class − background probability, at most", "~g", (-1, 1)),
        vl.Axis("share of detections"),
    )

"""Sections on wilderness of the pages of detectors, and of their comparison.

They show what images without known objects cost a detector (Dhamija et al., 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from farther.evaluation.long_table import Result, Results
from farther.evaluation.parts import part_text
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

#: Part of the values of causes of errors in ID and OOD images.
OPEN = {"set": "open"}

#: The recall and the β that the overview and the charts show.
RECALL = 0.3
BETA = "1"


def content(runs: Sequence[Run], plots: Mapping[str, Path]) -> dict[str, Any]:
    """Variables of the section of the comparison: tables and charts of all runs.

    Args:
        runs: All evaluated runs; classifiers, whose images have one region each, are left out.
        plots: The file of the wilderness impact of each run.
    """
    detectors = [run for run in runs if _is_measured(run)]
    return {
        "message": _message(detectors),
        "overview": _overview(detectors),
        "impact": _impact_charts(detectors, plots),
        "recall": f"{100 * RECALL:g}",
    }


def of_run(run: Run) -> dict[str, Any] | None:
    """Variables of the section of a detector's page; None for a classifier."""
    if run.description is None or not _is_measured(run):
        return None
    margins = run.description.wilderness.margins
    groups = [
        _error_charts(run),
        _f1_charts(run),
        _background_charts(run, margins),
    ]
    return {
        "message": _message([run]),
        "overview": _overview([run]),
        "charts": [group for group in groups if group.charts],
        "ratio": f"{_error_ratio(run):.3g}",
        "similar": run.description.wilderness.similar,
    }


def _is_measured(run: Run) -> bool:
    """Whether a run is a detector of objects whose wilderness is on this machine."""
    return bool(_whole(run)) and not run.whole_images


def _whole(run: Run) -> Results:
    """Metrics of a run in all images together."""
    return run.results.table.values("wilderness")


def _by_recall(run: Run) -> dict[float, Results]:
    """Recall → detections, share of each cause, and number of classes that reach it."""
    table = run.results.table
    classes = table.by_part("wilderness", "recall", within=OPEN)
    causes: dict[float, Results] = {}
    for recall, shares in table.by_part("wilderness_errors", "recall", within=OPEN).items():
        causes[float(recall)] = {**shares, **classes[recall]}
    return causes


def _error_ratio(run: Run) -> float:
    """OOD images per ID image among the images that causes of errors are counted in."""
    return run.results.table.values("wilderness", part=part_text(OPEN))["ratio"].value or 0


def _f1_by_ratio(run: Run) -> dict[float, Results]:
    """Wilderness ratio → largest F1, as the mean over the classes."""
    by_ratio = run.results.table.by_part("operating_points", "ratio", within={"beta": BETA})
    return {float(ratio): values for ratio, values in by_ratio.items()}


def _overview(detectors: Sequence[Run]) -> Listing:
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


def _message(detectors: Sequence[Run]) -> str:
    """What images without known objects cost, in two sentences: the largest cost of any run."""
    sentences = [_unknown_objects(detectors), _lost_by_thresholds(detectors)]
    return " ".join(sentence for sentence in sentences if sentence)


def _unknown_objects(detectors: Sequence[Run]) -> str:
    """A sentence on the share of detections that are unknown objects; "" without any."""
    results_by_title = {}
    shares = {}
    for run in detectors:
        result = _share(run, "unknown_unknown")
        if result.value is not None:
            results_by_title[run.full_title] = result
            shares[run.full_title] = result.value
    if not shares:
        return ""
    worst = max(sorted(shares), key=shares.__getitem__)
    interval = results_by_title[worst].interval
    bracket = f" {interval_text(interval)}" if interval else ""
    return (
        f"With one OOD image per ID image, {percent(shares[worst])}%{bracket} of the detections "
        f"of {worst} "
        f"are unknown objects{_rank(shares, '%')}, at the confidence where {100 * RECALL:g}% of "
        "the known objects are found."
    )


def _lost_by_thresholds(detectors: Sequence[Run]) -> str:
    """A sentence on the F1 that thresholds chosen without OOD images lose; "" without any."""
    lost_f1 = {}
    for run in detectors:
        lost = _lost_f1(run)
        if lost is not None:
            lost_f1[run.full_title] = lost
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


def _share(run: Run, cause: str) -> Result:
    """Share of a cause at `RECALL` and ratio 1.

    Without a value where images or detections do not reach them.
    """
    if _error_ratio(run) < 1:
        return Result(None)
    return _by_recall(run)[RECALL][cause]


def _lost_f1(run: Run, thresholds: str = "f_of_closed") -> float | None:
    """F1 lost at wilderness ratio 1; None where there are fewer images.

    Args:
        run: The run.
        thresholds: "f_of_closed" for thresholds chosen without wild images; "f" for those chosen
            at that ratio.
    """
    f1_by_ratio = _f1_by_ratio(run)
    if 1.0 not in f1_by_ratio:
        return None
    closed = next(iter(f1_by_ratio.values()))["f"].value
    with_wild = f1_by_ratio[1.0][thresholds].value
    if closed is None or with_wild is None:
        return None
    return closed - with_wild


def _overview_cells(run: Run) -> Iterator[dict[str, Any]]:
    """Cells of a run in the overview."""
    table = run.results.table
    whole = _whole(run)
    cells: dict[str, Any] = {
        "mAP closed (%)": whole["map_closed"].value,
        "mAP open (%)": whole["map_open"].value,
    }
    for recall, impact in sorted(table.by_part("wilderness", "recall").items()):
        cells[f"WI at recall {recall} (%)"] = impact["average_impact"].value
    share = _share(run, "unknown_unknown")
    cells["Unknown objects (%)"] = percent(share.value, share.interval)
    cells["F1 lost (%)"] = _lost_f1(run)
    cells["F1 lost, new thresholds (%)"] = _lost_f1(run, "f")
    background = table.values("background")
    cells["Known rejected (%)"] = background.get("rejected_known", Result(None)).value
    cells["Unknown rejected (%)"] = background.get("rejected_unknown", Result(None)).value
    yield cells


def _error_charts(run: Run) -> vl.ChartGroup:
    """Causes of errors over recall, as far as all classes reach it (Figures 9 to 11)."""
    by_recall = _by_recall(run)
    classes = [results["classes"].value or 0 for results in by_recall.values()]
    largest = max(classes, default=0)
    if largest == 0:
        return vl.ChartGroup()
    reached = {}
    for recall, results in by_recall.items():
        if results["classes"].value == largest:
            reached[recall] = results

    causes = {cause: key for cause, key in CAUSES.items() if _occurs(cause, reached)}
    if not causes:
        return vl.ChartGroup()
    chart = vl.chart(
        "Causes of errors by recall",
        f"{run.full_title}: causes of wrong detections by recall; the rest up to 100% is correct. "
        f"At recall {RECALL:g}: {_shares_in_words(by_recall[RECALL], causes)}.",
        pl.DataFrame(list(_error_rows(reached, causes))),
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


def _occurs(cause: str, by_recall: Mapping[float, Results]) -> bool:
    """True if a cause has a share above zero at any of some recalls."""
    return any(results[cause].value for results in by_recall.values())


def _error_rows(
    by_recall: Mapping[float, Results], causes: Mapping[str, vl.Key]
) -> Iterator[dict[str, Any]]:
    """One row per recall and cause.

    Args:
        by_recall: The recalls that all classes reach; see `_by_recall`.
        causes: The causes that the chart shows.
    """
    for recall, results in by_recall.items():
        for order, (cause, key) in enumerate(causes.items()):
            yield {
                "recall": recall,
                "cause": key.name,
                "order": order,
                "share": round(results[cause].value or 0, 4),
                "interval": interval_text(results[cause].interval),
                "detections": results["detections"].value,
            }


def _shares_in_words(results: Results, causes: Mapping[str, vl.Key]) -> str:
    """Shares of causes at a recall."""
    shares = []
    for cause, key in causes.items():
        shares.append(f"{key.name} {percent(results[cause].value)}%")
    return "; ".join(shares)


def _f1_charts(run: Run) -> vl.ChartGroup:
    """Mean F1 over the wilderness ratio, of new thresholds and of unchanged ones.

    After Table 4.
    """
    f1_by_ratio = _f1_by_ratio(run)
    if len(f1_by_ratio) < 2:
        return vl.ChartGroup()
    f1_by_thresholds = {
        "thresholds chosen at each ratio": [
            (ratio, values["f"].value) for ratio, values in f1_by_ratio.items()
        ],
        "thresholds chosen without OOD images": [
            (ratio, values["f_of_closed"].value) for ratio, values in f1_by_ratio.items()
        ],
    }
    return vl.line_group(
        "F1 by wilderness ratio",
        f"{run.full_title}: F1, mean over the classes, "
        "by the ratio of images without known objects to images with them.",
        vl.series(f1_by_thresholds),
        vl.Axis(curves.RATIO, "~g", None),
        vl.Axis("F1", domain=None),
    )


def _background_charts(run: Run, margins: Mapping[str, Sequence[float]]) -> vl.ChartGroup:
    """Cumulated distributions of class against background probability (Figure 8).

    Their values at 0 are rejected.

    Args:
        run: The run.
        margins: See `farther.evaluation.results.WildernessDrawings`.
    """
    if not margins:
        return vl.ChartGroup()
    rejected = run.results.table.values("background")
    bin_ends = [2 * (n + 1) / BINS - 1 for n in range(BINS)]
    known = accumulate(margins["known"])
    unknown = accumulate(margins["unknown"])
    distributions = {
        "known objects, detected correctly": zip(bin_ends, known, strict=False),
        "unknown objects": zip(bin_ends, unknown, strict=False),
    }
    description = (
        f"{run.full_title}: class probability minus background probability. "
        f"The background is more probable in {percent(rejected['rejected_known'].value)}% of "
        "the correct detections of known objects and "
        f"{percent(rejected['rejected_unknown'].value)}% of the detections of unknown objects."
    )
    return vl.line_group(
        "Class against background probability",
        description,
        vl.series(distributions),
        vl.Axis("class − background probability, at most", "~g", (-1, 1)),
        vl.Axis("share of detections"),
    )

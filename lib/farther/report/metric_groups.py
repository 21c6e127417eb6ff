"""Tables of further metrics.

They show what flagging costs on ID images, and the groups of metrics on a detector's page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from farther.evaluation.groups import GROUPS
from farther.evaluation.groups.base import GroupTable
from farther.evaluation.long_table import Result
from farther.metrics.catalogue import METRICS, Metric
from farther.report.listing import Listing
from farther.report.results import VALUES, Run, cell_of
from farther.report.tables import ResultTable, has_no_objects

#: Quality of classifiers and of detectors of boxes in the table of costs.
CLASSIFIER_QUALITY = ("accuracy", "ece")
DETECTOR_QUALITY = ("map50", "map")

#: Metrics of a method in the table of costs.
COSTS = ("false_alarms", "id_flagged")

#: Heading of the ID test split among splits.
ID_IMAGES = "ID test images"

#: Metrics that are means over IoU thresholds.
OVER_IOU = ("nose", "ap_u", "p_u", "r_u")

#: COCO's metrics → headings.
COCO = {
    "map": "mAP",
    "map50": "mAP50",
    "ap75": "mAP75",
    "ap_small": "small",
    "ap_medium": "medium",
    "ap_large": "large",
    "ar_1": "AR1",
    "ar_10": "AR10",
    "ar": "AR100",
}


def further_tables(run: Run) -> Iterator[ResultTable]:
    """The tables of `farther.evaluation.groups` that the run has values of: methods as rows."""
    metrics_by_table: dict[GroupTable, list[Metric]] = {}
    for group in GROUPS.values():
        if group.table is not None:
            metrics_by_table.setdefault(group.table, []).extend(group.shown)

    for group_table, metrics in metrics_by_table.items():
        table = ResultTable(
            name=f"{run.name}-{group_table.name}",
            caption=f"{run.full_title}: {group_table.caption}.",
            labels={"Method": "label"},
            metrics=tuple(metrics),
            cells=run.values_of(metrics),
        )
        if table.cells.is_empty():
            continue
        if table.counted == "objects" and has_no_objects(table.cells):
            continue
        yield table


def cost_tables(name: str, runs: Sequence[Run]) -> Iterator[ResultTable]:
    """Quality on ID test images and what flagging costs there, detectors and methods as rows.

    Classifiers have a table of their own.

    Args:
        name: Begins the names of the tables: that of a benchmark or of a run.
        runs: Runs on one benchmark.
    """
    for whole_images in (True, False):
        runs_of_kind = [run for run in runs if run.whole_images == whole_images and run.description]
        if not runs_of_kind:
            continue
        quality = CLASSIFIER_QUALITY if whole_images else DETECTOR_QUALITY
        kind = "classifiers" if whole_images else "detectors"
        names = (*quality, *COSTS)
        cells = pl.concat([_cost_cells(run, names) for run in runs_of_kind])
        if cells.is_empty():
            continue
        table = ResultTable(
            name=f"{name}-costs-of-{kind}",
            caption=(
                f"{runs[0].benchmark_title}: quality on ID test images (%), and the detections "
                "there that are flagged as unknown: false alarms per image, and share (%)."
            ),
            labels={"Detector": "detector", "Method": "label"},
            metrics=tuple(METRICS[name] for name in names),
            cells=cells,
        )
        yield table.without_same("Detector")


def _cost_cells(run: Run, names: Sequence[str]) -> pl.DataFrame:
    """Rows of `Run.values` on the ID test split.

    None is marked as the best, as τ sets the number of false alarms.
    """
    id_split = run.id_split or ""
    description: dict[str, Any] = {
        "run": run.name,
        "benchmark": run.benchmark,
        "split": id_split,
        "split_title": ID_IMAGES,
        "images": run.id_images,
        "objects": run.count(id_split, "objects"),
        "detections": run.count(id_split, "regions"),
        "is_few": run.id_images < run.few,
    }
    quality = {
        name: run.results.table.values(METRICS[name].group, split=id_split).get(METRICS[name].key)
        for name in names
    }
    rows = []
    for method in run.methods:
        labels = {"method": method, "label": run.label(method), "family": run.family(method)}
        costs = run.group(id_split, method, "costs")
        for name in names:
            result = costs[METRICS[name].key] if name in COSTS else quality[name]
            rows.append({**description, **labels, **cell_of(METRICS[name], result)})
    return pl.DataFrame(rows, schema=VALUES).with_columns(detector=pl.lit(run.full_title))


def parts(run: Run, method: str) -> Iterator[Listing]:
    """Parts of the results of a method: tables that say which objects and classes they come from.

    They are means over IoU thresholds, errors by the class that unknown objects are taken for, and
    the quality on known classes.
    """
    label = run.label(method)
    over_iou = Listing.from_rows(
        f"Means over IoU 0.50 … 0.95, {label}; "
        "and AP_U at IoU 0.5 where the detector's confidence ranks.",
        _iou_rows(run, method),
        few=run.few,
    )
    open_set_errors = _open_set_errors(run, method)
    for table in (over_iou, open_set_errors):
        if len(table):
            yield table
    yield from _closed_set(run)


def _iou_rows(run: Run, method: str) -> Iterator[dict[str, Any]]:
    """One row per split with means over IoU thresholds."""
    table = run.results.table
    for split in run.splits:
        means = table.values("open_set", split=split.name, method=method, part="iou=mean")
        if all(mean.value is None for mean in means.values()):
            continue
        row: dict[str, Any] = {
            "Split": split.title,
            "Objects": run.value(split.name, method, "open_set", "unknown_objects"),
        }
        for name in OVER_IOU:
            row[f"{METRICS[name].title} (%)"] = means[name].value
        by_confidence = table.values(
            "open_set", split=split.name, method=method, part="ranking=confidence"
        )
        row["AP_U by confidence (%)"] = by_confidence.get("ap_u", Result(None)).value
        yield row


def _open_set_errors(run: Run, method: str) -> Listing:
    """A-OSE of each known class, the highest first; empty where there are no errors."""
    errors_by_split: dict[str, dict[str, int]] = {}
    total: Counter[str] = Counter()
    for split in run.splits:
        if not run.group(split.name, method, "open_world"):
            continue
        by_class = run.results.table.by_part("open_world", "class", split=split.name, method=method)
        errors = {
            name: int(values["a_ose_by_class"].value or 0) for name, values in by_class.items()
        }
        errors_by_split[split.title] = errors
        total.update(errors)

    rows = []
    for name, count in sorted(total.items(), key=lambda item: (-item[1], item[0])):
        row: dict[str, Any] = {"Class": name, "All": count}
        for title, errors_of_split in errors_by_split.items():
            row[title] = errors_of_split.get(name, 0)
        rows.append(row)
    caption = (
        f"A-OSE by class, {run.label(method)}: "
        "detections of each known class that lie on an unknown object."
    )
    return Listing.from_rows(caption, rows)


def _closed_set(run: Run) -> Iterator[Listing]:
    """COCO's metrics on the ID test images, of all known classes and of each."""
    if run.whole_images or run.id_split is None:
        return
    table = run.results.table
    of_classes = table.by_part("detector", "class", split=run.id_split)
    if not of_classes:
        return
    of_all = table.values("detector", split=run.id_split)
    row: dict[str, Any] = {"Images": run.id_images or None}
    for name, title in COCO.items():
        row[f"{title} (%)"] = of_all[name].value
    yield Listing.from_rows(
        "COCO's metrics on the ID test images: mAP over IoU 0.50 … 0.95, at 0.50 and 0.75, "
        "by size; average recall.",
        [row],
    )
    class_rows = []
    for name, values in of_classes.items():
        class_row = {
            "Class": name,
            "Objects": values["objects"].value,
            "AP (%)": values["map"].value,
            "AP50 (%)": values["map50"].value,
            "AR (%)": values["ar"].value,
        }
        class_rows.append(class_row)
    yield Listing.from_rows("Known classes in the ID test images.", class_rows)

"""Tables of further metrics: what flagging costs on ID images, and the groups of metrics on a detector's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from farther.evaluation.groups import GROUPS
from farther.evaluation.groups.base import GroupTable
from farther.metrics.catalogue import METRICS, Metric
from farther.report.listing import Listing
from farther.report.results import VALUES, Run, cell
from farther.report.tables import ResultTable, has_no_objects

#: Metrics of the table of costs: of the detector alone, by kind of detector, then of a method.
DETECTOR = {True: ("accuracy", "ece"), False: ("map50", "map")}
COSTS = ("false_alarms", "id_flagged")

#: Heading of the ID test split among splits.
ID_IMAGES = "ID test images"


def further_tables(run: Run) -> Iterator[ResultTable]:
    """The tables of `farther.evaluation.groups` that the run has values of: methods as rows."""
    shown: dict[GroupTable, list[Metric]] = {}
    for group in GROUPS.values():
        if group.table is not None:
            shown.setdefault(group.table, []).extend(group.shown)
    for table, metrics in shown.items():
        cells = run.values_of(metrics)
        name, caption = f"{run.name}-{table.name}", f"{run.full_title}: {table.caption}."
        found = ResultTable(name, caption, {"Method": "label"}, tuple(metrics), cells)
        if len(cells) and not (found.counted == "objects" and has_no_objects(cells)):
            yield found


def cost_tables(benchmark: str, runs: Sequence[Run]) -> Iterator[ResultTable]:
    """Quality on ID test images and what flagging costs there, detectors and methods as rows; classifiers apart."""
    for whole_images, names in DETECTOR.items():
        of_kind = [run for run in runs if run.whole_images == whole_images and run.evaluation]
        if not of_kind:
            continue
        cells = pl.concat([_costs(run, (*names, *COSTS)) for run in of_kind])
        if len(cells):
            caption = (
                f"{runs[0].benchmark_title}: quality on ID test images (%), and the detections there that are flagged "
                "as unknown: false alarms per 100 images, and share (%)."
            )
            metrics = tuple(METRICS[name] for name in (*names, *COSTS))
            labels = {"Detector": "detector", "Method": "label"}
            yield ResultTable(f"{benchmark}-costs", caption, labels, metrics, cells)


def _costs(run: Run, names: Sequence[str]) -> pl.DataFrame:
    """Rows of `Run.values` on the ID test split; none is marked, as τ sets the number of false alarms."""
    evaluation = run.evaluation
    if evaluation is None:
        return pl.DataFrame(schema={**VALUES, "detector": pl.String})
    id_split, rows = evaluation.settings.id_split, []
    counts = evaluation.splits[id_split]
    few = counts.images < run.few
    place: dict[str, Any] = {
        "run": run.name,
        "benchmark": run.benchmark,
        "split": id_split,
        "split_title": ID_IMAGES,
    }
    place |= {"images": counts.images, "objects": counts.objects, "detections": counts.regions}
    quality = (
        evaluation.closed_set.intervals
        if evaluation.classifier is None
        else evaluation.classifier.intervals
    )
    for method in run.methods:
        costs = evaluation.methods[method].costs
        within = {**quality, **costs.intervals}
        within |= {name: within.get(key) for name, key in (("map50", "ap50"), ("map", "ap"))}
        for name in names:
            value = costs.values[name] if name in COSTS else run.detector.get(name)
            labels = {"method": method, "label": run.label(method), "family": run.family(method)}
            rows.append(
                {**place, **labels, **cell(METRICS[name], value, within.get(name)), "is_few": few}
            )
    return pl.DataFrame(rows, schema=VALUES).with_columns(detector=pl.lit(run.full_title))


def parts(run: Run, method: str) -> Iterator[Listing]:
    """Outcomes of unknown objects by size, over IoU thresholds, by the class they are taken for, and of the known
    classes, with their numbers."""
    rows, over = [], []
    for split in run.splits:
        details = run.details(split.name, method)
        for size, found in details.by_size.items():
            of = found.values
            counts = {"Objects": of["unknown_objects"]}
            shares = {
                title: (of[name] or 0) / (of["unknown_objects"] or 1)
                for title, name in (
                    ("Found (%)", "tp_u"),
                    ("Misclassified (%)", "fn_misclassified"),
                    ("Missed (%)", "fn_missed"),
                )
            }
            rows.append({"Split": split.title, "Size": size, **counts, **shares})
        if details.over_iou and any(
            value is not None for value in details.over_iou.values.values()
        ):
            names = ("nose", "ap_u", "p_u", "r_u")
            over.append(
                {
                    "Split": split.title,
                    "Objects": details.of_group("open_set")["unknown_objects"],
                    **{
                        f"{METRICS[name].title} (%)": details.over_iou.values[name]
                        for name in names
                    },
                    "AP_U by confidence (%)": details.ap_u_by_confidence,
                }
            )
    label = run.label(method)
    if rows:
        yield Listing.of(
            f"Outcomes by size of the object (COCO's small, medium and large), {label}.",
            rows,
            few=run.few,
        )
    if over:
        yield Listing.of(
            f"Means over IoU 0.50 … 0.95, {label}; and AP_U at IoU 0.5 where the detector's confidence ranks.",
            over,
            few=run.few,
        )
    yield from _open_set_errors(run, method)
    yield from _closed_set(run)


def _open_set_errors(run: Run, method: str) -> Iterator[Listing]:
    """A-OSE of each known class, those with the most first; none where nothing is wrong."""
    found = {
        split.title: run.details(split.name, method).groups.get("open_world")
        for split in run.splits
    }
    errors = {title: of.parts["a_ose_by_class"] for title, of in found.items() if of}
    total: Counter[str] = Counter()
    for of in errors.values():
        total.update(of)
    if total:
        yield Listing.of(
            f"A-OSE by class, {run.label(method)}: detections of each known class that lie on an unknown object.",
            (
                {
                    "Class": name,
                    "All": count,
                    **{title: of.get(name, 0) for title, of in errors.items()},
                }
                for name, count in total.most_common()
            ),
        )


def _closed_set(run: Run) -> Iterator[Listing]:
    found = run.evaluation and run.evaluation.closed_set
    if run.whole_images or not found or not found.per_class:
        return
    names = {
        "ap": "mAP",
        "ap50": "mAP50",
        "ap75": "mAP75",
        "ap_small": "small",
        "ap_medium": "medium",
    }
    names |= {"ap_large": "large", "ar_1": "AR1", "ar_10": "AR10", "ar": "AR100"}
    yield Listing.of(
        "COCO's metrics on the ID test images: mAP over IoU 0.50 … 0.95, at 0.50 and 0.75, by size; average recall.",
        [
            {
                "Images": run.id_images or None,
                **{f"{title} (%)": found.values[name] for name, title in names.items()},
            }
        ],
    )
    yield Listing.of(
        "Known classes in the ID test images.",
        [
            {
                "Class": name,
                "Objects": of["objects"],
                "AP (%)": of["ap"],
                "AP50 (%)": of["ap50"],
                "AR (%)": of["ar"],
            }
            for name, of in found.per_class.items()
        ],
    )

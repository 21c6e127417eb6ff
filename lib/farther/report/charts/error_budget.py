"""Error budget: what correcting each kind of error would be worth, of one detector and of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from farther.evaluation.results import KindOfError, MetricValues
from farther.evaluation.with_proposals import FOUND_BY_PROPOSALS
from farther.metrics.catalogue import METRICS
from farther.metrics.errors.error_budget import KINDS, OF_UNKNOWN
from farther.report.charts import vega as vl
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import Run

#: Metric of unknown objects → title of its chart.
TITLES = {"ap_u": "AP_U gained", "r_u": "R_U gained", "nose": "nOSE avoided"}

#: Kinds of errors in the order of charts: missed objects that proposals find come before the
#: others.
ORDER = (*KINDS[:-1], FOUND_BY_PROPOSALS, KINDS[-1])

_POINTS: dict[str, Any] = {"format": "+~%", "tickCount": 5}


def known(run: Run) -> vl.Chart | None:
    """What correcting each kind of error on known objects adds to mAP50; None without an error budget."""
    kinds = of_known(run)
    if not kinds:
        return None
    rows = [
        {"kind": kind, **_gain(of.gain, of.interval), "errors": of.count}
        for kind, of in kinds.items()
    ]
    text = vl.said(
        "{kind} {points:+.1f} points", ({**row, "points": 100 * (row["gain"] or 0)} for row in rows)
    )
    return vl.chart(
        "Known objects: mAP50 gained",
        f"mAP50 gained by correcting each kind: {text}.",
        _frame(rows),
        vl.layer(
            {"type": "bar", "color": vl.COLOURS[4]},
            x=vl.number("gain", title=None, axis=_POINTS),
            tooltip=vl.tooltip("kind", "gain:+.1% mAP50 gained", "errors:"),
        ),
        vl.layer(
            {"type": "rule", "strokeWidth": 1.5, "color": "#000000"},
            x=vl.number("low", title=None),
            x2={"field": "high"},
        ),
        step=26,
        y=vl.named("kind", title=None, sort=list(KINDS)),
    )


def unknown(run: Run, method: str) -> vl.ChartGroup | None:
    """What correcting each kind of error on unknown objects is worth under a method, one mark per split."""
    rows = [
        {
            "metric": metric,
            "kind": kind,
            "split": split.title,
            **_gain(of.values[metric]),
            "errors": of.values["count"],
        }
        for split in run.splits
        for kind, of in of_unknown(run, split.name, method).items()
        for metric in OF_UNKNOWN
        if of.values[metric] is not None
    ]
    if not rows:
        return None
    legend = vl.keys([split.title for split in run.splits], vl.SHAPES)
    charts = tuple(
        _dots(metric, [row for row in rows if row["metric"] == metric], legend, run)
        for metric in OF_UNKNOWN
    )
    return vl.ChartGroup(legend, charts)


def _dots(
    metric: str, rows: Sequence[dict[str, Any]], legend: Sequence[vl.Key], run: Run
) -> vl.Chart:
    words = (
        f"{TITLES[metric]} by correcting each kind of error on unknown objects, {run.full_title}"
    )
    return vl.chart(
        TITLES[metric],
        f"{words}; the table holds the values.",
        _frame(rows).drop("metric"),
        vl.layer(vl.points(70, 0.9)),
        step=26,
        x=vl.number("gain", title=None, axis=_POINTS),
        y=vl.named("kind", title=None, sort=list(ORDER), axis={"grid": True, "ticks": False}),
        tooltip=vl.tooltip("kind", "split", "gain:+.1%", "errors:"),
        **vl.by("split", legend, shape=vl.SHAPES),
    )


def listing(run: Run, method: str) -> Listing:
    """The same as a table: gains in percentage points, those of known objects with 95% intervals."""
    rows, known_kinds = [], of_known(run)
    budgets = {split.name: of_unknown(run, split.name, method) for split in run.splits}
    shown = {*known_kinds, *(kind for kinds in budgets.values() for kind in kinds)}
    for kind in (kind for kind in ORDER if kind in shown):
        of = known_kinds.get(kind)
        row: dict[str, Any] = {"Kind": kind, "Known objects: errors": of.count if of else None}
        row["mAP50 gained (points)"] = percent(of.gain, of.interval) if of else ABSENT
        for split in run.splits:
            budget = budgets[split.name].get(kind)
            if budget and budget.values["r_u"] is not None:
                row[f"{split.title}: errors"] = budget.values["count"]
                row |= {
                    f"{split.title}: {METRICS[m].title}": percent(budget.values[m])
                    for m in ("ap_u", "r_u")
                }
        rows.append(row)
    caption = (
        f"{run.full_title}: errors of each kind, and the percentage points gained by correcting them; known objects in "
        f"the ID test split, with 95% intervals, and unknown objects of each split with {run.label(method)}."
    )
    return Listing.of(caption, rows, [head for row in rows[:1] for head in row if head != "Kind"])


def overview(shown: Sequence[tuple[Run, str]]) -> vl.ChartGroup | None:
    """Gains of all detectors: mAP50 on known objects, and R_U as a mean over splits; None without an error budget."""
    sides: dict[str, list[dict[str, Any]]] = {
        "Known objects: mAP50 gained": [],
        "Unknown objects: R_U gained": [],
    }
    known_gains, unknown_gains = sides.values()
    for run, method in shown:
        known_gains += [
            {"run": run.full_title, "kind": kind, **_gain(of.gain)}
            for kind, of in of_known(run).items()
        ]
        budgets = (
            [of_unknown(run, split.name, method) for split in run.splits] if of_known(run) else []
        )
        for kind in ORDER:
            gains = [
                gain
                for of in budgets
                if kind in of and (gain := of[kind].values["r_u"]) is not None
            ]
            mean = sum(gains) / len(gains) if gains else None
            unknown_gains.append({"run": run.full_title, "kind": kind, **_gain(mean)})
    if not known_gains:
        return None
    order = list(dict.fromkeys(row["run"] for row in known_gains))
    gained = {
        title: rows for title, rows in sides.items() if any(row["gain"] is not None for row in rows)
    }
    return vl.ChartGroup((), tuple(_heat_map(title, rows, order) for title, rows in gained.items()))


def _heat_map(title: str, rows: Sequence[dict[str, Any]], order: Sequence[str]) -> vl.Chart:
    frame = _frame(rows).drop_nulls("gain").with_columns(points=100 * pl.col("gain"))
    return vl.heat_map(
        title,
        f"{title} by correcting each kind of error: {vl.said('{run}, {kind} {points:.1f} points', frame)}.",
        frame,
        "gain",
        vl.number("points", format=".1f"),
        step=28,
        x=vl.named("kind", title=None, sort=list(ORDER), axis={"labelAngle": -35, "orient": "top"}),
        y=vl.named("run", title=None, sort=list(order), axis={"labelLimit": 220}),
        tooltip=vl.tooltip("run", "kind", "gain:+.1%"),
    )


def of_known(run: Run) -> dict[str, KindOfError]:
    """Kinds of errors on known objects; {} without an error budget."""
    return (
        run.evaluation.error_budget.kinds if run.evaluation and run.evaluation.error_budget else {}
    )


def of_unknown(run: Run, split: str, method: str) -> dict[str, MetricValues]:
    """Kinds of errors on unknown objects of a split; of a run with proposals, what its first source finds apart."""
    budget = run.details(split, method).error_budget or {}
    proposed = run.first_source[1].methods.get(method, {}).get(split) if run.first_source else None
    return {**budget, **proposed.error_budget} if budget and proposed else budget


def _gain(gain: float | None, interval: Sequence[float] | None = None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    rounded = {"gain": gain, "low": low, "high": high}
    return {name: None if value is None else round(value, 4) for name, value in rounded.items()}


def _frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    numbers = dict.fromkeys(("gain", "low", "high"), pl.Float64)
    return pl.DataFrame(list(rows), schema_overrides=numbers, infer_schema_length=None)

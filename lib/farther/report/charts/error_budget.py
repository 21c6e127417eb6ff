"""Error budget: what correcting each kind of error would be worth, of one detector and of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from farther.evaluation.results import KindOfError
from farther.metrics.catalogue import METRICS
from farther.metrics.errors.error_budget import KINDS, OF_UNKNOWN
from farther.report.charts import vega as vl
from farther.report.listing import Listing, percent
from farther.report.results import Run

#: Metric of unknown objects → title of its chart.
TITLES = {"ap_u": "AP_U gained", "r_u": "R_U gained", "nose": "nOSE avoided"}

_POINTS: dict[str, Any] = {"format": "+~%", "tickCount": 5}


def known(run: Run) -> vl.Chart | None:
    """What correcting each kind of error on known objects adds to mAP50; None without an error budget."""
    kinds = of_known(run)
    if not kinds:
        return None
    rows = [{"kind": kind, **_gain(of.gain, of.interval), "errors": of.count} for kind, of in kinds.items()]
    text = vl.said("{kind} {points:+.1f} points", ({**row, "points": 100 * (row["gain"] or 0)} for row in rows))
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
        {"metric": metric, "kind": kind, "split": split.title, **_gain(of.values[metric]), "errors": of.values["count"]}
        for split in run.splits
        for kind, of in (run.details(split.name, method).error_budget or {}).items()
        for metric in OF_UNKNOWN
        if of.values[metric] is not None
    ]
    if not rows:
        return None
    legend = vl.keys([split.title for split in run.splits], vl.SHAPES)
    charts = tuple(
        _dots(metric, [row for row in rows if row["metric"] == metric], legend, run) for metric in OF_UNKNOWN
    )
    return vl.ChartGroup(legend, charts)


def _dots(metric: str, rows: Sequence[dict[str, Any]], legend: Sequence[vl.Key], run: Run) -> vl.Chart:
    words = f"{TITLES[metric]} by correcting each kind of error on unknown objects, {run.full_title}"
    return vl.chart(
        TITLES[metric],
        f"{words}; the table holds the values.",
        _frame(rows).drop("metric"),
        vl.layer(vl.points(70, 0.9)),
        step=26,
        x=vl.number("gain", title=None, axis=_POINTS),
        y=vl.named("kind", title=None, sort=list(KINDS), axis={"grid": True, "ticks": False}),
        tooltip=vl.tooltip("kind", "split", "gain:+.1%", "errors:"),
        **vl.by("split", legend, shape=vl.SHAPES),
    )


def listing(run: Run, method: str) -> Listing:
    """The same as a table: gains in percentage points, those of known objects with 95% intervals."""
    rows = []
    for kind, of in of_known(run).items():
        row = {"Kind": kind, "Known objects: errors": of.count}
        row["mAP50 gained (points)"] = percent(of.gain, of.interval)
        for split in run.splits:
            budget = (run.details(split.name, method).error_budget or {}).get(kind)
            if budget and budget.values["r_u"] is not None:
                row[f"{split.title}: errors"] = budget.values["count"]
                row |= {f"{split.title}: {METRICS[m].title}": percent(budget.values[m]) for m in ("ap_u", "r_u")}
        rows.append(row)
    caption = (
        f"{run.full_title}: errors of each kind, and the percentage points gained by correcting them; known objects in "
        f"the ID test split, with 95% intervals, and unknown objects of each split with {run.label(method)}."
    )
    return Listing.of(caption, rows, [head for row in rows[:1] for head in row if head != "Kind"])


def overview(shown: Sequence[tuple[Run, str]]) -> vl.ChartGroup | None:
    """Gains of all detectors: mAP50 on known objects, and R_U as a mean over splits; None without an error budget."""
    sides: dict[str, list[dict[str, Any]]] = {"Known objects: mAP50 gained": [], "Unknown objects: R_U gained": []}
    known_gains, unknown_gains = sides.values()
    for run, method in shown:
        for kind, of in of_known(run).items():
            known_gains.append({"run": run.full_title, "kind": kind, **_gain(of.gain)})
            budgets = [run.details(split.name, method).error_budget or {} for split in run.splits]
            gains = [gain for of in budgets if kind in of and (gain := of[kind].values["r_u"]) is not None]
            unknown_gains.append(
                {"run": run.full_title, "kind": kind, **_gain(sum(gains) / len(gains) if gains else None)}
            )
    if not known_gains:
        return None
    order = list(dict.fromkeys(row["run"] for row in known_gains))
    gained = {title: rows for title, rows in sides.items() if any(row["gain"] is not None for row in rows)}
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
        x=vl.named("kind", title=None, sort=list(KINDS), axis={"labelAngle": -35, "orient": "top"}),
        y=vl.named("run", title=None, sort=list(order), axis={"labelLimit": 220}),
        tooltip=vl.tooltip("run", "kind", "gain:+.1%"),
    )


def of_known(run: Run) -> dict[str, KindOfError]:
    """Kinds of errors on known objects; {} without an error budget."""
    return run.evaluation.error_budget.kinds if run.evaluation and run.evaluation.error_budget else {}


def _gain(gain: float | None, interval: Sequence[float] | None = None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    rounded = {"gain": gain, "low": low, "high": high}
    return {name: None if value is None else round(value, 4) for name, value in rounded.items()}


def _frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    numbers = dict.fromkeys(("gain", "low", "high"), pl.Float64)
    return pl.DataFrame(list(rows), schema_overrides=numbers, infer_schema_length=None)

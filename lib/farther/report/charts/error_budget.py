"""Error budget: what correcting each kind of error would be worth, of one detector and of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from farther.metrics.catalogue import METRICS
from farther.metrics.error_budget import KINDS, OF_UNKNOWN
from farther.report.charts import vega as vl
from farther.report.listing import Listing, between, percent
from farther.report.results import Run

#: Metric of unknown objects → title of its chart.
TITLES = {"ap_u": "AP_U gained", "r_u": "R_U gained", "nose": "nOSE avoided"}

_POINTS: dict[str, Any] = {"format": "+~%", "tickCount": 5}


def known(run: Run) -> vl.Chart | None:
    """What correcting each kind of error on known objects adds to mAP50; None without an error budget."""
    kinds = (run.evaluation.get("error_budget") or {}).get("kinds", {})
    if not kinds:
        return None
    rows = [
        {"kind": kind, **_gain(of["gain"], of.get("interval")), "errors": of["count"]} for kind, of in kinds.items()
    ]
    y = vl.named("kind", title=None, sort=list(KINDS))
    tooltip = [vl.named("kind"), vl.number("gain", format="+.1%", title="mAP50 gained"), vl.number("errors")]
    body = {
        "height": {"step": 26},
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {"type": "bar", "color": vl.COLOURS[4]},
                "encoding": {"x": vl.number("gain", title=None, axis=_POINTS), "tooltip": tooltip},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 1.5, "color": "#000000"},
                "encoding": {"x": vl.number("low", title=None), "x2": {"field": "high"}},
            },
        ],
    }
    said = "; ".join(f"{row['kind']} {100 * (row['gain'] or 0):+.1f} points" for row in rows)
    return vl.chart("Known objects: mAP50 gained", f"mAP50 gained by correcting each kind: {said}.", _frame(rows), body)


def unknown(run: Run, method: str) -> vl.ChartGroup | None:
    """What correcting each kind of error on unknown objects is worth under a method, one mark per split."""
    rows = [
        {"metric": metric, "kind": kind, "split": split.title, **_gain(of[metric], None), "errors": of["count"]}
        for split in run.splits
        for kind, of in (run.details(split.name, method).get("error_budget") or {}).items()
        for metric in OF_UNKNOWN
        if of[metric] is not None
    ]
    if not rows:
        return None
    legend = vl.keys([split.title for split in run.splits], vl.SHAPES)
    charts = tuple(
        _dots(metric, [row for row in rows if row["metric"] == metric], legend, run) for metric in OF_UNKNOWN
    )
    return vl.ChartGroup(legend, charts)


def _dots(metric: str, rows: Sequence[dict[str, Any]], legend: Sequence[vl.Key], run: Run) -> vl.Chart:
    body = {
        "height": {"step": 26},
        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.9},
        "encoding": {
            "x": vl.number("gain", title=None, axis=_POINTS),
            "y": vl.named("kind", title=None, sort=list(KINDS), axis={"grid": True, "ticks": False}),
            "color": vl.named("split", scale=vl.colours(legend), legend=None),
            "shape": vl.named("split", scale=vl.marks(legend, vl.SHAPES), legend=None),
            "tooltip": [vl.named("kind"), vl.named("split"), vl.number("gain", format="+.1%"), vl.number("errors")],
        },
    }
    words = f"{TITLES[metric]} by correcting each kind of error on unknown objects, {run.full_title}; the table holds "
    frame = _frame(rows).drop("metric")
    return vl.chart(TITLES[metric], f"{words}the values.", frame, body)


def listing(run: Run, method: str) -> Listing | None:
    """The same as a table: gains in percentage points, those of known objects with 95% intervals."""
    kinds = (run.evaluation.get("error_budget") or {}).get("kinds", {})
    if not kinds:
        return None
    rows = []
    for kind, of in kinds.items():
        row = {"Kind": kind, "Known objects: errors": of["count"]}
        interval = f" ({between(of['interval'])})" if of.get("interval") else ""
        row["mAP50 gained (points)"] = percent(of["gain"]) + interval
        for split in run.splits:
            budget = (run.details(split.name, method).get("error_budget") or {}).get(kind)
            if budget:
                row[f"{split.title}: errors"] = budget["count"]
                row |= {f"{split.title}: {METRICS[m].title}": percent(budget[m]) for m in ("ap_u", "r_u")}
        rows.append(row)
    caption = (
        f"{run.full_title}: errors of each kind, and the percentage points gained by correcting them; known objects in "
        f"the ID test split, with 95% intervals, and unknown objects of each split with {run.label(method)}."
    )
    numbers = [head for head in rows[0] if head != "Kind"]
    return Listing.of(caption, rows, numbers=numbers)


def overview(shown: Sequence[tuple[Run, str]]) -> vl.ChartGroup | None:
    """Gains of all detectors: mAP50 on known objects, and R_U as a mean over splits; None without an error budget."""
    sides: dict[str, list[dict[str, Any]]] = {"Known objects: mAP50 gained": [], "Unknown objects: R_U gained": []}
    of_known, of_unknown = sides.values()
    for run, method in shown:
        for kind, of in (run.evaluation.get("error_budget") or {}).get("kinds", {}).items():
            of_known.append({"run": run.full_title, "kind": kind, **_gain(of["gain"])})
            budgets = [run.details(split.name, method).get("error_budget") or {} for split in run.splits]
            gains = [gain for budget in budgets if (gain := budget.get(kind, {}).get("r_u")) is not None]
            of_unknown.append(
                {"run": run.full_title, "kind": kind, **_gain(sum(gains) / len(gains) if gains else None)}
            )
    if not of_known:
        return None
    order = list(dict.fromkeys(row["run"] for row in of_known))
    return vl.ChartGroup((), tuple(_heat_map(title, rows, order) for title, rows in sides.items() if rows))


def _heat_map(title: str, rows: Sequence[dict[str, Any]], order: Sequence[str]) -> vl.Chart:
    frame = _frame(rows).drop_nulls("gain").with_columns(points=100 * pl.col("gain"))
    deepest = max(0.01, *frame["gain"])
    ink = {"condition": {"test": f"datum.gain * 2 > {deepest}", "value": "white"}, "value": vl.INK}
    colour = vl.number("gain", scale={"domain": [0, deepest], "range": [vl.PALE, vl.DEEP]}, legend=None)
    body = {
        "height": {"step": 28},
        "encoding": {
            "x": vl.named("kind", title=None, sort=list(KINDS), axis={"labelAngle": -35, "orient": "top"}),
            "y": vl.named("run", title=None, sort=list(order), axis={"labelLimit": 220}),
            "tooltip": [vl.named("run"), vl.named("kind"), vl.number("gain", format="+.1%")],
        },
        "layer": [
            {"mark": {"type": "rect", "stroke": "white"}, "encoding": {"color": colour}},
            {
                "mark": {"type": "text", "fontSize": 11},
                "encoding": {"text": vl.number("points", format=".1f"), "color": ink},
            },
        ],
    }
    said = "; ".join(f"{r['run']}, {r['kind']} {100 * r['gain']:.1f} points" for r in frame.iter_rows(named=True))
    return vl.chart(title, f"{title} by correcting each kind of error: {said}.", frame, body)


def _gain(gain: float | None, interval: Sequence[float] | None = None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    rounded = {"gain": gain, "low": low, "high": high}
    return {name: None if value is None else round(value, 4) for name, value in rounded.items()}


def _frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    numbers = dict.fromkeys(("gain", "low", "high"), pl.Float64)
    return pl.DataFrame(list(rows), schema_overrides=numbers, infer_schema_length=None)

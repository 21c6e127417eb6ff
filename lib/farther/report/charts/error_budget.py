"""Error budget: metrics gained by correcting each kind of error, of one detector and of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from farther.evaluation.long_table import Result, Results
from farther.evaluation.with_proposals import FOUND_BY_PROPOSALS
from farther.metrics.catalogue import METRICS
from farther.metrics.errors.error_budget import KINDS, OF_UNKNOWN
from farther.report.charts import vega as vl
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import Run

#: Metric of unknown objects → title of its chart.
TITLES = {"ap_u": "AP_U gained", "r_u": "R_U gained", "nose": "nOSE avoided"}

#: The part of the missed objects that proposals cover.
COVERED_KIND = "missed and covered"

#: Kinds of errors in the order of charts.
ORDER = (*KINDS, COVERED_KIND)

#: Axis of gains in percentage points.
GAIN_AXIS: dict[str, Any] = {"format": "+~%", "tickCount": 5}

#: Axis of kinds of errors; marks at 0 do not touch their names.
KIND_AXIS: dict[str, Any] = {"grid": True, "ticks": False, "labelPadding": 8}


def known(run: Run) -> vl.Chart | None:
    """mAP50 gained by correcting each kind of error on known objects.

    None without an error budget.
    """
    rows = []
    for kind, error in known_errors(run).items():
        gain = _gain_columns(error["gain"].value, error["gain"].interval)
        rows.append({"kind": kind, **gain, "errors": error["count"].value})
    if not rows:
        return None
    text = vl.describe_rows("{kind} {points:+.1f} points", [_with_points(row) for row in rows])
    frame = _gain_frame(rows)
    bars = vl.layer(
        {"type": "bar", "color": vl.COLOURS[4]},
        x=vl.quantitative("gain", title=None, axis=GAIN_AXIS),
        tooltip=vl.tooltip("kind", "gain:+.1% mAP50 gained", "errors:"),
    )
    intervals = vl.layer(
        {"type": "rule", "strokeWidth": 1.5, "color": "#000000"},
        x=vl.quantitative("low", title=None),
        x2={"field": "high"},
    )
    return vl.chart(
        "Known objects: mAP50 gained",
        f"mAP50 gained by correcting each kind: {text}.",
        frame,
        # A layer without values has no extent, of which Vega warns.
        *([bars, intervals] if frame["low"].count() else [bars]),
        step=26,
        y=vl.nominal("kind", title=None, sort=list(KINDS)),
    )


def _with_points(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its gain in percentage points, 0 where it is not defined."""
    return {**row, "points": 100 * (row["gain"] or 0)}


def unknown(run: Run, method: str) -> vl.ChartGroup | None:
    """Metrics gained by correcting each kind of error on unknown objects, one mark per split.

    None without an error budget.
    """
    rows_by_metric: dict[str, list[dict[str, Any]]] = {metric: [] for metric in OF_UNKNOWN}
    for split in run.splits:
        for kind, error in unknown_errors(run, split.name, method).items():
            for metric, rows in rows_by_metric.items():
                gain = error[metric].value
                if gain is not None:
                    rows.append(
                        {
                            "kind": kind,
                            "split": split.title,
                            **_gain_columns(gain),
                            "errors": error["count"].value,
                        }
                    )
    if not any(rows_by_metric.values()):
        return None
    legend = vl.legend_keys([split.title for split in run.splits], vl.SHAPES)
    charts = []
    for metric, rows in rows_by_metric.items():
        if rows:
            charts.append(_gain_chart(metric, rows, legend, run))
    return vl.ChartGroup(legend, tuple(charts))


def _gain_chart(
    metric: str, rows: Sequence[Mapping[str, Any]], legend: Sequence[vl.Key], run: Run
) -> vl.Chart:
    return vl.chart(
        TITLES[metric],
        f"{TITLES[metric]} by correcting each kind of error on unknown objects, {run.full_title}; "
        "the table holds the values.",
        _gain_frame(rows),
        vl.layer(vl.point_mark(70, 0.9)),
        step=26,
        x=vl.quantitative("gain", title=None, axis=GAIN_AXIS),
        y=vl.nominal("kind", title=None, sort=list(ORDER), axis=KIND_AXIS),
        tooltip=vl.tooltip("kind", "split", "gain:+.1%", "errors:"),
        **vl.legend_channels("split", legend, shape=vl.SHAPES),
    )


def listing(run: Run, method: str) -> Listing:
    """The error budget as a table: one row per kind of error.

    Gains are in percentage points, those of known objects with 95% intervals.
    """
    known_by_kind = known_errors(run)
    unknown_by_split = {split.name: unknown_errors(run, split.name, method) for split in run.splits}
    present = set(known_by_kind)
    for errors_of_split in unknown_by_split.values():
        present.update(errors_of_split)

    rows = []
    for kind in ORDER:
        if kind not in present:
            continue
        row = {"Kind": kind, **_known_cells(known_by_kind.get(kind))}
        for split in run.splits:
            row |= _unknown_cells(split.title, unknown_by_split[split.name].get(kind))
        rows.append(row)
    caption = (
        f"{run.full_title}: errors of each kind, and the percentage points gained by correcting "
        "them; known objects in the ID test split, with 95% intervals, and unknown objects of each "
        f"split with {run.label(method)}."
    )
    numbers = [heading for heading in rows[0] if heading != "Kind"] if rows else []
    return Listing.from_rows(caption, rows, numbers)


def _known_cells(error: Results | None) -> dict[str, Any]:
    if error is None:
        return {"Known objects: errors": None, "mAP50 gained (points)": ABSENT}
    return {
        "Known objects: errors": error["count"].value,
        "mAP50 gained (points)": percent(error["gain"].value, error["gain"].interval),
    }


def _unknown_cells(split: str, error: Results | None) -> dict[str, Any]:
    """Cells of a kind of error in a split; none where it is not measured."""
    if error is None or error["r_u"].value is None:
        return {}
    cells: dict[str, Any] = {f"{split}: errors": error["count"].value}
    for metric in ("ap_u", "r_u"):
        cells[f"{split}: {METRICS[metric].title}"] = percent(error[metric].value)
    return cells


def overview(runs: Sequence[tuple[Run, str]]) -> vl.ChartGroup | None:
    """Gains of all detectors: mAP50 on known objects, and R_U as a mean over splits.

    Args:
        runs: The runs, each with its method.

    Returns:
        The charts; None without an error budget.
    """
    known_rows: list[dict[str, Any]] = []
    unknown_rows: list[dict[str, Any]] = []
    for run, method in runs:
        for kind, error in known_errors(run).items():
            known_rows.append(
                {"run": run.full_title, "kind": kind, **_gain_columns(error["gain"].value)}
            )
        for kind in ORDER:
            gain = _mean_recall_gain(run, method, kind)
            unknown_rows.append({"run": run.full_title, "kind": kind, **_gain_columns(gain)})
    if not known_rows:
        return None
    order = list(dict.fromkeys(row["run"] for row in known_rows))
    rows_by_title = {
        "Known objects: mAP50 gained": known_rows,
        "Unknown objects: R_U gained": unknown_rows,
    }
    charts = []
    for title, rows in rows_by_title.items():
        if any(row["gain"] is not None for row in rows):
            charts.append(_gain_heat_map(title, rows, order))
    return vl.ChartGroup((), tuple(charts))


def _mean_recall_gain(run: Run, method: str, kind: str) -> float | None:
    """R_U gained by correcting a kind of error, as a mean over the splits that have it."""
    if not known_errors(run):
        return None
    gains = []
    for split in run.splits:
        errors = unknown_errors(run, split.name, method)
        if kind not in errors:
            continue
        gain = errors[kind]["r_u"].value
        if gain is not None:
            gains.append(gain)
    if not gains:
        return None
    return sum(gains) / len(gains)


def _gain_heat_map(title: str, rows: Sequence[Mapping[str, Any]], order: Sequence[str]) -> vl.Chart:
    frame = _gain_frame(rows).drop_nulls("gain").with_columns(points=100 * pl.col("gain"))
    text = vl.describe_rows("{run}, {kind} {points:.1f} points", frame)
    return vl.heat_map(
        title,
        f"{title} by correcting each kind of error: {text}.",
        frame,
        "gain",
        vl.quantitative("points", format=".1f"),
        step=28,
        x=vl.nominal(
            "kind", title=None, sort=list(ORDER), axis={"labelAngle": -90, "orient": "top"}
        ),
        y=vl.nominal("run", title=None, sort=list(order), axis={"labelLimit": 220}),
        tooltip=vl.tooltip("run", "kind", "gain:+.1%"),
    )


def known_errors(run: Run) -> dict[str, Results]:
    """Kind of error on known objects → `count` and `gain`; {} without an error budget."""
    if run.id_split is None:
        return {}
    table = run.results.table
    gains = table.values("error_budget", split=run.id_split)
    errors: dict[str, Results] = {}
    for kind, counts in table.by_part("errors", "error", split=run.id_split).items():
        errors[kind] = {"count": counts["count"], "gain": gains.get(kind, Result(None))}
    return errors


def unknown_errors(run: Run, split: str, method: str) -> dict[str, Results]:
    """Kinds of errors on unknown objects of a split; {} without an error budget.

    Of a run with proposals, the missed objects that its first source covers have a row of their
    own, which is a part of that of all missed objects.
    """
    table = run.results.table
    errors = dict(table.by_part("open_set", "error", split=split, method=method))
    if errors and run.first_source is not None:
        part = f"source={run.first_source}, error={FOUND_BY_PROPOSALS}"
        covered = table.values("with_proposals", split=split, method=method, part=part)
        if covered:
            errors[COVERED_KIND] = covered
    return errors


def _gain_columns(
    gain: float | None, interval: tuple[float, float] | None = None
) -> dict[str, float | None]:
    """Columns gain, low and high, rounded."""
    low, high = interval or (None, None)
    return {"gain": _rounded(gain), "low": _rounded(low), "high": _rounded(high)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _gain_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    numbers = dict.fromkeys(("gain", "low", "high"), pl.Float64)
    return pl.DataFrame(list(rows), schema_overrides=numbers, infer_schema_length=None)

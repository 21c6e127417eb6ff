"""Figures of results: what becomes of unknown objects, metrics by family and by method, and how metrics agree."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from farther.metrics import correlation
from farther.report.charts.parts import (
    COLOURS,
    DEEP,
    INK,
    PALE,
    PERCENT,
    SHAPES,
    UNIT,
    Chart,
    Figures,
    Key,
    chart,
    colours,
    named,
    number,
)
from farther.report.results import METRICS, Metric, Run, Split, title_of

FAMILIES = ("output", "feature", "mixed", "latent")

#: What can become of an unknown object: keys in an evaluation, and how figures show them.
FATES = ("tp_u", "fn_misclassified", "fn_missed")
FATE_KEYS = (
    Key("found and flagged as unknown", "#0072B2", "■"),
    Key("taken for a known class", "#D55E00", "■"),
    Key("ignored", "#BDBDBD", "■"),
)


def fates(run: Run, method: str) -> Chart:
    """What became of the unknown objects of each split, as stacked bars."""
    rows = [row for split in run.splits for row in _fates(split.title, run, method, split)]
    order = [split.title for split in run.splits]
    return _fate_chart(f"{run.name}, {run.label(method)}", "What becomes of unknown objects", rows, order)


def fates_by_split(shown: Sequence[tuple[Run, str]]) -> Figures:
    """The same of several detectors on one benchmark, a figure a split.

    Args:
        shown: Runs on one benchmark, and the method of each whose decisions count.
    """
    splits = shown[0][0].splits if shown else ()
    order = [run.name for run, _ in shown]
    charts = []
    for split in splits:
        rows = [row for run, method in shown for row in _fates(run.name, run, method, split)]
        charts.append(_fate_chart(split.title, f"What becomes of unknown objects in {split.title}", rows, order))
    return Figures(FATE_KEYS, tuple(charts))


def _fates(name: str, run: Run, method: str, split: Split) -> list[dict[str, Any]]:
    counts = run.details(split.name, method).get("open_set", {})
    total = sum(counts.get(fate, 0) for fate in FATES)
    if not total:
        return []
    return [
        {"row": name, "fate": key.name, "objects": counts[fate], "share": round(counts[fate] / total, 4), "order": k}
        for k, (fate, key) in enumerate(zip(FATES, FATE_KEYS, strict=True))
    ]


def _fate_chart(title: str, shows: str, rows: Sequence[Mapping[str, Any]], order: Sequence[str]) -> Chart:
    body = {
        "height": {"step": 34},
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 1},
        "encoding": {
            "x": number("share", title="share of unknown objects", axis=PERCENT, scale=UNIT),
            "y": named("row", title=None, sort=list(order)),
            "color": named("fate", scale=colours(FATE_KEYS), legend=None),
            "order": number("order"),
            "tooltip": [named("row", title="of"), named("fate"), number("share", format=".1%"), number("objects")],
        },
    }
    text = "; ".join(f"{r['row']}: {100 * r['share']:.0f}% {r['fate']}" for r in rows)
    return chart(title, f"{shows}. {text}.", rows, body)


def families(runs: Sequence[Run], metrics: Sequence[Metric]) -> Figures:
    """Metrics by split, averaged over the methods of a family and over detectors (FMIYC, Figures 4 and 5)."""
    gathered: dict[tuple[str, str, str], list[float]] = {}
    order: dict[str, int] = {}
    for run in runs:
        for split in run.splits:
            order.setdefault(split.title, len(order))
            for method in run.methods:
                for metric in metrics:
                    value = run.value(split.name, method, metric.name)
                    if value is not None:
                        gathered.setdefault((metric.name, split.title, run.family(method)), []).append(value)
    present = [family for family in FAMILIES if any(key[2] == family for key in gathered)]
    legend = tuple(Key(family, COLOURS[FAMILIES.index(family)], "■") for family in present)
    return Figures(legend, tuple(_family_chart(metric, gathered, list(order), legend) for metric in metrics))


def _family_chart(
    metric: Metric,
    gathered: Mapping[tuple[str, str, str], list[float]],
    splits: list[str],
    legend: Sequence[Key],
) -> Chart:
    rows: list[dict[str, Any]] = [
        {"split": split, "family": family, "value": statistics.fmean(values), "methods": len(values)}
        for (name, split, family), values in gathered.items()
        if name == metric.name
    ]
    body = {
        "height": 190,
        "mark": "bar",
        "encoding": {
            "x": named("split", title=None, sort=splits, axis={"labelAngle": -35}),
            "xOffset": named("family", sort=[key.name for key in legend]),
            "y": number("value", title=None, axis=PERCENT),
            "color": named("family", scale=colours(legend), legend=None),
            "tooltip": [
                named("split"),
                named("family"),
                number("value", format=".1%", title=metric.title),
                number("methods", title="values averaged"),
            ],
        },
    }
    text = "; ".join(f"{row['split']}, {row['family']}: {100 * row['value']:.1f}%" for row in rows)
    shows = f"{metric.title} by split, averaged over the methods of each family. {text}."
    return chart(f"{metric.title} {metric.arrow}", shows, rows, body)


def methods(run: Run) -> Figures:
    """Each metric of a run, methods below each other, a mark a split."""
    rows = [(run.label(method), split.title, run, method, split) for method in run.methods for split in run.splits]
    return _dots(rows, f"of {run.name} by method and split")


def detectors(runs: Sequence[Run], method: str) -> Figures:
    """Each metric of a method, given by its name in params.yaml: one row per detector, one mark per split."""
    rows = [(run.name, split.title, run, method, split) for run in runs for split in run.splits]
    return _dots(rows, f"of {title_of(method)} by detector and split")


def _dots(places: Sequence[tuple[str, str, Run, str, Split]], shows: str) -> Figures:
    series = list(dict.fromkeys(split for _, split, *_ in places))
    legend = tuple(Key(name, COLOURS[k % len(COLOURS)], SHAPES[k % len(SHAPES)][1]) for k, name in enumerate(series))
    charts = []
    for metric in METRICS:
        rows = [
            {"row": row, "split": name, "value": round(value, 4)}
            for row, name, run, method, split in places
            if (value := run.value(split.name, method, metric.name)) is not None
        ]
        charts.append(_dot_chart(metric, rows, list(dict.fromkeys(row for row, *_ in places)), legend, shows))
    return Figures(legend, tuple(charts))


def _dot_chart(
    metric: Metric, rows: Sequence[Mapping[str, Any]], order: Sequence[str], legend: Sequence[Key], shows: str
) -> Chart:
    shape_of = {letter: shape for shape, letter in SHAPES}
    shapes = {"domain": [key.name for key in legend], "range": [shape_of[key.letter] for key in legend]}
    body = {
        "height": {"step": 20},
        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.9},
        "encoding": {
            "x": number("value", title=None, axis=PERCENT, scale={"zero": False, "nice": True, "padding": 8}),
            "y": named("row", title=None, sort=list(order), axis={"grid": True, "ticks": False}),
            "color": named("split", scale=colours(legend), legend=None),
            "shape": named("split", scale=shapes, legend=None),
            "tooltip": [named("row", title="of"), named("split"), number("value", format=".1%", title=metric.title)],
        },
    }
    text = f"{metric.title} {shows}; the same numbers stand in the tables."
    return chart(f"{metric.title} {metric.arrow}", text, rows, body)


def correlations(runs: Sequence[Run]) -> Chart | None:
    """Correlations among the metrics over all methods, detectors and splits (FMIYC, Figure 12); None without two."""
    rows = [dict(values) for run in runs for values in run.figures.values()]
    if len(rows) < 2:
        return None
    found = correlation.matrix(rows, [metric.name for metric in METRICS])
    titles = {metric.name: metric.title for metric in METRICS}
    cells: list[dict[str, Any]] = [
        {"first": titles[a], "second": titles[b], "value": None if value is None else round(value, 4)}
        for a, others in found.items()
        for b, value in others.items()
    ]
    order = list(titles.values())
    # Blue, white and orange are told apart with any colour vision, and each cell holds its number.
    scale = {"domain": [-1, 0, 1], "range": ["#E69F00", "#F7F7F7", "#4C9BD0"]}
    shown = number("value", format="+.2f")
    body = {
        "height": {"step": 44},
        "encoding": {
            "x": named("second", title=None, sort=order, axis={"labelAngle": 0, "orient": "top"}),
            "y": named("first", title=None, sort=order),
            "tooltip": [named("first"), named("second"), shown],
        },
        "layer": [
            {
                "mark": {"type": "rect", "stroke": "white"},
                "encoding": {"color": number("value", scale=scale, legend=None)},
            },
            {"mark": {"type": "text", "fontSize": 13, "color": INK}, "encoding": {"text": shown}},
        ],
    }
    text = "; ".join(
        f"{c['first']} and {c['second']} {c['value']:+.2f}"
        for c in cells
        if c["value"] is not None and order.index(c["first"]) < order.index(c["second"])
    )
    return chart("Correlations among metrics", f"Pearson's, over {len(rows)} rows of the tables: {text}.", cells, body)


def confusion(run: Run, shown: int) -> Chart | None:
    """What detections on unknown objects take them for: unknown category × known class; None where there are none.

    Detections count that reach, for their class, the confidence at which `diagnosis_recall` of the known objects is
    found (Dhamija et al., 2020, Figure 4).

    Args:
        run: Whose detections.
        shown: Categories at most, those with the most detections.
    """
    wild = run.evaluation.get("wilderness", {})
    known = set(run.evaluation.get("closed_set", {}).get("per_class", {}))
    table = {name: taken for name, taken in wild.get("confusion", {}).items() if name not in known}
    if not table:
        return None
    ranked = sorted(table, key=lambda name: (-sum(table[name].values()), name))[:shown]
    cells = [
        {"category": name, "class": taken, "detections": count}
        for name in ranked
        for taken, count in table[name].items()
    ]
    deepest = max(cell["detections"] for cell in cells)
    scale = {"domain": [0, deepest], "range": [PALE, DEEP]}
    readable = {"condition": {"test": f"datum.detections > {deepest / 2}", "value": "white"}, "value": INK}
    body = {
        "height": {"step": 22},
        "encoding": {
            "x": named("class", title="taken for", axis={"labelAngle": -45, "orient": "top"}),
            "y": named("category", title=None, sort=ranked),
            "tooltip": [named("category"), named("class"), number("detections")],
        },
        "layer": [
            {
                "mark": {"type": "rect", "stroke": "white"},
                "encoding": {"color": number("detections", scale=scale, legend=None)},
            },
            {"mark": {"type": "text", "fontSize": 12}, "encoding": {"text": number("detections"), "color": readable}},
        ],
    }
    text = "; ".join(f"{c['category']} for {c['class']} {c['detections']}" for c in cells)
    part = "" if len(ranked) == len(table) else f" ({len(ranked)} of {len(table)} categories)"
    title = f"Unknown objects taken for known classes{part}"
    return chart(title, f"Detections by category: {text}.", cells, body)

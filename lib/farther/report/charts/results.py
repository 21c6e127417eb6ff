"""Charts of results: outcomes of unknown objects, metrics by family, method and detector, and how metrics agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from farther.metrics import correlation
from farther.metrics.catalogue import Metric
from farther.report.charts import vega as vl
from farther.report.results import CHARTED, Run, title_of

FAMILIES = ("output", "feature", "mixed", "latent")

#: Outcomes of an unknown object: key in an evaluation → legend.
OUTCOMES = {
    "tp_u": vl.Key("found", "#0072B2", "■"),
    "fn_misclassified": vl.Key("misclassified", "#D55E00", "■"),
    "fn_missed": vl.Key("missed", "#BDBDBD", "■"),
}
OUTCOME_KEYS = tuple(OUTCOMES.values())


def outcomes(run: Run, method: str) -> vl.Chart:
    """Outcomes of the unknown objects of each split, as stacked bars."""
    rows = _outcomes([(run, method)]).with_columns(row="split")
    title = f"{run.full_title}, {run.label(method)}"
    return _outcome_chart(title, "Outcomes of unknown objects", rows, [split.title for split in run.splits])


def outcomes_by_split(shown: Sequence[tuple[Run, str]]) -> vl.ChartGroup:
    """Outcomes of unknown objects for several detectors, one chart per split."""
    rows, order = _outcomes(shown).with_columns(row="run"), [run.full_title for run, _ in shown]
    charts = [
        _outcome_chart(
            split.title, f"Outcomes of unknown objects in {split.title}", rows.filter(split=split.title), order
        )
        for split in (shown[0][0].splits if shown else ())
    ]
    return vl.ChartGroup(OUTCOME_KEYS, tuple(charts))


def _outcomes(shown: Sequence[tuple[Run, str]]) -> pl.DataFrame:
    """Unknown objects by run, split and outcome: run, split, outcome, order, objects, share."""
    rows = []
    for run, method in shown:
        for split in run.splits:
            counts = run.details(split.name, method).get("open_set", {})
            for order, (outcome, key) in enumerate(OUTCOMES.items()):
                place = {"run": run.full_title, "split": split.title, "outcome": key.name, "order": order}
                rows.append({**place, "objects": counts.get(outcome, 0)})
    types = {"run": pl.String, "split": pl.String, "outcome": pl.String, "order": pl.Int64, "objects": pl.Int64}
    total = pl.col("objects").sum().over("run", "split")
    frame = pl.DataFrame(rows, schema=types).filter(total > 0)
    return frame.with_columns(share=(pl.col("objects") / total).round(4))


def _outcome_chart(title: str, shows: str, rows: pl.DataFrame, order: Sequence[str]) -> vl.Chart:
    body = {
        "height": {"step": 34},
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 1},
        "encoding": {
            "x": vl.number("share", title="share of unknown objects", axis=vl.PERCENT, scale=vl.UNIT),
            "y": vl.named("row", title=None, sort=list(order)),
            "color": vl.named("outcome", scale=vl.colours(OUTCOME_KEYS), legend=None),
            "order": vl.number("order"),
            "tooltip": [
                vl.named("row", title="of"),
                vl.named("outcome"),
                vl.number("share", format=".1%"),
                vl.number("objects"),
            ],
        },
    }
    text = "; ".join(f"{r['row']}: {100 * r['share']:.0f}% {r['outcome']}" for r in rows.iter_rows(named=True))
    return vl.chart(title, f"{shows}. {text}.", rows.drop("run", "split"), body)


def families(values: pl.DataFrame, metrics: Sequence[Metric]) -> vl.ChartGroup:
    """Metrics by split, averaged over the methods of a family and over detectors (FMIYC, Figures 4 and 5)."""
    means = (
        values.drop_nulls("value")
        .group_by("metric", "family", split="split_title", maintain_order=True)
        .agg(pl.col("value").mean(), methods=pl.len())
    )
    present = [family for family in FAMILIES if family in means["family"]]
    legend = tuple(vl.Key(family, vl.COLOURS[FAMILIES.index(family)], "■") for family in present)
    splits = values["split_title"].unique(maintain_order=True).to_list()
    charts = [
        _family_chart(metric, means.filter(metric=metric.name).drop("metric"), splits, legend) for metric in metrics
    ]
    return vl.ChartGroup(legend, tuple(charts))


def _family_chart(metric: Metric, rows: pl.DataFrame, splits: list[str], legend: Sequence[vl.Key]) -> vl.Chart:
    body = {
        "height": 190,
        "mark": "bar",
        "encoding": {
            "x": vl.named("split", title=None, sort=splits, axis={"labelAngle": -35}),
            "xOffset": vl.named("family", sort=[key.name for key in legend]),
            "y": vl.number("value", title=None, axis=vl.PERCENT),
            "color": vl.named("family", scale=vl.colours(legend), legend=None),
            "tooltip": [
                vl.named("split"),
                vl.named("family"),
                vl.number("value", format=".1%", title=metric.title),
                vl.number("methods", title="values averaged"),
            ],
        },
    }
    text = "; ".join(f"{r['split']}, {r['family']}: {100 * r['value']:.1f}%" for r in rows.iter_rows(named=True))
    shows = f"{metric.title} by split, averaged over the methods of each family. {text}."
    return vl.chart(f"{metric.title} {metric.arrow}", shows, rows, body)


def methods(run: Run) -> vl.ChartGroup:
    """Each metric of a run: one row per method, one mark per split."""
    return _dots(run.values.with_columns(row="label"), f"of {run.full_title} by method and split")


def detectors(runs: Sequence[Run], method: str) -> vl.ChartGroup:
    """Each metric of a method, by its name in params.yaml: one row per detector, one mark per split."""
    values = pl.concat([run.titled_values for run in runs]).filter(method=method)
    return _dots(values.with_columns(row="detector"), f"of {title_of(method)} by detector and split")


def _dots(values: pl.DataFrame, shows: str) -> vl.ChartGroup:
    splits = values["split_title"].unique(maintain_order=True)
    legend = vl.keys(splits, vl.SHAPES)
    order = values["row"].unique(maintain_order=True).to_list()
    rows = values.select("metric", "row", pl.col("value").round(4), split="split_title").drop_nulls("value")
    of_metric = {metric: rows.filter(metric=metric.name) for metric in CHARTED}
    charts = [_dot_chart(metric, of, order, legend, shows) for metric, of in of_metric.items() if len(of)]
    return vl.ChartGroup(legend, tuple(charts))


def _dot_chart(metric: Metric, rows: pl.DataFrame, order: list[str], legend: Sequence[vl.Key], shows: str) -> vl.Chart:
    body = {
        "height": {"step": 20},
        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.9},
        "encoding": {
            "x": vl.number("value", title=None, axis=vl.PERCENT, scale={"zero": False, "nice": True, "padding": 8}),
            "y": vl.named("row", title=None, sort=order, axis={"grid": True, "ticks": False}),
            "color": vl.named("split", scale=vl.colours(legend), legend=None),
            "shape": vl.named("split", scale=vl.marks(legend, vl.SHAPES), legend=None),
            "tooltip": [
                vl.named("row", title="of"),
                vl.named("split"),
                vl.number("value", format=".1%", title=metric.title),
            ],
        },
    }
    words = f"{metric.title} {shows}; the tables hold the same values."
    return vl.chart(f"{metric.title} {metric.arrow}", words, rows.drop("metric"), body)


def correlations(values: pl.DataFrame) -> vl.Chart | None:
    """Correlations among metrics over all methods, detectors and splits (FMIYC, Figure 12); None for one row."""
    rows = values.pivot("metric", index=["run", "split", "method"], values="value")
    if len(rows) < 2:
        return None
    found = correlation.matrix(rows.to_dicts(), [metric.name for metric in CHARTED])
    titles = {metric.name: metric.title for metric in CHARTED}
    order = list(titles.values())
    cells = pl.DataFrame(
        [
            {"first": titles[a], "second": titles[b], "value": None if value is None else round(value, 4)}
            for a, others in found.items()
            for b, value in others.items()
        ],
        schema={"first": pl.String, "second": pl.String, "value": pl.Float64},
    )
    # Blue, white and orange are told apart with any colour vision, and each cell holds its number.
    scale = {"domain": [-1, 0, 1], "range": ["#E69F00", "#F7F7F7", "#4C9BD0"]}
    shown = vl.number("value", format="+.2f")
    body = {
        "height": {"step": 44},
        "encoding": {
            "x": vl.named("second", title=None, sort=order, axis={"labelAngle": 0, "orient": "top"}),
            "y": vl.named("first", title=None, sort=order),
            "tooltip": [vl.named("first"), vl.named("second"), shown],
        },
        "layer": _tiles(vl.number("value", scale=scale, legend=None), shown, 13, {"value": vl.INK}),
    }
    pairs = ((a, b, v) for a, b, v in cells.iter_rows() if v is not None and order.index(a) < order.index(b))
    text = "; ".join(f"{a} and {b} {value:+.2f}" for a, b, value in pairs)
    return vl.chart(
        "Correlations among metrics", f"Pearson's, over {len(rows)} rows of the tables: {text}.", cells, body
    )


def confusion(run: Run, shown: int) -> vl.Chart | None:
    """Unknown category × known class that detections assign to it; None where there are no such detections.

    Detections count that reach, for their class, the confidence at which `diagnosis_recall` of the known objects is
    found (Dhamija et al., 2020, Figure 4).
    """
    known = list(run.evaluation.get("closed_set", {}).get("per_class", {}))
    counts = [
        {"category": category, "class": taken, "detections": count}
        for category, by_class in run.evaluation.get("wilderness", {}).get("confusion", {}).items()
        for taken, count in by_class.items()
    ]
    types = {"category": pl.String, "class": pl.String, "detections": pl.Int64}
    cells = pl.DataFrame(counts, schema=types).filter(~pl.col("category").is_in(known))
    if cells.is_empty():
        return None
    total = cells.group_by("category").agg(pl.col("detections").sum())
    ranked = total.sort("detections", "category", descending=[True, False])["category"].head(shown)
    cells = ranked.to_frame().join(cells, on="category", maintain_order="left_right")
    deepest = max(cells["detections"])
    colour = vl.number("detections", scale={"domain": [0, deepest], "range": [vl.PALE, vl.DEEP]}, legend=None)
    readable = {"condition": {"test": f"datum.detections * 2 > {deepest}", "value": "white"}, "value": vl.INK}
    body = {
        "height": {"step": 22},
        "encoding": {
            "x": vl.named("class", title="detected as", axis={"labelAngle": -45, "orient": "top"}),
            "y": vl.named("category", title=None, sort=ranked.to_list()),
            "tooltip": [vl.named("category"), vl.named("class"), vl.number("detections")],
        },
        "layer": _tiles(colour, vl.number("detections"), 12, readable),
    }
    text = "; ".join(f"{category} as {taken} {count}" for category, taken, count in cells.iter_rows())
    part = "" if len(ranked) == len(total) else f" ({len(ranked)} of {len(total)} categories)"
    return vl.chart(f"Unknown objects detected as known classes{part}", f"Detections by category: {text}.", cells, body)


def _tiles(colour: Mapping[str, Any], text: Mapping[str, Any], size: int, ink: Mapping[str, Any]) -> list[Any]:
    """The layers of a heat map: coloured tiles, and numbers on them."""
    return [
        {"mark": {"type": "rect", "stroke": "white"}, "encoding": {"color": colour}},
        {"mark": {"type": "text", "fontSize": size}, "encoding": {"text": text, "color": ink}},
    ]

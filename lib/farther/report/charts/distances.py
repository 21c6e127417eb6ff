"""The first figure: outcomes of unknown objects at each distance, one panel per detector."""

from __future__ import annotations

import copy
from typing import Any

import polars as pl

from farther.report.charts import outcomes
from farther.report.charts import vega as vl
from farther.report.outcomes import COVERED, alarms_in_words

#: Height in pixels of a panel with upright bars, and of a bar of a single panel.
PANEL_HEIGHT = 230
BAR_HEIGHT = 44


def panels(rows: pl.DataFrame) -> vl.ChartGroup:
    """One chart per panel of `farther.report.distances.Distances.rows`.

    Bars of several panels are upright; those of a single panel, which has the width of the page,
    lie one below the other.
    """
    titles = rows["panel"].unique(maintain_order=True).to_list()
    charts = []
    for title in titles:
        charts.append(_panel(title, rows.filter(panel=title), is_single=len(titles) == 1))
    return vl.ChartGroup(outcomes.legend(rows), tuple(charts))


def figure(rows: pl.DataFrame) -> dict[str, Any]:
    """All panels in one specification, for files: SVG, PNG and PDF."""
    title: dict[str, Any] = {"text": "Share of the unknown objects", "anchor": "start"}
    if COVERED in set(rows["part"]):
        title["subtitle"] = (
            "Hatched: missed, but a proposal covers it, at "
            f"{alarms_in_words(rows['alarms'].drop_nulls())}"
        )
    common = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": vl.FIGURES["config"],
    }
    charts = panels(rows).charts
    specs = []
    for panel in charts:
        spec = copy.deepcopy(panel.spec)
        del spec["description"]
        del spec["usermeta"]
        if len(charts) == 1:
            title["text"] += f": {panel.title}"
            return {**common, **spec, "title": title, "width": 420}
        spec["width"] = 62 * rows.filter(panel=panel.title)["distance"].n_unique()
        specs.append({**spec, "title": panel.title, "height": 200})
    return {**common, "title": title, "columns": 3, "concat": specs}


def _panel(title: str, rows: pl.DataFrame, *, is_single: bool) -> vl.Chart:
    texts = []
    upright_labels = []
    lying_labels = []
    bars = rows.unique("bar", keep="first", maintain_order=True)
    # A name that all bars have would tell nothing.
    has_distances = bars["distance"].n_unique() > 1
    has_methods = bars["method"].n_unique() > 1
    for bar in bars.iter_rows(named=True):
        texts.append(f"{bar['distance']} ({bar['objects']} objects): {bar['words']}")
        upright_labels.append([bar["distance"], bar["known"], str(bar["objects"])])
        label = []
        if has_distances:
            label.append(bar["distance"])
        if has_methods:
            label.append(bar["method"])
        lying_labels.append([*label, f"{bar['objects']:,} objects"])

    description = f"Outcomes of unknown objects with {title}. {'; '.join(texts)}."
    names = pl.concat_str("distance", "run", separator=", ")
    parts = rows.drop("panel", "known", "words").with_columns(name=names)
    if is_single:
        return outcomes.bars(title, description, parts, lying_labels, outcomes.LYING, BAR_HEIGHT)
    return outcomes.bars(title, description, parts, upright_labels, outcomes.UPRIGHT, PANEL_HEIGHT)

"""Charts of what each threshold costs: misclassified unknown objects by false alarms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from farther.evaluation.choice import Choice, Choices
from farther.report.charts import vega as vl

GREY = "#777777"

#: Marks of the best setting of each method, and of the chosen one.
SETTING = {"type": "point", "filled": True, "size": 45, "opacity": 1}
CHOSEN = {"type": "point", "shape": "diamond", "size": 260, "strokeWidth": 3, "opacity": 1}


def trade_off(choices: Choices, titles: Mapping[str, str], limits: Mapping[str, str], answer: str) -> vl.ChartGroup:
    """Misclassified unknown objects by false alarms: one curve per method, the settings, and the Pareto front.

    Args:
        choices: The choices of a run; one was made.
        titles: Of its methods.
        limits: Its limits in words, by axis.
        answer: The answer in words.
    """
    labels = {name: titles.get(name, name) for name in choices.curves}
    legend = vl.keys(labels.values(), vl.DASHES)
    curves = [
        pl.DataFrame({"x": curve.false_alarms, "y": curve.misclassified}).with_columns(series=pl.lit(labels[name]))
        for name, curve in choices.curves.items()
    ]
    points = pl.concat(curves).select("series", pl.col("x").cast(pl.Float64), pl.col("y").cast(pl.Float64))
    x = vl.number(
        "x",
        title="false alarms per 100 ID images",
        scale={"type": "symlog", "constant": 2, "domain": [0, _end(points["x"], 1)]},
        axis={"values": [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000], "format": "d"},
    )
    scale = {"domain": [0, _end(points["y"], 0.01)]}
    y = vl.number("y", title="unknown objects misclassified", axis=vl.PERCENT, scale=scale)
    tooltip = [
        vl.named("series", title="method"),
        vl.number("x", title="false alarms per 100 ID images", format=".1f"),
        vl.number("y", title="misclassified", format=".1%"),
    ]
    layers = [_front(points, x, y), *_limits(choices, limits), _curves(legend, x, y, tooltip)]
    colour = vl.named("series", scale=vl.colours(legend), legend=None)
    place = {"x": x, "y": y, "color": colour, "tooltip": tooltip}
    layers += [
        {"data": {"values": _rows(choices.methods, labels)}, "mark": SETTING, "encoding": place},
        {"data": {"values": _rows(_chosen(choices), labels)}, "mark": CHOSEN, "encoding": place},
    ]
    body = {"height": 320, "layer": layers}
    words = f"Misclassified unknown objects by false alarms of {choices.run}. {answer}"
    return vl.ChartGroup(legend, (vl.chart("Misclassified by false alarms", words, vl.line_rows(points), body),))


def _end(values: pl.Series, least: float) -> float:
    """The end of an axis."""
    return max(least, *values)


def _front(points: pl.DataFrame, x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    front = pareto(points.select("x", "y").rows())
    return {
        "data": {"values": [{"x": a, "y": b} for a, b in front]},
        "mark": {"type": "line", "strokeWidth": 9, "opacity": 0.25, "color": GREY, "interpolate": "step-after"},
        "encoding": {"x": x, "y": y},
    }


def _limits(choices: Choices, limits: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for axis, channel in (("false_alarms", "x"), ("misclassified", "y")):
        # A guarantee on false alarms is of images, not of detections.
        if axis in choices.budget.limits and (channel == "y" or choices.budget.guarantee == "none"):
            yield {
                "data": {"values": [{"limit": limits[axis]}]},
                "mark": {"type": "rule", "strokeDash": [3, 3], "color": GREY},
                "encoding": {channel: {"datum": choices.budget.limits[axis]}, "tooltip": [vl.named("limit")]},
            }


def _curves(
    legend: Sequence[vl.Key], x: Mapping[str, Any], y: Mapping[str, Any], tooltip: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": x,
            "y": y,
            "color": vl.named("series", scale=vl.colours(legend), legend=None),
            "strokeDash": vl.named("series", scale=vl.marks(legend, vl.DASHES), legend=None),
            "order": vl.number("point"),
            "tooltip": tooltip,
        },
    }


def _chosen(choices: Choices) -> dict[str, Choice]:
    return {} if choices.choice is None else {choices.choice.method: choices.choice}


def _rows(settings: Mapping[str, Choice], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The measured place of each setting."""
    found = {
        name: (one.measured["false_alarms"].value, one.measured["misclassified"].value)
        for name, one in settings.items()
    }
    return [
        {"series": labels[name], "x": round(x, 4), "y": round(y, 6)}
        for name, (x, y) in found.items()
        if x is not None and y is not None
    ]


def pareto(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points for which no other has both less x and less y, by rising x.

    >>> pareto([(0.0, 0.9), (2.0, 0.4), (1.0, 0.5), (3.0, 0.45)])
    [(0.0, 0.9), (1.0, 0.5), (2.0, 0.4)]
    """
    front: list[tuple[float, float]] = []
    for x, y in sorted(points):
        if not front or y < front[-1][1]:
            front.append((x, y))
    return front

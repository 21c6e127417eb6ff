"""Charts of what each threshold costs: misclassified unknown objects by false alarms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from farther.evaluation.deploy.results import DeployChoice, DeployChoices
from farther.report.charts import vega as vl

GREY = "#777777"

#: Mark of the chosen setting.
CHOSEN = {"type": "point", "shape": "diamond", "size": 260, "strokeWidth": 3, "opacity": 1}

#: Ticks of the axis of false alarms.
TICKS = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]


def trade_off(
    choices: DeployChoices, titles: Mapping[str, str], limits: Mapping[str, str], answer: str
) -> vl.ChartGroup:
    """Misclassified unknown objects by false alarms: one curve per method, the settings, and the Pareto front.

    Args:
        choices: The choices of a run; one was made.
        titles: Of its methods.
        limits: Its limits in words, by axis.
        answer: The answer in words.
    """
    labels = {name: titles.get(name, name) for name in choices.curves}
    legend = vl.keys(labels.values(), vl.DASHES)
    points = vl.series(
        {
            labels[name]: zip(curve.false_alarms, curve.misclassified, strict=True)
            for name, curve in choices.curves.items()
        }
    )
    x = vl.number(
        "x",
        title="false alarms per 100 ID images",
        scale={"type": "symlog", "constant": 2, "domain": [0, max(1, *points["x"])]},
        axis={"values": TICKS, "format": "d"},
    )
    scale = {"domain": [0, max(0.01, *points["y"])]}
    place: dict[str, Any] = {
        "x": x,
        "y": vl.number("y", title="unknown objects misclassified", axis=vl.PERCENT, scale=scale),
    }
    tooltip = vl.tooltip(
        "series method", "x:.1f false alarms per 100 ID images", "y:.1% misclassified"
    )
    one = {**place, "tooltip": tooltip, **vl.by("series", legend)}
    front = {
        "type": "line",
        "strokeWidth": 9,
        "opacity": 0.25,
        "color": GREY,
        "interpolate": "step-after",
    }
    drawn = vl.chart(
        "Misclassified objects against false alarms",
        f"Misclassified unknown objects against false alarms, {choices.run}. {answer}",
        vl.line_rows(points),
        vl.layer(
            front, [{"x": a, "y": b} for a, b in pareto(points.select("x", "y").rows())], **place
        ),
        *_limits(choices, limits),
        vl.layer(
            {"type": "line", "strokeWidth": 2},
            **{**one, **vl.by("series", legend, strokeDash=vl.DASHES), "order": vl.number("point")},
        ),
        vl.layer(vl.points(45), _rows(choices.methods, labels), **one),
        vl.layer(CHOSEN, _rows(_chosen(choices), labels), **one),
        height=320,
    )
    return vl.ChartGroup(legend, (drawn,))


def _limits(choices: DeployChoices, limits: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for axis, channel in (("false_alarms", "x"), ("misclassified", "y")):
        # A guarantee on false alarms is of images, not of detections.
        if axis in choices.budget.limits and (channel == "y" or choices.budget.guarantee == "none"):
            place: dict[str, Any] = {
                channel: {"datum": choices.budget.limits[axis]},
                "tooltip": vl.tooltip("limit"),
            }
            yield vl.layer(
                {"type": "rule", "strokeDash": [3, 3], "color": GREY},
                [{"limit": limits[axis]}],
                **place,
            )


def _chosen(choices: DeployChoices) -> dict[str, DeployChoice]:
    return {} if choices.choice is None else {choices.choice.method: choices.choice}


def _rows(settings: Mapping[str, DeployChoice], labels: Mapping[str, str]) -> list[dict[str, Any]]:
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

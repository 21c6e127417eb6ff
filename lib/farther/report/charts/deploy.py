"""Charts of what each threshold costs: misclassified unknown objects by false alarms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from farther.evaluation.deploy.results import DeployChoice, DeployChoices
from farther.report.charts import vega as vl

GREY = "#777777"

#: Mark of the chosen setting.
CHOSEN = {"type": "point", "shape": "diamond", "size": 260, "strokeWidth": 3, "opacity": 1}

#: Mark of the Pareto front.
FRONT = {
    "type": "line",
    "strokeWidth": 9,
    "opacity": 0.25,
    "color": GREY,
    "interpolate": "step-after",
}

#: Ticks of the axis of false alarms.
TICKS = [0, 0.02, 0.05, 0.1, 0.2, 0.5, 1]


@dataclass(frozen=True)
class Words:
    """Words of a chart.

    Args:
        run: The run's title.
        answer: The answer.
        titles: Method → its title.
        limits: Axis → its limit.
    """

    run: str
    answer: str
    titles: Mapping[str, str]
    limits: Mapping[str, str]


def trade_off(choices: DeployChoices, words: Words) -> vl.ChartGroup:
    """Misclassified unknown objects by false alarms.

    The chart has one curve per method, the settings, the limits, and the Pareto front.

    Args:
        choices: The choices of a run; one was made.
        words: Titles, limits and the answer.
    """
    labels = {name: words.titles.get(name, name) for name in choices.curves}
    legend = vl.legend_keys(labels.values(), vl.DASHES)
    points_by_label = {}
    for name, curve in choices.curves.items():
        points_by_label[labels[name]] = zip(curve.false_alarms, curve.misclassified, strict=True)
    points = vl.series(points_by_label)

    axes: dict[str, Any] = {
        "x": vl.quantitative(
            "x",
            title="ID images with a false alarm",
            scale={"type": "symlog", "constant": 0.02, "domain": [0, max(0.01, *points["x"])]},
            axis={"values": TICKS, "format": "~%"},
        ),
        "y": vl.quantitative(
            "y",
            title="unknown objects misclassified",
            axis=vl.PERCENT,
            scale={"domain": [0, max(0.01, *points["y"])]},
        ),
    }
    tooltip = vl.tooltip(
        "series method", "x:.1% of the ID images with a false alarm", "y:.1% misclassified"
    )
    channels = {**axes, "tooltip": tooltip, **vl.legend_channels("series", legend)}
    line_channels = {
        **channels,
        **vl.legend_channels("series", legend, strokeDash=vl.DASHES),
        "order": vl.quantitative("point"),
    }
    front = [{"x": x, "y": y} for x, y in pareto(points.select("x", "y").rows())]
    chosen = {}
    if choices.choice is not None:
        chosen[choices.choice.method] = choices.choice
    chart = vl.chart(
        f"{words.run}: misclassified objects against false alarms",
        f"Misclassified unknown objects against false alarms, {words.run}. {words.answer}",
        vl.line_rows(points),
        vl.layer(FRONT, front, **axes),
        *_limit_layers(choices, words.limits),
        vl.layer({"type": "line", "strokeWidth": 2}, **line_channels),
        vl.layer(vl.point_mark(45), _measured_points(choices.methods, labels), **channels),
        vl.layer(CHOSEN, _measured_points(chosen, labels), **channels),
        height=320,
    )
    return vl.ChartGroup(legend, (chart,))


def _limit_layers(choices: DeployChoices, limits: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for axis, channel in (("false_alarms", "x"), ("misclassified", "y")):
        if axis not in choices.budget.limits:
            continue
        channels: dict[str, Any] = {
            channel: {"datum": choices.budget.limits[axis]},
            "tooltip": vl.tooltip("limit"),
        }
        mark = {"type": "rule", "strokeDash": [3, 3], "color": GREY}
        yield vl.layer(mark, [{"limit": limits[axis]}], **channels)


def _measured_points(
    settings: Mapping[str, DeployChoice], labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The measured point of each setting; those without a value are left out."""
    points = []
    for name, setting in settings.items():
        false_alarms = setting.measured["false_alarms"].value
        misclassified = setting.measured["misclassified"].value
        if false_alarms is not None and misclassified is not None:
            points.append(
                {
                    "series": labels[name],
                    "x": round(false_alarms, 6),
                    "y": round(misclassified, 6),
                }
            )
    return points


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

"""Stacked bars of the outcomes of unknown objects, in one order and with one legend on all pages.

The order is found, misclassified, missed. The missed objects that a proposal covers are the first
part of the missed ones, and hatched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from farther.report.charts import vega as vl
from farther.report.outcomes import COVERED, alarms_in_words
from farther.text.printable import printable_texts

#: Parts of a bar, in the order of stacking.
KEYS = (
    vl.Key("found", "#0072B2", "■"),
    vl.Key("misclassified", "#D55E00", "■"),
    vl.Key(COVERED, "#E0E0E0", "▨"),
    vl.Key("missed", "#BDBDBD", "■"),
)

#: Half of the width of a bar, where the bars are one apart.
HALF_WIDTH = 0.41

#: Number of bars from which on the number of labels is set: Vega-Lite has one per 40 pixels, which
#: labels only every second bar where there are more bars than that.
MOST_LABELLED = 6

#: Lines of the hatching: their distance, how much they rise over a bar, and their colour. The
#: first two are shares, as the axis of the bars is.
HATCH_DISTANCE = 0.035
HATCH_RISE = 0.1
HATCH_COLOUR = "#767676"


#: Intervals are beside each other, as the ends of two parts may be close: at the right side of
#: upright bars, and below the numbers of lying ones.
SIDE = {"found": HALF_WIDTH - 0.02, "misclassified": HALF_WIDTH - 0.08}
BELOW = {"found": HALF_WIDTH - 0.08, "misclassified": HALF_WIDTH - 0.17}


@dataclass(frozen=True)
class Direction:
    """Direction of bars, and how long they are about.

    Args:
        place: The channel along which bars stand side by side.
        length: The channel of their shares.
        has_room: Whether a part of a bar is long enough for its number, as Vega's expression.
        whiskers: Outcome → where the interval at its end is drawn, from the middle of the bar.
    """

    place: str
    length: str
    has_room: str
    whiskers: Mapping[str, float]


#: Upright bars side by side, and bars one below the other, which are as long as a page is wide. The
#: width is a signal of Vega, which charts that are concatenated do not have.
UPRIGHT = Direction("x", "y", "datum.total >= 0.055", SIDE)
LYING = Direction("y", "x", "datum.total * width >= 30", BELOW)


def legend(rows: pl.DataFrame) -> tuple[vl.Key, ...]:
    """The legend of a page: the parts that occur.

    That of covered objects has the rate of false alarms at which proposals cover them.

    Args:
        rows: As of `bars`.
    """
    keys = []
    for key in _keys(rows):
        if key.name == COVERED:
            rates = alarms_in_words(rows["alarms"].drop_nulls())
            key = replace(key, name=f"{key.name} (at {rates})", colour=HATCH_COLOUR)
        keys.append(key)
    return tuple(keys)


def _keys(rows: pl.DataFrame) -> tuple[vl.Key, ...]:
    """The parts that any bar has, in the order of stacking."""
    parts = set(rows.filter(pl.col("share") > 0)["part"])
    return tuple(key for key in KEYS if key.name in parts)


def bars(
    title: str,
    description: str,
    rows: pl.DataFrame,
    labels: Sequence[Sequence[str]],
    direction: Direction,
    size: float,
) -> vl.Chart:
    """A chart with a bar of outcomes per label.

    Args:
        title, description: Its heading, and the chart in words.
        rows: Rows of `farther.report.outcomes.OutcomeShares.parts`, with a column `bar`, the number
            of the bar from 0, and a column `name`, its name. A column `href` has the address of
            the images of each part, "" for none. Other columns are in the numbers of the figure,
            too.
        labels: Lines of the label of each bar.
        direction: `UPRIGHT` or `LYING`.
        size: Height in pixels, of the chart with upright bars, and of each bar if they lie.
    """
    end = pl.col("share").cum_sum().over("bar")
    shares = ("share", "start", "end", "total", "low", "high", "covered", "alarms")
    parts = rows.with_columns(end=end, start=end - pl.col("share"))
    parts = parts.with_columns(pl.col(name).cast(pl.Float64).round(4) for name in shares)

    height = size
    if direction.place == "y":
        height = size * len(labels)
    links = {}
    if "href" in parts.columns:
        links = vl.links_to("href")
    return vl.chart(
        title,
        description,
        parts,
        _bar_layer(parts, labels, direction),
        _hatch_layer(direction),
        _whisker_layer(direction),
        _number_layer(direction, is_halo=True),
        _number_layer(direction, is_halo=False),
        height=height,
        **links,
    )


def _bar_layer(
    rows: pl.DataFrame, labels: Sequence[Sequence[str]], direction: Direction
) -> dict[str, Any]:
    edges = [
        {"calculate": f"datum.bar - {HALF_WIDTH}", "as": "before"},
        {"calculate": f"datum.bar + {HALF_WIDTH}", "as": "after"},
        {
            "calculate": "isValid(datum.low) ? '[' + format(100 * datum.low, '.1f') + ', ' + "
            "format(100 * datum.high, '.1f') + ']' : '—'",
            "as": "interval",
        },
        {
            "calculate": "isValid(datum.covered) ? format(datum.covered, '.1%') + ' at ' + "
            "format(datum.alarms, '.2f') + ' false alarms per ID image' : '—'",
            "as": "coverage",
        },
    ]
    fields = ["name of", "outcome", "total:.1% share of unknown objects"]
    if rows["low"].count():
        fields.append("interval 95% interval")
    if rows["covered"].count():
        fields.append("coverage missed, but a proposal covers it")
    fields.append("objects: unknown objects")
    channels = {
        direction.place: vl.quantitative(
            "before",
            title=None,
            scale=_place_scale(len(labels), direction),
            axis=_place_axis(labels),
        ),
        f"{direction.place}2": {"field": "after"},
        direction.length: vl.quantitative("start", title=None, scale=vl.UNIT, axis=vl.PERCENT),
        f"{direction.length}2": {"field": "end"},
    }
    mark = {"type": "rect", "stroke": "white", "strokeWidth": 1}
    layer = vl.layer(
        mark,
        **channels,
        tooltip=vl.tooltip(*fields),
        **vl.legend_channels("part", _keys(rows)),
    )
    return {"transform": edges, **layer}


def _place_scale(bars: int, direction: Direction) -> dict[str, Any]:
    return {
        "domain": [-0.5, bars - 0.5],
        "nice": False,
        "zero": False,
        "reverse": direction.place == "y",
    }


def _place_axis(labels: Sequence[Sequence[str]]) -> dict[str, Any]:
    """An axis with the labels of the bars in the place of its numbers."""
    # In an expression, a character that has no glyph would no longer be replaced.
    texts = json.dumps(printable_texts([list(lines) for lines in labels]), ensure_ascii=False)
    axis: dict[str, Any] = {
        "values": list(range(len(labels))),
        "labelExpr": f"{texts}[datum.value]",
        "labelAngle": 0,
        "labelOverlap": False,
        "labelLimit": 190,
        "grid": False,
        "ticks": False,
        "domain": False,
    }
    if len(labels) > MOST_LABELLED:
        axis["tickCount"] = len(labels)
    return axis


def _hatch_layer(direction: Direction) -> dict[str, Any]:
    """Oblique lines over the missed objects that a proposal covers.

    A line has the share `number * HATCH_DISTANCE + HATCH_RISE * t`, where t rises from 0 to 1 over
    the width of the bar. It is drawn where this share lies within the part.
    """
    first = f"ceil((datum.start - {HATCH_RISE}) / {HATCH_DISTANCE})"
    last = f"floor(datum.end / {HATCH_DISTANCE})"
    offset = f"datum.number * {HATCH_DISTANCE}"
    entry = f"max(0, (datum.start - {offset}) / {HATCH_RISE})"
    leave = f"min(1, (datum.end - {offset}) / {HATCH_RISE})"
    width = 2 * HALF_WIDTH
    transform = [
        {"filter": f"datum.part == '{COVERED}' && datum.end > datum.start"},
        {"calculate": f"sequence({first}, {last} + 1)", "as": "number"},
        {"flatten": ["number"]},
        {"calculate": entry, "as": "entry"},
        {"calculate": leave, "as": "leave"},
        {"filter": "datum.entry < datum.leave"},
        {"calculate": f"{offset} + {HATCH_RISE} * datum.entry", "as": "from_share"},
        {"calculate": f"{offset} + {HATCH_RISE} * datum.leave", "as": "to_share"},
        {"calculate": f"datum.bar - {HALF_WIDTH} + {width} * datum.entry", "as": "from_place"},
        {"calculate": f"datum.bar - {HALF_WIDTH} + {width} * datum.leave", "as": "to_place"},
    ]
    channels = {
        direction.place: vl.quantitative("from_place", title=None),
        f"{direction.place}2": {"field": "to_place"},
        direction.length: vl.quantitative("from_share", title=None),
        f"{direction.length}2": {"field": "to_share"},
    }
    mark = {"type": "rule", "strokeWidth": 1, "color": HATCH_COLOUR, "tooltip": False}
    return {"transform": transform, **vl.layer(mark, **channels)}


def _whisker_layer(direction: Direction) -> dict[str, Any]:
    """95% intervals of found and of misclassified objects, at the end of each of these parts.

    The last part of a bar has none: it ends where the bar ends.
    """
    found, misclassified = (direction.whiskers[name] for name in ("found", "misclassified"))
    place = f"datum.bar + (datum.outcome == 'found' ? {found:.2f} : {misclassified:.2f})"
    transform = [
        {"filter": "datum.outcome != 'missed' && isValid(datum.low) && datum.end < 0.9999"},
        {"calculate": "datum.start + datum.low", "as": "whisker_low"},
        {"calculate": "min(1, datum.start + datum.high)", "as": "whisker_high"},
        {"calculate": place, "as": "place"},
    ]
    channels = {
        direction.place: vl.quantitative("place", title=None),
        direction.length: vl.quantitative("whisker_low", title=None),
        f"{direction.length}2": {"field": "whisker_high"},
    }
    mark = {"type": "rule", "strokeWidth": 1.5, "color": vl.INK}
    return {"transform": transform, **vl.layer(mark, **channels)}


def _number_layer(direction: Direction, *, is_halo: bool) -> dict[str, Any]:
    """The share of each outcome in the middle of it, or a halo behind it where lines cross it.

    Missed objects have one number, whether proposals cover some of them or not. A part that is
    shorter than its number has none.
    """
    is_shown = f"datum.part == datum.outcome && {direction.has_room}"
    if is_halo:
        is_shown += " && datum.covered > 0"
    transform = [
        {"filter": is_shown},
        {"calculate": "datum.end - datum.total / 2", "as": "middle"},
        {"calculate": "format(datum.total, '.0%')", "as": "number"},
    ]
    mark: dict[str, Any] = {"type": "text", "fontSize": 12, "fontWeight": 600}
    color: dict[str, Any] = {
        "condition": {"test": "datum.outcome == 'found'", "value": "white"},
        "value": vl.INK,
    }
    if is_halo:
        mark |= {"stroke": "#E0E0E0", "strokeWidth": 4, "strokeJoin": "round"}
        color = {"value": "#E0E0E0"}
    if direction is UPRIGHT:
        mark["xOffset"] = -2
    channels = {
        direction.place: vl.quantitative("bar", title=None),
        direction.length: vl.quantitative("middle", title=None),
        "text": vl.nominal("number"),
        "color": color,
    }
    return {"transform": transform, **vl.layer(mark, **channels)}

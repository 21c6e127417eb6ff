"""The page of cost and quality: what a method gains over the detector's confidence, and what it costs per image.

The page is the same on every machine. `times.js`, which neither git nor DVC tracks, has its part
with the times of this machine, and puts it in place of the one without when the page is opened. So
it does with that of the page of proposals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from farther.evaluation.results import Gain, Gains
from farther.metrics.catalogue import METRICS
from farther.report.all_results import AllResults
from farther.report.charts import vega as vl
from farther.report.listing import ABSENT, Listing
from farther.report.pages import proposals
from farther.report.results import Run
from farther.report.site import Site, as_script
from farther.tables.files import digest
from farther.tables.stored import NO_TIMES, Cost, RunCost, RunTimes, Times, read_cost, read_times

#: Replaces the part of the page that it was made with, not that of a page that was pulled or
#: checked out since.
SCRIPT = """"use strict";
for (const [id, key, part] of %s) {
  const place = document.getElementById(id);
  if (place?.dataset.key === key) place.innerHTML = part;
}
"""

#: Metrics whose gains are shown.
SHOWN = ("auroc", "ap_u")

#: Times below this are drawn at it: they cannot be measured.
SHORTEST_MS = 0.01


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    sources = proposals.sources(results.evaluated, results.params["detectors"])
    write_costs(site, results.evaluated, results.artifacts, sources)


def write_costs(
    site: Site, runs: Sequence[Run], artifacts: Path, sources: Sequence[proposals.TimedSource] = ()
) -> None:
    """Writes the page of the evaluated runs, and `times.js` where the stage `cost` has timed on this machine.

    Args:
        site: The report.
        runs: The evaluated runs.
        artifacts: The artifacts folder.
        sources: Sources of proposals, whose page has times too.
    """
    cost, times = read_cost(artifacts / "cost.json"), read_times(artifacts / "times.json")
    without = content(runs, cost, NO_TIMES)
    part = site.render("cost.html", "costs.html", **without)
    site.write("cost.html", tables=without["tables"], costs=Markup(part), key=digest(part))
    if times["runs"]:
        timed = site.render("cost.html", "costs.html", **content(runs, cost, times))
        parts = [("costs", digest(part), timed)]
        if sources:
            before, now = (proposals.costs(site, sources, some) for some in (NO_TIMES, times))
            parts.append((proposals.COSTS, digest(before), now))
        site.write_text("times.js", SCRIPT % as_script(parts))


def content(runs: Sequence[Run], cost: Cost, times: Times) -> dict[str, Any]:
    """Variables of the template `costs.html`.

    Args:
        runs: The evaluated runs.
        cost, times: What the stage `cost` counted and timed.
    """
    of_run: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if rows := list(_rows(run, cost["runs"].get(run.name), times["runs"].get(run.name))):
            of_run[run.full_title] = rows
    names = list(dict.fromkeys(row["method"] for rows in of_run.values() for row in rows))
    legend = vl.keys(names, vl.SHAPES)
    groups = {
        METRICS[metric].title: vl.ChartGroup(legend, tuple(_charts(metric, of_run, legend)))
        for metric in SHOWN
        if any(metric in row for rows in of_run.values() for row in rows)
    }
    return {
        "machine": times["machine"],
        "images": cost["images"],
        "message": _message(of_run),
        "groups": {title: group for title, group in groups.items() if group.charts},
        "tables": {run: _listing(run, rows) for run, rows in of_run.items()},
    }


def _rows(run: Run, cost: RunCost | None, times: RunTimes | None) -> Iterator[dict[str, Any]]:
    """One row per method of a run: costs per image, and {metric: gain and interval} where there is a baseline."""
    cost = cost or {"passes": {}, "methods": {}}
    gains = run.evaluation.gains if run.evaluation else Gains(baseline=None, methods={})
    for name, of in cost["methods"].items():
        again = cost["passes"].get(of["pass"] or "", {"forward": 0, "backward": 0})
        found = gains.methods.get(name, {})
        yield {
            "method": run.label(name),
            "is_baseline": name == gains.baseline,
            "pass": of["pass"],
            "forward": again["forward"],
            "backward": again["backward"],
            "ms": _further(times, name, of["pass"]),
            "detector_ms": times and times["detector"],
            "bytes": of["bytes"],
            **{metric: found[metric] for metric in SHOWN if metric in found},
        }


def _further(times: RunTimes | None, method: str, pass_name: str | None) -> float | None:
    """Milliseconds per image of a method's pass and scoring; None where they were not measured."""
    if times is None or times["detector"] is None or method not in times["methods"]:
        return None
    again = times["passes"].get(pass_name) if pass_name else 0.0
    return None if again is None else again + times["methods"][method]


def _charts(
    metric: str, of_run: Mapping[str, Sequence[Mapping[str, Any]]], legend: Sequence[vl.Key]
) -> Iterator[Any]:
    for run, rows in of_run.items():
        points = [
            _point(row, metric) for row in rows if row["ms"] is not None and _has_gain(row, metric)
        ]
        if points:
            yield _chart(run, metric, points, legend)


def _has_gain(row: Mapping[str, Any], metric: str) -> bool:
    return metric in row and row[metric].gain is not None


def _point(row: Mapping[str, Any], metric: str) -> dict[str, Any]:
    found: Gain = row[metric]
    low, high = found.gain_interval or (None, None)
    return {
        "method": row["method"],
        "ms": round(max(row["ms"], SHORTEST_MS), 4),
        "passes": f"{row['forward']} forward, {row['backward']} backward",
        "gain": round(found.gain or 0, 4),
        "low": None if low is None else round(low, 4),
        "high": None if high is None else round(high, 4),
    }


def _chart(
    run: str, metric: str, points: Sequence[Mapping[str, Any]], legend: Sequence[vl.Key]
) -> vl.Chart:
    gain = f"gain in {METRICS[metric].title}"
    signed = {"axis": {"format": "+~%", "tickCount": 5}, "title": gain}
    text = vl.said(
        "{method}: {points:+.1f} at {ms:.3g} ms", ({**p, "points": 100 * p["gain"]} for p in points)
    )
    words = "over the detector's confidence, in points, by further milliseconds per image"
    ticks = {"tickCount": 4, "format": "~g", "labelOverlap": True}
    place: dict[str, Any] = {
        "x": vl.number(
            "ms", title="further ms per image", scale={"type": "log", "nice": True}, axis=ticks
        )
    }
    return vl.chart(
        run,
        f"{gain.capitalize()} {words}. {text}.",
        pl.DataFrame(points, infer_schema_length=None),
        vl.layer({"type": "rule", "strokeDash": [3, 3], "color": "#777777"}, y={"datum": 0}),
        vl.layer(
            {"type": "rule", "strokeWidth": 2, "opacity": 0.6},
            **place,
            y=vl.number("low", **signed),
            y2={"field": "high"},
            **vl.by("method", legend),
        ),
        vl.layer(
            vl.points(80),
            **place,
            y=vl.number("gain", **signed),
            tooltip=vl.tooltip(
                *("method", f"gain:+.1% {gain}", "low:+.1% from", "high:+.1% to"),
                *("ms:.3~g further ms per image", "passes further passes"),
            ),
            **vl.by("method", legend, shape=vl.SHAPES),
        ),
        height=230,
    )


def _listing(run: str, rows: Sequence[Mapping[str, Any]]) -> Listing:
    detector = rows[0]["detector_ms"]
    time = "not measured" if detector is None else f"{detector:.1f} ms per image"
    caption = f"{run}: detection takes {time}. What each method adds, and what it gains, in points."
    shown = []
    for row in rows:
        gained = {f"{METRICS[m].title} gained": _gain(row, m) for m in SHOWN}
        costs = {
            "Pass": row["pass"] or ABSENT,
            "Forward": row["forward"],
            "Backward": row["backward"],
        }
        ms = (
            ABSENT
            if row["ms"] is None
            else f"{row['ms']:.3f}"
            if row["ms"] < 1
            else f"{row['ms']:.1f}"
        )
        stored = {"ms per image": ms, "kB stored per image": f"{row['bytes'] / 1000:.1f}"}
        shown.append({"Method": row["method"], **costs, **stored, **gained})
    numbers = [
        "ms per image",
        "kB stored per image",
        *(f"{METRICS[m].title} gained" for m in SHOWN),
    ]
    return Listing.of(caption, shown, numbers)


def _gain(row: Mapping[str, Any], metric: str) -> str:
    if row["is_baseline"] or not _has_gain(row, metric):
        return "baseline" if row["is_baseline"] else ABSENT
    within = row[metric].gain_interval
    points = f"{100 * row[metric].gain:+.1f}"
    return (
        points if within is None else f"{points} ({100 * within[0]:+.1f} to {100 * within[1]:+.1f})"
    )


def _message(of_run: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """For each run with passes: the best method that needs one, beside the best that needs none."""
    said = []
    for run, rows in of_run.items():
        known = [row for row in rows if _has_gain(row, "auroc")]
        sides = [[row for row in known if bool(row["pass"]) is again] for again in (True, False)]
        if all(sides):
            looked, single = (max(side, key=lambda row: row["auroc"].value) for side in sides)
            difference = 100 * (looked["auroc"].value - single["auroc"].value)
            price = "" if looked["ms"] is None else f", at {looked['ms']:.3g} further ms per image"
            said.append(
                f"{run}: the best method with further passes, {looked['method']}, has an AUROC "
                f"{abs(difference):.1f} points {'above' if difference >= 0 else 'below'} the best without, "
                f"{single['method']}{price}."
            )
    return " ".join(said)

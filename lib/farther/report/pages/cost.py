"""What each method gains over the detector's confidence, and its cost per image.

This is a section of the page Deploy, which is the same on every machine. `times.js`, which neither
git nor DVC tracks, has the section with the times of this machine, and puts it in place of the one
without when the page is opened. It does the same with the part of the page of proposals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from farther.evaluation.long_table import Result
from farther.metrics.catalogue import METRICS
from farther.report.charts import vega as vl
from farther.report.common_runs import count_runs, points
from farther.report.listing import ABSENT, Listing, with_and
from farther.report.pages import missed
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


@dataclass(frozen=True)
class MethodCost:
    """Cost per image of a method of a run, and what it gains.

    Args:
        method: Its title.
        is_baseline: True for the method that gains are measured against.
        passes: The passes that it needs, and the share of images or detections that each runs for.
        forward, backward: Forward and backward inferences of the passes.
        ms: Milliseconds of the passes and of scoring; None where they were not measured.
        detector_ms: Milliseconds of detection; None where they were not measured.
        stored_bytes: Bytes of the inputs that it stores.
        means: Metric of `SHOWN` → mean over OOD splits, where it is defined in all of them.
        gains: Metric of `SHOWN` → its difference from the baseline's; {} without a baseline.
    """

    method: str
    is_baseline: bool
    passes: Mapping[str, float]
    forward: float
    backward: float
    ms: float | None
    detector_ms: float | None
    stored_bytes: float
    means: Mapping[str, Result]
    gains: Mapping[str, Result]

    def has_gain(self, metric: str) -> bool:
        """True if the method has a difference from the baseline in a metric."""
        return metric in self.gains

    def mean(self, metric: str) -> float:
        """Its mean over OOD splits, of a metric that it has a gain in."""
        return self.means[metric].value or 0


#: Title of a run → its methods.
CostsByRun = Mapping[str, Sequence[MethodCost]]


def write_costs(
    site: Site, runs: Sequence[Run], artifacts: Path, sources: Sequence[missed.TimedSource] = ()
) -> dict[str, Any]:
    """Writes `times.js` if this machine has timed the runs.

    Args:
        site: The report.
        runs: The evaluated runs.
        artifacts: The artifacts folder, with the results of the stage `choose`.
        sources: Sources of proposals, whose page has times too.

    Returns:
        Variables of the template `deploy.html`: `costs`, the section without times, "" where
        nothing was measured; `costs_key`, its hash; and `costs_message`.
    """
    cost = read_cost(artifacts / "cost.json")
    times = read_times(artifacts / "times.json")
    untimed = content(runs, cost, NO_TIMES)
    part = ""
    if untimed["tables"]:
        part = site.render("deploy.html", "costs.html", **untimed)
    section = {
        "costs": Markup(part),
        "costs_key": digest(part),
        "costs_message": untimed["message"],
    }
    if not times["runs"]:
        return section

    timed_part = site.render("deploy.html", "costs.html", **content(runs, cost, times))
    replacements = [("costs", digest(part), timed_part)]
    if sources:
        untimed_sources = missed.costs(site, sources, NO_TIMES)
        timed_sources = missed.costs(site, sources, times)
        replacements.append((missed.COSTS, digest(untimed_sources), timed_sources))
    site.write_text("times.js", SCRIPT % as_script(replacements))
    return section


def content(runs: Sequence[Run], cost: Cost, times: Times) -> dict[str, Any]:
    """Variables of the template `costs.html`, the section.

    Args:
        runs: The evaluated runs.
        cost, times: What the stage `choose` counted and timed.
    """
    costs_by_run: dict[str, list[MethodCost]] = {}
    for run in runs:
        costs = list(_method_costs(run, cost["runs"].get(run.name), times["runs"].get(run.name)))
        if costs:
            costs_by_run[run.full_title] = costs
    return {
        "machine": times["machine"],
        "images": cost["images"],
        "message": _message(costs_by_run),
        "passes": _passes_message(costs_by_run),
        "overview": _overview(costs_by_run),
        "groups": _chart_groups(costs_by_run),
        "tables": {run: _listing(run, costs) for run, costs in costs_by_run.items()},
    }


def _method_costs(run: Run, cost: RunCost | None, times: RunTimes | None) -> Iterator[MethodCost]:
    """Cost and gains of each method of a run; none where the stage `choose` did not run."""
    if cost is None:
        return
    baseline = None
    if run.description is not None:
        baseline = run.description.baseline
    detector_ms = None
    if times is not None:
        detector_ms = times["detector"]

    for name, method_cost in cost["methods"].items():
        forward = 0.0
        backward = 0.0
        for pass_name, share in method_cost["passes"].items():
            if pass_name in cost["passes"]:
                forward += share * cost["passes"][pass_name]["forward"]
                backward += share * cost["passes"][pass_name]["backward"]
        yield MethodCost(
            method=run.label(name),
            is_baseline=name == baseline,
            passes=method_cost["passes"],
            forward=forward,
            backward=backward,
            ms=_further_ms(times, name, method_cost["passes"]),
            detector_ms=detector_ms,
            stored_bytes=method_cost["bytes"],
            means=_over_splits(run, name, "distance=all"),
            gains=_over_splits(run, name, f"minus={baseline}"),
        )


def _over_splits(run: Run, method: str, part: str) -> dict[str, Result]:
    """Metric of `SHOWN` → a value of a method over all OOD splits, where it has one."""
    results = {}
    for name in SHOWN:
        metric = METRICS[name]
        values = run.results.table.values(metric.group, method=method, part=part)
        if metric.key in values:
            results[name] = values[metric.key]
    return results


def _further_ms(times: RunTimes | None, method: str, passes: Mapping[str, float]) -> float | None:
    """Milliseconds per image of a method's passes and scoring; None where not measured."""
    if times is None or times["detector"] is None or method not in times["methods"]:
        return None
    further_ms = times["methods"][method]
    for pass_name, share in passes.items():
        pass_ms = times["passes"].get(pass_name)
        if pass_ms is None:
            return None
        further_ms += share * pass_ms
    return further_ms


def _printed_passes(passes: Mapping[str, float]) -> list[str]:
    """The names of passes, with the share that each runs for where it is not all."""
    texts = []
    for name, share in passes.items():
        if share < 1:
            name = f"{name} ({100 * share:.0f}%)"
        texts.append(name)
    return texts


def _chart_groups(costs_by_run: CostsByRun) -> dict[str, vl.ChartGroup]:
    """Title of each metric → one chart per run, of gain by time."""
    methods: dict[str, None] = {}
    for costs in costs_by_run.values():
        methods.update(dict.fromkeys(cost.method for cost in costs))
    legend = vl.legend_keys(methods, vl.SHAPES)
    times: list[float] = []
    for costs in costs_by_run.values():
        times += [max(cost.ms, SHORTEST_MS) for cost in costs if cost.ms is not None]
    if not times:
        return {}
    # One axis of time for all charts: those of two runs can be compared.
    time_domain = [SHORTEST_MS, 10.0 ** max(-1, math.ceil(math.log10(max(times))))]

    groups = {}
    for metric in SHOWN:
        charts = []
        for run, costs in costs_by_run.items():
            rows = _points(costs, metric)
            if rows:
                charts.append(_chart(run, metric, rows, legend, time_domain))
        if charts:
            groups[METRICS[metric].title] = vl.ChartGroup(legend, tuple(charts))
    return groups


def _points(costs: Sequence[MethodCost], metric: str) -> list[dict[str, Any]]:
    """One point per method of a run that was timed and has a gain."""
    rows = []
    for cost in costs:
        if cost.ms is None or not cost.has_gain(metric):
            continue
        gain = cost.gains[metric]
        low, high = gain.interval or (None, None)
        row = {
            "method": cost.method,
            "ms": round(max(cost.ms, SHORTEST_MS), 4),
            "passes": f"{cost.forward:.3g} forward, {cost.backward:.3g} backward",
            "gain": _in_points(gain.value or 0),
            "low": _in_points(low),
            "high": _in_points(high),
        }
        rows.append(row)
    return rows


def _in_points(value: float | None) -> float | None:
    """A difference of fractions in points, None for None."""
    if value is None:
        return None
    return round(100 * value, 2)


def _gain_domain(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Ends of the axis of gains, with all intervals and zero between them."""
    values = [0.0]
    for row in rows:
        values += [row[name] for name in ("gain", "low", "high") if row[name] is not None]
    margin = max(0.05 * (max(values) - min(values)), 0.5)
    return [round(min(values) - margin, 2), round(max(values) + margin, 2)]


def _chart(
    run: str,
    metric: str,
    rows: Sequence[Mapping[str, Any]],
    legend: Sequence[vl.Key],
    time_domain: Sequence[float],
) -> vl.Chart:
    """A chart of gain by time, with intervals and a line at zero.

    Args:
        run: Title of the run.
        metric: The metric.
        rows: From `_points`.
        legend: The methods.
        time_domain: Ends of the axis of time.
    """
    gain = f"gain in {METRICS[metric].title}"
    text = vl.describe_rows("{method}: {gain:+.1f} at {ms:.3g} ms", rows)
    x = vl.quantitative(
        "ms",
        title="further ms per image",
        # The padding keeps marks at the ends within the chart.
        scale={"type": "log", "domain": list(time_domain), "padding": 8},
        axis={"tickCount": 4, "format": "~g", "labelOverlap": True},
    )
    # Zero has no sign.
    sign = "datum.value === 0 ? '0' : format(datum.value, '+~f')"
    gain_axis = {
        "axis": {"labelExpr": sign, "tickCount": 5},
        "title": f"{gain} (points)",
        "scale": {"domain": _gain_domain(rows)},
    }
    zero = vl.layer({"type": "rule", "strokeDash": [3, 3], "color": "#777777"}, y={"datum": 0})
    intervals = vl.layer(
        {"type": "rule", "strokeWidth": 2, "opacity": 0.6},
        x=x,
        y=vl.quantitative("low", **gain_axis),
        y2={"field": "high"},
        **vl.legend_channels("method", legend),
    )
    gains = vl.layer(
        vl.point_mark(80),
        x=x,
        y=vl.quantitative("gain", **gain_axis),
        tooltip=vl.tooltip(
            "method",
            f"gain:+.1f {gain} (points)",
            "low:+.1f from",
            "high:+.1f to",
            "ms:.3~g further ms per image",
            "passes further passes",
        ),
        **vl.legend_channels("method", legend, shape=vl.SHAPES),
    )
    return vl.chart(
        run,
        f"{gain[0].upper()}{gain[1:]} over the detector's confidence, in points, by further "
        f"milliseconds per image. {text}.",
        pl.DataFrame(rows, infer_schema_length=None),
        zero,
        intervals,
        gains,
        height=230,
    )


def _listing(run: str, costs: Sequence[MethodCost]) -> Listing:
    """The costs and gains of a run's methods."""
    detector_ms = costs[0].detector_ms
    time = "not measured"
    if detector_ms is not None:
        time = f"{detector_ms:.1f} ms per image"
    rows = []
    for cost in costs:
        row: dict[str, Any] = {
            "Method": cost.method,
            "Pass": ", ".join(_printed_passes(cost.passes)) or ABSENT,
            "Forward": f"{cost.forward:.3g}",
            "Backward": f"{cost.backward:.3g}",
            "ms per image": _printed_ms(cost.ms),
            "kB stored per image": f"{cost.stored_bytes / 1000:.1f}",
        }
        for metric in SHOWN:
            row[_gained(metric)] = _printed_gain(cost, metric)
        rows.append(row)
    caption = f"{run}: detection takes {time}. What each method adds, and what it gains, in points."
    gain_titles = [_gained(metric) for metric in SHOWN]
    return Listing.from_rows(caption, rows, ["ms per image", "kB stored per image", *gain_titles])


def _printed_ms(ms: float | None) -> str:
    """Milliseconds, with three decimals below 1."""
    if ms is None:
        return ABSENT
    if ms < 1:
        return f"{ms:.3f}"
    return f"{ms:.1f}"


def _printed_gain(cost: MethodCost, metric: str) -> str:
    """The gain in points, with its interval if it has one."""
    if cost.is_baseline:
        return "baseline"
    if not cost.has_gain(metric):
        return ABSENT
    gain = cost.gains[metric]
    text = points(gain.value)
    if gain.interval is None:
        return text
    low, high = gain.interval
    return f"{text} [{points(low)}, {points(high)}]"


def _gained(metric: str) -> str:
    """Heading of the gains in a metric."""
    return f"{METRICS[metric].title} gained (points)"


def _is_better(cost: MethodCost, metric: str) -> bool:
    """True if a method is significantly better than the detector's confidence."""
    if cost.is_baseline or not cost.has_gain(metric):
        return False
    interval = cost.gains[metric].interval
    return interval is not None and interval[0] > 0


def _by_method(costs_by_run: CostsByRun) -> dict[str, list[MethodCost]]:
    """Title of each method that has a gain in any run → its costs in these runs."""
    by_method: dict[str, list[MethodCost]] = {}
    for costs in costs_by_run.values():
        for cost in costs:
            if not cost.is_baseline and cost.has_gain(SHOWN[0]):
                by_method.setdefault(cost.method, []).append(cost)
    return by_method


def _message(costs_by_run: CostsByRun) -> str:
    """In how many runs methods are significantly better than confidence; "" without gains."""
    by_method = _by_method(costs_by_run)
    if not by_method:
        return ""
    metric = SHOWN[0]
    in_all = []
    in_some = []
    for method, costs in by_method.items():
        better = sum(_is_better(cost, metric) for cost in costs)
        if better == len(costs):
            in_all.append(f"{method} ({count_runs(better)})")
        elif better:
            in_some.append(f"{method} ({better} of {len(costs)})")
    title = METRICS[metric].title
    if not in_all and not in_some:
        return (
            f"No method has a significantly higher {title} than the detector's confidence: use the "
            "confidence, which costs nothing."
        )
    sentences = []
    if in_all:
        sentences.append(
            f"A significantly higher {title} than the detector's confidence in every run that they "
            f"apply to: {with_and(in_all)}."
        )
    if in_some:
        opening = "In some runs" if in_all else f"A significantly higher {title} than the "
        if not in_all:
            opening += "detector's confidence in some runs only"
        sentences.append(f"{opening}: {with_and(in_some)}.")
    return " ".join(sentences)


def _overview(costs_by_run: CostsByRun) -> Listing:
    """What each method costs and gains, over the runs that it applies to."""
    rows = []
    for method, costs in _by_method(costs_by_run).items():
        times = [cost.ms for cost in costs if cost.ms is not None]
        passes: dict[str, None] = {}
        for cost in costs:
            passes.update(dict.fromkeys(_printed_passes(cost.passes)))
        kilobytes = [cost.stored_bytes / 1000 for cost in costs]
        row: dict[str, Any] = {
            "Method": method,
            "Runs": len(costs),
            "Pass": ", ".join(passes) or ABSENT,
            "ms per image": _range(times, _printed_ms),
            "kB stored per image": _range(kilobytes, "{:.1f}".format),
        }
        for metric in SHOWN:
            gains = [cost.gains[metric].value for cost in costs if cost.has_gain(metric)]
            row[_gained(metric)] = _range(gains, points)
            better = sum(_is_better(cost, metric) for cost in costs)
            row[f"Significant gains in {METRICS[metric].title}"] = f"{better} of {len(gains)}"
        rows.append(row)
    caption = (
        "Lowest and highest cost and gain over the detector's confidence in the runs that a method "
        "applies to, and in how many of these the gain is significant."
    )
    numbers = ["ms per image", "kB stored per image"]
    for metric in SHOWN:
        numbers += [_gained(metric), f"Significant gains in {METRICS[metric].title}"]
    return Listing.from_rows(caption, rows, numbers)


def _range(values: Sequence[float | None], printed: Callable[[float], str]) -> str:
    """The lowest and the highest value, as "0.1 to 0.3"."""
    defined = sorted(value for value in values if value is not None)
    if not defined:
        return ABSENT
    low = printed(defined[0])
    high = printed(defined[-1])
    if low == high:
        return low
    return f"{low} to {high}"


def _passes_message(costs_by_run: CostsByRun) -> str:
    """For each run with passes: the best method that needs one, beside the best that needs none."""
    sentences = []
    for run, costs in costs_by_run.items():
        measured = [cost for cost in costs if cost.has_gain("auroc")]
        with_pass = _best([cost for cost in measured if cost.passes])
        without_pass = _best([cost for cost in measured if not cost.passes])
        if with_pass is not None and without_pass is not None:
            sentences.append(_comparison(run, with_pass, without_pass))
    return " ".join(sentences)


def _best(costs: Sequence[MethodCost]) -> MethodCost | None:
    """The method with the highest AUROC, of equal ones the first by title; None without methods."""
    if not costs:
        return None
    by_title = sorted(costs, key=lambda cost: cost.method)
    return max(by_title, key=lambda cost: cost.mean("auroc"))


def _comparison(run: str, with_pass: MethodCost, without_pass: MethodCost) -> str:
    """A sentence on the best methods with and without a pass."""
    difference = 100 * (with_pass.mean("auroc") - without_pass.mean("auroc"))
    side = "above" if difference >= 0 else "below"
    price = ""
    if with_pass.ms is not None:
        price = f", at {with_pass.ms:.3g} further ms per image"
    return (
        f"{run}: the best method with further passes, {with_pass.method}, has an AUROC "
        f"{abs(difference):.1f} points {side} the best without, {without_pass.method}{price}."
    )

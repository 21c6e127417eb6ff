"""The report's figures, as Vega-Lite specifications."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from farther.curation.counts import CategoryCount, FateCount
from farther.errors import DataError
from farther.metrics.run import thin
from farther.report.results import METRICS, Metric, Run, title_of

#: Okabe and Ito's colours, told apart with any colour vision; the palest last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")

FAMILIES = ("output", "feature", "mixed", "latent")

#: Vega's names of marks, and the letters that look like them.
SHAPES = (
    ("circle", "●"),
    ("square", "■"),
    ("triangle-up", "▲"),
    ("diamond", "◆"),
    ("cross", "✚"),
    ("triangle-down", "▼"),
)


@dataclass(frozen=True)
class Key:
    """One entry of a legend: a name, its colour and a letter that looks like its mark."""

    name: str
    colour: str
    letter: str


#: How far from ID an image is, and how figures show it.
DISTANCE_KEYS = {
    "ID": Key("ID", "#000000", "■"),
    "near": Key("near", "#D55E00", "■"),
    "far": Key("far", "#0072B2", "■"),
    "farther": Key("farther", "#009E73", "■"),
    "removed": Key("removed", "#BDBDBD", "■"),
}

#: Letters that look like dashed lines, and Vega's dashes.
DASHES = (("━", [1, 0]), ("╍", [6, 3]), ("┉", [2, 2]))

#: What can become of an unknown object: keys in an evaluation, and how figures show them.
FATES = ("tp_u", "fn_misclassified", "fn_dismissed")
FATE_KEYS = (
    Key("found and flagged as unknown", "#0072B2", "■"),
    Key("taken for a known class", "#D55E00", "■"),
    Key("ignored", "#BDBDBD", "■"),
)


@dataclass(frozen=True)
class Figures:
    """Figures that share a legend."""

    legend: tuple[Key, ...]
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Chart:
    """One figure.

    Args:
        title: Its heading.
        description: What it shows, for those who cannot see it.
        spec: Its Vega-Lite specification.
    """

    title: str
    description: str
    spec: dict[str, Any]


def fates(run: Run, method: str) -> Chart:
    """What became of the unknown objects of each split, as stacked bars."""
    rows = []
    for split in run.splits:
        details = run.evaluation.get("methods", {}).get(method, {}).get("splits", {}).get(split.name, {})
        counts = details.get("open_set", {})
        total = sum(counts.get(name, 0) for name in FATES)
        rows += [
            {"split": split.title, "fate": key.name, "objects": counts[name], "share": counts[name] / total, "order": k}
            for k, (name, key) in enumerate(zip(FATES, FATE_KEYS, strict=True))
            if total
        ]
    made = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(stroke="white", strokeWidth=1)
        .encode(
            x=alt.X("share:Q", axis=_percent_axis(), scale=alt.Scale(domain=[0, 1]), title="share of unknown objects"),
            y=alt.Y("split:N", sort=[split.title for split in run.splits], title=None),
            color=alt.Color("fate:N", scale=_colours(FATE_KEYS), legend=None),
            order=alt.Order("order:Q"),
            tooltip=[
                "split:N",
                "fate:N",
                alt.Tooltip("share:Q", format=".1%", title="share"),
                alt.Tooltip("objects:Q", title="objects"),
            ],
        )
        .properties(height={"step": 34})
    )
    text = "; ".join(f"{r['split']}: {100 * r['share']:.0f}% {r['fate']}" for r in rows)
    return _chart(f"{run.name}, {title_of(method)}", f"What becomes of unknown objects. {text}.", made)


def families(runs: Sequence[Run]) -> Figures:
    """Open-set metrics by split, averaged over the methods of a family and over runs (FMIYC, Figure 5)."""
    gathered: dict[tuple[str, str, str], list[float]] = {}
    order: dict[str, int] = {}
    for run in runs:
        for split in run.splits:
            order.setdefault(split.title, len(order))
            for method in run.methods:
                for metric in METRICS:
                    value = run.value(split.name, method, metric.name)
                    if value is not None:
                        gathered.setdefault((metric.name, split.title, run.family(method)), []).append(value)
    present = [family for family in FAMILIES if any(key[2] == family for key in gathered)]
    legend = tuple(Key(family, COLOURS[FAMILIES.index(family)], "■") for family in present)
    return Figures(legend, tuple(_family_chart(metric, gathered, list(order), legend) for metric in METRICS))


def _family_chart(
    metric: Metric,
    gathered: Mapping[tuple[str, str, str], list[float]],
    splits: list[str],
    legend: Sequence[Key],
) -> Chart:
    rows = [
        {"split": split, "family": family, "value": statistics.fmean(values), "methods": len(values)}
        for (name, split, family), values in gathered.items()
        if name == metric.name
    ]
    made = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("split:N", sort=splits, title=None, axis=alt.Axis(labelAngle=-35)),
            xOffset=alt.XOffset("family:N", sort=[key.name for key in legend]),
            y=alt.Y("value:Q", axis=_percent_axis(), title=None),
            color=alt.Color("family:N", scale=_colours(legend), legend=None),
            tooltip=[
                "split:N",
                "family:N",
                alt.Tooltip("value:Q", format=".1%", title=metric.title),
                alt.Tooltip("methods:Q", title="values averaged"),
            ],
        )
        .properties(height=190)
    )
    text = f"{metric.title} by split, averaged over the methods of each family. {_listing(rows, 'family')}"
    return _chart(f"{metric.title} {metric.arrow}", text, made)


def image_fates(benchmark: str, counts: Sequence[FateCount]) -> Figures:
    """What became of the images of each OOD source, and why, as stacked bars."""
    rows = [
        {
            "source": f"{one.dataset} {one.subset}",
            "fate": one.fate,
            "reason": one.reason,
            "images": one.images,
            "order": order,
        }
        for order, one in enumerate(counts)
    ]
    legend = _distances(one.fate for one in counts)
    made = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(stroke="white", strokeWidth=1)
        .encode(
            x=alt.X("images:Q", title="images", axis=alt.Axis(tickCount=5)),
            y=alt.Y("source:N", title=None),
            color=alt.Color("fate:N", scale=_colours(legend), legend=None),
            order=alt.Order("order:Q"),
            tooltip=["source:N", "fate:N", "reason:N", "images:Q"],
        )
        .properties(height={"step": 34})
    )
    text = "; ".join(f"{r['source']}: {r['images']} {r['fate']}, {r['reason']}" for r in rows)
    return Figures(legend, (_chart("Images of the sources", f"What became of images in {benchmark}. {text}.", made),))


def categories(distances: Mapping[str, str], counts: Mapping[str, Sequence[CategoryCount]], shown: int) -> Figures:
    """The most frequent categories of each split, a figure each (FMIYC, Figures 8 and 9).

    Args:
        distances: Split → how far it is from ID.
        counts: Split → its categories, the most frequent first.
        shown: Categories a figure shows.
    """
    keys = {split: DISTANCE_KEYS[distances[split]] for split in counts}
    legend = _distances(distances[split] for split in counts)
    return Figures(legend, tuple(_category_chart(split, keys[split], one, shown) for split, one in counts.items()))


def _category_chart(split: str, key: Key, counts: Sequence[CategoryCount], shown: int) -> Chart:
    top = counts[:shown]
    rows = [{"category": one.category, "objects": one.objects, "images": one.images} for one in top]
    made = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(color=key.colour)
        .encode(
            x=alt.X("objects:Q", title="objects", axis=alt.Axis(tickCount=4, tickMinStep=1)),
            y=alt.Y("category:N", sort=[one.category for one in top], title=None),
            tooltip=["category:N", "objects:Q", "images:Q"],
        )
        .properties(height={"step": 17})
    )
    title = split.replace("_", " ")
    part = "all" if len(top) == len(counts) else f"{len(top)} of"
    text = ", ".join(f"{one.category} {one.objects}" for one in top)
    return _chart(f"{title}: {part} {len(counts)} categories", f"Objects by category in {title}: {text}.", made)


def similarity(
    benchmark: str, distances: Mapping[str, str], rows: Mapping[str, Sequence[tuple[float, float]]]
) -> Figures:
    """How near the images of each split are to ID: histograms over each other (FMIYC, Figure 3).

    Args:
        benchmark: Its name.
        distances: Split → how far it is from ID, of the OOD splits.
        rows: Split → middle of each bin and the share of the images in it.
    """
    order = list(DISTANCE_KEYS)
    names = sorted(rows, key=lambda split: order.index(distances.get(split, "ID")))
    legend, dashes = _lines(names, distances)
    points = [
        {"split": split.replace("_", " "), "similarity": x, "share": y} for split in names for x, y in rows[split]
    ]
    made = (
        alt.Chart(alt.Data(values=points))
        .mark_line(strokeWidth=2, interpolate="monotone")
        .encode(
            x=alt.X("similarity:Q", scale=alt.Scale(zero=False), title="largest cosine to an ID image"),
            y=alt.Y("share:Q", axis=_percent_axis(), title="share of images"),
            color=alt.Color("split:N", scale=_colours(legend), legend=None),
            strokeDash=alt.StrokeDash("split:N", scale=dashes, legend=None),
            tooltip=["split:N", alt.Tooltip("similarity:Q", format=".2f"), alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(height=240)
    )
    text = "; ".join(f"{split.replace('_', ' ')}: {_mean(rows[split]):.3f}" for split in names)
    described = f"CLIP similarity of images to ID images in {benchmark}; means by split: {text}."
    return Figures(legend, (_chart("CLIP similarity to ID images", described, made),))


def _lines(splits: Sequence[str], distances: Mapping[str, str]) -> tuple[tuple[Key, ...], alt.Scale]:
    """Legend and dashes of a line a split: the colour tells the distance, the dashes splits of one distance."""
    keys, patterns, seen = [], [], list[str]()
    for split in splits:
        distance = distances.get(split, "ID")
        letter, pattern = DASHES[seen.count(distance) % len(DASHES)]
        seen.append(distance)
        patterns.append(pattern)
        keys.append(Key(split.replace("_", " "), DISTANCE_KEYS[distance].colour, letter))
    return tuple(keys), alt.Scale(domain=[key.name for key in keys], range=patterns)


def _mean(bins: Sequence[tuple[float, float]]) -> float:
    return sum(x * y for x, y in bins) / (sum(y for _, y in bins) or 1.0)


def _distances(present: Iterable[str]) -> tuple[Key, ...]:
    """Legend of the distances that occur, the nearest first."""
    found = set(present)
    return tuple(key for name, key in DISTANCE_KEYS.items() if name in found)


def methods(run: Run) -> Figures:
    """Each metric of a run, methods below each other, a mark a split."""
    legend = tuple(
        Key(split.title, COLOURS[k % len(COLOURS)], SHAPES[k % len(SHAPES)][1]) for k, split in enumerate(run.splits)
    )
    return Figures(legend, tuple(_method_chart(run, metric, legend) for metric in METRICS))


def _method_chart(run: Run, metric: Metric, legend: Sequence[Key]) -> Chart:
    rows = [
        {"method": title_of(method), "split": split.title, "value": value}
        for method in run.methods
        for split in run.splits
        if (value := run.value(split.name, method, metric.name)) is not None
    ]
    shape_of = {letter: shape for shape, letter in SHAPES}
    shapes = alt.Scale(domain=[key.name for key in legend], range=[shape_of[key.letter] for key in legend])
    axis = alt.Axis(grid=True, ticks=False)
    made = (
        alt.Chart(alt.Data(values=rows))
        .mark_point(filled=True, size=70, opacity=0.9)
        .encode(
            x=alt.X("value:Q", axis=_percent_axis(), scale=alt.Scale(zero=False, nice=True), title=None),
            y=alt.Y("method:N", sort=[title_of(m) for m in run.methods], title=None, axis=axis),
            color=alt.Color("split:N", scale=_colours(legend), legend=None),
            shape=alt.Shape("split:N", scale=shapes, legend=None),
            tooltip=["method:N", "split:N", alt.Tooltip("value:Q", format=".1%", title=metric.title)],
        )
        .properties(height={"step": 20})
    )
    text = f"{metric.title} of {run.name} by method and split; the same numbers stand in the tables above."
    return _chart(f"{metric.title} {metric.arrow}", text, made)


def curves(run: Run, folder: Path, count: int, points: int) -> Figures:
    """ROC and precision–recall curves of each split, of the methods with the highest mean AUROC.

    Args:
        folder: Holds the run's `roc.csv` and `pr.csv`; without one there is no chart of its kind.
        count: How many methods.
        points: Points a curve keeps.

    Raises:
        DataError: a file has other columns, or holds something that is no number; names the row.
    """
    wanted = run.ranked("auroc")[:count]
    legend = tuple(Key(title_of(method), COLOURS[k % len(COLOURS)], "━") for k, method in enumerate(wanted))
    made = []
    kinds = {
        "roc.csv": ("ROC", "OOD detections taken for ID", "ID detections kept"),
        "pr.csv": ("precision–recall of unknowns", "recall R_U", "precision P_U"),
    }
    for split in run.splits:
        for name, (kind, x, y) in kinds.items():
            if (folder / name).exists():
                text = _curve_rows(folder / name, split.name, wanted, points)
                title = f"{split.title}: {kind}"
                made.append(_curve_chart(title, f"{kind} curve of {run.name} on {split.title}.", text, legend, x, y))
    return Figures(legend, tuple(made))


def _curve_chart(title: str, description: str, rows: str, legend: Sequence[Key], x: str, y: str) -> Chart:
    made = (
        alt.Chart(alt.Data(values=rows, format=alt.CsvDataFormat(type="csv")))
        .mark_line(strokeWidth=2, interpolate="linear")
        .encode(
            x=alt.X("x:Q", axis=_percent_axis(), scale=alt.Scale(domain=[0, 1]), title=x),
            y=alt.Y("y:Q", axis=_percent_axis(), scale=alt.Scale(domain=[0, 1]), title=y),
            color=alt.Color("method:N", scale=_colours(legend), legend=None),
            order=alt.Order("point:Q"),
            tooltip=["method:N", alt.Tooltip("x:Q", format=".1%", title=x), alt.Tooltip("y:Q", format=".1%", title=y)],
        )
        .properties(height=240)
    )
    return _chart(title, description, made)


def _curve_rows(file: Path, split: str, wanted: Sequence[str], points: int) -> str:
    """The points of a split's curves as CSV text, thinned: in a page, a tenth of the size of JSON."""
    found: dict[str, list[tuple[float, float]]] = {method: [] for method in wanted}
    with file.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        for row, line in enumerate(reader):
            try:
                if line["split"] == split and line["method"] in found:
                    found[line["method"]].append((float(line["x"]), float(line["y"])))
            except (KeyError, TypeError, ValueError):
                raise DataError("expected split, method, x and y, the last two numbers", file=file, row=row) from None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "point", "x", "y"])
    for method, curve in found.items():
        for point, (x, y) in enumerate(_thinned(curve, points)):
            writer.writerow([title_of(method), point, f"{x:.4f}", f"{y:.4f}"])
    return text.getvalue()


def _thinned(curve: list[tuple[float, float]], points: int) -> Iterable[tuple[float, float]]:

    if not curve:
        return []
    x, y = np.array(curve).T
    return zip(*(part.tolist() for part in thin(x, y, points)), strict=True)


def _chart(title: str, description: str, made: alt.Chart) -> Chart:
    spec = (
        made.properties(width="container", description=description)
        .configure(font="system-ui, sans-serif", background="transparent")
        .configure_axis(
            labelFontSize=12, titleFontSize=12, titleFontWeight="normal", labelLimit=160, gridColor="#e5e7eb"
        )
        .configure_legend(labelFontSize=12, symbolSize=90, labelLimit=220)
        .configure_view(stroke=None)
        .to_dict()
    )
    return Chart(title, description, spec)


def _percent_axis() -> alt.Axis:
    return alt.Axis(format="~%", tickCount=5)


def _colours(legend: Sequence[Key]) -> alt.Scale:
    return alt.Scale(domain=[key.name for key in legend], range=[key.colour for key in legend])


def _listing(rows: Sequence[Mapping[str, Any]], series: str) -> str:
    return "; ".join(f"{row['split']}, {row[series]}: {100 * row['value']:.1f}%" for row in rows) + "."

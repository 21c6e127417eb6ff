"""Curves of a run, from the files in `artifacts/plots/<run>`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from farther.evaluation.files import thin
from farther.report.charts.parts import (
    COLOURS,
    PERCENT,
    UNIT,
    Axis,
    Chart,
    Figures,
    Key,
    chart,
    line_keys,
    lines,
    number,
    read_rows,
    series_rows,
)
from farther.report.results import Run

#: Kind of curve, and what its axes show.
CURVES = {
    "roc": ("ROC curves", Axis("OOD detections taken for ID"), Axis("ID detections kept")),
    "pr": ("Precision–recall curves of unknown objects", Axis("recall R_U", domain=None), Axis("precision P_U")),
}

#: What a sweep moves, and the figures that are drawn over it.
SWEEPS = {
    "tau": ("kept", "share of ID detections that τ keeps", ("nose", "r_u", "p_u")),
    "confidence": ("t", "operating threshold t*", ("nose", "r_u", "p_u")),
}
FIGURES = {"nose": "nOSE", "r_u": "R_U", "p_u": "P_U"}

Points = list[tuple[float, float]]


def curves(run: Run, folder: Path, kind: str, wanted: Sequence[str], points: int) -> Figures:
    """ROC or precision–recall curves of some methods, a figure a split.

    Args:
        run: Whose curves.
        folder: Holds the run's `roc.csv` and `pr.csv`; without the file there is no figure.
        kind: A key of `CURVES`.
        wanted: Names of methods.
        points: Points a curve keeps.

    Raises:
        DataError: the file has other columns, or holds something that is no number; names the row.
    """
    found = _by_split_and_method(folder / f"{kind}.csv")
    legend = line_keys([run.label(method) for method in wanted])
    title, x, y = CURVES[kind]
    charts = []
    for split in run.splits:
        of_split = {method: found.get((split.name, method), []) for method in wanted}
        if any(of_split.values()):
            rows = series_rows((run.label(method), _thinned(curve, points)) for method, curve in of_split.items())
            charts.append(lines(split.title, f"{title} of {run.name} on {split.title}.", rows, legend, x, y))
    return Figures(legend, tuple(charts))


def _by_split_and_method(file: Path) -> Mapping[tuple[str, str], Points]:
    found: dict[tuple[str, str], Points] = {}
    rows = read_rows(
        file,
        "split, method, x and y, the last two numbers",
        lambda line: ((line["split"], line["method"]), (float(line["x"]), float(line["y"]))),
    )
    for place, point in rows:
        found.setdefault(place, []).append(point)
    return found


def _thinned(curve: Points, points: int) -> Iterable[tuple[float, float]]:
    if not curve:
        return []
    x, y = np.array(curve).T
    return zip(*(part.tolist() for part in thin(x, y, points)), strict=True)


def sweep(run: Run, folder: Path, kind: str, wanted: Sequence[str]) -> Figures:
    """What happens when a threshold moves: a figure a split and metric.

    Args:
        run: Whose figures.
        folder: Holds the run's `tau.csv` and `confidence.csv`; without the file there is no figure.
        kind: A key of `SWEEPS`.
        wanted: Names of methods.

    Raises:
        DataError: the file has other columns, or holds something that is no number; names the row.
    """
    column, moved, names = SWEEPS[kind]
    found: dict[tuple[str, str, str], Points] = {}
    expected = f"split, method, {column}, {', '.join(names)}, numbers or nothing from the third on"
    rows = read_rows(
        folder / f"{kind}.csv",
        expected,
        lambda line: (
            line["split"],
            line["method"],
            float(line[column]),
            {name: float(line[name]) for name in names if line[name] != ""},
        ),
    )
    for split, method, at, values in rows:
        for name, value in values.items():
            found.setdefault((split, method, name), []).append((at, value))
    legend = line_keys([run.label(method) for method in wanted])
    charts = []
    for split in run.splits:
        for name in names:
            series = {m: found[split.name, m, name] for m in wanted if (split.name, m, name) in found}
            if series:
                text = series_rows((run.label(method), points) for method, points in series.items())
                title = f"{split.title}: {FIGURES[name]}"
                words = f"{FIGURES[name]} of {run.name} on {split.title} by {moved}."
                y = Axis(FIGURES[name], domain=None)
                charts.append(lines(title, words, text, legend, Axis(moved, domain=None), y))
    return Figures(legend, tuple(charts))


def silence(run: Run, folder: Path) -> Figures:
    """The share of images without any detection by operating threshold, a line a split.

    Args:
        run: Whose detections.
        folder: Holds the run's `confidence.csv`; without the file there is no figure.

    Raises:
        DataError: the file has other columns, or holds something that is no number; names the row.
    """
    found: dict[str, dict[float, float]] = {}
    rows = read_rows(
        folder / "confidence.csv",
        "split, t and no_detection, the last two numbers",
        lambda line: (line["split"], float(line["t"]), _or_none(line["no_detection"])),
    )
    for split, at, share in rows:
        if share is not None:
            found.setdefault(split, {})[at] = share
    shown = [split for split in run.splits if split.name in found]
    if not shown:
        return Figures((), ())
    legend = line_keys([split.title for split in shown])
    text = series_rows((split.title, found[split.name].items()) for split in shown)
    words = f"Images of each split without any detection of {run.name}, by operating threshold."
    axes = (Axis("operating threshold t*", domain=None), Axis("images without detections"))
    return Figures(legend, (lines("Images without detections", words, text, legend, *axes),))


def wilderness(run: Run, folder: Path) -> Figures | None:
    """Wilderness impact over the wilderness ratio, a line a recall (Dhamija et al., 2020); None where not measured."""
    found = _wilderness(folder)
    legend = line_keys([f"at recall {recall}" for recall in found])
    return _wilderness_figures(legend, found.values(), f"{run.name}: wilderness impact") if found else None


def wilderness_of(folders: Mapping[str, Path], recall: str) -> Figures | None:
    """The same of several detectors at one recall; None where no run was measured.

    Args:
        folders: Run → folder of its plots.
        recall: As it is written in `wilderness.csv`.
    """
    found = {run: points for run, folder in folders.items() if (points := _wilderness(folder).get(recall))}
    title = f"Wilderness impact at recall {recall}"
    return _wilderness_figures(line_keys(list(found)), found.values(), title) if found else None


def _wilderness(folder: Path) -> dict[str, Points]:
    found: dict[str, Points] = {}
    rows = read_rows(
        folder / "wilderness.csv",
        "recall, ratio and impact, numbers",
        lambda line: (line["recall"], float(line["ratio"]), _or_none(line["impact"])),
    )
    for recall, ratio, impact in rows:
        if impact is not None:
            found.setdefault(recall, []).append((ratio, impact))
    return found


def _wilderness_figures(legend: tuple[Key, ...], series: Iterable[Points], title: str) -> Figures:
    rows = series_rows(zip((key.name for key in legend), series, strict=True))
    x = Axis("wilderness ratio: OOD images an ID image", "~g", None)
    y = Axis("wilderness impact", "~g", None)
    words = f"{title}, by the ratio of images without known objects to images with them; lower is better."
    return Figures(legend, (lines(title, words, rows, legend, x, y),))


def reliability(run: Run, folder: Path) -> Chart | None:
    """Precision × IoU of detections by their confidence; None where nothing was measured (Oksuz et al., 2023)."""
    rows = [
        {"confidence": confidence, "performance": performance, "detections": detections}
        for confidence, performance, detections in read_rows(
            folder / "reliability.csv",
            "confidence, performance and detections, numbers or nothing",
            lambda line: (_or_none(line["confidence"]), _or_none(line["performance"]), int(line["detections"])),
        )
        if confidence is not None
    ]
    if not rows:
        return None
    place = {
        "x": number("confidence", title="confidence", axis=PERCENT, scale=UNIT),
        "y": number("performance", title="precision × mean IoU", axis=PERCENT, scale=UNIT),
    }
    shown = [number("confidence", format=".1%"), number("performance", format=".1%"), number("detections")]
    size = number("detections", scale={"type": "sqrt", "range": [25, 350]}, legend=None)
    ends = [{"confidence": end, "performance": end} for end in (0, 1)]
    body = {
        "height": 240,
        "encoding": place,
        "layer": [
            {"data": {"values": ends}, "mark": {"type": "line", "color": "#767676", "strokeDash": [4, 4]}},
            {"mark": {"type": "line", "color": COLOURS[0], "strokeWidth": 2}},
            {
                "mark": {"type": "point", "color": COLOURS[0], "filled": True, "opacity": 1},
                "encoding": {"size": size, "tooltip": shown},
            },
        ],
    }
    words = f"Reliability of {run.name}: on the dashed line, confidence says how good detections are. "
    words += "; ".join(f"{r['confidence']:.2f}: {r['performance']:.2f}" for r in rows)
    return chart(f"{run.name}: reliability on the ID test set", f"{words}.", rows, body)


def _or_none(text: str) -> float | None:
    return None if text == "" else float(text)

"""Ours beside the figures that FMIYC printed (its Tables 8 to 25)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from pydantic.dataclasses import dataclass

from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.report.overview import Listing
from farther.report.results import METRICS, Run
from farther.report.tables import ABSENT, percent

#: Where the tables lie below the project's folder, and the files that hold figures of methods.
FOLDER = Path("data") / "published"
FILES = ("fmiyc_ood.csv", "fmiyc_open_set.csv")

#: What a row says of itself.
PLACE = ("detector", "id", "ood", "method")

#: Methods that stand under another name there: the best of the three, chosen on the OOD data itself.
OTHER_NAMES = dict.fromkeys(("lard_knn", "lard_mahalanobis", "lard_gmm"), "lard")

#: {(detector, id, ood, method): {metric: fraction}}
Figures = Mapping[tuple[str, ...], Mapping[str, float]]


@dataclass(config=STRICT, kw_only=True)
class Counterpart:
    """The published detector that a run is put beside.

    Args:
        detector: `faster_rcnn`, `faster_rcnn_vos`, `yolov8` or `rt_detr`.
        id: `voc` or `bdd`.
        comparable: Whether the run has the published detector's weights and the benchmark's own images, so that a
            difference means something. Without it, the page says that the two measure different things.
    """

    detector: str
    id: str
    comparable: bool = False


def read(folder: Path) -> dict[tuple[str, ...], dict[str, float]]:
    """The figures in `FILES`; a file that is not there adds none.

    Raises:
        DataError: a column is missing, or a figure is no fraction; names file, row and field.
    """
    figures: dict[tuple[str, ...], dict[str, float]] = {}
    for file in (folder / name for name in FILES):
        if not file.exists():
            continue
        with file.open(newline="", encoding="utf-8") as text:
            rows = csv.DictReader(text)
            columns = rows.fieldnames or ()
            absent = [name for name in PLACE if name not in columns]
            if absent:
                raise DataError(f"there is no such column; found {', '.join(columns)}", file=file, field=absent[0])
            for number, row in enumerate(rows):
                own = figures.setdefault(tuple(row[name] for name in PLACE), {})
                shown = (metric.name for metric in METRICS if metric.name in columns)
                own |= {name: _fraction(row[name], file, number, name) for name in shown}
    return figures


def beside(run: Run, counterpart: Counterpart, figures: Figures) -> Listing | None:
    """A run's figures beside the published ones, a row for each split and method that both have.

    Returns:
        The table; None where they have nothing in common.

    Raises:
        ParameterError: no published table has that detector with that ID dataset.
    """
    known = sorted({place[:2] for place in figures})
    if (counterpart.detector, counterpart.id) not in known:
        listed = ", ".join("/".join(pair) for pair in known)
        found = f"{counterpart.detector}/{counterpart.id}"
        raise ParameterError(f"report.published.{run.name}: no published table has {found}. Known: {listed}")
    places = {
        (split, method): figures.get(
            (counterpart.detector, counterpart.id, split.name, OTHER_NAMES.get(method, method)), {}
        )
        for split in run.splits
        for method in run.methods
    }
    shown = [metric for metric in METRICS if any(metric.name in printed for printed in places.values())]
    rows = []
    for (split, method), printed in places.items():
        if printed:
            pairs = [(run.value(split.name, method, m.name), printed.get(m.name)) for m in shown]
            cells = (cell for ours, theirs in pairs for cell in _cells(ours, theirs, counterpart))
            rows.append((split.title, run.label(method), *cells))
    if not rows:
        return None
    columns = ("ours", "published", "difference") if counterpart.comparable else ("ours", "published")
    heads = (f"{metric.title}\N{NO-BREAK SPACE}{metric.arrow} {column}" for metric in shown for column in columns)
    numbers = len(shown) * len(columns)
    return Listing(_caption(run, counterpart), ("Split", "Method", *heads), tuple(rows), numbers)


def _caption(run: Run, counterpart: Counterpart) -> str:
    theirs = f"{counterpart.detector} on {counterpart.id} in FMIYC, Tables 8 to 25 (%)"
    lard = " Its LaRD is the best of several variants, chosen on the OOD data."
    if counterpart.comparable:
        return f"{run.name} beside {theirs}. Differences are in percentage points, ours minus published.{lard}"
    warning = "NOT comparable: another detector, on other images. It only shows what the real benchmark looks like."
    return f"{run.name}, and for context published (real data): {theirs}. {warning}{lard}"


def _cells(ours: float | None, theirs: float | None, counterpart: Counterpart) -> tuple[str, ...]:
    shown = (percent(ours), percent(theirs))
    if not counterpart.comparable:
        return shown
    return (*shown, ABSENT if ours is None or theirs is None else f"{100 * (ours - theirs):+.1f}")


def _fraction(text: str | None, file: Path, row: int, name: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 1:
        raise DataError(f"expected a fraction, 0 to 1, found {text!r}", file=file, row=row, field=name)
    return value

"""Wilderness beside the tables of The Overlooked Elephant of Object Detection (Dhamija et al., WACV 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from farther.report.charts.vega import read_csv
from farther.report.listing import ABSENT, Listing
from farther.report.published import caption
from farther.report.results import Run
from farther.report.settings import Counterpart

#: Columns that identify a row of each file `elephant_<name>.csv` in `data/published`.
KEYS = {"map": (), "impact": ("recall",), "background": ("class",), "operating_points": ("class", "ratio", "beta")}

#: Headings of these columns, and those that are flush right.
KEY_TITLES = {"recall": "At recall", "class": "Class", "ratio": "Wilderness ratio", "beta": "β"}
NUMBERS = ("At recall", "Wilderness ratio", "β")

#: Its columns with values, and their headings; fractions end in "(%)".
VALUES = {
    "map": {"map_closed": "mAP closed{} (%)", "map_open": "mAP open{} (%)"},
    "impact": {"average_impact": "WI{} (%)"},
    "background": {"mean": "Mean p_i − p_b{}", "sd": "Deviation{}"},
    "operating_points": {
        "f": "F{} (%)",
        "precision": "Precision{} (%)",
        "recall": "Recall{} (%)",
        "threshold": "Threshold{}",
    },
}

#: The paper's table with that content.
TABLE = {"map": 1, "impact": 2, "background": 3, "operating_points": 4}


@dataclass(frozen=True)
class ElephantTables:
    """Tables 1 to 4 of the paper.

    Args:
        tables: Rows of each file `elephant_<name>.csv`, with the columns detector and id.
    """

    tables: Mapping[str, pl.DataFrame]

    @classmethod
    def read(cls, folder: Path) -> ElephantTables:
        """The files of a folder; one that is absent has no rows.

        Raises:
            DataError: a file lacks a column or has a text where a number belongs.
        """
        columns = {
            name: {**dict.fromkeys(("detector", "id", *KEYS[name]), pl.String), **dict.fromkeys(numbers, pl.Float64)}
            for name, numbers in VALUES.items()
        }
        return cls({name: read_csv(folder / f"elephant_{name}.csv", of) for name, of in columns.items()})

    @property
    def detectors(self) -> set[tuple[str, str]]:
        """Detector and ID dataset of all rows."""
        return {pair for table in self.tables.values() for pair in table.select("detector", "id").iter_rows()}

    def beside(self, run: Run, counterpart: Counterpart) -> Iterator[Listing]:
        """A run's values beside those of the counterpart, one listing per table that has it."""
        wild = run.evaluation.get("wilderness")
        for name, table in self.tables.items():
            theirs = table.filter(detector=counterpart.detector, id=counterpart.id)
            if wild and len(theirs):
                rows = [_row(name, wild, values) for values in theirs.iter_rows(named=True)]
                if counterpart.comparable:
                    rows = [row | _differences(name, row) for row in rows]
                words = caption(run, counterpart, f"The Overlooked Elephant, Table {TABLE[name]}")
                differences = [title for title in rows[0] if title.endswith("difference")]
                yield Listing.of(words, rows, numbers=[*NUMBERS, *differences])


def _row(name: str, wild: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    ours = _ours(name, wild, theirs)
    row = {KEY_TITLES[key]: theirs[key] for key in KEYS[name]}
    for part, title in VALUES[name].items():
        row |= {title.format(" ours"): ours.get(part), title.format(" published"): theirs[part]}
    return row


def _differences(name: str, row: Mapping[str, Any]) -> dict[str, str]:
    """Ours minus published, in percentage points where the values are in per cent."""
    found = {}
    for title in VALUES[name].values():
        ours, theirs = row[title.format(" ours")], row[title.format(" published")]
        points = f"{100 * ((ours or 0) - theirs):+.1f}" if title.endswith("(%)") else f"{(ours or 0) - theirs:+.3f}"
        found[f"{title.format('').removesuffix(' (%)')} difference"] = ABSENT if ours is None else points
    return found


def _ours(name: str, wild: Mapping[str, Any], row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The run's values of a row; empty where it has none."""
    if name == "map":
        return wild
    if name == "impact":
        found: Mapping[str, Any] = wild["at_recall"].get(row["recall"], {})
        return found
    if name == "background":
        of_class: Mapping[str, Any] = wild["background"]["known"]["classes"] if wild["background"] else {}
        return of_class.get(row["class"], {})
    points, ratio = wild["operating_points"], float(row["ratio"])
    best = points["betas"].get(row["beta"], {}).get("classes", {}).get(row["class"])
    if best is None or ratio not in points["ratios"]:
        return {}
    at = points["ratios"].index(ratio)
    return {part: best[part][at] for part in VALUES[name]}

"""A paper's tables, and what all of them are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from farther.report.charts.vega import read_csv
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import Run
from farther.report.settings import Counterpart

#: Folder of the printed tables below the project's folder.
PRINTED = Path("data") / "published"


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, with this project's values.

    Args:
        number: Its number in the paper: "Table 2".
        title: What it shows.
        listings: The values; empty where there are none, and `note` gives the reason.
        note: Printed above the values.
    """

    number: str
    title: str
    listings: Sequence[Listing] = ()
    note: str = ""


@dataclass(frozen=True)
class Sources:
    """What the tables are made from.

    Args:
        runs: The evaluated runs.
        params: All of params.yaml.
        root: The project's folder.
        published: Run → the published detector that it is compared with.
    """

    runs: Sequence[Run]
    params: Mapping[str, Any]
    root: Path
    published: Mapping[str, Counterpart] = field(default_factory=dict)

    @property
    def detectors(self) -> list[Run]:
        """Runs of detectors of objects."""
        return [run for run in self.runs if not run.whole_images]

    @property
    def artifacts(self) -> Path:
        """The artifacts folder."""
        return self.root / "artifacts"

    def printed(self, name: str, texts: Sequence[str], numbers: Sequence[str]) -> pl.DataFrame:
        """A file of printed values; without rows where it is absent."""
        columns = {**dict.fromkeys(texts, pl.String), **dict.fromkeys(numbers, pl.Float64)}
        return read_csv(self.root / PRINTED / name, columns)


@dataclass(frozen=True)
class Paper:
    """A paper with a page.

    Args:
        name: The page's file name without ending.
        title: Its short name.
        citation: Authors, year, title and identifier.
        tables: Makes its tables.
        absent: Table → why the page does not have it.
    """

    name: str
    title: str
    citation: str
    tables: Callable[[Sources], list[PaperTable]]
    absent: Mapping[str, str]


def by_detector(run: Run) -> dict[str, str]:
    """The first two cells of a row: the benchmark ("Dataset") and the detector."""
    return {"Dataset": run.known_title, "Detector": run.title}


def listing(
    caption: str, rows: Sequence[Mapping[str, Any]], numbers: Sequence[str] = (), few: int = 0
) -> list[Listing]:
    """A listing in a list, all rows with the same headings; none without rows."""
    heads = list(dict.fromkeys(head for row in rows for head in row))
    same = [{head: row.get(head) for head in heads} for row in rows]
    return [Listing.of(caption, same, numbers, few)] if rows else []


def together(values: Sequence[float | None]) -> str:
    """Values of one cell in per cent, as "22.4 / 13.7 / 94.8"."""
    return ABSENT if all(value is None for value in values) else " / ".join(percent(value) for value in values)

"""A table of a paper, and the data that all papers' tables are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from farther.report.charts.vega import read_csv
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import IMAGES, Run
from farther.report.settings import Counterpart

#: Folder of the printed tables below the project's folder.
PRINTED = Path("data") / "published"


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, with this project's values.

    Args:
        number: Its number in the paper: "Table 2".
        title: The title of its section on the page.
        listings: The values; where all are empty, the table is not on the page, and `note` gives
            the reason.
        note: Printed above the values.
    """

    number: str
    title: str
    listings: Sequence[Listing]
    note: str = ""

    @property
    def is_shown(self) -> bool:
        """True if there are values."""
        return any(self.listings)


@dataclass(frozen=True)
class Sources:
    """The data that the tables are computed from.

    Args:
        runs: The evaluated runs.
        params: All of params.yaml.
        root: The project's folder.
        published: Run, or name of `seeds` → the published detector that it is compared with.
        seeds: Name → runs that are shown as one, see `farther.report.settings.ReportSettings`.
    """

    runs: Sequence[Run]
    params: Mapping[str, Any]
    root: Path
    published: Mapping[str, Counterpart] = field(default_factory=dict)
    seeds: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def detectors(self) -> list[Run]:
        """Runs of object detectors, without those of classifiers."""
        return [run for run in self.runs if not run.whole_images]

    @property
    def artifacts(self) -> Path:
        """The artifacts folder."""
        return self.root / "artifacts"

    @property
    def benchmarks(self) -> dict[str, str]:
        """Name of each benchmark → its title."""
        title_by_benchmark = {}
        for name, params in self.params["benchmarks"].items():
            title_by_benchmark[name] = params.get("title") or name
        return title_by_benchmark

    def counterpart(self, run: Run) -> tuple[str, str]:
        """Detector and ID dataset that a run is compared with, "" where there is none."""
        counterpart = self.published.get(run.name)
        if counterpart is None:
            return "", ""
        return counterpart.detector, counterpart.id

    def printed(self, name: str, texts: Sequence[str], numbers: Sequence[str]) -> pl.DataFrame:
        """Printed values from a file of `PRINTED`.

        Args:
            name: Name of the CSV file.
            texts: Columns of texts.
            numbers: Columns of numbers.

        Returns:
            The rows; none where the file is absent.
        """
        columns: dict[str, type[pl.DataType]] = {}
        columns.update(dict.fromkeys(texts, pl.String))
        columns.update(dict.fromkeys(numbers, pl.Float64))
        return read_csv(self.root / PRINTED / name, columns)


@dataclass(frozen=True)
class Paper:
    """A paper with a page.

    Args:
        name: The page's file name without ending.
        title: Its short name.
        citation: Authors, year, title and identifier.
        tables: Computes its tables.
        absent: Table → why the page does not have it.
    """

    name: str
    title: str
    citation: str
    tables: Callable[[Sources], list[PaperTable]]
    absent: Mapping[str, str]


#: Cells of a run's rows from a section of its evaluation: heading → value.
Cells = Callable[[Run, Any], Iterable[Mapping[str, Any]]]


def per_run(
    caption: str,
    sections: Iterable[tuple[Run, Any]],
    cells: Cells,
    numbers: Sequence[str] = (),
    *,
    first: str = "",
) -> Listing:
    """A table with the rows of each run.

    The last column has the run's numbers of images, unless `cells` has them already.

    Args:
        caption: One sentence.
        sections: The runs, each with the section of its evaluation that the table is about.
        cells: Computes the rows of a run.
        numbers: Text columns that are flush right.
        first: Heading of the run's full title; without it, there are columns Dataset and Detector.
    """
    rows = []
    for run, section in sections:
        if first:
            title = {first: run.full_title}
        else:
            title = {"Dataset": run.known_title, "Detector": run.title}
        for row in cells(run, section):
            rows.append({**title, **row, IMAGES: run.image_counts()})
    return Listing.from_rows(caption, rows, [*numbers, IMAGES])


def merge_rows(rows: Iterable[Mapping[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """Rows that agree in the columns `keys` become one row with the cells of all of them."""
    row_by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        row_by_key.setdefault(key, {}).update(row)
    return list(row_by_key.values())


def joined_percents(values: Sequence[float | None]) -> str:
    """Values of one cell in per cent, as "22.4 / 13.7 / 94.8"."""
    if all(value is None for value in values):
        return ABSENT
    return " / ".join(percent(value) for value in values)

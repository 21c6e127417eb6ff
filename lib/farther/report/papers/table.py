"""A paper's tables, and what all of them are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
        title: What it shows.
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
    """What the tables are made from.

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
        """Runs of detectors of objects."""
        return [run for run in self.runs if not run.whole_images]

    @property
    def artifacts(self) -> Path:
        """The artifacts folder."""
        return self.root / "artifacts"

    @property
    def benchmarks(self) -> dict[str, str]:
        """Name of each benchmark → its title."""
        return {
            name: params.get("title") or name for name, params in self.params["benchmarks"].items()
        }

    def counterpart(self, run: Run) -> tuple[str, str]:
        """Detector and ID dataset that a run is compared with, "" where there is none."""
        of = self.published.get(run.name)
        return (of.detector, of.id) if of else ("", "")

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


#: Cells of a run's rows from a section of its evaluation: heading → value.
Cells = Callable[[Run, Any], Iterable[Mapping[str, Any]]]


def per_run(
    caption: str,
    found: Iterable[tuple[Run, Any]],
    cells: Cells,
    numbers: Sequence[str] = (),
    *,
    first: str = "",
) -> Listing:
    """A table with the rows of each run, and their numbers of images in the last column, unless they have it before.

    Args:
        caption: One sentence.
        found: The runs, and the section of their evaluation that the table is about.
        cells: Makes the rows.
        numbers: Text columns that are flush right.
        first: Heading of the run's full title; without it, there are columns Dataset and Detector.
    """
    rows = []
    for run, section in found:
        name = (
            {first: run.full_title}
            if first
            else {"Dataset": run.known_title, "Detector": run.title}
        )
        rows += [{**name, **row, IMAGES: run.image_counts()} for row in cells(run, section)]
    return Listing.of(caption, rows, [*numbers, IMAGES])


def joined(rows: Iterable[Mapping[str, Any]], *keys: str) -> Iterator[dict[str, Any]]:
    """The rows, those with the same values under some headings in one."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), {}).update(row)
    yield from found.values()


def together(values: Sequence[float | None]) -> str:
    """Values of one cell in per cent, as "22.4 / 13.7 / 94.8"."""
    return (
        ABSENT
        if all(value is None for value in values)
        else " / ".join(percent(value) for value in values)
    )

"""Tables of counts, each of which leads to the images that it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farther.report.charts import vega as vl


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Args:
        text: Its text.
        href: The address that it leads to; "" for none.
        share: How dark its ground is, from 0 to 1; in per cent of the row's objects.
        is_right: Whether it is what should be.
    """

    text: str
    href: str = ""
    share: float = 0.0
    is_right: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        title: Its heading.
        cells: Its cells, one per column.
        begins: Title of the group of rows that it is the first of; "" for none.
    """

    title: str
    cells: Sequence[Cell]
    begins: str = ""


@dataclass(frozen=True)
class LinkedTable:
    """A table with row headings, whose cells may be links.

    Args:
        caption: One sentence.
        corner: Heading of the column of row headings.
        columns: Headings of the other columns.
        rows: The rows.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[Row]


def of_outcome_charts(group: vl.ChartGroup) -> list[LinkedTable]:
    """The numbers of charts of outcomes as tables, one per chart.

    Args:
        group: Charts from `farther.report.charts.outcomes.bars`.
    """
    tables = []
    for chart in group.charts:
        parts_by_bar: dict[str, list[dict[str, object]]] = {}
        for part in chart.spec["data"]["values"]:
            # A run may have a bar for each of two methods.
            names = [part[field] for field in ("name", "method") if field in part]
            parts_by_bar.setdefault(", ".join(names), []).append(part)
        columns: dict[str, None] = {}
        for parts in parts_by_bar.values():
            columns.update(dict.fromkeys(str(part["part"]) for part in parts))
        rows = [_outcome_row(name, parts, list(columns)) for name, parts in parts_by_bar.items()]
        caption = f"{chart.title}: number of unknown objects."
        tables.append(LinkedTable(caption, "Of", ["objects", *columns], rows))
    return tables


def _outcome_row(name: str, parts: Sequence[dict[str, object]], columns: Sequence[str]) -> Row:
    """The row of a bar."""
    cells_by_part = {}
    objects = 0
    for part in parts:
        objects = int(str(part["objects"]))
        count = round(float(str(part["share"])) * objects)
        href = str(part.get("href") or "")
        cells_by_part[str(part["part"])] = Cell(f"{count:,}", href if count else "")
    cells = [Cell(f"{objects:,}")]
    for column in columns:
        cells.append(cells_by_part.get(column, Cell("0")))
    return Row(name, cells)

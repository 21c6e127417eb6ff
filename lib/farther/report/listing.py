"""Plain tables, and values as the report prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

#: Headings of the numbers that values of a row come from.
COUNTS = ("Objects", "Detections", "Images")

#: Printed where there is no value.
ABSENT = "—"

#: Decimals of numbers per image.
RATE_DECIMALS = 3


def percent(value: float | None, interval: Sequence[float] | None = None) -> str:
    """A fraction in per cent with one decimal, without the sign, and its interval if it has one.

    >>> percent(0.4567), percent(0.4567, [0.25, 0.5]), percent(None)
    ('45.7', '45.7 [25.0, 50.0]', '—')
    """
    text = ABSENT
    if value is not None:
        text = f"{100 * value:.1f}"
    if interval is None:
        return text
    return f"{text} {interval_text(interval)}"


def rate(value: float | None) -> str:
    """A number per image.

    >>> rate(0.0496), rate(None)
    ('0.050', '—')
    """
    if value is None:
        return ABSENT
    return f"{value:.{RATE_DECIMALS}f}"


def interval_text(interval: Sequence[float] | None) -> str:
    """An interval in per cent, "" where there is none.

    >>> interval_text([0.25, 0.5])
    '[25.0, 50.0]'
    """
    if interval is None:
        return ""
    low, high = interval
    return f"[{percent(low)}, {percent(high)}]"


def percent_range(values: Iterable[float]) -> str:
    """The smallest and the largest of some fractions in per cent, without decimals.

    >>> percent_range([0.25, 0.5, 0.4]), percent_range([0.25])
    ('25% to 50%', '25%')
    """
    texts = [f"{100 * value:.0f}%" for value in sorted(values)]
    if texts[0] == texts[-1]:
        return texts[0]
    return f"{texts[0]} to {texts[-1]}"


def with_and(texts: Sequence[str]) -> str:
    """Texts joined by commas and a last "and".

    >>> with_and(["a", "b", "c"]), with_and(["a"]), with_and([])
    ('a, b and c', 'a', '')
    """
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


@dataclass(frozen=True)
class Listing:
    """A plain table; numbers are flush right.

    Args:
        caption: One sentence.
        frame: The rows. Fractions below a heading that ends in "(%)" are printed in per cent.
        numbers: Text columns that are flush right too.
        few: Rows with a number below `COUNTS` that is smaller are grey.
        links: Of each row, heading → address of the images behind the cell; () for none.
    """

    caption: str
    frame: pl.DataFrame
    numbers: Sequence[str] = ()
    few: int = 0
    links: Sequence[Mapping[str, str]] = ()

    @classmethod
    def from_rows(
        cls,
        caption: str,
        rows: Iterable[Mapping[str, Any]],
        numbers: Sequence[str] = (),
        few: int = 0,
    ) -> Listing:
        """A listing of rows that map headings to texts and numbers.

        A row may lack headings that others have.
        """
        return cls(caption, pl.DataFrame(list(rows), infer_schema_length=None), numbers, few)

    def __len__(self) -> int:
        return len(self.frame)

    def without_same(self, *headings: str) -> Listing:
        """The listing without those columns that have one text in all rows.

        The caption names them instead.

        >>> rows = [{"Detector": "A", "Method": "kNN"}, {"Detector": "A", "Method": "ViM"}]
        >>> listing = Listing.from_rows("Means.", rows).without_same("Detector", "Method")
        >>> listing.caption, listing.frame.columns
        ('Means. Detector: A.', ['Method'])
        """
        caption = self.caption
        frame = self.frame
        for heading in headings:
            if heading in frame.columns and frame[heading].n_unique() == 1:
                caption += f" {heading}: {frame[heading][0]}."
                frame = frame.drop(heading)
        return replace(self, caption=caption, frame=frame)

    @property
    def heads(self) -> list[tuple[str, bool]]:
        """Heading of each column, and whether it is flush right."""
        heads = []
        for name, dtype in self.frame.schema.items():
            is_right = dtype.is_numeric() or dtype == pl.Null or name in self.numbers
            heads.append((name, is_right))
        return heads

    def links_of_row(self, number: int) -> list[str]:
        """The address behind each cell of a row, "" for none.

        Args:
            number: The row, from 0.
        """
        links = self.links[number] if self.links else {}
        return [links.get(name, "") for name in self.frame.columns]

    @property
    def reasons(self) -> list[str]:
        """Why each row is grey, "" where it is not."""
        columns = self._count_columns()
        if not columns:
            return [""] * len(self)
        reasons = []
        for row in self.frame.select(columns).to_dicts():
            small_counts = [
                f"{count} {name.lower()}"
                for name, count in row.items()
                if count is not None and count < self.few
            ]
            if small_counts:
                counts = " and ".join(small_counts)
                reasons.append(f"from {counts}: fewer than report.few = {self.few}")
            else:
                reasons.append("")
        return reasons

    def _count_columns(self) -> list[str]:
        """Columns of `COUNTS` that can make a row grey."""
        if not self.few:
            return []
        schema = self.frame.schema
        return [name for name in COUNTS if name in schema and schema[name].is_integer()]

    @property
    def rows(self) -> Iterator[list[tuple[str, bool]]]:
        """The printed rows: the text of each cell, and whether it is flush right."""
        heads = self.heads
        for row in self.frame.iter_rows():
            cells = []
            for (name, is_right), value in zip(heads, row, strict=True):
                cells.append((_text(name, value), is_right))
            yield cells


def _text(heading: str, value: Any) -> str:
    """A value as it is printed below a heading."""
    if value is None:
        return ABSENT
    if isinstance(value, float):
        if heading.endswith("(%)"):
            return percent(value)
        return f"{value:.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)

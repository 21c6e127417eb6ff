"""Plain tables, and values as the report prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

#: Headings of the numbers that values of a row come from.
COUNTS = ("Objects", "Detections", "Images")

#: Printed where there is no value.
ABSENT = "—"


def percent(value: float | None, interval: Sequence[float] | None = None) -> str:
    """A fraction in per cent with one decimal, without the sign, and its interval where it has one.

    >>> percent(0.4567), percent(0.4567, [0.25, 0.5]), percent(None)
    ('45.7', '45.7 (25.0 to 50.0)', '—')
    """
    text = ABSENT if value is None else f"{100 * value:.1f}"
    return text if interval is None else f"{text} ({between(interval)})"


def between(interval: Sequence[float] | None) -> str:
    """Both ends of an interval in per cent, "" where there is none.

    >>> between([0.25, 0.5])
    '25.0 to 50.0'
    """
    return "" if interval is None else f"{percent(interval[0])} to {percent(interval[1])}"


@dataclass(frozen=True)
class Listing:
    """A plain table; numbers are flush right.

    Args:
        caption: One sentence.
        frame: The rows. Fractions below a heading that ends in "(%)" are printed in per cent.
        numbers: Text columns that are flush right too.
        few: Rows with a number below `COUNTS` that is smaller are grey.
    """

    caption: str
    frame: pl.DataFrame
    numbers: Sequence[str] = ()
    few: int = 0

    @classmethod
    def of(
        cls,
        caption: str,
        rows: Iterable[Mapping[str, Any]],
        numbers: Sequence[str] = (),
        few: int = 0,
    ) -> Listing:
        """A listing of rows that map headings to texts and numbers; a row may lack headings that others have."""
        return cls(caption, pl.DataFrame(list(rows), infer_schema_length=None), numbers, few)

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def heads(self) -> list[tuple[str, bool]]:
        """Heading of each column, and whether it is flush right."""
        types = self.frame.schema.items()
        return [
            (name, type_.is_numeric() or type_ == pl.Null or name in self.numbers)
            for name, type_ in types
        ]

    @property
    def reasons(self) -> list[str]:
        """Why each row is grey, "" where it is not."""
        found = []
        columns = [
            name
            for name in COUNTS
            if self.few and self.frame.schema.get(name, pl.String).is_integer()
        ]
        for row in self.frame.select(columns).to_dicts():
            few = [
                f"{count} {name.lower()}"
                for name, count in row.items()
                if count is not None and count < self.few
            ]
            found.append(
                f"from {' and '.join(few)}: fewer than report.few = {self.few}" if few else ""
            )
        return found or [""] * len(self)

    @property
    def rows(self) -> Iterator[list[tuple[str, bool]]]:
        """The printed rows: the text of each cell, and whether it is flush right."""
        heads = self.heads
        for row in self.frame.iter_rows():
            yield [
                (_text(name, value), right) for (name, right), value in zip(heads, row, strict=True)
            ]


def _text(heading: str, value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return percent(value) if heading.endswith("(%)") else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)

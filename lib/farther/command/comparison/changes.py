"""How two sets of figures differ, row by row."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from farther.command.comparison.sides import Figures, Place
from farther.command.definitions import DEFINITIONS

#: p below which a change is taken for more than chance.
LEVEL = 0.05

Sort = Literal["name", "change", "p"]


@dataclass(frozen=True)
class Change:
    """One figure on both sides.

    Args:
        place: Whose figure it is.
        metric: Its name.
        before, after: Its values; None where a side has none.
        interval: 95% interval of after − before on the same draws of images, where that was tested.
        p: How often chance alone gives so clear a change, where that was tested.
        apart: Whether the sides' own intervals have nothing in common, where only these are at hand.
    """

    place: Place
    metric: str
    before: float | None
    after: float | None
    interval: tuple[float, float] | None = None
    p: float | None = None
    apart: bool | None = None

    @property
    def change(self) -> float | None:
        """after − before."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def verdict(self) -> str:
        """better, worse or different, if by more than chance; "apart" for intervals without a test; else ""."""
        if self.p is None:
            return "apart" if self.apart else ""
        if self.p >= LEVEL or not self.change:
            return ""
        better = DEFINITIONS[self.metric].better if self.metric in DEFINITIONS else ""
        if not better:
            return "different"
        return "better" if (self.change > 0) == (better == "more") else "worse"


def changes(before: Figures, after: Figures) -> list[Change]:
    """Each figure that either side has, in the order of the names."""
    rows = []
    for place in sorted(set(before) | set(after)):
        ours, theirs = before.get(place, {}), after.get(place, {})
        rows += [Change(place, name, ours.get(name), theirs.get(name)) for name in dict.fromkeys([*ours, *theirs])]
    return rows


def chosen(
    rows: Iterable[Change],
    runs: Collection[str] = (),
    splits: Collection[str] = (),
    methods: Collection[str] = (),
    metrics: Collection[str] = (),
) -> list[Change]:
    """The rows of these runs, splits, methods and metrics; an empty collection takes all."""
    wanted = [(runs, lambda row: row.place.run), (splits, lambda row: row.place.split)]
    wanted += [(methods, lambda row: row.place.method), (metrics, lambda row: row.metric)]
    return [row for row in rows if all(not names or of(row) in names for names, of in wanted)]


def ordered(rows: Iterable[Change], by: Sort) -> list[Change]:
    """The rows by name, or the largest change first, or the smallest p first."""
    if by == "change":
        return sorted(rows, key=lambda row: -abs(row.change or 0.0))
    if by == "p":
        return sorted(rows, key=lambda row: (row.p is None, row.p or 0.0))
    return list(rows)

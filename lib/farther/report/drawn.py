"""Which runs are drawn: of many, charts and tables with several rows per run show some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farther.report.results import Run

#: Largest number of runs that are drawn, unless `report.drawn` names more.
DRAWN = 20


@dataclass(frozen=True)
class Drawn:
    """The runs that a page draws.

    Args:
        runs: The runs, in the order of params.yaml.
        total: Number of runs that it could draw.
    """

    runs: Sequence[Run]
    total: int

    @classmethod
    def of(
        cls,
        runs: Sequence[Run],
        names: Sequence[str] = (),
        seeds: Mapping[str, Sequence[str]] | None = None,
    ) -> Drawn:
        """The runs that are drawn of some.

        Args:
            runs: The runs that can be drawn.
            names: Those of `report.drawn`. Without any of the runs among them, the first `DRAWN`
                are drawn, as many of each benchmark.
            seeds: Name → runs that are one row, which are drawn together and count as one.
        """
        row_by_run = {run.name: run.name for run in runs}
        for row, names_of_row in (seeds or {}).items():
            for name in names_of_row:
                row_by_run[name] = row
        rows = {row_by_run[name] for name in names if name in row_by_run}
        named = [run for run in runs if row_by_run[run.name] in rows]
        if not named:
            rows = _first_rows(runs, row_by_run)
            named = [run for run in runs if row_by_run[run.name] in rows]
        return cls(named, len(runs))

    @property
    def note(self) -> str:
        """How many runs are drawn, in a sentence; "" where it is all of them."""
        if len(self.runs) == self.total:
            return ""
        return (
            f"Charts, and tables with several rows per detector, show {len(self.runs)} of "
            f"{self.total:,} runs: `report.drawn` in params.yaml names those that are shown."
        )


def _first_rows(runs: Sequence[Run], row_by_run: Mapping[str, str]) -> set[str]:
    """The first `DRAWN` rows, as many of each benchmark."""
    rows_by_benchmark: dict[str, dict[str, None]] = {}
    for run in runs:
        rows_by_benchmark.setdefault(run.benchmark, {})[row_by_run[run.name]] = None
    turn_by_row = {}
    for rows in rows_by_benchmark.values():
        for turn, row in enumerate(rows):
            turn_by_row[row] = turn
    in_turn = sorted(turn_by_row, key=turn_by_row.__getitem__)
    return set(in_turn[:DRAWN])

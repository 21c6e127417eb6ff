"""Tables with rows per run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from farther.report.listing import Listing
from farther.report.results import IMAGES, Run

#: Cells of a run's rows: heading → value.
Cells = Callable[[Run], Iterable[Mapping[str, Any]]]


def per_run(
    caption: str, runs: Iterable[Run], cells: Cells, numbers: Sequence[str] = ()
) -> Listing:
    """A table with the rows of each run, whose last column has the run's numbers of images.

    Args:
        caption: One sentence.
        runs: The runs.
        cells: Computes the rows of a run.
        numbers: Text columns that are flush right.
    """
    rows = []
    for run in runs:
        for row in cells(run):
            rows.append({"Detector": run.full_title, **row, IMAGES: run.image_counts()})
    return Listing.from_rows(caption, rows, [*numbers, IMAGES])

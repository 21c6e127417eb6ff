"""Tables with rows per run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from farther.report.listing import Listing
from farther.report.results import IMAGES, Run

#: Cells of a run's rows from a section of its evaluation: heading → value.
Cells = Callable[[Run, Any], Iterable[Mapping[str, Any]]]


def per_run(
    caption: str, sections: Iterable[tuple[Run, Any]], cells: Cells, numbers: Sequence[str] = ()
) -> Listing:
    """A table with the rows of each run, whose last column has the run's numbers of images.

    Args:
        caption: One sentence.
        sections: The runs, each with the section of its evaluation that the table is about.
        cells: Computes the rows of a run.
        numbers: Text columns that are flush right.
    """
    rows = []
    for run, section in sections:
        for row in cells(run, section):
            rows.append({"Detector": run.full_title, **row, IMAGES: run.image_counts()})
    return Listing.from_rows(caption, rows, [*numbers, IMAGES])

"""The papers with pages, and the contents of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farther.report.listing import Listing
from farther.report.papers import elephant, fmiyc, openood, realistic, saod
from farther.report.papers.table import Paper, PaperTable

PAPERS: tuple[Paper, ...] = (fmiyc.PAPER, saod.PAPER, elephant.PAPER, realistic.PAPER, openood.PAPER)


def contents_of(paper: Paper, found: Sequence[PaperTable]) -> dict[str, Any]:
    """Variables of the template `paper.html` for a paper and its tables."""
    shown = {f"table-{number}": table for number, table in enumerate((t for t in found if t.is_shown), start=1)}
    reasons = {t.number: t.note or "no run of this project has the values" for t in found if not t.is_shown}
    absent = [{"Table": number, "Reason": reason} for number, reason in {**reasons, **paper.absent}.items()]
    return {
        "paper": paper,
        "tables": shown,
        "contents": {anchor: table.number for anchor, table in shown.items()},
        "absent": Listing.of("Not on this page.", absent),
    }


def contents_of_list(found: Mapping[str, Sequence[PaperTable]]) -> dict[str, Any]:
    """Variables of the template `papers.html`, from the tables of each paper."""
    return {"papers": PAPERS, "tables": {name: [table for table in of if table.is_shown] for name, of in found.items()}}

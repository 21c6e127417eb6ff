"""The page of papers, and a page of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farther.report.all_results import AllResults
from farther.report.listing import Listing
from farther.report.papers import elephant, fmiyc, openood, realistic, saod
from farther.report.papers.table import Paper, PaperTable, Sources
from farther.report.site import Site

PAPERS: tuple[Paper, ...] = (
    fmiyc.PAPER,
    saod.PAPER,
    elephant.PAPER,
    realistic.PAPER,
    openood.PAPER,
)


def write(site: Site, results: AllResults) -> None:
    """Writes the pages."""
    settings = results.settings
    sources = Sources(
        results.evaluated, results.params, results.root, settings.published, settings.seeds
    )
    found = {paper.name: paper.tables(sources) for paper in PAPERS}
    shown = {name: [table for table in of if table.is_shown] for name, of in found.items()}
    site.write("papers.html", papers=PAPERS, tables=shown)
    siblings = {f"papers/{paper.name}.html": paper.title for paper in PAPERS}
    for paper in PAPERS:
        site.write(
            f"papers/{paper.name}.html", "paper.html", siblings, **content(paper, found[paper.name])
        )


def content(paper: Paper, found: Sequence[PaperTable]) -> dict[str, Any]:
    """Variables of the template `paper.html` for a paper and its tables."""
    shown = {
        f"table-{number}": table
        for number, table in enumerate((t for t in found if t.is_shown), start=1)
    }
    reasons = {
        t.number: t.note or "no run of this project has the values" for t in found if not t.is_shown
    }
    absent = [
        {"Table": number, "Reason": reason}
        for number, reason in {**reasons, **paper.absent}.items()
    ]
    return {
        "paper": paper,
        "tables": shown,
        "contents": {anchor: table.number for anchor, table in shown.items()},
        "absent": Listing.of("Not on this page.", absent),
    }

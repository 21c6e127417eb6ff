"""The page of papers, and a page of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farther.report.all_results import AllResults
from farther.report.listing import Listing
from farther.report.navigation import Link
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


def shown(results: AllResults) -> list[Paper]:
    """The papers that section `report` names."""
    return [paper for paper in PAPERS if paper.name in results.settings.papers]


def applies(results: AllResults) -> bool:
    """Whether the report shows the tables of a paper."""
    return bool(results.settings.papers)


def links(results: AllResults) -> list[Link]:
    """The page of each paper."""
    answers = "How do these results look in the tables of this paper?"
    return [Link(f"papers/{paper.name}.html", paper.title, answers) for paper in shown(results)]


def write(site: Site, results: AllResults) -> None:
    """Writes the pages."""
    settings = results.settings
    sources = Sources(
        results.evaluated, results.params, results.root, settings.published, settings.seeds
    )
    papers = shown(results)
    tables_by_paper = {paper.name: paper.tables(sources) for paper in papers}
    shown_by_paper = {name: _shown(tables) for name, tables in tables_by_paper.items()}
    site.write("papers.html", papers=papers, tables=shown_by_paper)
    for paper in papers:
        variables = content(paper, tables_by_paper[paper.name])
        site.write(f"papers/{paper.name}.html", "paper.html", **variables)


def _shown(tables: Sequence[PaperTable]) -> list[PaperTable]:
    """Tables that have values."""
    return [table for table in tables if table.is_shown]


def content(paper: Paper, tables: Sequence[PaperTable]) -> dict[str, Any]:
    """Variables of the template `paper.html` for a paper and its tables."""
    by_anchor = {f"table-{number}": table for number, table in enumerate(_shown(tables), start=1)}
    return {
        "paper": paper,
        "tables": by_anchor,
        "contents": {anchor: table.number for anchor, table in by_anchor.items()},
        "absent": _absent_table(paper, tables),
    }


def _absent_table(paper: Paper, tables: Sequence[PaperTable]) -> Listing:
    """Tables of a paper that the page does not have, with the reason."""
    reasons = {}
    for table in tables:
        if not table.is_shown:
            reasons[table.number] = table.note or "no run of this project has the values"
    reasons.update(paper.absent)
    rows = [{"Table": number, "Reason": reason} for number, reason in reasons.items()]
    return Listing.from_rows("Not on this page.", rows)

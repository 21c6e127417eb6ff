"""The page of papers, and a page of each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farther.errors import ParameterError, known_names
from farther.report.all_results import AllResults
from farther.report.listing import Listing
from farther.report.navigation import Link
from farther.report.papers.frames import Sources
from farther.report.papers.layout import PAPERS, PaperLayout, read_paper
from farther.report.papers.printed import published_detectors
from farther.report.papers.render import LongTables, PaperTable, render, to_csv, to_latex
from farther.report.site import Site


def shown(results: AllResults) -> dict[str, PaperLayout]:
    """The papers that section `report` names, by their names."""
    return {name: read_paper(name) for name in PAPERS if name in results.settings.papers}


def applies(results: AllResults) -> bool:
    """Whether the report shows the tables of a paper."""
    return bool(results.settings.papers)


def links(results: AllResults) -> list[Link]:
    """The page of each paper."""
    answers = "How do these results look in the tables of this paper?"
    pages = []
    for name, paper in shown(results).items():
        pages.append(Link(f"papers/{name}.html", paper.title, answers))
    return pages


def write(site: Site, results: AllResults) -> None:
    """Writes the pages, and the CSV and LaTeX files of their tables.

    Raises:
        ParameterError: a run is compared with a detector that no paper prints values of.
    """
    settings = results.settings
    sources = Sources(
        results.drawn.runs, results.params, results.root, settings.published, settings.seeds
    )
    check_counterparts(sources)
    papers = shown(results)
    long_tables = LongTables(sources)
    tables_by_paper: dict[str, list[PaperTable]] = {}
    for name, paper in papers.items():
        tables_by_paper[name] = [render(table, long_tables) for table in paper.tables]

    site.write("papers.html", papers=papers, tables=_shown_tables(tables_by_paper))
    for name, paper in papers.items():
        tables = tables_by_paper[name]
        variables = content(name, paper, tables)
        variables["not_drawn"] = results.drawn.note
        site.write(f"papers/{name}.html", "paper.html", **variables)
        for table in tables:
            for listing in table.listings:
                file = f"papers/{name}/{listing.stem}"
                site.write_text(f"{file}.csv", to_csv(listing.listing))
                label = f"{name}-{listing.stem}"
                site.write_text(f"{file}.tex", to_latex(listing.listing, label))


def _shown_tables(
    tables_by_paper: Mapping[str, Sequence[PaperTable]],
) -> dict[str, list[PaperTable]]:
    """Paper → its tables that have values."""
    shown_by_paper = {}
    for name, tables in tables_by_paper.items():
        shown_by_paper[name] = [table for table in tables if table.is_shown]
    return shown_by_paper


def content(name: str, paper: PaperLayout, tables: Sequence[PaperTable]) -> dict[str, Any]:
    """Variables of the template `paper.html`.

    Args:
        name: The name of the paper.
        paper: Its layout.
        tables: Its tables.
    """
    shown_tables = [table for table in tables if table.is_shown]
    by_anchor = {table.layout.stem: table for table in shown_tables}
    return {
        "folder": name,
        "paper": paper,
        "tables": by_anchor,
        "contents": {anchor: table.layout.number for anchor, table in by_anchor.items()},
        "absent": _absent_table(paper, tables),
    }


def _absent_table(paper: PaperLayout, tables: Sequence[PaperTable]) -> Listing:
    """Tables of a paper that the page does not have, with the reason."""
    reasons = {}
    for table in tables:
        if not table.is_shown:
            reason = table.layout.note or "no run of this project has the values"
            reasons[table.layout.number] = reason
    reasons.update(paper.absent)
    rows = [{"Table": number, "Reason": reason} for number, reason in reasons.items()]
    return Listing.from_rows("Not on this page.", rows)


def check_counterparts(sources: Sources) -> None:
    """Checks that a published table has the counterpart of each run.

    Raises:
        ParameterError: none has it.
    """
    if not sources.published:
        return
    papers = [read_paper(name) for name in PAPERS]
    detectors = published_detectors(sources.root, papers)
    for name, counterpart in sources.published.items():
        if (counterpart.detector, counterpart.id) not in detectors:
            known = known_names(sorted("/".join(names) for names in detectors))
            raise ParameterError(
                f"report.published.{name}: no published table has "
                f"{counterpart.detector}/{counterpart.id}. {known}"
            )

"""The page of papers, and a page of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farther.errors import ParameterError
from farther.report import seeds
from farther.report.all_results import AllResults
from farther.report.listing import Listing
from farther.report.navigation import Link
from farther.report.papers import elephant, fmiyc, openood, realistic, saod
from farther.report.papers.openood import divided_benchmarks
from farther.report.papers.published import Published
from farther.report.papers.table import PRINTED, Paper, PaperTable, Sources
from farther.report.results import Run
from farther.report.settings import Counterpart
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
    site.write(
        "papers.html",
        papers=papers,
        tables=shown_by_paper,
        printed=beside_printed(results),
    )
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


def beside_printed(results: AllResults) -> dict[str, list[Any]]:
    """Title of each run that repeats a published one → the tables that have values of both.

    Raises:
        ParameterError: a counterpart is in no published table.
    """
    published = Published.read(results.root / PRINTED)
    runs_by_seeds = _runs_by_seeds(results)
    tables_by_run = {}
    for run in [*results.evaluated, *_mean_runs(results, runs_by_seeds)]:
        counterpart = results.settings.published.get(run.name)
        if counterpart is None:
            continue
        _check_counterpart(run.name, counterpart, published)
        if not counterpart.comparable:
            continue
        runs_of_seeds = runs_by_seeds.get(run.name, ())
        tables = published.beside(run, counterpart, runs_of_seeds)
        tables_with_rows = [table for table in tables if len(table)]
        if tables_with_rows:
            tables_by_run[run.full_title] = tables_with_rows
    return tables_by_run


def _runs_by_seeds(results: AllResults) -> dict[str, list[Run]]:
    """Name of `seeds` → its runs that are evaluated."""
    runs_by_seeds = {}
    for title, names in results.settings.seeds.items():
        runs_by_seeds[title] = [run for run in results.evaluated if run.name in names]
    return runs_by_seeds


def _mean_runs(results: AllResults, runs_by_seeds: dict[str, list[Run]]) -> list[Run]:
    """One run per name of `seeds`, with means over its runs."""
    runs = [run for runs_of_seeds in runs_by_seeds.values() for run in runs_of_seeds]
    divisions = divided_benchmarks(results.params["benchmarks"])
    return seeds.merge_seeds(runs, results.settings.seeds, divisions)


def _check_counterpart(run: str, counterpart: Counterpart, published: Published) -> None:
    """Checks that a published table has the counterpart of a run.

    Raises:
        ParameterError: none has it.
    """
    if (counterpart.detector, counterpart.id) not in published.detectors:
        known = ", ".join(sorted("/".join(names) for names in published.detectors))
        raise ParameterError(
            f"report.published.{run}: no published table has "
            f"{counterpart.detector}/{counterpart.id}. Known: {known}"
        )

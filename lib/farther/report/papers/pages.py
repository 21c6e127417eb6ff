"""The papers with pages, and the contents of these."""

from __future__ import annotations

from typing import Any

from farther.report.listing import Listing
from farther.report.papers import elephant, fmiyc, openood, realistic, saod
from farther.report.papers.table import Paper, PaperTable, Sources

PAPERS = (
    Paper(
        "fmiyc",
        "FindMeIfYouCan",
        "Montoya et al., 2025: FindMeIfYouCan: Bringing Open Set metrics to near, far and farther Out-of-Distribution "
        "Object Detection. arXiv:2506.14008",
        fmiyc.tables,
        fmiyc.ABSENT,
    ),
    Paper(
        "saod",
        "Self-aware object detectors",
        "Oksuz, Joy and Dokania, 2023: Towards Building Self-Aware Object Detectors via Reliable Uncertainty "
        "Quantification and Calibration. arXiv:2307.00934",
        saod.tables,
        saod.ABSENT,
    ),
    Paper(
        "elephant",
        "The Overlooked Elephant",
        "Dhamija et al., 2020: The Overlooked Elephant of Object Detection: Open Set. "
        "https://doi.org/10.1109/WACV45572.2020.9093355",
        elephant.tables,
        elephant.ABSENT,
    ),
    Paper(
        "realistic",
        "Class similarity",
        "Recalcati et al., 2023: Toward a Realistic Benchmark for Out-of-Distribution Detection. arXiv:2404.10474",
        realistic.tables,
        realistic.ABSENT,
    ),
    Paper(
        "openood",
        "OpenOOD",
        "Yang et al., 2022: OpenOOD: Benchmarking Generalized Out-of-Distribution Detection. arXiv:2210.07242",
        openood.tables,
        openood.ABSENT,
    ),
)


def contents_of(paper: Paper, sources: Sources) -> dict[str, Any]:
    """Variables of the template `paper.html`."""
    found = paper.tables(sources)
    shown = [table for table in found if table.listings]
    reasons = {
        table.number: table.note or "no run of this project has the values" for table in found if not table.listings
    }
    absent = [{"Table": number, "Reason": reason} for number, reason in {**reasons, **paper.absent}.items()]
    return {
        "paper": paper,
        "tables": {f"table-{number}": table for number, table in enumerate(shown, start=1)},
        "contents": {f"table-{number}": table.number for number, table in enumerate(shown, start=1)},
        "absent": Listing.of("Not on this page.", absent),
    }


def contents_of_list(sources: Sources) -> dict[str, Any]:
    """Variables of the template `papers.html`."""
    found: dict[str, list[PaperTable]] = {paper.name: paper.tables(sources) for paper in PAPERS}
    tables = {name: [table for table in of if table.listings] for name, of in found.items()}
    return {"papers": PAPERS, "tables": tables}

"""The report: pages to look at, tables to paste into a paper, and the main tables in a terminal.

`build(params, root)` writes `artifacts/report/index.html` and the tables beside it;
`summary(params, root)` returns the main tables as text, `overview(params, root)` one of means, and
`summary_data` and `overview_data` the same for programs; `headline(params, root)` returns what the
results show in sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farther.report.distances import headline
from farther.report.overview import overview, overview_data
from farther.report.results import read_evaluated_runs
from farther.report.tables import summary, summary_data

__all__ = [
    "build",
    "headline",
    "overview",
    "overview_data",
    "read_evaluated_runs",
    "summary",
    "summary_data",
]


def build(
    params: Mapping[str, Any],
    root: str | Path = ".",
    code: str | None = None,
    jobs: int = 1,
) -> Path:
    """Writes the report; see `farther.report.write.build`.

    Args:
        params: params.yaml, parsed.
        root: The project's folder.
        code, jobs: See there.
    """
    # It imports templates and all pages, which the command does not need.
    from farther.report import write

    return write.build(params, root, code, jobs)

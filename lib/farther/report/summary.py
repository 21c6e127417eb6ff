"""The main tables in a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farther.report.results import Run, read_runs
from farther.report.tables import percent, run_tables, to_text


def summary(params: Mapping[str, Any], root: str | Path = ".") -> str:
    """The tables of all runs as text, as wide as the terminal.

    Args:
        params: All of params.yaml.
        root: The project's folder, which holds `artifacts`.

    Raises:
        ParameterError: a parameter is unknown or wrong.
        DataError: a metrics file is damaged.
    """
    width = shutil.get_terminal_size((100, 24)).columns
    parts = [_of_run(run, width) for run in read_runs(params, Path(root) / "artifacts")]
    return "\n\n".join([*parts, "In per cent; * marks the best of a column."])


def _of_run(run: Run, width: int) -> str:
    if not run.is_evaluated and not run.has_no_method:
        return f"{run.name}: not evaluated yet"
    quality = f"{run.name}   mAP50 {percent(run.detector.get('map50'))}%   t* {run.detector.get('threshold', 0):.3f}"
    tables = [to_text(table, width) for table in run_tables(run)] if run.methods else []
    left_out = [textwrap.fill(run.left_out, width)] if run.left_out else []
    return "\n\n".join([quality, *tables, *left_out])
